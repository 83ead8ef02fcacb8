"""A store in memory whose next commits fail as configured, for the tests of clients."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from sparklog.clock import ManualClock
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import UNAVAILABLE, Call, FaultyStore


class FlakyStore(FaultyStore):
    """``commits`` lists the faults of the next attempts to create a commit, one each. With ``silent``, reading back
    after such a fault fails too, so that the outcome of the commit stays unknown. ``before_retry`` is called once after
    that, or at the first step while the storage is ``down``; each step then takes a second."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(MemoryStore(uuid.uuid4().hex))
        self._manual_clock = clock
        self.commits: list[str] = []
        self.silent = False
        self.down = False
        self.before_retry: Callable[[], object] | None = None
        self._unreadable = 0

    def _due(self, call: Call) -> str | None:
        kind = super()._due(call)
        if self.down:
            self._call_before_retry()
            self._manual_clock.advance(1)
            return UNAVAILABLE
        if call.operation == "put_if_absent" and self.commits:
            self._unreadable = 5 if self.silent else 0  # a commit is read back this many times
            return self.commits.pop(0)
        if call.operation == "get" and self._unreadable and call.key.startswith("meta/commits/"):
            self._unreadable -= 1
            if not self._unreadable:
                self._call_before_retry()
            return UNAVAILABLE
        return kind

    def _call_before_retry(self) -> None:
        action, self.before_retry = self.before_retry, None
        if action is not None:
            action()
