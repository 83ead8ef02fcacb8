"""Limits the rate at which replicas are copied: the follower throttle of a reassignment.

Rules: one throttle for one task. Not for: dividing a limit among tasks (``replication``), copying (``file_copies``),
the configs that set the limit (``protocol.decide.moves``).
"""

from __future__ import annotations

from sparklog.clock import Clock


class Throttle:
    """Limits the average rate since it was created to ``bytes_per_second``; 0 means no limit. Not thread-safe.

    ``take`` is called before bytes are copied, and waits if there were too many.
    """

    def __init__(self, bytes_per_second: float, clock: Clock) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._free_at = clock.monotonic()

    def take(self, size: int) -> None:
        if self._rate <= 0:
            return
        now = self._clock.monotonic()
        start = max(self._free_at, now)
        self._free_at = start + size / self._rate
        if start > now:
            self._clock.sleep(start - now)
