"""Deletes files only shortly after a look at the log and at who owns their location.

    deletions = RecentLook(clock, look)       # ``look`` returns the store, or raises if nothing may be deleted any more
    deletions.look()
    map_parallel(deletions.delete, keys, store.parallel_requests)

A process may be suspended between the two, while the root is restored or its locations are taken over. If that takes
longer than a look counts, it looks again when it resumes: only the requests that were on their way delete something.

Not for: the look itself (``sweep.check_before_deletion``, ``coordinator.ownership``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from sparklog.clock import Clock
from sparklog.errors import StorageError
from sparklog.log.elapsed import ElapsedTime, Moment
from sparklog.store.base import Store

LONGEST_LOOK_SECONDS = 10.0
"""Seconds for which a look counts, from its beginning."""

LOOKS = 5
"""Looks that may take longer, one after another."""


class RecentLook:
    """The last look, and when it began. Thread-safe; one thread looks, and the others wait for it."""

    def __init__(self, clock: Clock, look: Callable[[], Store]) -> None:
        self._elapsed = ElapsedTime(clock)
        self._look = look
        self._lock = threading.Lock()
        self._latest: tuple[Moment, Store] | None = None

    def look(self) -> Store:
        """Return the store; look first if the last look was too long ago. Raises what the look raises."""
        with self._lock:
            latest = self._latest
            if latest is None or self._elapsed.seconds_since(latest[0]) > LONGEST_LOOK_SECONDS:
                self._latest = None
                latest = self._latest = self._look_quickly()
            return latest[1]

    def _look_quickly(self) -> tuple[Moment, Store]:
        """Look until a look takes no longer than one counts: in the middle of another the process was suspended,
        perhaps, and what it had read before is out of date."""
        for _ in range(LOOKS):
            began = self._elapsed.now()
            store = self._look()
            if self._elapsed.seconds_since(began) <= LONGEST_LOOK_SECONDS:
                return began, store
        raise StorageError(
            f"{store.root} is not certain to be as it was seen: each of {LOOKS} looks took over "
            f"{LONGEST_LOOK_SECONDS:g} s; nothing more is deleted, the next run tries again",
            path=store.root,
        )

    def delete(self, *keys: str) -> None:
        """Delete objects in this order. Raises StorageError, and what a look raises."""
        for key in keys:
            self.look().delete(key)
