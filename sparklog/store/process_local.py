"""A client of a remote storage, made when first used and made anew in a forked child.

Spark's Python workers are forked from a daemon. A client that came along is no use there: its threads are gone. Worse,
to destroy one waits for those threads: with hdfs-native a child hangs that merely drops what it inherited, and s3fs
waits in its finalizer. So a forked child leaks what it inherited on purpose, before anything can touch it.

Not for: sharing anything between processes.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_all: weakref.WeakSet[ProcessLocal] = weakref.WeakSet()  # type: ignore[type-arg]


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
    for each in list(_all):
        each.leak()


os.register_at_fork(after_in_child=_leak_all)
