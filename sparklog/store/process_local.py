"""What survives a fork: clients of remote storages, made when first used and again in a forked child, and imports.

Spark's Python workers are forked from a daemon. A client that came along is no use there: its threads are gone. Worse,
to destroy one waits for those threads: with hdfs-native a child hangs that merely drops what it inherited, and s3fs
waits in its finalizer. So a forked child leaks what it inherited on purpose, before anything can touch it.

An import that a thread was in the middle of when another one forked never ends in the child: the import system keeps a
lock per module, whose owner is gone. So a client's package is imported within ``no_fork``, and a fork waits for that.
The same goes for making a client of fsspec, which starts a thread under a lock that its own handling of forks misses.
Locks that an object of a store holds for a moment are a ``ProcessLocal`` each.

Not for: sharing anything between processes.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - see below
import ctypes
import logging  # noqa: F401
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")

_all: weakref.WeakSet[ProcessLocal] = weakref.WeakSet()  # type: ignore[type-arg]


_fork_lock = threading.RLock()


@contextmanager
def no_fork() -> Iterator[None]:
    """Around a lazy import, or the making of a client: no thread forks before it ends. Not around what waits for a
    server."""
    with _fork_lock:
        yield


class ProcessLocal(Generic[T]):
    """Holds one value per process. Thread-safe; not picklable, so its owner makes another one after unpickling."""

    def __init__(self, make: Callable[[], T]) -> None:
        """``make`` is called at the first ``get`` in each process, by one thread."""
        self._make = make
        self._value: T | None = None
        self._lock = threading.Lock()
        _all.add(self)

    def get(self) -> T:
        """The value of this process. Raises whatever ``make`` raises, and tries again at the next call."""
        if self._value is not None:
            return self._value
        with self._lock:
            if self._value is None:
                self._value = self._make()
            return self._value

    def peek(self) -> T | None:
        """The value, if this process has made it."""
        return self._value

    def clear(self) -> None:
        """Let go of the value; the next ``get`` makes another."""
        with self._lock:
            self._value = None

    def leak(self) -> None:
        """In a forked child: forget the value without destroying it."""
        if self._value is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._value))
            self._value = None
        self._lock = threading.Lock()


def _leak_all() -> None:
    global _fork_lock
    _fork_lock = threading.RLock()
    for each in list(_all):
        each.leak()


# Functions, not the lock's own methods: in a child that forks again it is another lock. A module that is imported while
# a fork waits here, and registers calls before and after forks itself, would be called only after this one, and let go
# of what it never took: so the two of Python's own that do so are imported above.
os.register_at_fork(
    before=lambda: _fork_lock.acquire(), after_in_parent=lambda: _fork_lock.release(), after_in_child=_leak_all
)
