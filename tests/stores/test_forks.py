"""Forks while another thread is inside a store: the child can still use stores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sparklog.clock import ManualClock
from sparklog.store.memory import MemoryStore
from sparklog.store.process_local import ProcessTable, start_over
from sparklog.store.read_ahead import ReadAheadFile
from tests.stores.test_local import in_child

HANGS_AFTER_SECONDS = 30

_OPEN_AND_FORK = """
import os, signal, sys, threading, warnings
from sparklog.store.open import open_store

warnings.simplefilter("ignore", DeprecationWarning)  # threads and forks: that is what this is about

def use():
    options = {"endpoint_url": "http://127.0.0.1:9", "key": "k", "secret": "s"}
    assert open_store("s3://bucket/x", options).endpoint_to_probe == "http://127.0.0.1:9"

opener = threading.Thread(target=use)
opener.start()
while REACHED not in sys.modules:
    pass
child = os.fork()
if child == 0:
    signal.alarm(SECONDS)
    use()
    os._exit(0)
status = os.waitpid(child, 0)[1]
opener.join()
sys.exit(os.waitstatus_to_exitcode(status))
"""


@pytest.mark.parametrize("reached", ["sparklog.store.s3", "fsspec.asyn", "aiohttp", "s3fs", "s3fs.core"])
def test_child_forked_while_a_store_is_opened_can_open_one(reached: str) -> None:
    program = _OPEN_AND_FORK.replace("REACHED", repr(reached)).replace("SECONDS", str(HANGS_AFTER_SECONDS))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@contextmanager
def within_another_thread(call: Callable[[Callable[[], object]], object]) -> Iterator[None]:
    """Another thread is within ``call``, at the place where that calls its argument."""
    reached, done = threading.Event(), threading.Event()

    def pause() -> None:
        if threading.current_thread() is holder and os.getpid() == process:
            reached.set()
            done.wait(60)

    process = os.getpid()
    holder = threading.Thread(target=call, args=(pause,))
    holder.start()
    reached.wait(60)
    try:
        yield
    finally:
        done.set()
        holder.join()


class PausingClock(ManualClock):
    """Its ``now_ms`` calls ``pause`` first: a store asks for the time of an object under its lock."""

    def __init__(self) -> None:
        super().__init__()
        self.pause: Callable[[], object] = lambda: None

    def now_ms(self) -> int:
        self.pause()
        return super().now_ms()


def in_bounded_child(action: Callable[[], object]) -> None:
    def bounded() -> None:
        signal.alarm(HANGS_AFTER_SECONDS)
        action()

    in_child(bounded)


def test_memory_store_survives_a_fork_during_a_call() -> None:
    clock = PausingClock()
    store = MemoryStore("forked", clock)
    store.put("a", b"1")

    def put(pause: Callable[[], object]) -> None:
        clock.pause = pause
        store.put("c", b"3")

    with within_another_thread(put):
        in_bounded_child(lambda: store.put("b", store.get("a")))


def test_open_remote_file_survives_a_fork_during_a_read() -> None:
    pauses: list[Callable[[], object]] = []

    def fetch(position: int, length: int) -> bytes:
        for pause in pauses:
            pause()
        return b"0123456789"[position : position + length]

    file = ReadAheadFile("a", fetch, lambda: 10)

    def read(pause: Callable[[], object]) -> None:
        pauses.append(pause)
        file.read_at(0, 1)

    with within_another_thread(read):
        in_bounded_child(lambda: file.read_at(2, 3))


def test_a_table_is_empty_and_unlocked_in_a_child_forked_during_its_use() -> None:
    table: ProcessTable[str, int] = ProcessTable()
    with table.held:
        entries = table.entries
        entries["of the parent"] = 1

    def use() -> None:
        with table.held:
            entries = table.entries
            assert entries == {}
            entries["of the child"] = 2

    def hold(pause: Callable[[], object]) -> None:
        with table.held:
            pause()

    with within_another_thread(hold):
        in_bounded_child(use)
    with table.held:
        entries = table.entries
        assert entries == {"of the parent": 1}
        start_over()
        assert entries == {}
