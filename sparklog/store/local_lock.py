"""The advisory lock of the committers of one machine: flock on ``meta/.lock``.

Rules:

* It only saves racing committers wasted work, so whoever cannot have it commits without.
* Who may only read the root cannot open its file (see ``modes``).
* A holder that keeps it for ``LOCK_WAIT_SECONDS``, such as a stopped process, is given up on: its file is removed, and
  the next committer, of any process, makes a new one. Where it cannot be removed, this process remembers the file, and
  asks for it without waiting until it has once been free.
* flock does not tell the threads of a process apart when they share a file, and polling it costs more than a lock does:
  threads queue at a lock of the process first.

Not for: deciding who commits; that is ``put_if_absent``.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sparklog.clock import Clock
from sparklog.store.modes import give_lock_mode

LOCK_WAIT_SECONDS = 2.0
"""How long a committer waits for the advisory lock before it goes on without: its holder may be a stopped process."""

_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.00005, 0.004
"""Pauses between tries for the lock grow with the time waited: who has waited for long is one of many, and of many one
comes soon. A commit takes about half a millisecond."""

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

_given_up: dict[str, tuple[int, int]] = {}
"""Lock files, by path, whose holder was given up on and that could not be removed."""


@contextmanager
def committers_lock(
    path: str, root: str, clock: Clock, make_folder: Callable[[str], None], while_waiting: Callable[[], object] | None
) -> Iterator[None]:
    """Hold the lock of this file, or none where it cannot be had. ``make_folder`` is called with the file's folder if
    that is missing; see ``Store.commit_lock`` for the rest."""
    in_process = _lock_of_process(path)
    got_in_process = in_process.acquire(timeout=LOCK_WAIT_SECONDS)
    try:
        file = _lock_file(path, root, clock, make_folder, while_waiting) if got_in_process else None
        try:
            yield
        finally:
            if file is not None:
                # Closing alone would leave it locked while a process forked meanwhile has the file open too.
                fcntl.flock(file, fcntl.LOCK_UN)
                os.close(file)
    finally:
        if got_in_process:
            in_process.release()


def _lock_file(
    path: str, root: str, clock: Clock, make_folder: Callable[[str], None], while_waiting: Callable[[], object] | None
) -> int | None:
    """The locked file, or None where locking is not possible or its holder keeps it too long."""
    start = clock.monotonic()
    while True:
        try:
            file = _open(path, root, make_folder)
        except OSError:
            return None
        locked = False
        try:
            locked = _wait(file, path, clock, start, while_waiting)
            if not locked or _is_at(path, file):
                return file if locked else None
            locked = False  # another has replaced the file meanwhile: the lock is on the new one
        except OSError:  # a mount without locks
            return None
        finally:
            if not locked:
                os.close(file)


def _wait(file: int, path: str, clock: Clock, start: float, while_waiting: Callable[[], object] | None) -> bool:
    """Whether the lock was had in time. True as well once the file is not at its path any more."""
    while not _try_lock(file):
        waited = clock.monotonic() - start
        if _given_up.get(path) == _identity(os.fstat(file)):
            return False
        if waited > LOCK_WAIT_SECONDS:
            _give_up_on(file, path)
            return False
        pause = max(waited / 2, _FIRST_PAUSE_SECONDS)
        if pause >= _LAST_PAUSE_SECONDS:
            if not _is_at(path, file):
                return True
            if while_waiting is not None:
                while_waiting()
        clock.sleep(min(pause, _LAST_PAUSE_SECONDS))
    _given_up.pop(path, None)
    return True


def _give_up_on(file: int, path: str) -> None:
    """Make way for a new lock file, or remember this one."""
    try:
        if _is_at(path, file):
            os.unlink(path)
    except OSError:
        _given_up[path] = _identity(os.fstat(file))


def _open(path: str, root: str, make_folder: Callable[[str], None]) -> int:
    try:
        file = os.open(path, _FLAGS, 0o600)
    except FileNotFoundError:
        make_folder(os.path.dirname(path))
        file = os.open(path, _FLAGS, 0o600)
    give_lock_mode(file, root)
    return file


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: str, file: int) -> bool:
    try:
        return _identity(os.stat(path)) == _identity(os.fstat(file))
    except FileNotFoundError:
        return False


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


_process_locks: dict[str, threading.Lock] = {}
_process_locks_guard = threading.Lock()


def _lock_of_process(path: str) -> threading.Lock:
    with _process_locks_guard:
        return _process_locks.setdefault(path, threading.Lock())


def _forget_locks() -> None:
    """In a forked child: a lock that another thread of the parent held would stay held for good."""
    global _process_locks_guard
    _process_locks.clear()
    _process_locks_guard = threading.Lock()


os.register_at_fork(after_in_child=_forget_locks)
