"""When the records of partitions were committed, in memory that does not grow with the log.

    times = AppendTimes()
    times.add(append, commit.timestamp)    # each append of each commit, in order
    times.committed_ms(topic_id, 0, 4711)

Of each partition the newest ``EXACT`` appends are known exactly, of older ones so many that the time between two is a
small part of their age. The time of an offset between two is that of the later one: so an answer is never too early,
and too late by less than a tenth of its age.

Rules: pure. Not thread-safe. Not for: the lag of any moment (``lag``, which is exact).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection

from sparklog.protocol.commits import Append

EXACT = 64
"""Appends of a partition whose times are exact."""

DETAIL = 48
"""Of older ones, those are kept that are at least this part of their age apart: some 110 for each tenfold age."""


class _Times:
    """The ends of appends of one partition, and their times. ``first_offset``: nothing is known of earlier ones."""

    __slots__ = ("ends", "first_offset", "most", "times")

    def __init__(self, first_offset: int) -> None:
        self.first_offset = first_offset
        self.ends = array("q")
        self.times = array("q")
        self.most = 2 * EXACT

    def add(self, end: int, time_ms: int) -> None:
        self.ends.append(end)
        self.times.append(time_ms)
        if len(self.ends) >= self.most:
            self._thin_out()
            self.most = max(2 * EXACT, 2 * len(self.ends))

    def _thin_out(self) -> None:
        now_ms, later_ms = self.times[-1], self.times[-EXACT]
        kept = []
        for number in range(len(self.times) - EXACT - 1, -1, -1):
            time_ms = self.times[number]
            if (later_ms - time_ms) * DETAIL >= now_ms - time_ms:
                kept.append(number)
                later_ms = time_ms
        kept.reverse()
        self.ends = array("q", [self.ends[number] for number in kept]) + self.ends[-EXACT:]
        self.times = array("q", [self.times[number] for number in kept]) + self.times[-EXACT:]


class AppendTimes:
    """The times of commits by topic id, partition and offset."""

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, int], _Times] = {}

    def add(self, append: Append, time_ms: int) -> None:
        """Add an append that was committed at this time, after those that were added before."""
        key = (append.topic_id, append.partition)
        known = self._partitions.get(key)
        if known is None:
            known = self._partitions[key] = _Times(append.base_offset)
        known.add(append.base_offset + append.run.records, time_ms)

    def committed_ms(self, topic_id: str, partition: int, offset: int) -> int | None:
        """Return when the record at an offset was committed; None if that is not known, or it does not exist yet."""
        known = self._partitions.get((topic_id, partition))
        if known is None or offset < known.first_offset:
            return None
        number = bisect_right(known.ends, offset)
        return known.times[number] if number < len(known.times) else None

    def keep(self, topic_ids: Collection[str]) -> None:
        """Forget all other topics."""
        for key in [key for key in self._partitions if key[0] not in topic_ids]:
            del self._partitions[key]
