"""Time, as a constructor argument. The only place that may read a clock or sleep.

``SystemClock`` is the default; tests and the simulation pass a ``ManualClock``.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for what is stored, monotonic time for durations, and the only sleep."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's clock. Thread-safe, picklable."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only when told to, or when somebody sleeps on it. Not thread-safe."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._elapsed = 0.0

    def now_ms(self) -> int:
        return self._now_ms + int(self._elapsed * 1000)

    def monotonic(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        self._elapsed += seconds

    def set_ms(self, now_ms: int) -> None:
        """Set the wall clock alone, also backwards, as an operator or NTP would."""
        self._now_ms = now_ms - int(self._elapsed * 1000)
