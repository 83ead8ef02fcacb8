"""How long ago something was, on a machine that may have slept, or whose clock may have been set, since."""

from __future__ import annotations

from typing import NamedTuple

from sparklog import limits
from sparklog.clock import Clock

AWAY_SECONDS = limits.MIN_COMMIT_AGE_MS / 2000
"""seconds without a look at the log after which its commits may have been removed meanwhile."""


class Moment(NamedTuple):
    """A moment by both clocks of this machine."""

    monotonic: float
    wall_ms: int


class ElapsedTime:
    """Measures by a machine's elapsed time and its wall clock, of which either may have stood still. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.now_ms())

    def seconds_since(self, moment: Moment) -> float:
        """The longer of what the two clocks say."""
        now = self.now()
        return max(now.monotonic - moment.monotonic, (now.wall_ms - moment.wall_ms) / 1000)

    def is_away_since(self, moment: Moment) -> bool:
        """Whether this process may have missed commits that were made, and removed, since it looked last."""
        return self.seconds_since(moment) >= AWAY_SECONDS
