"""Counters of what commits changed.

    counters = CommitCounters()
    counters.add(state_before, commits)

Appends are counted from the commits themselves and not from rows of system tables: a commit may have ten thousand, and
a scrape waits for them. What maintenance did is rare, and counted from its rows.

Rules: pure, and each commit is added once. Not thread-safe. Not for: what there is (``state_samples``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from sparklog.monitoring.commit_rows import CommitRows, read_rows
from sparklog.monitoring.exporter.text import Labels, Row
from sparklog.protocol.commits import (
    Append,
    ChangePartition,
    Commit,
    DeleteRecords,
    DeleteSegments,
    FenceWriters,
    ForgetRemovedFiles,
    RemoveFiles,
    ReplaceSegments,
)
from sparklog.protocol.partition_fold import holders, still_in_sync
from sparklog.protocol.state import State

DELAY_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""seconds: the upper bounds of the histogram of append delays."""

_MAINTENANCE = (DeleteRecords, DeleteSegments, FenceWriters, ForgetRemovedFiles, RemoveFiles, ReplaceSegments)


class CommitCounters:
    """What was counted so far. ``maintained_ms`` are the times of the newest change of each step."""

    def __init__(self) -> None:
        self.appended_bytes: Counter[str] = Counter()
        self.delays = [0] * (len(DELAY_BOUNDS) + 1)
        self.delay_seconds = 0.0
        self.appends = 0
        self.isr_shrinks = self.isr_expands = self.leader_changes = 0
        self.maintained_ms: dict[str, int] = {}
        self._maintenance: Counter[str] = Counter()
        self._removed_bytes: Counter[str] = Counter()
        self._added_bytes: Counter[str] = Counter()

    def add(self, before: State, commits: Iterable[Commit]) -> None:
        """Count the commits after a state."""
        leadership = _Leadership(before)
        for commit in commits:
            for action in commit.actions:
                if isinstance(action, Append):
                    self._add_append(action, commit.timestamp)
                    self._add_change(leadership.after_write(action, holders(action.run)))
                elif isinstance(action, ReplaceSegments):
                    for segment in action.added:
                        self._add_change(leadership.after_write(action, holders(segment.run)))
                elif isinstance(action, ChangePartition):
                    self._add_change(leadership.after_change(action))
            for step, time_ms, removed, added in _maintenance_rows(commit):
                self._maintenance[step] += 1
                self._removed_bytes[step] += removed or 0
                self._added_bytes[step] += added or 0
                self.maintained_ms[step] = time_ms

    def note_maintenance(self, commit: Commit) -> None:
        """Take the times of the changes of a commit, also of one that is not to be counted."""
        for step, time_ms, _, _ in _maintenance_rows(commit):
            self.maintained_ms[step] = time_ms

    def _add_append(self, action: Append, time_ms: int) -> None:
        self.appended_bytes[action.topic] += action.run.size_bytes
        self.appends += 1
        newest_ms = time_ms if action.log_append_time else action.run.max_timestamp_us / 1000
        seconds = max(time_ms - newest_ms, 0) / 1000
        self.delays[bisect_left(DELAY_BOUNDS, seconds)] += 1
        self.delay_seconds += seconds

    def _add_change(self, change: tuple[bool, int]) -> None:
        leader_changed, grown = change
        self.leader_changes += leader_changed
        self.isr_shrinks += grown < 0
        self.isr_expands += grown > 0

    def maintenance_rows(self, labels: Labels) -> Iterator[Row]:
        """Yield the samples of ``MAINTENANCE_FAMILIES``."""
        for step, time_ms in sorted(self.maintained_ms.items()):
            counts = (self._maintenance[step], self._removed_bytes[step], self._added_bytes[step])
            yield labels.of(("step",), step), (*counts, time_ms / 1000)


def _maintenance_rows(commit: Commit) -> Iterator[tuple[Any, ...]]:
    """Yield step, time, and bytes removed and added of each row of the system table ``maintenance``."""
    actions = [action for action in commit.actions if isinstance(action, _MAINTENANCE)]
    if actions:
        rows = CommitRows()
        rows.add(replace(commit, actions=actions), 0)
        yield from read_rows(rows.table("maintenance"), ("step", "timestamp", "bytes_removed", "bytes_added"))


class _Leadership:
    """Leaders and in-sync replicas of partitions while commits change them. Each method returns whether the leader is
    another than before, and by how many replicas the ISR has grown; no change for partitions that are new."""

    def __init__(self, before: State) -> None:
        self._before = before
        self._known: dict[tuple[str, int], tuple[int, Sequence[int]]] = {}

    def after_write(self, action: Append | ReplaceSegments, written: Sequence[int]) -> tuple[bool, int]:
        former = self._former(action)
        if former is None or len(former[1]) <= 1:
            return False, 0
        isr = still_in_sync(former[1], written)
        return self._set(action, former, former[0] if former[0] in isr else -1, isr)

    def after_change(self, action: ChangePartition) -> tuple[bool, int]:
        return self._set(action, self._former(action), action.leader, action.isr)

    def _former(self, action: Append | ReplaceSegments | ChangePartition) -> tuple[int, Sequence[int]] | None:
        known = self._known.get((action.topic_id, action.partition))
        if known is not None:
            return known
        topic = self._before.topics.get(action.topic)
        if topic is None or topic.topic_id != action.topic_id or action.partition >= len(topic.partitions):
            return None
        partition = topic.partitions[action.partition]
        return partition.leader, partition.isr

    def _set(
        self,
        action: Append | ReplaceSegments | ChangePartition,
        former: tuple[int, Sequence[int]] | None,
        leader: int,
        isr: Sequence[int],
    ) -> tuple[bool, int]:
        self._known[action.topic_id, action.partition] = (leader, isr)
        return (False, 0) if former is None else (leader != former[0], len(isr) - len(former[1]))
