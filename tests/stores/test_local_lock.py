"""The commit lock of a local root: it saves work, and a holder that does not release it delays others only briefly."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.store.base import LOCK_NAME
from sparklog.store.local import LocalStore
from sparklog.store.local_lock import LOCK_WAIT_SECONDS
from tests.stores import processes
from tests.stores.test_local import in_child

SPAWN = multiprocessing.get_context("spawn")


@contextmanager
def stopped_holder(root: Path) -> Iterator[int]:
    """A process that was stopped while it held the lock; yields its id."""
    ready = SPAWN.Event()
    store = LocalStore(str(root))
    holder = SPAWN.Process(target=processes.hold_lock, args=(pickle.dumps(store), ready), daemon=True)
    holder.start()
    assert ready.wait(60)
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGSTOP)
    try:
        yield holder.pid
    finally:
        holder.kill()
        holder.join()


def seconds_waited(root: Path) -> float:
    """How long a process waits for the commit lock, by its own clock."""
    clock = ManualClock()
    with LocalStore(str(root), clock=clock).commit_lock():
        return clock.monotonic()


def is_free(root: Path) -> bool:
    with (root / "meta" / LOCK_NAME).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_lock_excludes_a_second_process_until_its_holder_dies(tmp_path: Path) -> None:
    ready = SPAWN.Event()
    store = LocalStore(str(tmp_path))
    holder = SPAWN.Process(target=processes.hold_lock, args=(pickle.dumps(store), ready), daemon=True)
    holder.start()
    assert ready.wait(60)
    clock = ManualClock()
    impatient = LocalStore(str(tmp_path), clock=clock)
    with impatient.commit_lock():  # continues without the lock after its wait
        assert clock.monotonic() >= LOCK_WAIT_SECONDS
    holder.kill()
    holder.join()
    clock = ManualClock()
    with LocalStore(str(tmp_path), clock=clock).commit_lock():
        assert clock.monotonic() == 0
    assert list(store.list()) == []  # the lock's file is not an object


def test_waiting_for_the_lock_runs_a_callback(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    done = threading.Event()
    released = threading.Event()

    def hold() -> None:  # as another process would
        file = os.open(f"{tmp_path}/meta/{LOCK_NAME}", os.O_RDWR)
        fcntl.flock(file, fcntl.LOCK_EX)
        locked.set()
        done.wait(30)
        os.close(file)
        released.set()

    with store.commit_lock():  # creates the file
        pass
    locked = threading.Event()
    holder = threading.Thread(target=hold)
    holder.start()
    locked.wait(30)
    with store.commit_lock(done.set):
        assert done.is_set()
    holder.join()
    assert released.is_set()


def test_stopped_holder_delays_only_one_process(tmp_path: Path) -> None:
    with stopped_holder(tmp_path):
        assert seconds_waited(tmp_path) >= LOCK_WAIT_SECONDS
        assert seconds_waited(tmp_path) == 0
        with LocalStore(str(tmp_path)).commit_lock():
            assert not is_free(tmp_path)  # other processes have a lock again
        with (tmp_path / "meta" / LOCK_NAME).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert seconds_waited(tmp_path) >= LOCK_WAIT_SECONDS  # and a later holder is waited for again


def test_holder_whose_file_cannot_be_replaced_is_waited_for_once_until_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> None:  # as in a folder with the sticky bit, where the file is another user's
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "unlink", refuse)
    with LocalStore(str(tmp_path)).commit_lock():  # creates the file
        pass
    reader = os.open(tmp_path / "meta" / LOCK_NAME, os.O_RDONLY)
    fcntl.flock(reader, fcntl.LOCK_EX)
    assert seconds_waited(tmp_path) >= LOCK_WAIT_SECONDS
    for _ in range(3):
        assert seconds_waited(tmp_path) == 0
    fcntl.flock(reader, fcntl.LOCK_UN)
    assert seconds_waited(tmp_path) == 0
    fcntl.flock(reader, fcntl.LOCK_EX)
    assert seconds_waited(tmp_path) >= LOCK_WAIT_SECONDS  # it was seen free, so this is another holder
    os.close(reader)
    assert seconds_waited(tmp_path) == 0


def test_waiting_process_takes_the_new_file_if_the_lock_file_is_replaced(tmp_path: Path) -> None:
    with stopped_holder(tmp_path):
        path = tmp_path / "meta" / LOCK_NAME
        clock = ManualClock()

        def replace() -> None:  # another process gave up on the holder
            path.unlink()

        with LocalStore(str(tmp_path), clock=clock).commit_lock(lambda: path.exists() and replace()):
            assert clock.monotonic() < LOCK_WAIT_SECONDS
            assert path.exists()
            assert not is_free(tmp_path)


def test_lock_of_this_process_survives_a_fork_in_another_thread(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    locked, done = threading.Event(), threading.Event()

    def hold() -> None:
        with store.commit_lock():
            locked.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    locked.wait(30)
    try:
        in_child(lambda: LocalStore(str(tmp_path), clock=ManualClock()).commit_lock().__enter__())
    finally:
        done.set()
        holder.join()


@pytest.mark.parametrize("is_done", [False, True], ids=["failed", "done and failed"])
@pytest.mark.parametrize("call", ["flock", "close"])
def test_an_error_of_unlocking_is_none_of_what_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, is_done: bool
) -> None:
    """As on NFS, where the server has forgotten the lock."""
    module = {"flock": fcntl, "close": os}[call]
    real = getattr(module, call)
    failed: list[str] = []

    def fail(file: int, *arguments: int) -> None:
        is_unlocking = (
            arguments == (fcntl.LOCK_UN,) if call == "flock" else LOCK_NAME in os.readlink(f"/proc/self/fd/{file}")
        )
        if not is_unlocking or is_done:
            real(file, *arguments)
        if is_unlocking:
            failed.append(call)
            raise OSError(errno.ESTALE, "Stale file handle")

    with LocalStore(str(tmp_path)).commit_lock():
        monkeypatch.setattr(module, call, fail)
    assert failed == [call]
