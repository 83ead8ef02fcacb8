"""Time, as a constructor argument, and as text. The only place that may read a clock or sleep.

``SystemClock`` is the default; tests and the simulation pass a ``ManualClock``.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta, timezone
from typing import Protocol


class Clock(Protocol):
    """Wall time for stored timestamps, monotonic time for durations, and the only sleep."""

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never goes back, and counts time while the machine is suspended."""

    def sleep(self, seconds: float) -> None: ...


# time.monotonic stops while a Linux or macOS machine is suspended, so checks for a stalled process would miss the
# suspension. CLOCK_BOOTTIME (Linux) and CLOCK_MONOTONIC (macOS) keep counting; elsewhere time.monotonic does.
if hasattr(time, "CLOCK_BOOTTIME"):
    _ELAPSED_CLOCK: int | None = time.CLOCK_BOOTTIME
elif sys.platform == "darwin":
    _ELAPSED_CLOCK = time.CLOCK_MONOTONIC
else:
    _ELAPSED_CLOCK = None


class SystemClock:
    """The machine's clock. Thread-safe, picklable."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic() if _ELAPSED_CLOCK is None else time.clock_gettime(_ELAPSED_CLOCK)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """A clock that moves only by ``advance``, ``set_ms`` and ``sleep``. Not thread-safe."""

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
        """Set only the wall clock, forwards or backwards, as an operator or NTP would."""
        self._now_ms = now_ms - int(self._elapsed * 1000)


def give_way() -> None:
    """Let a thread run that waits for the interpreter, which otherwise takes 5 ms (``sys.getswitchinterval``)."""
    time.sleep(0)


def utc(timestamp_ms: int) -> datetime:
    """Return the moment at this number of milliseconds since 1970, for negative ones too.

    Raises OverflowError outside of the years 1 to 9999.
    """
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=timestamp_ms)


def utc_text(timestamp_ms: int) -> str:
    """Format a time as ``2026-11-22 11:45:34.000 UTC``."""
    return utc(timestamp_ms).isoformat(sep=" ", timespec="milliseconds").replace("+00:00", " UTC")
