"""Threads of a store, where the process or its container may have as many as it is allowed to.

Rules: that no thread can be started is an error of the storage, which its callers retry. A pool of the library
refuses calls once the main thread has ended, although the program's other threads may go on for days: use ``Threads``.
Not for: threads of clients (``client.background_thread``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from sparklog.errors import StorageUnavailableError
from sparklog.threads import start_thread

Result = TypeVar("Result")


def start(thread: threading.Thread) -> None:
    """Start a thread. Raises StorageUnavailableError if the system starts none now."""
    try:
        start_thread(thread)
    except RuntimeError as error:
        raise _not_started(error) from error


def submit(pool: ThreadPoolExecutor, call: Callable[..., Result], *args: object) -> Future[Result]:
    """Submit a call that may also run although this fails, or run twice. Raises StorageUnavailableError as
    ``start``."""
    try:
        return pool.submit(call, *args)
    except RuntimeError as error:
        raise _not_started(error) from error


class Threads(ThreadPoolExecutor):
    """A pool of threads that takes calls also after the main thread has ended."""

    def submit(self, call: Callable[..., Result], /, *args: Any, **kwargs: Any) -> Future[Result]:
        try:
            return super().submit(call, *args, **kwargs)
        except RuntimeError:
            if threading.main_thread().is_alive():
                raise
            return _call_in_thread(partial(call, *args, **kwargs))


def _call_in_thread(call: Callable[[], Result]) -> Future[Result]:
    outcome: Future[Result] = Future()

    def run() -> None:
        if outcome.set_running_or_notify_cancel():
            try:
                outcome.set_result(call())
            except BaseException as error:
                outcome.set_exception(error)

    start_thread(threading.Thread(target=run, daemon=True))
    return outcome


def _not_started(error: RuntimeError) -> StorageUnavailableError:
    return StorageUnavailableError(
        f"no thread was started for the storage: {error}; the process or its container has as many threads as it may "
        "have (ulimit -u, pids.max): raise the limit, or use fewer clients, then retry"
    )
