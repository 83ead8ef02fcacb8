"""Rates, averages and maxima over the last while: the arithmetic of metrics, without a clock, a lock or a name.

    sizes = Windows(seconds=30, samples=2, created=now)
    sizes.record(512, now)
    sizes.average(now), sizes.maximum(now), sizes.rate(now)

Time since ``created`` is cut into windows of ``seconds``. The one that is under way and the ``samples - 1`` before it
count: with Kafka's defaults, 30 seconds and 2 samples, the last 30 to 60 seconds. For seconds=10, samples=2, created=0,
at 25: the windows [10, 20) and [20, 25] count, 15 seconds, so 30 records since second 10 are a rate of 2.

Rules: times are seconds of one monotonic clock. Recording costs the same however much was recorded. Not thread-safe.
Not for: percentiles.
"""

from __future__ import annotations

SHORTEST_SPAN_SECONDS = 1.0
"""Rates are over no less than this, so that the first record of a client is not a thousand a second."""


class Windows:
    """Values that were recorded, by window. ``count`` and ``total`` are of all there ever were."""

    __slots__ = ("_created", "_recent", "_samples", "_seconds", "count", "total")

    def __init__(self, seconds: float, samples: int, created: float) -> None:
        self._seconds = seconds
        self._samples = samples
        self._created = created
        self._recent: list[_Sample] = []
        self.count = 0
        self.total: float = 0  # of whole numbers, it stays one

    def record(self, value: float, now: float) -> None:
        """Add a value. A ``now`` before that of an earlier call counts as the window of that one."""
        number = self._number(now)
        recent = self._recent
        if not recent or recent[-1].number < number:
            recent.append(_Sample(number))
            del recent[: -self._samples]
        recent[-1].add(value)
        self.count += 1
        self.total += value

    def rate(self, now: float) -> float:
        """The sum of the values a second."""
        return sum(sample.total for sample in self._counted(now)) / self._span(now)

    def count_rate(self, now: float) -> float:
        """How many values a second."""
        return sum(sample.count for sample in self._counted(now)) / self._span(now)

    def average(self, now: float) -> float:
        """Of the values; 0 for none."""
        counted = self._counted(now)
        count = sum(sample.count for sample in counted)
        return sum(sample.total for sample in counted) / count if count else 0.0

    def maximum(self, now: float) -> float:
        """The largest value; 0 for none."""
        return max((sample.most for sample in self._counted(now)), default=0.0)

    def _number(self, now: float) -> int:
        return max(int((now - self._created) // self._seconds), 0)

    def _counted(self, now: float) -> list[_Sample]:
        oldest = self._number(now) - self._samples + 1
        return [sample for sample in self._recent if sample.number >= oldest]

    def _span(self, now: float) -> float:
        oldest = max(self._number(now) - self._samples + 1, 0)
        return max(now - self._created - oldest * self._seconds, SHORTEST_SPAN_SECONDS)


class _Sample:
    """What was recorded in one window."""

    __slots__ = ("count", "most", "number", "total")

    def __init__(self, number: int) -> None:
        self.number = number
        self.count = 0
        self.total: float = 0  # of whole numbers, it stays one
        self.most = float("-inf")

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.most = max(self.most, value)
