"""Rates, averages and maxima over a recent time span: the arithmetic of metrics, without a clock, lock or name.

    sizes = Windows(seconds=30, samples=2, created=now)
    sizes.record(512, now)
    sizes.average(now), sizes.maximum(now), sizes.rate(now)

Time since ``created`` is divided into windows of ``seconds``. The current window and the ``samples - 1`` before it
count: with Kafka's defaults, 30 seconds and 2 samples, the last 30 to 60 seconds. For seconds=10, samples=2, created=0,
at 25: the windows [10, 20) and [20, 25] count, 15 seconds, so 30 records since second 10 are a rate of 2.

Rules: times are seconds of one monotonic clock. The cost of recording is constant. Not thread-safe. Not for:
percentiles.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

SHORTEST_SPAN_SECONDS = 1.0
"""Minimum span of a rate, so that the first record of a client does not count as a thousand per second."""


class Windows:
    """Recorded values by window. ``count`` and ``total`` include all values ever recorded."""

    __slots__ = ("_created", "_recent", "_samples", "_seconds", "count", "total")

    def __init__(self, seconds: float, samples: int, created: float) -> None:
        self._seconds = seconds
        self._samples = samples
        self._created = created
        self._recent: list[_Sample] = []
        self.count = 0
        self.total: float = 0  # stays an int if all values are ints

    def record(self, value: float, now: float) -> None:
        """Add a value. If ``now`` is before that of an earlier call, it counts in the window of that call."""
        number = self._number(now)
        recent = self._recent
        if not recent or recent[-1].number < number:
            recent.append(_Sample(number))
            del recent[: -self._samples]
        recent[-1].add(value)
        self.count += 1
        self.total += value

    def rate(self, now: float) -> float:
        """Return the sum of the recent values per second."""
        return sum(sample.total for sample in self._counted(now)) / self._span(now)

    def count_rate(self, now: float) -> float:
        """Return the number of recent values per second."""
        return sum(sample.count for sample in self._counted(now)) / self._span(now)

    def average(self, now: float) -> float:
        """Return the average of the recent values; 0 if there are none."""
        counted = self._counted(now)
        count = sum(sample.count for sample in counted)
        return sum(sample.total for sample in counted) / count if count else 0.0

    def maximum(self, now: float) -> float:
        """Return the largest recent value; 0 if there are none."""
        return max((sample.most for sample in self._counted(now)), default=0.0)

    def _number(self, now: float) -> int:
        return max(int((now - self._created) // self._seconds), 0)

    def _counted(self, now: float) -> list[_Sample]:
        oldest = self._number(now) - self._samples + 1
        return [sample for sample in self._recent if sample.number >= oldest]

    def _span(self, now: float) -> float:
        oldest = max(self._number(now) - self._samples + 1, 0)
        return max(now - self._created - oldest * self._seconds, SHORTEST_SPAN_SECONDS)


@dataclass(slots=True)
class _Sample:
    """The values recorded in one window."""

    number: int
    count: int = 0
    total: float = 0  # stays an int if all values are ints
    most: float = -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.most = max(self.most, value)
