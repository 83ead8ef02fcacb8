"""The time of an evaluation, and how much has passed since the last one, also if the wall clock jumps.

    tick = next_tick(last, Reading(wall_ms, monotonic_seconds, boot))

The monotonic clock of a machine measures what has passed; the wall clock is believed where the two agree. Where they
differ by more than ``MAX_DIVERGENCE_MS``, time goes on by the monotonic clock, until the wall clock has been as far off
for ``SETTLED_SECONDS``: then it was set on purpose. After a restart of the machine there is only the wall clock, of
which at most ``MAX_UNSEEN_SECONDS`` count.

So a clock that jumps makes no alert fire or resolve: neither measured times nor durations jump with it.

Rules: pure. Not for: reading clocks (``evaluation``).
"""

from __future__ import annotations

from typing import NamedTuple

MAX_DIVERGENCE_MS = 60_000
SETTLED_SECONDS = 900.0
MAX_UNSEEN_SECONDS = 3600.0


class Reading(NamedTuple):
    """What the clocks of a machine say; ``boot`` identifies its start, and is empty if that is not known."""

    wall_ms: int
    monotonic: float
    boot: str = ""


class Tick(NamedTuple):
    """The time of an evaluation. ``elapsed`` are seconds since the one before, 0 for the first; ``off_for`` those for
    which the wall clock has been off."""

    time_ms: int
    elapsed: float
    reading: Reading
    off_for: float = 0.0


def next_tick(last: Tick | None, reading: Reading) -> Tick:
    """Return the time of an evaluation at which the clocks say this."""
    if last is None:
        return Tick(reading.wall_ms, 0.0, reading)
    if reading.boot != last.reading.boot or reading.monotonic < last.reading.monotonic:
        passed_ms = reading.wall_ms - last.time_ms
        return Tick(reading.wall_ms, min(max(passed_ms / 1000, 0.0), MAX_UNSEEN_SECONDS), reading)
    elapsed = reading.monotonic - last.reading.monotonic
    expected_ms = last.time_ms + round(elapsed * 1000)
    if abs(reading.wall_ms - expected_ms) <= MAX_DIVERGENCE_MS:
        return Tick(reading.wall_ms, elapsed, reading)
    is_steady = abs(reading.wall_ms - last.reading.wall_ms - elapsed * 1000) <= MAX_DIVERGENCE_MS
    off_for = last.off_for + elapsed if is_steady else 0.0
    if off_for >= SETTLED_SECONDS:
        return Tick(reading.wall_ms, elapsed, reading)
    return Tick(expected_ms, elapsed, reading, off_for)


def is_outdated(last: Tick | None, begun: Reading) -> bool:
    """Return whether another process has evaluated after this one began to measure, so that its result is newer."""
    return last is not None and last.reading.boot == begun.boot and begun.monotonic < last.reading.monotonic
