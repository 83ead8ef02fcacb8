"""The advisory lock of the committers of one machine: flock on ``meta/.lock``.

Rules:

* The lock only saves racing committers wasted work, so a committer that cannot get it commits without.
* A process that may only read the root cannot open the lock file (see ``modes``).
* If a holder keeps it for ``LOCK_WAIT_SECONDS``, such as a stopped process, the waiting ends: the file is deleted, and
  the next committer of any process creates a new one. If it cannot be deleted, this process remembers the file and
  tries its lock without waiting until it was free once.
* flock does not distinguish threads of a process that share a file, and polling it costs more than a lock: threads
  queue at a lock of the process first.

Not for: deciding which commit wins; that is ``put_if_absent``.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sparklog.clock import Clock
from sparklog.store.modes import give_lock_mode
from sparklog.store.process_local import ProcessTable

LOCK_WAIT_SECONDS = 2.0
"""How long a committer waits for the advisory lock before it commits without: the holder may be a stopped process."""

_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.00005, 0.004
"""Bounds of the pause between two tries, which grows with the time waited: a long wait means many waiters, of which one
tries soon anyhow. A commit takes about half a millisecond."""

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW

_given_up: dict[str, tuple[int, int]] = {}
"""Lock files, by path, that a holder kept too long and that could not be deleted."""


@contextmanager
def committers_lock(
    path: str, root: str, clock: Clock, make_folder: Callable[[str], None], while_waiting: Callable[[], object] | None
) -> Iterator[None]:
    """Hold the lock of this file, or none if it is not available in time. ``make_folder`` is called with the file's
    folder if that is missing; see ``Store.commit_lock`` for the rest."""
    process_lock = _lock_of_process(path)
    has_process_lock = process_lock.acquire(timeout=LOCK_WAIT_SECONDS)
    try:
        file = _lock_file(path, root, clock, make_folder, while_waiting) if has_process_lock else None
        try:
            yield
        finally:
            if file is not None:
                _unlock(file)
    finally:
        if has_process_lock:
            process_lock.release()


def _unlock(file: int) -> None:
    """Unlock and close the file. What was done under the lock is not undone by an error here, of a network's lock."""
    with suppress(OSError):
        # Closing alone would leave it locked while a process forked in the meantime has the file open too.
        fcntl.flock(file, fcntl.LOCK_UN)
    with suppress(OSError):
        os.close(file)


def _lock_file(
    path: str, root: str, clock: Clock, make_folder: Callable[[str], None], while_waiting: Callable[[], object] | None
) -> int | None:
    """Return the locked file, or None if locking is impossible or its holder keeps it too long."""
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
            locked = False  # the file was replaced in the meantime: the new one is to be locked
        except OSError:  # a mount without locks
            return None
        finally:
            if not locked:
                os.close(file)


def _wait(file: int, path: str, clock: Clock, start: float, while_waiting: Callable[[], object] | None) -> bool:
    """Return whether the lock was acquired in time. Also True once the file is no longer at its path."""
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
    """Delete the lock file, so that a new one is created, or remember it."""
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


_process_locks: ProcessTable[str, threading.Lock] = ProcessTable()


def _lock_of_process(path: str) -> threading.Lock:
    with _process_locks.held:
        return _process_locks.entries.setdefault(path, threading.Lock())
