"""Restricts a consumer to one thread at a time, in the process that created it.

Not for: clients that are thread-safe.
"""

from __future__ import annotations

import os
import threading

from sparklog.errors import IllegalStateError


class OneThread:
    """A guard that lets in one thread at a time, in the process that created it; others get an error. Re-entrant, since
    listeners call the consumer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._depth = 0
        self._pid = os.getpid()
        self.closed = False

    def __enter__(self) -> None:
        self.enter(wait=False)

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

    def enter(self, wait: bool) -> None:
        """Enter; with ``wait``, wait for another thread and allow a closed consumer. Raises IllegalStateError."""
        thread = threading.get_ident()
        self.check_process()
        if self._owner != thread:
            if not self._lock.acquire(blocking=wait):
                raise IllegalStateError("another thread is using this consumer; only one may use it at a time")
            self._owner = thread
        self._depth += 1
        if self.closed and not wait and self._depth == 1:  # a listener may commit while ``close`` calls it
            self.__exit__()
            raise IllegalStateError("this consumer is closed; create a new one")

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self._lock.release()
