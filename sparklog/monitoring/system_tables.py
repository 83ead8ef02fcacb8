"""Makes the system tables of a cluster: from its newest state, and from the commits that are kept.

    tables = SystemTables(coordinator)
    tables.read("lag", Selection(group="billing", since_ms=now_ms - 3_600_000, until_ms=now_ms))

Rules: it only reads the log: the state, commits, lists of segments and of retired files; never records.
Not for: the rows (``commit_rows``, ``facts``, ``lag``), and arguments of users (``arguments``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from sparklog import limits
from sparklog.coordinator import Coordinator
from sparklog.coordinator.group_liveness import abandoned_emptied
from sparklog.errors import (
    BrokerNotAvailableError,
    CorruptMetadataError,
    InvalidRequestError,
    ObjectNotFoundError,
    SparklogError,
)
from sparklog.format.plain_arrays import plain_scalar
from sparklog.log.commits.cleanup import newest_version_before
from sparklog.log.commits.commit_files import read_commits
from sparklog.log.commits.retired_files import read_removed
from sparklog.monitoring.commit_history import CHUNK_COMMITS, CommitHistory, select_rows
from sparklog.monitoring.commit_rows import to_table
from sparklog.monitoring.commit_times import CommitTimes
from sparklog.monitoring.facts import brokers, files, groups, producers, topics
from sparklog.monitoring.lag import LagHistory
from sparklog.monitoring.orphans import DEFAULT_AGE_MS, NEVER_COMMITTED, NeededFiles, find_orphans, newest_before
from sparklog.monitoring.publications import publications
from sparklog.monitoring.replica_rows import ReplicaHistory
from sparklog.monitoring.rolled_history import RolledHistory, RolledRows
from sparklog.monitoring.schemas import COMMIT_TABLES, TABLES
from sparklog.protocol.state import State
from sparklog.types import printable

logger = logging.getLogger(__name__)

MINUTE_MS = 60_000

_History = TypeVar("_History")


class RowSelection(NamedTuple):
    """Which rows of a system table are wanted: of this topic, partition and group, and of commits of these times.

    Times are ms since the epoch: ``since_ms`` belongs to them, ``until_ms`` does not. None stands for all. Tables of
    what there is now have no times. The lag is stated at each multiple of ``step_ms`` since ``since_ms``, and at
    ``until_ms``; at ``until_ms`` alone if ``since_ms`` is None. Without ``until_ms`` that is now.
    ``first_version`` leaves out the commits before it, of all tables but ``lag`` and ``replicas``. With ``orphans``
    all files of all locations are listed, to count the orphans in ``storage``.
    """

    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    step_ms: int = MINUTE_MS
    first_version: int = 0
    orphans: bool = False


class SystemTables:
    """The system tables of a cluster. Thread-safe; keeps the commits that it has read as columns."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._commits = CommitHistory(coordinator)
        self._rolled = RolledHistory(coordinator.store)

    def read(self, name: str, selection: RowSelection, state: State | None = None) -> pa.Table:
        """Return the rows of a system table, one of ``TABLES``, that a selection wants, in the newest state or in this.

        Of commits, it states those that are known (``first_ms``). It reads all that were made since
        ``selection.since_ms``, which it has not read before; ``lag`` and ``replicas`` may need earlier ones.

        Raises InvalidRequestError for steps or rows beyond ``limits``, UnknownTopicOrPartitionError for ``segments``
        and ``publications`` of a topic that does not exist, StorageError, CorruptMetadataError.
        """
        if state is None:
            state = self._coordinator.refresh()
        if name == "lag":
            return self._lag(state, selection)
        if name == "throughput":
            return self._throughput(state, selection)
        if name == "replicas":
            return self._replicas(state, selection)
        if name == "publications":
            return self._publications(state, selection)
        if name in COMMIT_TABLES:
            return self._of_commits(name, state, selection)
        return _select(to_table(name, list(self._rows(name, state, selection))), selection)

    def first_ms(self, name: str) -> int | None:
        """Return the time of the first commit that a table can state, in ``lag`` and ``throughput`` by rollups; None if
        that is the first of all.

        Raises StorageError, CorruptMetadataError.
        """
        if name == "publications":
            return None  # commits of tables are never removed
        rolled = self._rolled_rows() if name in ("lag", "throughput") else None
        if rolled is not None:
            return rolled.first_ms if rolled.first else None
        first = self._commits.first_known()
        try:
            return next(read_commits(self._coordinator.store, first, first)).commit.timestamp if first else None
        except ObjectNotFoundError:  # removed since; the tables have it still
            commits = self._commits.table("commits", self._coordinator.state, first)
            return CommitTimes(commits).first_ms

    def _rows(self, name: str, state: State, selection: RowSelection) -> Iterable[tuple[Any, ...]]:
        if name == "segments":
            return self._segments(state, selection.topic)
        if name == "storage":
            orphaned = self._find_orphans(state) if selection.orphans else None
            return files.storage(state, self._read_retired(state), orphaned)
        if name == "groups":
            return groups.groups(state, abandoned_emptied(self._coordinator, state.groups))
        if name == "members":
            return groups.members(abandoned_emptied(self._coordinator, state.groups))
        return OF_STATE[name](state)

    def _segments(self, state: State, topic: str | None) -> Iterator[topics.SegmentFacts]:
        for each in [state.topic(topic)] if topic is not None else state.topics_in_order():
            live = self._coordinator.segments(each.name, state)
            for number in range(len(each.partitions)):
                for segment in live.partition(number):
                    yield topics.segment_facts(each.name, segment)

    def _read_retired(self, state: State) -> list[tuple[str, int]] | None:
        """Return path and bytes of the retired files, None if a list of them is damaged or lost: its files might be of
        any topic."""
        found: list[tuple[str, int]] = []
        for listing in state.removed_files:
            try:
                found += ((file.path, file.size_bytes) for file in read_removed(self._coordinator.store, listing))
            except (ObjectNotFoundError, CorruptMetadataError) as error:
                if listing in self._coordinator.refresh().removed_files:  # else its files have been deleted since
                    _warn_of_unknown("retired", error)
                    return None
        return found

    def _find_orphans(self, state: State) -> list[tuple[str, int]] | None:
        """Return path and bytes of the files that a vacuum would delete, None if a location does not answer."""
        coordinator = self._coordinator
        before_ms = coordinator.log.clock.now_ms() - DEFAULT_AGE_MS
        orphans: list[tuple[str, int]] = []
        try:
            fence = max(newest_before(coordinator, state, before_ms), state.writer_fence)
            needed = NeededFiles(coordinator, state)
            for broker, known in sorted(state.brokers.items()):
                if not known.online:
                    raise BrokerNotAvailableError(f"broker {broker} is offline")
                found = find_orphans(coordinator.store_of(broker), needed, fence)
                orphans += ((file.key, file.size) for file in found if file.why == NEVER_COMMITTED)
        except SparklogError as error:
            _warn_of_unknown("orphaned", error)
            return None
        return orphans

    def _publications(self, state: State, selection: RowSelection) -> pa.Table:
        names = sorted(state.topics) if selection.topic is None else [state.topic(selection.topic).name]
        store, since_ms, until_ms = self._coordinator.store, selection.since_ms, selection.until_ms
        return to_table("publications", publications(store, names, since_ms, until_ms))

    def _of_commits(self, name: str, state: State, selection: RowSelection) -> pa.Table:
        first = self._first(state, selection)
        where = {"topic": selection.topic, "group": selection.group}
        given = {column: [value] for column, value in where.items() if value is not None}
        wanted = {column: values for column, values in given.items() if column in TABLES[name].schema.names}
        table = _select(self._commits.table(name, state, first, wanted), selection)
        return self._in_time(table, state, selection, first)

    def _in_time(self, table: pa.Table, state: State, selection: RowSelection, first: int) -> pa.Table:
        """Return the rows of the commits of the times that a selection wants; none before ``first`` is."""
        if selection.since_ms is None and selection.until_ms is None:
            return table
        commits = self._commits.table("commits", state, first)
        wanted = CommitTimes(commits).between(selection.since_ms, selection.until_ms)
        versions = table.column("version")
        start, stop = (plain_scalar(version, pa.int64()) for version in (wanted.start, wanted.stop))
        return table.filter(pc.and_(pc.greater_equal(versions, start), pc.less(versions, stop)))

    def _first(self, state: State, selection: RowSelection) -> int:
        """Return a version before which no commit is of the times of a selection."""
        if selection.since_ms is None:
            return selection.first_version
        if selection.since_ms > state.timestamp_ms:
            return max(state.version, selection.first_version)
        return max(self.version_before(state, selection.since_ms), selection.first_version)

    def version_before(self, state: State, time_ms: int) -> int:
        """Return the newest version up to that of a state that is known to be older than a time, -1 if none is.

        It is looked up in the commits that were read, and sends requests if these are all newer. Raises StorageError.
        """
        first, start, count = self._commits.first_read(), state.version, CHUNK_COMMITS
        while first is not None and start > first:
            start, count = max(state.version - count, first), 4 * count
            commits = self._commits.table("commits", state, start)
            times = commits.column("timestamp").cast(pa.int64())
            older = commits.column("version").filter(pc.less(times, plain_scalar(time_ms, pa.int64())))
            if len(older):
                return int(pc.max(older).as_py())
        return newest_version_before(self._coordinator.store, state.version, time_ms)

    def _replicas(self, state: State, selection: RowSelection) -> pa.Table:
        wanted = {"topic": [selection.topic]} if selection.topic is not None else {}

        def read(first: int) -> ReplicaHistory:
            return ReplicaHistory(
                state,
                self._commits.table("replicas", state, first, wanted),
                self._commits.table("topic_changes", state, first, wanted),
            )

        first = self._first(state, selection)
        history = self._go_back(first, read, lambda history: history.is_certain)
        table = _select(to_table("replicas", history.rows), selection)
        return self._in_time(table, state, selection, first)

    def _lag(self, state: State, selection: RowSelection) -> pa.Table:
        steps = _steps(selection, max(self._coordinator.log.clock.now_ms(), state.timestamp_ms))
        since = selection._replace(since_ms=steps[0])
        times = CommitTimes(self._commits.table("commits", state, self._first(state, since)))
        versions = [(time_ms, times.version_at(time_ms)) for time_ms in steps]
        known = [(time_ms, version) for time_ms, version in versions if version is not None]
        first = known[0][1] if known else state.version
        history = self._go_back(
            first, lambda start: self._lag_history(state, start, selection), lambda history: history.is_certain(first)
        )
        older = steps[: len(steps) - len(known)]
        rolled = None if not older and history.is_certain(first) else self._rolled_rows()
        if rolled is not None:
            history = self._lag_history(state, 0, selection, rolled)
            found = zip(older, rolled.versions_at(older), strict=True)
            known = [*((time_ms, version) for time_ms, version in found if version is not None), *known]
        if len(known) * len(history) > limits.MAX_LAG_ROWS:
            raise InvalidRequestError(
                f"the lag of {len(history):,} partitions of groups at {len(known):,} times has more than "
                f"{limits.MAX_LAG_ROWS:,} rows; choose a group or a topic, longer steps, or a shorter time"
            )
        rows = [row for time_ms, version in known for row in history.rows_at(version, time_ms)]
        return _select(to_table("lag", rows), selection)

    def _lag_history(
        self, state: State, first: int, selection: RowSelection, rolled: RolledRows | None = None
    ) -> LagHistory:
        """Return what the commits from ``first`` on, and before them those that were ``rolled`` up, say of the lag."""
        group, topic = selection.group, selection.topic

        def read(name: str, wanted: Mapping[str, Collection[str]]) -> pa.Table:
            kept = self._commits.table(name, state, first, wanted)
            if rolled is None:
                return kept
            return pa.concat_tables([select_rows(rolled.before(name, self._commits.first_known()), wanted), kept])

        offsets = read("offsets", {} if group is None else {"group": [group]})
        changes = read("topic_changes", {} if topic is None else {"topic": [topic]})
        return LagHistory(state, read("appends", _topics_of(state, offsets, selection)), offsets, changes, group, topic)

    def _rolled_rows(self) -> RolledRows | None:
        """Return what is known of the commits that were removed, None if none was, or nothing is known."""
        first = self._commits.first_known()
        return self._rolled.before(first, self._coordinator.state.version) if first else None

    def _throughput(self, state: State, selection: RowSelection) -> pa.Table:
        """Return what appends add by minute: of commits that are kept, and before them of rollups."""
        since_ms, first_ms = selection.since_ms, self.first_ms("appends")
        is_kept = first_ms is None or (since_ms is not None and since_ms >= first_ms)
        rolled = None if is_kept else self._rolled_rows()
        appends = self._of_commits("appends", state, selection)
        if rolled is not None:
            appends = appends.filter(pc.greater(appends.column("version"), plain_scalar(rolled.last, pa.int64())))
        counted = appends.append_column("appends", pa.repeat(plain_scalar(1, pa.int64()), len(appends)))
        if rolled is not None:
            next_ms = CommitTimes(self._commits.table("commits", state, rolled.last + 1)).first_ms
            earlier = rolled.between("appends", since_ms, selection.until_ms, next_ms)
            counted = pa.concat_tables([_select(earlier, selection), counted])
        return _sum_by_minute(counted)

    def _go_back(self, first: int, read: Callable[[int], _History], is_certain: Callable[[_History], bool]) -> _History:
        """Return what ``read`` makes of the commits from a version on: from ``first``, or from earlier ones as far as
        it takes to be certain."""
        count = CHUNK_COMMITS
        while True:
            history = read(first)
            if first <= self._commits.first_known() or is_certain(history):
                return history
            first, count = max(first - count, 0), 4 * count


def _warn_of_unknown(what: str, error: SparklogError) -> None:
    logger.warning("%s and %s_files are not known, so they are null: %s", what, what, printable(error))


def _topics_of(state: State, offsets: pa.Table, selection: RowSelection) -> dict[str, Collection[str]]:
    """Return the condition on appends that concern the lag of a selection."""
    if selection.topic is not None:
        return {"topic": [selection.topic]}
    if selection.group is None:
        return {}
    group = state.groups.get(selection.group)
    current = {offset.topic_id for offset in group.offsets.values()} if group is not None else set()
    return {"topic_id": sorted(current.union(filter(None, pc.unique(offsets.column("topic_id")).to_pylist())))}


def _steps(selection: RowSelection, now_ms: int) -> Sequence[int]:
    """Return the times at which the lag is stated, oldest first: the multiples of the step, and the end of the range.

    Raises InvalidRequestError if they are too many.
    """
    until_ms = now_ms if selection.until_ms is None else selection.until_ms
    if selection.since_ms is None:
        return [until_ms]
    step = selection.step_ms
    times = range(-(-selection.since_ms // step) * step, until_ms, step)
    if len(times) > limits.MAX_LAG_STEPS:
        raise InvalidRequestError(
            f"invalid step {step} ms: it divides the time into {len(times):,} steps, and at most "
            f"{limits.MAX_LAG_STEPS:,} are possible; choose a longer step, or a shorter time"
        )
    return [*times, until_ms]


def _sum_by_minute(appends: pa.Table) -> pa.Table:
    """Return what appends add by minute, topic and partition; ``appends`` says how many each row is."""
    times = appends.column("timestamp").cast(pa.int64())
    minute = plain_scalar(MINUTE_MS, pa.int64())
    minutes = pc.multiply(pc.divide(times, minute), minute)
    table = appends.append_column("minute", minutes.cast(TABLES["throughput"].schema.field("minute").type))
    keys = ["minute", "topic", "partition"]
    sums = table.group_by(keys).aggregate([("records", "sum"), ("bytes", "sum"), ("appends", "sum")])
    schema = TABLES["throughput"].schema
    sums = sums.select([*keys, "records_sum", "bytes_sum", "appends_sum"]).rename_columns(schema.names)
    return sums.cast(schema).sort_by([(name, "ascending") for name in keys])


def _select(table: pa.Table, selection: RowSelection) -> pa.Table:
    """Return the rows of a selection's topic, partition and group, as far as the table has these columns."""
    wanted = {"topic": selection.topic, "partition": selection.partition, "group": selection.group}
    for name, value in wanted.items():
        if value is not None and name in table.column_names:
            table = table.filter(pc.equal(table.column(name), plain_scalar(value, table.schema.field(name).type)))
    return table


OF_STATE: dict[str, Callable[[State], Iterable[tuple[Any, ...]]]] = {
    "topics": topics.topics,
    "partitions": topics.partitions,
    "producers": producers.producers,
    "brokers": brokers.brokers,
}
"""The tables that need nothing but the state, and what makes their rows."""
