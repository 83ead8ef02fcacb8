"""Makes the system tables of a cluster: from its newest state, and from the commits that are kept.

    tables = SystemTables(coordinator)
    tables.read("lag", Selection(group="billing", since_ms=now_ms - 3_600_000, until_ms=now_ms))

Rules: it only reads the log: the state, commits, lists of segments and of retired files; never records.
Not for: the rows (``commit_rows``, ``state_rows``, ``lag``), and arguments of users (``client.system``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.coordinator import Coordinator
from sparklog.log.commits.cleanup import newest_version_before
from sparklog.log.commits.retired_files import RemovedFile, read_removed
from sparklog.monitoring import state_rows
from sparklog.monitoring.commit_history import CHUNK_COMMITS, CommitHistory
from sparklog.monitoring.commit_rows import to_table
from sparklog.monitoring.lag import LagHistory
from sparklog.monitoring.schemas import COMMIT_TABLES, TABLES
from sparklog.protocol.state import State

MINUTE_MS = 60_000


class Selection(NamedTuple):
    """Which rows of a system table are wanted: of this topic, partition and group, and of commits of these times.

    Times are ms since the epoch: ``since_ms`` belongs to them, ``until_ms`` does not. None stands for all. The lag is
    stated at the end of each step of ``step_ms`` of them, or, if ``since_ms`` is None, at ``until_ms`` or now.
    ``first_version`` leaves out the commits before it, of all tables but ``lag``.
    """

    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    step_ms: int = MINUTE_MS
    first_version: int = 0


class SystemTables:
    """The system tables of a cluster. Thread-safe; keeps the commits that it has read as columns."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._commits = CommitHistory(coordinator)

    def read(self, name: str, selection: Selection, state: State | None = None) -> pa.Table:
        """Return the rows of a system table, one of ``TABLES``, that a selection wants: in the newest state, or this one.

        Raises StorageError, CorruptMetadataError.
        """
        if state is None:
            state = self._coordinator.refresh()
        if name == "lag":
            return self._lag(state, selection)
        if name == "throughput":
            return _throughput(self._of_commits("appends", state, selection))
        if name in COMMIT_TABLES:
            return self._of_commits(name, state, selection)
        return _select(to_table(name, list(self._rows(name, state, selection))), selection)

    def _rows(self, name: str, state: State, selection: Selection) -> Iterable[state_rows.Row]:
        if name == "segments":
            return self._segments(state, selection.topic)
        if name == "storage":
            return state_rows.storage(state, self._retired(state))
        return _OF_STATE[name](state)

    def _segments(self, state: State, topic: str | None) -> Iterator[state_rows.Row]:
        for each in [state.topic(topic)] if topic is not None else state.topics_in_order():
            live = self._coordinator.segments(each.name, state)
            for number in range(len(each.partitions)):
                yield from state_rows.segments(each.name, live.partition(number))

    def _retired(self, state: State) -> Iterator[RemovedFile]:
        for listing in state.removed_files:
            yield from read_removed(self._coordinator.store, listing)

    def _of_commits(self, name: str, state: State, selection: Selection) -> pa.Table:
        return _select(self._commits.table(name, state, self._first(state, selection)), selection)

    def _first(self, state: State, selection: Selection) -> int:
        """Return a version before which no commit is of the times of a selection."""
        if selection.since_ms is None:
            return selection.first_version
        known = newest_version_before(self._coordinator.store, state.version, selection.since_ms)
        return max(known, selection.first_version)

    def _lag(self, state: State, selection: Selection) -> pa.Table:
        steps = _steps(selection, self._coordinator.log.clock.now_ms())
        first = newest_version_before(self._coordinator.store, state.version, steps[0] + 1)
        history = self._lag_history(state, first, selection)
        commits = self._commits.table("commits", state, first)
        versions = commits.column("version").to_pylist()
        times = commits.column("timestamp").cast(pa.int64()).to_pylist()
        rows: list[state_rows.Row] = []
        for time_ms in steps:
            number = bisect_right(times, time_ms) - 1
            if number >= 0:
                rows += history.rows_at(versions[number], time_ms, selection.group, selection.topic)
        return _select(to_table("lag", rows), selection._replace(since_ms=None, until_ms=None))

    def _lag_history(self, state: State, version: int, selection: Selection) -> LagHistory:
        """Return what is known of the lag from a version on, reading earlier commits as far as that needs them."""
        first, count = max(version, 0), CHUNK_COMMITS
        while True:
            tables = [self._commits.table(name, state, first) for name in ("appends", "offsets", "topic_changes")]
            history = LagHistory(state, *tables)
            if first <= self._commits.first_known() or history.is_certain(version, selection.group, selection.topic):
                return history
            first, count = max(first - count, 0), 4 * count


def _steps(selection: Selection, now_ms: int) -> list[int]:
    """Return the times at which the lag is stated, oldest first: the ends of the steps, and of the range."""
    until_ms = now_ms if selection.until_ms is None else selection.until_ms
    if selection.since_ms is None:
        return [until_ms]
    step = selection.step_ms
    first = -(-selection.since_ms // step) * step
    return [*range(first, until_ms, step), until_ms]


def _throughput(appends: pa.Table) -> pa.Table:
    """Return what appends add by minute, topic and partition."""
    times = appends.column("timestamp").cast(pa.int64())
    minutes = pc.multiply(pc.divide(times, MINUTE_MS), MINUTE_MS)
    table = appends.append_column("minute", minutes.cast(TABLES["throughput"].schema.field("minute").type))
    keys = ["minute", "topic", "partition"]
    sums = table.group_by(keys).aggregate([("records", "sum"), ("bytes", "sum"), ("version", "count")])
    schema = TABLES["throughput"].schema
    sums = sums.select([*keys, "records_sum", "bytes_sum", "version_count"]).rename_columns(schema.names)
    return sums.cast(schema).sort_by([(name, "ascending") for name in keys])


def _select(table: pa.Table, selection: Selection) -> pa.Table:
    """Return the rows of a selection; what a table has no column for does not matter."""
    wanted = {"topic": selection.topic, "partition": selection.partition, "group": selection.group}
    conditions = [
        pc.equal(table.column(name), pa.scalar(value, table.schema.field(name).type))
        for name, value in wanted.items()
        if value is not None and name in table.column_names
    ]
    if "version" in table.column_names and "timestamp" in table.column_names:
        times = table.column("timestamp").cast(pa.int64())
        if selection.since_ms is not None:
            conditions.append(pc.greater_equal(times, selection.since_ms))
        if selection.until_ms is not None:
            conditions.append(pc.less(times, selection.until_ms))
    return table.filter(reduce(pc.and_kleene, conditions)) if conditions else table


_OF_STATE: dict[str, Callable[[State], Iterable[state_rows.Row]]] = {
    "topics": state_rows.topics,
    "partitions": state_rows.partitions,
    "groups": state_rows.groups,
    "members": state_rows.members,
    "producers": state_rows.producers,
    "brokers": state_rows.brokers,
}
