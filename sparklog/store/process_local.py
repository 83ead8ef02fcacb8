"""What a process has and its forks do not: clients of remote storages, tables of what was opened or done, locks.

Values are created at first use, again after a fork; tables start empty, and locks free. A fork copies locks as they
are, but only the forking thread: a lock that another thread holds at that moment would stay locked in the child.

Spark's Python workers are forked from a daemon. An inherited client is useless there: its threads are gone. Worse,
destroying it waits for those threads: with hdfs-native a child hangs as soon as it drops an inherited client, and s3fs
waits in its finalizer. So a forked child deliberately leaks what it inherited, before anything can touch it.

An import that one thread was running when another one forked never ends in the child: the import system has a lock per
module, whose owner is gone. So a client's package is imported within ``no_fork``, and a fork waits for the import.
The same goes for creating a client of fsspec, which starts a thread under a lock that its own fork handling misses.

Not for: sharing anything between processes.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - see below
import ctypes
import logging  # noqa: F401
import os
import pickle
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, TypeVar

from sparklog.clock import SystemClock
from sparklog.errors import UnsupportedStoreError

T = TypeVar("T")
Key = TypeVar("Key")
Value = TypeVar("Value")

_all: weakref.WeakSet[ProcessLocal | ProcessLock] = weakref.WeakSet()  # type: ignore[type-arg]
_tables: weakref.WeakSet[ProcessTable] = weakref.WeakSet()  # type: ignore[type-arg]

_fork_lock = threading.RLock()


def no_fork() -> AbstractContextManager[object]:
    """Let no thread fork during a lazy import or the creation of a client. Not for code that waits for a server."""
    return _fork_lock


@contextmanager
def importing_client(root: str, extra: str) -> Iterator[None]:
    """For a block, within ``no_fork``, that imports the client of a root's storage. Raises UnsupportedStoreError if it
    is not installed."""
    try:
        with _without_jars():
            yield
    except ImportError as error:
        raise UnsupportedStoreError(
            f"{root} needs a package that is not installed ({error}): pip install 'sparklog[{extra}]'", path=root
        ) from error


@contextmanager
def _without_jars() -> Iterator[None]:
    """Keep jars off the path of imports. Spark puts those of ``spark.jars.packages`` on it, and fsspec, when it is
    imported, asks everything on it for entry points: the 400,000 names in Amazon's jar take 5 s."""
    path, reduced = sys.path, [entry for entry in sys.path if not str(entry).endswith(".jar")]
    sys.path = list(reduced)
    try:
        yield
    finally:
        path += [entry for entry in sys.path if entry not in reduced]
        sys.path = path


class ProcessLocal(Generic[T]):
    """Holds one value per process. Thread-safe; not picklable, so its owner creates another one after unpickling."""

    def __init__(self, make: Callable[[], T]) -> None:
        """``make`` is called at the first ``get`` in each process, by one thread."""
        self._make = make
        self._value: T | None = None
        self._lock = threading.Lock()
        _all.add(self)

    def get(self) -> T:
        """Return the value of this process. Raises what ``make`` raises; the next call tries again."""
        if self._value is not None:
            return self._value
        with self._lock:
            if self._value is None:
                self._value = self._make()
            return self._value

    def peek(self) -> T | None:
        """Return the value if this process has made it, else None."""
        return self._value

    def clear(self) -> None:
        """Drop the value; the next ``get`` makes another."""
        with self._lock:
            self._value = None

    def renew(self) -> None:
        """Drop the value without destroying it; called in a forked child."""
        if self._value is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._value))
            self._value = None
        self._lock = threading.Lock()


class ProcessLock:
    """A reentrant lock, to be used as ``with lock.held:``; it starts out free in each process. The data it guards must
    be usable in a forked child in any state, or be a ``ProcessTable``.

    ``held`` is a lock of the interpreter: an ``__enter__`` in Python could be interrupted (Ctrl-C, an alarm) after it
    has the lock and before the block that releases it.
    """

    def __init__(self) -> None:
        self.held = threading.RLock()
        _all.add(self)

    def renew(self) -> None:
        """Replace the lock by a free one; called in a forked child."""
        self.held = threading.RLock()


class ProcessTable(Generic[Key, Value]):
    """A dict that each process has of its own. Thread-safe if it is used as ``with table.held: table.entries``."""

    def __init__(self) -> None:
        self._entries: ProcessLocal[dict[Key, Value]] = ProcessLocal(dict)
        self._lock = ProcessLock()
        _tables.add(self)

    @property
    def held(self) -> AbstractContextManager[object]:
        """Its lock, as ``ProcessLock.held``."""
        return self._lock.held

    @property
    def entries(self) -> dict[Key, Value]:
        """The dict of this process."""
        return self._entries.get()


_unpickled: ProcessTable[bytes, tuple[float, object]] = ProcessTable()
"""Unpickled objects and when they were made, by their pickle, the oldest first."""

SHARED_SECONDS = 60.0
"""How long an object is shared. Its client may have read credentials that another program replaces now and then."""

_MOST_SHARED = 256
_CLOCK = SystemClock()


def unpickle_shared(kind: Callable[..., T], arguments: tuple[object, ...]) -> T:
    """Return ``kind(*arguments)``, or the object that this process made of equal arguments within ``SHARED_SECONDS``.

    Stores are unpickled by it: every Spark task unpickles its stores, and creating an S3 client takes 100 ms.
    """
    try:
        key = pickle.dumps((kind, arguments))
    except Exception:  # options that only Spark's pickler can send, such as a function
        return kind(*arguments)
    now = _CLOCK.monotonic()
    with _unpickled.held:
        shared = _unpickled.entries
        keys = list(shared)
        too_many = len(keys) - _MOST_SHARED
        dropped = [
            shared.pop(other)
            for number, other in enumerate(keys)
            if number < too_many or now - shared[other][0] >= SHARED_SECONDS
        ]
        if key not in shared:
            shared[key] = (now, kind(*arguments))
        result: T = shared[key][1]  # type: ignore[assignment]
    del dropped  # their clients may wait when they are destroyed: without the lock
    return result


def start_over() -> None:
    """Empty all tables, as in a process that has opened and done nothing yet: for tests."""
    for table in list(_tables):
        with table.held:
            table.entries.clear()


def _start_child() -> None:
    global _fork_lock
    _fork_lock = threading.RLock()
    for inherited in list(_all):
        inherited.renew()


# Functions, not the lock's own methods: in a child that forks again it is another lock. A module that is imported while
# a fork waits here and registers fork handlers itself would only have its "after" handlers called, and release locks
# that it never acquired: so Python's own two modules that do so are imported above.
os.register_at_fork(
    before=lambda: _fork_lock.acquire(), after_in_parent=lambda: _fork_lock.release(), after_in_child=_start_child
)
