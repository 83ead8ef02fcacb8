"""How far groups are behind, now and at any moment whose commits are known.

    history = LagHistory(state, appends, offsets, topic_changes)
    rows = history.rows_at(version, time_ms, group="billing")

A row says what ``consumer-groups --describe`` would have said at that version. A committed offset is known if a commit
of it is, or if no known commit has changed it; what is not known is left out.

Rules: pure. Not for: reading commits (``commit_history``).
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from sparklog.protocol.state import State

_Key = tuple[str, int]
"""The id of a topic, and a partition."""


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


class _Topic(NamedTuple):
    """A topic's name, and the versions from and before which it existed."""

    name: str
    created: int = -1
    deleted: int = sys.maxsize


class LagHistory:
    """The offsets of groups and the ends of partitions by version. Immutable, thread-safe.

    ``appends``, ``offsets`` and ``topic_changes`` are these system tables, of all commits from some version up to that
    of ``state``. It answers for the versions from that one on.
    """

    def __init__(self, state: State, appends: pa.Table, offsets: pa.Table, topic_changes: pa.Table) -> None:
        self._ends = _ends(appends)
        self._topics = _topics(state, topic_changes)
        self._current_ends = {
            (topic.topic_id, number): partition.high_watermark
            for topic in state.topics.values()
            for number, partition in enumerate(topic.partitions)
        }
        self._offsets = _offsets(state, offsets)

    def groups(self) -> list[str]:
        """Return the groups that have, or had, offsets."""
        return sorted(self._offsets)

    def rows_at(
        self, version: int, time_ms: int, group: str | None = None, topic: str | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of the system table ``lag`` at a version, of all groups and topics or of these.

        ``time_ms`` is the time that they state, and up to which ``lag_seconds`` counts.
        """
        for name in self.groups() if group is None else [group]:
            for key, offsets in sorted(self._offsets.get(name, {}).items(), key=self._order):
                known = self._topics.get(key[0])
                if known is None or not known.created <= version < known.deleted or topic not in (None, known.name):
                    continue
                offset = offsets.at(version)
                if offset is not None:
                    yield self._row(version, time_ms, name, known.name, key, offset)

    def is_certain(self, version: int, group: str | None = None, topic: str | None = None) -> bool:
        """Return whether earlier commits would not change the rows at this version or later ones."""
        for name in self.groups() if group is None else [group]:
            for key, offsets in self._offsets.get(name, {}).items():
                known = self._topics.get(key[0])
                if topic in (None, known.name if known else None) and not self._knows(version, key, known, offsets):
                    return False
        return True

    def _knows(self, version: int, key: _Key, topic: _Topic | None, offsets: _Offsets) -> bool:
        if topic is not None and (topic.created > version or topic.deleted <= version):
            return True
        if offsets.versions[0] > version:
            return False
        offset, ends = offsets.at(version), self._ends.get(key)
        end = self._current_ends.get(key, 0) if ends is None else ends.at(version)
        return offset is None or offset >= end or (ends is not None and ends.first_offset <= offset)

    def _order(self, item: tuple[_Key, _Offsets]) -> tuple[str, int, str]:
        (topic_id, partition), _ = item
        known = self._topics.get(topic_id)
        return (known.name if known else "", partition, topic_id)

    def _row(self, version: int, time_ms: int, group: str, topic: str, key: _Key, offset: int) -> tuple[Any, ...]:
        ends = self._ends.get(key)
        end = self._current_ends.get(key, 0) if ends is None else ends.at(version)
        seconds = 0.0 if end <= offset else _seconds_behind(ends, time_ms, offset)
        return time_ms, group, topic, key[1], offset, end, end - offset, seconds


def _seconds_behind(ends: _Ends | None, time_ms: int, offset: int) -> float | None:
    """Return the seconds since the record at this offset was committed, None if that is not known."""
    if ends is None or offset < ends.first_offset:
        return None
    committed_ms = ends.times[bisect_right(ends.ends, offset)]
    return max(time_ms - committed_ms, 0) / 1000


def _ends(appends: pa.Table) -> dict[_Key, _Ends]:
    ends: dict[_Key, _Ends] = {}
    names = ("version", "timestamp", "topic_id", "partition", "base_offset", "records")
    for version, time_ms, topic_id, partition, base_offset, records in column_values(appends, names):
        key = (topic_id, partition)
        found = ends.get(key)
        if found is None:
            found = ends[key] = _Ends(base_offset)
        found.versions.append(version)
        found.times.append(time_ms)
        found.ends.append(base_offset + records)
    return ends


def _topics(state: State, changes: pa.Table) -> dict[str, _Topic]:
    topics = {topic.topic_id: _Topic(topic.name) for topic in state.topics.values()}
    for version, name, topic_id, change in column_values(changes, ("version", "topic", "topic_id", "change")):
        topic = topics.get(topic_id, _Topic(name))
        if change == "create":
            topics[topic_id] = topic._replace(created=version)
        elif change == "delete":
            topics[topic_id] = topic._replace(deleted=version)
    return topics


def _offsets(state: State, offsets: pa.Table) -> Mapping[str, Mapping[_Key, _Offsets]]:
    found: dict[str, dict[_Key, _Offsets]] = defaultdict(lambda: defaultdict(_Offsets))
    names = ("version", "group", "topic_id", "partition", "offset")
    for version, group, topic_id, partition, offset in column_values(offsets, names):
        of_group = found[group]
        if topic_id is None:  # the group was deleted
            for each in of_group.values():
                each.add(version, None)
        else:
            of_group[topic_id, partition].add(version, offset)
    for name, group_state in state.groups.items():
        for current in group_state.offsets.values():
            key = (current.topic_id, current.partition)
            if key not in found[name]:  # older than all of these commits
                found[name][key].add(-1, current.offset)
    return found


def column_values(table: pa.Table, names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of these columns row by row, times as ms since the epoch."""
    columns = (table.column(name) for name in names)
    plain = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in columns)
    return zip(*(column.to_pylist() for column in plain), strict=True)
