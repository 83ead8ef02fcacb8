"""When the commits of a range were made: which version there was at a time.

    times = CommitTimes(commits)
    times.version_at(time_ms), times.between(since_ms, until_ms)

The time of each commit is later than that of the one before, except where the log's time was ahead and was reset
(``protocol.log_time``). No commit was made after those that follow it, so the ones before a reset count as made at its
time if their own is later.

Rules: pure. The commits reach up to the newest one: a later one could be a reset.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate

import pyarrow as pa

from sparklog.monitoring.commit_rows import read_rows


class CommitTimes:
    """The times of commits without a gap. Immutable, thread-safe."""

    def __init__(self, commits: pa.Table) -> None:
        rows = list(read_rows(commits, ("version", "timestamp")))
        self._first = rows[0][0] if rows else 0
        self._times = list(accumulate((time_ms for _, time_ms in reversed(rows)), min))[::-1]

    @property
    def first_ms(self) -> int | None:
        """The time of the first commit, None without commits."""
        return self._times[0] if self._times else None

    def version_at(self, time_ms: int) -> int | None:
        """Return the newest version at a time, None if it is older than these commits."""
        number = bisect_right(self._times, time_ms) - 1
        return self._first + number if number >= 0 else None

    def between(self, since_ms: int | None, until_ms: int | None) -> range:
        """Return the versions of commits that were made at or after ``since_ms`` and before ``until_ms``."""
        first = 0 if since_ms is None else bisect_left(self._times, since_ms)
        end = len(self._times) if until_ms is None else bisect_left(self._times, until_ms)
        return range(self._first + first, self._first + max(first, end))
