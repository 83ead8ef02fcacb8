"""A storage some of whose calls wait, as the writes of a frozen file system do while its reads answer, for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.substitutes import substituted

WRITES = frozenset({"put", "put_if_absent", "open_output", "write", "close", "delete", "sync"})


class Waiting:
    """Which operations wait, which calls have begun to, and ``end`` for all of them. A call that waits takes effect at
    the end."""

    def __init__(self) -> None:
        self.operations: set[str] | frozenset[str] = frozenset()
        self.calls: list[Call] = []
        self._ends = threading.Event()

    def before(self, step: int, call: Call) -> None:
        if call.operation in self.operations:
            self.calls.append(call)
            assert self._ends.wait(60), f"{call} was waited for"

    def end(self) -> None:
        self.operations = frozenset()
        self._ends.set()


@contextmanager
def waiting_at(folder: Path) -> Iterator[Waiting]:
    """Let calls of the storage in this folder wait, from when operations are named until the block ends."""
    waiting = Waiting()
    with substituted(FaultyStore(open_store(str(folder)), before=waiting.before)):
        try:
            yield waiting
        finally:
            waiting.end()
