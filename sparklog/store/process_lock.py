"""A lock that is free in a forked child: for modules, and for objects that live as long as their process.

A fork copies locks as they are, but only the forking thread: a lock that another thread holds at that moment would stay
locked in the child forever. The data it guards must be usable in the child in any state: keyed by process id, or only
ever replaced in one step.
"""

from __future__ import annotations

import os
import threading
import weakref

_all: weakref.WeakSet[ProcessLock] = weakref.WeakSet()


class ProcessLock:
    """A reentrant lock, to be used with ``with``; it starts out free in each process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Replace the lock by a free one; called in a forked child."""
        self._lock = threading.RLock()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


os.register_at_fork(after_in_child=_renew_all)
