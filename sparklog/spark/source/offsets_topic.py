"""``__consumer_offsets`` for batch reads: its records are made of the commits when a read is planned.

They are few and small, so they travel to the tasks with the plan, and no task reads a commit.

Rules: one object for one plan; not thread-safe. A topic of that name that somebody created is read as what it is not:
the derived one comes first, as in ``Consumer``. Not for: what the records are (``coordinator.offsets_topic``).
"""

from __future__ import annotations

import pyarrow as pa

from sparklog.coordinator import Coordinator
from sparklog.coordinator.offsets_topic import PARTITIONS, RECORDS_PER_COMMIT, Change, changes, record_batch, runs
from sparklog.errors import ObjectNotFoundError
from sparklog.format.schema import HEADERS, record_schema
from sparklog.log.layout import read_boundary
from sparklog.log.records.records import Records
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.state import State
from sparklog.types import CREATE_TIME, OffsetRange


def partitions_of(state: State, topic: str) -> int:
    """How many partitions a topic has. Raises UnknownTopicOrPartitionError."""
    return PARTITIONS if topic == CONSUMER_OFFSETS_TOPIC else len(state.topic(topic).partitions)


class ConsumerOffsets:
    """The topic as of one state of the cluster. Commits are read when they are first needed."""

    def __init__(self, coordinator: Coordinator, state: State) -> None:
        self._coordinator = coordinator
        self._end = state.version + 1
        self._first = read_boundary(coordinator.store) + 1
        self._found: dict[int, list[tuple[int, int, list[Change]]]] | None = None

    @property
    def start_offset(self) -> int:
        return self._first * RECORDS_PER_COMMIT

    @property
    def end_offset(self) -> int:
        return self._end * RECORDS_PER_COMMIT

    def offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        """The first offset with this time or a later one."""
        for version, time, found in self._commits().get(partition, ()):
            if time >= timestamp_ms:
                return version * RECORDS_PER_COMMIT + found[0].number
        return None

    def records(self, one: OffsetRange) -> tuple[Records, ...]:
        """The records of a range, with all stored columns."""
        made = []
        for version, time, found in self._commits().get(one.partition, ()):
            base = version * RECORDS_PER_COMMIT
            for run in runs([change for change in found if one.start <= base + change.number < one.end]):
                made.append(Records(base + run[0].number, _with_headers(record_batch(run, time)), CREATE_TIME))
        return tuple(made)

    def _commits(self) -> dict[int, list[tuple[int, int, list[Change]]]]:
        """Version, time and records of the commits that have some, by partition."""
        while self._found is None:
            try:
                self._found = self._read()
            except ObjectNotFoundError:
                first, self._first = self._first, read_boundary(self._coordinator.store) + 1
                if self._first <= first:  # it was not removed behind the boundary meanwhile
                    raise
        return self._found

    def _read(self) -> dict[int, list[tuple[int, int, list[Change]]]]:
        found: dict[int, list[tuple[int, int, list[Change]]]] = {}
        for commit in self._coordinator.log.commits(self._first, self._end - 1):
            made = changes(commit)
            for partition in sorted({change.partition for change in made}):
                own = [change for change in made if change.partition == partition]
                found.setdefault(partition, []).append((commit.version, commit.timestamp, own))
        return found


def _with_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(HEADERS, pa.nulls(batch.num_rows, record_schema().field(HEADERS).type))
