"""Finds the newest commit of a time among many, by reading the times of few.

    find_newest(Timed(-1, -inf), Timed(4096, 170), 120, read_times)    # the newest version whose time is 120 or less

The times of commits grow, except after a reset of the log's time (``protocol.log_time``), which it notices where a
commit that was read is later than one after it. It then looks between the two. So it finds the newest one if the times
from before the reset are all later than those after it. Once the log's time has grown beyond them, it was the same one
twice, and the earlier one may be found if fewer commits lie between the two than between those that are read at first.

Rules: pure but for ``read_times``. Not for: commits that were removed (``cleanup``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

PROBES = 63
"""Commits whose times are read together: three times for a quarter of a million commits."""


class Timed(NamedTuple):
    """A version and the time of its commit, in ms since the epoch."""

    version: int
    time_ms: float


def find_newest(
    low: Timed, high: Timed, time_ms: float, read_times: Callable[[Sequence[int]], Sequence[float]]
) -> int | None:
    """Return the newest version from ``low`` to ``high`` whose time is not after ``time_ms``, which that of ``high``
    is; None if there is none. The commit after it has a later time."""
    if time_ms < low.time_ms < high.time_ms:
        return None
    between = range(low.version + 1, high.version)
    if not between:
        return None if time_ms < low.time_ms else low.version
    probes = between[:: -(-len(between) // PROBES)]
    known = [low, *map(Timed, probes, read_times(probes)), high]
    for earlier, later in reversed(list(pairwise(known))):
        found = find_newest(earlier, later, time_ms, read_times)
        if found is not None:
            return found
    return None
