"""A lock that a forked child finds free: for locks of modules, and of what lives as long as its process.

A fork copies a lock as it is, but only the thread that forks: a lock that another thread holds at that moment would
stay held in the child for good. What it guards has to be fit for use in the child in any state: keyed by process id, or
only ever replaced in one step.
"""

from __future__ import annotations

import os
import threading
import weakref

_all: weakref.WeakSet[ProcessLock] = weakref.WeakSet()


class ProcessLock:
    """A reentrant lock, free in each process at first. For ``with``."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """In a forked child: be free."""
        self._lock = threading.RLock()


def _renew_all() -> None:
    for each in list(_all):
        each.renew()


os.register_at_fork(after_in_child=_renew_all)
