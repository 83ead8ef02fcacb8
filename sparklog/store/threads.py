"""Threads of a store, where the process or its container may have as many as it is allowed to.

Rules: that no thread can be started is an error of the storage, which its callers retry.
Not for: threads of clients (``client.background_thread``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

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


def _not_started(error: RuntimeError) -> StorageUnavailableError:
    return StorageUnavailableError(
        f"no thread was started for the storage: {error}; the process or its container has as many threads as it may "
        "have (ulimit -u, pids.max): raise the limit, or use fewer clients, then retry"
    )
