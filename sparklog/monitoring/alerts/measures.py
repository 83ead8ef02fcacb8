"""What rules measure, from the log alone: values by subject.

    values = measure(rule, view)

A ``View`` is a cluster at one moment. Most kinds need its state only; those that look back read the system tables, once
for all rules that look back as far.

Rules: only subjects with a value above 0 are returned. Nothing is decided here (``transitions``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.coordinator import Coordinator
from sparklog.errors import ObjectNotFoundError
from sparklog.log.commits.commit_files import read_commit
from sparklog.log.layout import read_certain_boundary
from sparklog.monitoring import maintenance_due
from sparklog.monitoring.alerts.quantities import Unit, show
from sparklog.monitoring.alerts.rules import Rule
from sparklog.monitoring.alerts.transitions import Observation, Subject
from sparklog.monitoring.commit_rows import read_rows
from sparklog.monitoring.facts.files import retired_files
from sparklog.monitoring.facts.groups import unread
from sparklog.monitoring.facts.topics import stored_bytes
from sparklog.monitoring.system_tables import RowSelection, SystemTables
from sparklog.protocol.state import State, TopicState
from sparklog.types import TopicPartition

RISING_STEPS = 6
"""Times at which a lag that rises is looked at, at equal distances, besides now."""

_Found = Iterator[tuple[Subject, Observation]]
_GroupTopic = tuple[str, str]
_Lags = dict[tuple[str, TopicPartition], tuple[int, int, float | None]]
"""Committed offset, lag in records and in seconds, by group and partition."""


class View:
    """A cluster at a moment, in its newest state, for the measures of one evaluation. Not thread-safe.

    Raises StorageError, CorruptMetadataError where the log has to be read.
    """

    def __init__(self, coordinator: Coordinator, tables: SystemTables, time_ms: int, state: State) -> None:
        self.coordinator = coordinator
        self.state = state
        self.time_ms = time_ms
        self._tables = tables
        self._lags: dict[int, _Lags] = {}
        self._series: dict[float, dict[_GroupTopic, list[int]]] = {}
        self._versions: dict[int, int] = {}
        self._oldest_ms: int | None = None

    def earlier(self, seconds: float) -> int:
        """Return the time so many seconds ago."""
        return self.time_ms - round(seconds * 1000)

    def version_before(self, time_ms: int) -> int:
        """Return the newest version that is known to be older than a time, -1 if none is."""
        if time_ms not in self._versions:
            self._versions[time_ms] = self._tables.version_before(self.state, time_ms)
        return self._versions[time_ms]

    def lags(self, time_ms: int) -> _Lags:
        """Return the lag of all groups at a time; that of the newest version if the time is now.

        The newest commits may be later than now, by as much as the clock of their writer was ahead.
        """
        if time_ms not in self._lags:
            until_ms = max(time_ms, self.state.timestamp_ms) if time_ms == self.time_ms else time_ms
            ahead = (until_ms - time_ms) / 1000
            table = self._tables.read("lag", RowSelection(until_ms=until_ms), self.state)
            names = ("group", "topic", "partition", "offset", "lag", "lag_seconds")
            self._lags[time_ms] = {
                (group, TopicPartition(topic, number)): (
                    offset,
                    lag or 0,  # null for a topic that was deleted since
                    None if seconds is None else max(seconds - ahead, 0.0),
                )
                for group, topic, number, offset, lag, seconds in read_rows(table, names)
            }
        return self._lags[time_ms]

    def lag_series(self, seconds: float) -> dict[_GroupTopic, list[int]]:
        """Return the lag in records of groups and topics at ``RISING_STEPS`` moments within a time, and now.

        Those of which it is not known at each of the moments that are known are left out: no offset is not a lag of 0.
        """
        if seconds not in self._series:
            step_ms = max(round(seconds * 1000 / RISING_STEPS), 1)
            until_ms = max(self.time_ms, self.state.timestamp_ms)
            first_ms = until_ms - RISING_STEPS * step_ms
            selection = RowSelection(since_ms=first_ms, until_ms=until_ms, step_ms=step_ms)
            table = self._tables.read("lag", selection, self.state)
            lags = pc.max_element_wise(table.column("lag"), 0, skip_nulls=False)  # as ``unread``
            table = table.set_column(table.schema.get_field_index("lag"), "lag", lags)
            sums = table.group_by(["timestamp", "group", "topic"]).aggregate([("lag", "sum")])
            times = sorted(set(sums.column("timestamp").cast(pa.int64()).to_pylist()))
            series: dict[_GroupTopic, list[int | None]] = {}
            for time_ms, group, topic, lag in read_rows(sums, ("timestamp", "group", "topic", "lag_sum")):
                series.setdefault((group, topic), [None] * len(times))[bisect_left(times, time_ms)] = lag or 0
            known = {key: [lag for lag in lags if lag is not None] for key, lags in series.items()}
            self._series[seconds] = {key: lags for key, lags in known.items() if len(lags) == len(times)}
        return self._series[seconds]

    def oldest_ms(self) -> int:
        """Return the time of the oldest commit that is kept, or now if none was ever removed."""
        if self._oldest_ms is None:
            self._oldest_ms = self._tables.first_ms("commits") or self.time_ms
        return self._oldest_ms

    def time_of(self, version: int) -> int | None:
        """Return when a commit was made, None if it was removed."""
        try:
            return read_commit(self.coordinator.store, version).commit.timestamp
        except ObjectNotFoundError:
            return None


def measure(rule: Rule, view: View) -> dict[Subject, Observation]:
    """Return what a rule is about, with a value above 0.

    Raises StorageError, CorruptMetadataError.
    """
    return {subject: seen for subject, seen in _MEASURES[rule.kind](rule, view) if seen.value > 0}


def _of(**names: str) -> Subject:
    return tuple(names.items())


def _sums(values: Iterator[tuple[_GroupTopic, float]], combine: Callable[[float, float], float]) -> _Found:
    found: dict[_GroupTopic, float] = {}
    for key, value in values:
        found[key] = combine(found[key], value) if key in found else value
    for (group, topic), value in found.items():
        yield _of(group=group, topic=topic), Observation(value)


# -- groups


def _partitions(rule: Rule, view: View) -> Iterator[tuple[str, TopicPartition, int, int]]:
    """Yield the partitions with a committed offset: group, partition, offset, log end offset."""
    for group in sorted(view.state.groups):
        if not rule.wants(group=group):
            continue
        for partition, committed in view.state.committed_offsets(group).items():
            if rule.wants(topic=partition.topic):
                yield group, partition, committed.offset, view.state.partition(*partition).high_watermark


def _lag(rule: Rule, view: View) -> _Found:
    partitions = _partitions(rule, view)
    behind = (((group, each.topic), float(unread(end - offset))) for group, each, offset, end in partitions)
    return _sums(behind, lambda one, other: one + other)


def _lag_seconds(rule: Rule, view: View) -> _Found:
    def seconds() -> Iterator[tuple[_GroupTopic, float]]:
        for (group, partition), (_, lag, behind) in view.lags(view.time_ms).items():
            if lag > 0 and rule.wants(group=group, topic=partition.topic):
                # Without the commit of the record, it is older than those that are kept.
                known = behind if behind is not None else (view.time_ms - view.oldest_ms()) / 1000
                yield (group, partition.topic), known

    return _sums(seconds(), max)


def _lag_rising(rule: Rule, view: View) -> _Found:
    for (group, topic), values in view.lag_series(rule.over).items():
        if rule.wants(group=group, topic=topic) and all(before <= after for before, after in pairwise(values)):
            detail = f"{show(values[-1], Unit.COUNT)} records behind now"
            yield _of(group=group, topic=topic), Observation(float(values[-1] - values[0]), detail)


def _no_commit(rule: Rule, view: View) -> _Found:
    for name, group in sorted(view.state.groups.items()):
        if rule.wants(group=name) and group.offsets:
            newest_ms = max(offset.timestamp_ms for offset in group.offsets.values())
            yield _of(group=name), Observation((view.time_ms - newest_ms) / 1000)


def _no_progress(rule: Rule, view: View) -> _Found:
    before, now = view.lags(view.earlier(rule.above)), view.lags(view.time_ms)
    stuck: dict[_GroupTopic, list[tuple[int, float]]] = {}
    for (group, partition), (offset, lag, seconds) in now.items():
        offset_before, lag_before, _ = before.get((group, partition), (-1, 0, None))
        if lag and lag_before and offset == offset_before and rule.wants(group=group, topic=partition.topic):
            waited = seconds if seconds is not None else (view.time_ms - view.oldest_ms()) / 1000
            stuck.setdefault((group, partition.topic), []).append((partition.partition, waited))
    for (group, topic), partitions in stuck.items():
        numbers = ", ".join(str(number) for number, _ in partitions[:10])
        more = f" and {len(partitions) - 10} more" if len(partitions) > 10 else ""
        detail = f"partition{'s' if len(partitions) > 1 else ''} {numbers}{more}"
        yield _of(group=group, topic=topic), Observation(max(waited for _, waited in partitions), detail)


def _stopped(rule: Rule, view: View) -> _Found:
    last = view.version_before(view.earlier(rule.above))
    for name, application in sorted(view.state.applications.items()):
        if application.commit_version <= last and rule.wants(application=name):
            written_ms = view.time_of(application.commit_version)
            if written_ms is None:
                written_ms = min(view.oldest_ms(), view.earlier(rule.above) - 1)
            yield _of(application=name), Observation((view.time_ms - written_ms) / 1000)


# -- topics and locations


def _topics(rule: Rule, view: View) -> Iterator[TopicState]:
    return (topic for topic in view.state.topics_in_order() if rule.wants(topic=topic.name))


def _isr(rule: Rule, view: View) -> _Found:
    for topic in _topics(rule, view):
        missing = [
            number
            for number, each in enumerate(topic.partitions)
            if len(each.isr) < (min(rule.below, len(each.replicas)) if rule.below else len(each.replicas))
        ]
        yield _of(topic=topic.name), Observation(float(len(missing)))


def _leaderless(rule: Rule, view: View) -> _Found:
    for topic in _topics(rule, view):
        yield _of(topic=topic.name), Observation(float(sum(each.leader < 0 for each in topic.partitions)))


def _offline(rule: Rule, view: View) -> _Found:
    for number, broker in sorted(view.state.brokers.items()):
        if not broker.online and rule.wants(broker=str(number)):
            yield _of(broker=str(number)), Observation(1.0, broker.url)


def _unfit(rule: Rule, view: View) -> _Found:
    for topic in _topics(rule, view):
        yield _of(topic=topic.name), Observation(float(sum(each.unfit for each in topic.partitions)))


def _topic_bytes(rule: Rule, view: View) -> _Found:
    for topic in _topics(rule, view):
        yield _of(topic=topic.name), Observation(float(stored_bytes(topic.partitions)))


# -- maintenance and the commit log


def _maintenance(rule: Rule, view: View) -> _Found:
    due_ms = view.earlier(rule.late)
    if rule.wants(step="deletion"):
        yield _of(step="deletion"), Observation(float(retired_files(view.state, due_ms).files))
    if not rule.wants(step="roll") and not rule.wants(step="retention"):
        return
    version = view.version_before(due_ms)
    for topic in _topics(rule, view):
        rolls, expired = _files_due(rule, view, topic, version, due_ms)
        yield _of(step="roll", topic=topic.name), Observation(float(rolls))
        yield _of(step="retention", topic=topic.name), Observation(float(expired))


def _files_due(rule: Rule, view: View, topic: TopicState, version: int, due_ms: int) -> tuple[int, int]:
    rolls = expired = 0
    for number, partition in enumerate(topic.partitions):
        roll = rule.wants(step="roll") and maintenance_due.may_be_rolled(partition)
        retain = rule.wants(step="retention") and maintenance_due.may_be_expired(view.state, topic, partition)
        if not roll and not retain:
            continue
        live = view.coordinator.segments(topic.name, view.state).partition(number)
        if roll:
            rolls += maintenance_due.files_to_roll(view.state, topic, number, live, version)
        if retain:
            expired += maintenance_due.files_expired(view.state, topic, number, live, version, due_ms)
    return rolls, expired


def _retired_bytes(rule: Rule, view: View) -> _Found:
    yield _of(), Observation(float(retired_files(view.state).bytes))


def _commit_rate(rule: Rule, view: View) -> _Found:
    commits = view.state.version - view.version_before(view.earlier(rule.over))
    yield _of(), Observation(float(commits), f"within {show(rule.over, Unit.SECONDS)}")


def _commits_kept(rule: Rule, view: View) -> _Found:
    yield _of(), Observation(float(view.state.version - read_certain_boundary(view.coordinator.store)))


_MEASURES: dict[str, Callable[[Rule, View], _Found]] = {
    "lag": _lag,
    "lag_seconds": _lag_seconds,
    "lag_rising": _lag_rising,
    "no_commit": _no_commit,
    "no_progress": _no_progress,
    "isr": _isr,
    "leaderless": _leaderless,
    "offline": _offline,
    "maintenance": _maintenance,
    "unfit": _unfit,
    "topic_bytes": _topic_bytes,
    "retired_bytes": _retired_bytes,
    "commit_rate": _commit_rate,
    "commits_kept": _commits_kept,
    "stopped": _stopped,
}
