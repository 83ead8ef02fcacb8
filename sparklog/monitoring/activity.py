"""What happens in a cluster now: the throughput of topics and the lag of groups, for screens that follow it.

    activity = read_activity(coordinator, tables, window_seconds=60)

Not for: how it is shown (``cli.output.activity_listing``).
"""

from __future__ import annotations

from typing import NamedTuple

from sparklog.coordinator import Coordinator
from sparklog.coordinator.group_liveness import abandoned_emptied
from sparklog.monitoring.commit_rows import read_rows
from sparklog.monitoring.facts.groups import Groups, groups
from sparklog.monitoring.facts.topics import topics
from sparklog.monitoring.system_tables import RowSelection, SystemTables
from sparklog.protocol.state import State


class TopicActivity(NamedTuple):
    """A topic: records and bytes per second, appends per second, and what it holds."""

    topic: str
    records_per_second: float
    bytes_per_second: float
    appends_per_second: float
    partitions: int
    records: int
    size_bytes: int


class GroupActivity(NamedTuple):
    """A group: how far it is behind, in records and (None: not known) seconds, and what it commits."""

    group: str
    state: str
    members: int
    lag: int
    lag_seconds: float | None
    commits_per_second: float


class Activity(NamedTuple):
    """A cluster at a time: rates are those of the last ``window_seconds``. The busiest topics and the groups that are
    the furthest behind come first."""

    time_ms: int
    version: int
    window_seconds: float
    commits_per_second: float
    topics: list[TopicActivity]
    groups: list[GroupActivity]


def read_activity(coordinator: Coordinator, tables: SystemTables, window_seconds: float) -> Activity:
    """Return what has happened within the last seconds.

    Raises StorageError, CorruptMetadataError.
    """
    time_ms = coordinator.log.clock.now_ms()
    state = coordinator.refresh()
    commits = tables.read("commits", RowSelection(since_ms=time_ms - round(window_seconds * 1000)), state)
    recent = RowSelection(first_version=state.version + 1 - len(commits))
    appended: dict[str, list[int]] = {}
    for topic, records, size in read_rows(tables.read("appends", recent, state), ("topic", "records", "bytes")):
        counts = appended.setdefault(topic, [0, 0, 0])
        counts[0] += records
        counts[1] += size
        counts[2] += 1
    committed: dict[str, set[int]] = {}
    for group, version in read_rows(tables.read("offsets", recent, state), ("group", "version")):
        committed.setdefault(group, set()).add(version)
    seconds: dict[str, float] = {}
    for group, late in read_rows(tables.read("lag", RowSelection(), state), ("group", "lag_seconds")):
        seconds[group] = max(seconds.get(group, 0.0), float("inf") if late is None else late)
    return Activity(
        time_ms,
        state.version,
        window_seconds,
        len(commits) / window_seconds,
        _topics(state, appended, window_seconds),
        _groups(state, abandoned_emptied(coordinator, state.groups), committed, seconds, window_seconds),
    )


def _topics(state: State, appended: dict[str, list[int]], window_seconds: float) -> list[TopicActivity]:
    found = []
    for each in topics(state):
        added, bytes_added, appends = (count / window_seconds for count in appended.get(each.topic, (0, 0, 0)))
        found.append(TopicActivity(each.topic, added, bytes_added, appends, each.partitions, each.offsets, each.bytes))
    return sorted(found, key=lambda each: (-each.records_per_second, each.topic))


def _groups(
    state: State, known: Groups, commits: dict[str, set[int]], seconds: dict[str, float], window_seconds: float
) -> list[GroupActivity]:
    found = []
    for each in groups(state, known):
        late = seconds.get(each.group, 0.0)
        rate = len(commits.get(each.group, ())) / window_seconds
        behind = late if late != float("inf") else None
        found.append(GroupActivity(each.group, each.state, each.members, each.lag, behind, rate))
    return sorted(found, key=lambda each: (-each.lag, each.group))
