"""Who may use a consumer: one thread at a time, in the process that made it.

Not for: clients that are thread-safe.
"""

from __future__ import annotations

import os
import threading

from sparklog.errors import IllegalStateError


class OneThread:
    """Lets one thread in at a time, in the process that made it. The thread that is in may come again (listeners)."""

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
        """Whether this is a forked child of the process that made it."""
        return os.getpid() != self._pid

    def check_process(self) -> None:
        """Raises IllegalStateError in a forked child."""
        if self.inherited:
            raise IllegalStateError("this consumer was made in another process; after a fork make one in the child")

    def enter(self, wait: bool) -> None:
        me = threading.get_ident()
        self.check_process()
        if self._owner != me:
            if not self._lock.acquire(blocking=wait):
                raise IllegalStateError("another thread is using this consumer; only one may at a time")
            self._owner = me
        self._depth += 1
        if self.closed and not wait and self._depth == 1:  # a listener may commit while ``close`` calls it
            self.__exit__()
            raise IllegalStateError("this consumer is closed; make another one")

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self._lock.release()
