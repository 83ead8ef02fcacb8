"""A storage some of whose calls wait, as the writes of a frozen file system do while its reads answer, for tests.

A call with a limit (``store.limited``) is given up once it is known to wait, and not before: how long others take, on a
slow disk, decides nothing. The limit itself is tested in ``tests/unit/store/test_limited.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from concurrent.futures._base import DoneAndNotDoneFutures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sparklog.store import limited
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.substitutes import substituted
from sparklog.threads import call_in_thread

WRITES = frozenset({"put", "put_if_absent", "open_output", "write", "close", "delete", "sync"})


class Waiting:
    """Which operations wait, which calls have begun to, and ``end`` for all of them. A call that waits takes effect at
    the end."""

    def __init__(self) -> None:
        self.operations: set[str] | frozenset[str] = frozenset()
        self.calls: list[Call] = []
        self._ends = threading.Event()
        self._stuck: set[Future[Any]] = set()
        self._asked = threading.local()

    def before(self, step: int, call: Call) -> None:
        if call.operation in self.operations:
            self.calls.append(call)
            self._stuck.add(getattr(self._asked, "answer", None) or Future())
            assert self._ends.wait(60), f"{call} was waited for"

    def call_in_thread(self, call: Callable[[], Any]) -> Future[Any]:
        known: Future[Future[Any]] = Future()

        def run() -> Any:
            self._asked.answer = known.result()
            return call()

        answer = call_in_thread(run)
        known.set_result(answer)
        return answer

    def wait(self, answers: Sequence[Future[Any]], seconds: float) -> DoneAndNotDoneFutures[Any]:
        (answer,) = answers
        while not answer.done() and answer not in self._stuck:
            wait(answers, 0.01)
        return wait(answers, 0)

    def end(self) -> None:
        self.operations = frozenset()
        self._ends.set()


@contextmanager
def waiting_at(folder: Path) -> Iterator[Waiting]:
    """Let calls of the storage in this folder wait, from when operations are named until the block ends."""
    waiting = Waiting()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limited, "call_in_thread", waiting.call_in_thread)
        patch.setattr(limited, "wait", waiting.wait)
        with substituted(FaultyStore(open_store(str(folder)), before=waiting.before)):
            try:
                yield waiting
            finally:
                waiting.end()
