"""Restricts a consumer to one thread at a time, in the process that created it.

    with self._thread_guard.enter():
        ...

Rules: what a call holds is a lock of the interpreter, entered and left by ``with``. Between that and the block nothing
runs, so that an interrupt (Ctrl-C, an alarm) anywhere in a call leaves it free. One may come as the block is left.

Not for: clients that are thread-safe.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from sparklog.errors import IllegalStateError

Result = TypeVar("Result")


class OneThread:
    """A guard that lets in one thread at a time, in the process that created it; others get an error. Re-entrant, since
    listeners call the consumer.

    ``closed`` refuses all calls, but for those of the thread that is ``closing``.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._owner = self._guest = 0
        self._pid = os.getpid()
        self.closed = False
        self.closing = 0

    @property
    def inherited(self) -> bool:
        """Return whether this is a forked child of the process that created it."""
        return os.getpid() != self._pid

    def check_process(self) -> None:
        """Raise IllegalStateError in a forked child."""
        if self.inherited:
            raise IllegalStateError(
                "this consumer was created in another process; after a fork, create one in the child"
            )

    def enter(self) -> AbstractContextManager[object]:
        """Return the lock to hold during a call. Raises IllegalStateError if another thread holds it, or closed."""
        thread = threading.get_ident()
        self.check_process()
        if thread == self._guest:
            return nullcontext()
        if self._owner not in (0, thread) and not self._is_free():
            raise IllegalStateError("another thread is using this consumer; only one may use it at a time")
        self._owner = thread
        if self.closed and self.closing != thread:  # a listener may commit while ``close`` calls it
            raise IllegalStateError("this consumer is closed; create a new one")
        return self._lock

    def lent(self, function: Callable[[], Result]) -> Callable[[], Result]:
        """Return the function for another thread, which may use the consumer meanwhile: this one, which holds the
        guard, waits for it."""

        def run() -> Result:
            before, self._guest = self._guest, threading.get_ident()  # one guest may lend it to the next
            try:
                return function()
            finally:
                self._guest = before

        return run

    def enter_to_close(self) -> AbstractContextManager[object]:
        """Return the lock to hold during ``close``, which waits for a call of another thread."""
        self.check_process()
        return nullcontext() if threading.get_ident() == self._guest else self._lock

    def _is_free(self) -> bool:
        """Return whether this thread may take the lock. ``_owner`` is only the thread that asked for it last."""
        if not self._lock.acquire(blocking=False):
            return False
        self._lock.release()
        return True
