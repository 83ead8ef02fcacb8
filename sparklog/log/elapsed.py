"""Measures elapsed time on a machine that may sleep, or whose clock may be set, in between."""

from __future__ import annotations

import math
from typing import NamedTuple

from sparklog.clock import Clock


class Moment(NamedTuple):
    """A moment by both clocks of this machine."""

    monotonic: float
    wall_ms: int


class ElapsedTime:
    """Measures by a machine's monotonic and wall clock, either of which may have stood still. Thread-safe."""

    def __init__(self, clock: Clock, away_seconds: float = math.inf) -> None:
        """``away_seconds`` are those after which commits may have been removed; see ``LogSettings``."""
        self._clock = clock
        self._away_seconds = away_seconds

    def now(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.now_ms())

    def seconds_since(self, moment: Moment) -> float:
        """Return the longer of the times by the two clocks."""
        now = self.now()
        return max(now.monotonic - moment.monotonic, (now.wall_ms - moment.wall_ms) / 1000)

    def is_away_since(self, moment: Moment) -> bool:
        """Return whether commits may have been made and removed since this moment, unseen by this process."""
        return self.seconds_since(moment) >= self._away_seconds
