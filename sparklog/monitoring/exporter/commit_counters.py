"""Counters of what commits changed, from the rows of system tables.

    counters = CommitCounters()
    counters.add(state_before, tables)

Rules: pure, and each commit is added once. Not thread-safe. Not for: what there is (``state_samples``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from sparklog.monitoring.commit_rows import ADDED, APPENDED, REPLACED, read_rows
from sparklog.monitoring.exporter.text import Labels, Row
from sparklog.protocol.partition_fold import still_in_sync
from sparklog.protocol.state import State

TABLES = ("appends", "replicas", "maintenance")
"""The system tables whose rows are counted."""

DELAY_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""seconds: the upper bounds of the histogram of append delays."""


class CommitCounters:
    """What was counted so far. ``maintained_ms`` are the times of the newest change of each step."""

    def __init__(self) -> None:
        self.appended_bytes: Counter[str] = Counter()
        self.delays = [0] * (len(DELAY_BOUNDS) + 1)
        self.delay_seconds = 0.0
        self.isr_shrinks = self.isr_expands = self.leader_changes = 0
        self.maintained_ms: dict[str, int] = {}
        self._maintenance: Counter[str] = Counter()
        self._removed_bytes: Counter[str] = Counter()
        self._added_bytes: Counter[str] = Counter()

    def add(self, before: State, tables: Mapping[str, pa.Table]) -> None:
        """Count the rows of ``TABLES`` of the commits after a state."""
        self._add_appends(tables["appends"])
        self._add_replicas(before, tables["replicas"])
        self.note_maintenance(tables["maintenance"])
        for step, removed, added in read_rows(tables["maintenance"], ("step", "bytes_removed", "bytes_added")):
            self._maintenance[step] += 1
            self._removed_bytes[step] += removed or 0
            self._added_bytes[step] += added or 0

    def note_maintenance(self, maintenance: pa.Table) -> None:
        """Take the times of changes, also of commits that are not to be counted."""
        self.maintained_ms.update(read_rows(maintenance, ("step", "timestamp")))

    def _add_appends(self, appends: pa.Table) -> None:
        sums = appends.group_by("topic").aggregate([("bytes", "sum")])
        for topic, size in read_rows(sums, ("topic", "bytes_sum")):
            self.appended_bytes[topic] += size
        for time_ms, newest_ms in read_rows(appends, ("timestamp", "max_timestamp")):
            seconds = max(time_ms - newest_ms, 0) / 1000
            self.delays[bisect_left(DELAY_BOUNDS, seconds)] += 1
            self.delay_seconds += seconds

    def _add_replicas(self, before: State, replicas: pa.Table) -> None:
        known: dict[tuple[str, int], tuple[int | None, Sequence[int]]] = {}
        names = ("topic", "topic_id", "partition", "cause", "leader", "isr")
        for topic, topic_id, number, cause, leader, isr in read_rows(replicas, names):
            key = (topic_id, number)
            if cause == ADDED:  # its rows do not have the partitions' own numbers
                continue
            old = before.find_partition(topic, number)
            if key not in known and old is not None and before.topics[topic].topic_id == topic_id:
                known[key] = (old.leader if old.leader >= 0 else None, old.isr)
            former = known.get(key)
            if former is not None and cause in (APPENDED, REPLACED):  # ``isr`` are the brokers that were written to
                isr = still_in_sync(former[1], isr)
                leader = former[0] if former[0] in isr else None
            if former is not None:
                self.leader_changes += leader != former[0]
                self.isr_shrinks += len(isr) < len(former[1])
                self.isr_expands += len(isr) > len(former[1])
            if former is not None or cause not in (APPENDED, REPLACED):
                known[key] = (leader, isr)

    def maintenance_rows(self, labels: Labels) -> Iterator[Row]:
        """Yield the samples of ``MAINTENANCE_FAMILIES``."""
        for step, time_ms in sorted(self.maintained_ms.items()):
            counts = (self._maintenance[step], self._removed_bytes[step], self._added_bytes[step])
            yield labels.of(("step",), step), (*counts, time_ms / 1000)
