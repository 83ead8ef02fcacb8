"""Waiting for another thread, in a thread that a signal may interrupt at any call.

    condition = Condition(lock)
    condition.wait_for(lambda: batch.done, seconds=5)       # one thread
    batch.done = True; condition.notify_all()               # another one

A handler of a signal runs in the main thread, between two steps of its code. One that raises comes out of a wait; one
that returns may have called the same client, and have waited itself, for a thread that needs a lock that the main
thread held when it was interrupted. ``threading`` and ``concurrent.futures`` wait in Python code, in which the first
leaves a lock held, or not held, and the second deadlocks.

Rules: a wait is one call of C, without a lock: ``lock`` is released as often as this thread has entered it, and entered
as often again, whatever interrupts the wait. To notify takes no lock. Waits are in real time, whatever clock the
cluster has.

Not for: time limits of calls (``deadlines``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any

from sparklog.clock import SystemClock
from sparklog.threads import Wakeup

_now = SystemClock().monotonic
_release_whole = methodcaller("_release_save")


class Condition:
    """What threads wait for. Thread-safe.

    ``lock``, an RLock, guards what the condition is about: who holds it from looking until ``wait``, and changes only
    with it, misses no notification. None where nothing but ``wait_for`` is used, which looks after it is registered.
    """

    def __init__(self, lock: Any = None) -> None:
        self.lock = lock
        self._waiting: dict[Wakeup, None] = {}

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the next notification, at most ``seconds`` (None: no limit)."""
        wakeup = Wakeup()
        self._waiting[wakeup] = None
        try:
            self._sleep(wakeup, seconds)
        finally:
            self._waiting.pop(wakeup, None)

    def wait_for(self, is_over: Callable[[], object], seconds: float | None = None) -> bool:
        """Wait until this is true, at most ``seconds`` (None: no limit); return whether it is. It is called with the
        lock if the caller has it."""
        until = None if seconds is None else _now() + seconds
        while True:
            wakeup = Wakeup()
            self._waiting[wakeup] = None
            try:
                if is_over():
                    return True
                left = None if until is None else until - _now()
                if left is not None and left <= 0:
                    return False
                self._sleep(wakeup, left)
            finally:
                self._waiting.pop(wakeup, None)

    def notify_all(self) -> None:
        """End the waits that have begun."""
        for wakeup in list(self._waiting):
            wakeup.set()
            self._waiting.pop(wakeup, None)

    def _sleep(self, wakeup: Wakeup, seconds: float | None) -> None:
        call_unlocked(self.lock, partial(wakeup.wait, seconds))


class Flag:
    """Is set once; threads wait for that. Thread-safe."""

    def __init__(self) -> None:
        self.is_set = False
        self._changed = Condition()

    def set(self) -> None:
        self.is_set = True
        self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds``; return whether it is set."""
        return self._changed.wait_for(lambda: self.is_set, seconds)


def call_unlocked(lock: Any, call: Callable[[], Any]) -> Any:
    """Return the result of the call, during which this thread does not hold the lock (an RLock or None)."""
    saved: list[Any] = []
    try:
        if lock is not None and lock._is_owned():
            saved.extend(map(_release_whole, (lock,)))  # one call: nothing comes between the release and its result
        return call()
    finally:
        for state in saved:
            lock._acquire_restore(state)
