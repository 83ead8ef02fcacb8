"""Starts threads, and wakes up those that wait, whatever interrupts the one that does.

Rules: a wait with a time limit is one of a lock. ``SimpleQueue.get`` with a timeout, which is one call of C as well,
may never return if its time is over before it begins to wait, or when a signal arrives (Python 3.12 and older).
[1 µs: the first hang within 2,100 calls]

Not for: what a client does when none can be started (``client.background_thread``), or a store (``store.threads``).
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import SimpleQueue  # noqa: TID251 - without a timeout
from typing import Any, TypeVar

Result = TypeVar("Result")


def start_thread(thread: threading.Thread) -> None:
    """Start the thread. Raises RuntimeError if the system starts none.

    In the main thread another one does it: ``Thread.start`` waits for the new thread in Python code, and a signal's
    handler that raises there would leave a lock held that the new thread waits for, or raise another error.
    """
    if threading.current_thread() is not threading.main_thread():
        return thread.start()
    outcome: SimpleQueue[BaseException | None] = SimpleQueue()

    def start() -> None:
        try:
            thread.start()
        except BaseException as error:
            outcome.put(error)
        else:
            outcome.put(None)

    _thread.start_new_thread(start, ())
    error = outcome.get()
    if error is not None:
        raise error
    return None


class Threads(ThreadPoolExecutor):
    """A pool of threads that takes calls also after the main thread has ended: the library's refuses them from then on,
    although the other threads of the program may go on for days."""

    def submit(self, call: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        try:
            return super().submit(call, *args, **kwargs)
        except RuntimeError:
            if threading.main_thread().is_alive():
                raise
            return call_in_thread(partial(call, *args, **kwargs))


def call_in_thread(call: Callable[[], Result]) -> Future[Result]:
    """Make a call in a thread that does not keep the process alive. Raises RuntimeError if the system starts none."""
    outcome: Future[Result] = Future()

    def run() -> None:
        if outcome.set_running_or_notify_cancel():
            try:
                outcome.set_result(call())
            except BaseException as error:
                outcome.set_exception(error)

    start_thread(threading.Thread(target=run, daemon=True))
    return outcome


class Wakeup:
    """An event for one waiting thread, which ``wait`` clears. ``set`` never blocks.

    Signal handlers may interrupt its calls, and make them. ``release`` is ``set`` as one call of C, which raises
    RuntimeError if it is set already: for code that must not be interrupted between a change and its notification.
    """

    __slots__ = ("_acquire", "release")

    def __init__(self) -> None:
        lock = _thread.allocate_lock()
        lock.acquire()
        self._acquire, self.release = lock.acquire, lock.release

    def set(self) -> None:
        """End the current wait, or else the next one."""
        with suppress(RuntimeError):
            self.release()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is set, at most ``seconds`` (None: no limit); return whether it was, and clear it."""
        return self._acquire(True, -1 if seconds is None else clamp_timeout(seconds))


def clamp_timeout(seconds: float) -> float:
    """Return the timeout within what a lock accepts: programs pass infinity for no limit."""
    return min(max(seconds, 0.0), threading.TIMEOUT_MAX)
