"""How far groups are behind, now and at any moment whose commits are known.

    history = LagHistory(state, appends, offsets, topic_changes, group="billing")
    rows = history.rows_at(version, time_ms)

A row says what ``consumer-groups --describe`` would have said of a committed offset at that version. It follows from
the commits since some version and the state after them:

* A committed offset is known if a known commit made it, or if none has changed it since. One that is not is left out.
* The end of a partition is known, unless its topic was deleted since and no append to it is known: then it is null.
* When the first record that a group had not read was committed is known if the append of that record is.

Rules: pure. Not for: reading commits (``commit_history``).
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from sparklog.monitoring.commit_rows import read_rows
from sparklog.protocol.state import State

_Key = tuple[str, int]
"""The id of a topic, and a partition."""


class _Topic(NamedTuple):
    """A topic's name, and the versions from and before which it existed; it was created before all of them for -1."""

    name: str
    created: int = -1
    deleted: int = sys.maxsize


class _Offsets:
    """The committed offsets of a group in a partition: ``offsets[n]`` from ``versions[n]`` on, None if it has none."""

    __slots__ = ("offsets", "versions")

    def __init__(self) -> None:
        self.versions: list[int] = []
        self.offsets: list[int | None] = []

    def add(self, version: int, offset: int | None) -> None:
        self.versions.append(version)
        self.offsets.append(offset)

    def at(self, version: int) -> int | None:
        number = bisect_right(self.versions, version) - 1
        return self.offsets[number] if number >= 0 else None


class _Ends:
    """The log end offset of a partition after each append, and the first offset of the first append."""

    __slots__ = ("ends", "first_offset", "times", "versions")

    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self.versions: list[int] = []
        self.times: list[int] = []
        self.ends: list[int] = []

    def at(self, version: int) -> int:
        number = bisect_right(self.versions, version) - 1
        return self.ends[number] if number >= 0 else self.first_offset

    def seconds_behind(self, time_ms: int, offset: int) -> float | None:
        """Return the seconds since the record at this offset was committed, None if its append is not known."""
        if offset < self.first_offset:
            return None
        return max(time_ms - self.times[bisect_right(self.ends, offset)], 0) / 1000


class _Position(NamedTuple):
    """A group in a partition, whose end is ``end`` if none of its appends is known, None if that is unknown, too."""

    topic: _Topic
    partition: int
    offsets: _Offsets
    ends: _Ends | None
    end: int | None

    def end_at(self, version: int) -> int | None:
        return self.end if self.ends is None else self.ends.at(version)

    def is_certain(self, version: int) -> bool:
        """Whether earlier commits would not change what is stated of this version."""
        if not self.topic.created <= version < self.topic.deleted:
            return True
        if self.offsets.versions[0] > version:
            return self.topic.created >= 0
        offset, end = self.offsets.at(version), self.end_at(version)
        if offset is None:
            return True
        return end is not None and (offset >= end or (self.ends is not None and offset >= self.ends.first_offset))


class LagHistory:
    """The offsets of groups and the ends of partitions by version. Immutable, thread-safe.

    ``appends``, ``offsets`` and ``topic_changes`` have these rows of all commits from some version up to that of
    ``state``: all rows, or those that concern the ``group`` and the ``topic`` that are asked for. It answers for the
    versions from that one on.
    """

    def __init__(
        self,
        state: State,
        appends: pa.Table,
        offsets: pa.Table,
        topic_changes: pa.Table,
        group: str | None = None,
        topic: str | None = None,
    ) -> None:
        topics = _topics(state, topic_changes)
        self._deleted_topics = [
            each.deleted for each in topics.values() if each.created < 0 and topic in (None, each.name)
        ]
        committed, self._deleted_groups = _offsets(state, offsets, group)
        ends = _ends(appends)

        def positions(of_group: Mapping[_Key, _Offsets]) -> Iterator[_Position]:
            for key, each in of_group.items():
                known = topics.get(key[0])
                if known is not None and topic in (None, known.name):
                    yield _Position(known, key[1], each, ends.get(key), _current_end(state, key, known))

        self._positions = {
            name: sorted(positions(committed[name]), key=lambda each: (each.topic, each.partition))
            for name in sorted(committed)
        }

    def __len__(self) -> int:
        """Return the most rows that there can be at a version."""
        return sum(map(len, self._positions.values()))

    def rows_at(self, version: int, time_ms: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the system table ``lag`` at a version.

        ``time_ms`` is the time that they state, and up to which ``lag_seconds`` counts.
        """
        for group, positions in self._positions.items():
            for position in positions:
                if position.topic.created <= version < position.topic.deleted:
                    offset = position.offsets.at(version)
                    if offset is not None:
                        yield _row(position, version, time_ms, group, offset)

    def is_certain(self, version: int) -> bool:
        """Return whether earlier commits would not change the rows at this version or later ones.

        They would if they have an offset of a group or topic that was deleted after this version.
        """
        if any(version < deleted < sys.maxsize for deleted in self._deleted_topics):
            return False
        if any(version < deleted for deleted in self._deleted_groups):
            return False
        return all(position.is_certain(version) for positions in self._positions.values() for position in positions)


def _row(position: _Position, version: int, time_ms: int, group: str, offset: int) -> tuple[Any, ...]:
    end = position.end_at(version)
    lag = None if end is None else end - offset
    if lag is None or position.ends is None:
        seconds = None if lag is None or lag > 0 else 0.0
    else:
        seconds = position.ends.seconds_behind(time_ms, offset) if lag > 0 else 0.0
    return time_ms, group, position.topic.name, position.partition, offset, end, lag, seconds


def _ends(appends: pa.Table) -> dict[_Key, _Ends]:
    ends: dict[_Key, _Ends] = {}
    names = ("version", "timestamp", "topic_id", "partition", "base_offset", "records")
    for version, time_ms, topic_id, partition, base_offset, records in read_rows(appends, names):
        key = (topic_id, partition)
        found = ends.get(key)
        if found is None:
            found = ends[key] = _Ends(base_offset)
        found.versions.append(version)
        found.times.append(time_ms)
        found.ends.append(base_offset + records)
    return ends


def _current_end(state: State, key: _Key, known: _Topic) -> int | None:
    """Return the end of a partition in the newest state, None if its topic was deleted and may have had records."""
    topic_id, number = key
    topic = state.topics.get(known.name)
    if topic is not None and topic.topic_id == topic_id and number < len(topic.partitions):
        return topic.partitions[number].high_watermark
    return None if known.created < 0 else 0


def _topics(state: State, changes: pa.Table) -> dict[str, _Topic]:
    topics = {topic.topic_id: _Topic(topic.name) for topic in state.topics.values()}
    for version, name, topic_id, change in read_rows(changes, ("version", "topic", "topic_id", "change")):
        topic = topics.get(topic_id, _Topic(name))
        if change == "create":
            topics[topic_id] = topic._replace(created=version)
        elif change == "delete":
            topics[topic_id] = topic._replace(deleted=version)
    return topics


def _offsets(state: State, offsets: pa.Table, group: str | None) -> tuple[dict[str, dict[_Key, _Offsets]], list[int]]:
    """Return the offsets of each group by partition, and the versions that deleted a group."""
    found: dict[str, dict[_Key, _Offsets]] = {}
    deletions: list[int] = []
    names = ("version", "group", "topic_id", "partition", "offset")
    for version, name, topic_id, partition, offset in read_rows(offsets, names):
        of_group = found.setdefault(name, {})
        if topic_id is None:
            deletions.append(version)
            for each in of_group.values():
                each.add(version, None)
        else:
            of_group.setdefault((topic_id, partition), _Offsets()).add(version, offset)
    groups = state.groups if group is None else {name: state.groups[name] for name in [group] if name in state.groups}
    for name, group_state in groups.items():
        of_group = found.setdefault(name, {})
        for current in group_state.offsets.values():
            key = (current.topic_id, current.partition)
            if key not in of_group:  # made before all of these commits
                of_group.setdefault(key, _Offsets()).add(-1, current.offset)
    return found, deletions
