"""Serve ``__consumer_offsets`` to batch reads: its records are derived from the commits when a read is planned.

They are few and small, so they are sent to the tasks with the plan, and no task reads a commit.

Rules: one object for one plan; not thread-safe. A user's topic of that name is hidden by the derived one, as in
``Consumer``. Not for: the content of the records (``coordinator.offsets_topic``).
"""

from __future__ import annotations

import pyarrow as pa

from sparklog.coordinator import Coordinator
from sparklog.coordinator.offsets_topic import PARTITIONS, RECORDS_PER_COMMIT, OffsetChange, changes, record_batch, runs
from sparklog.errors import ObjectNotFoundError
from sparklog.format.schema import HEADERS, record_schema
from sparklog.log.layout import read_boundary
from sparklog.log.records.records import Records
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.state import State
from sparklog.types import CREATE_TIME, OffsetRange


def partitions_of(state: State, topic: str) -> int:
    """Return the number of partitions of a topic. Raises UnknownTopicOrPartitionError."""
    return PARTITIONS if topic == CONSUMER_OFFSETS_TOPIC else len(state.topic(topic).partitions)


class ConsumerOffsets:
    """The topic as of one state of the cluster. Commits are read when first needed."""

    def __init__(self, coordinator: Coordinator, state: State) -> None:
        self._coordinator = coordinator
        self._end = state.version + 1
        self._first = read_boundary(coordinator.store) + 1
        self._changes: dict[int, list[tuple[int, int, list[OffsetChange]]]] | None = None

    @property
    def start_offset(self) -> int:
        return self._first * RECORDS_PER_COMMIT

    @property
    def end_offset(self) -> int:
        return self._end * RECORDS_PER_COMMIT

    def offset_at(self, partition: int, timestamp_ms: int) -> int | None:
        """Return the first offset with this time or a later one; None if there is none."""
        for version, time, partition_changes in self._commits().get(partition, ()):
            if time >= timestamp_ms:
                return version * RECORDS_PER_COMMIT + partition_changes[0].number
        return None

    def records(self, span: OffsetRange) -> tuple[Records, ...]:
        """Return the records of a range, with all stored columns."""
        records = []
        for version, time, partition_changes in self._commits().get(span.partition, ()):
            base = version * RECORDS_PER_COMMIT
            for run in runs([change for change in partition_changes if span.start <= base + change.number < span.end]):
                records.append(Records(base + run[0].number, _with_headers(record_batch(run, time)), CREATE_TIME))
        return tuple(records)

    def _commits(self) -> dict[int, list[tuple[int, int, list[OffsetChange]]]]:
        """Return version, time and records of the commits that have any, by partition."""
        while self._changes is None:
            try:
                self._changes = self._read()
            except ObjectNotFoundError:
                first, self._first = self._first, read_boundary(self._coordinator.store) + 1
                if self._first <= first:  # the boundary has not moved, so the commit is missing for another reason
                    raise
        return self._changes

    def _read(self) -> dict[int, list[tuple[int, int, list[OffsetChange]]]]:
        by_partition: dict[int, list[tuple[int, int, list[OffsetChange]]]] = {}
        for commit in self._coordinator.log.commits(self._first, self._end - 1):
            commit_changes = changes(commit)
            for partition in sorted({change.partition for change in commit_changes}):
                own = [change for change in commit_changes if change.partition == partition]
                by_partition.setdefault(partition, []).append((commit.version, commit.timestamp, own))
        return by_partition


def _with_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(HEADERS, pa.nulls(batch.num_rows, record_schema().field(HEADERS).type))
