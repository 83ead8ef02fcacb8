"""A client's own thread, started by the first call that needs it.

A start can fail ("can't start new thread": the process or its container has as many threads as it may have), and an
interrupt can arrive in the middle of it. The call that needed the thread then fails, and the next one tries again.

Rules: the work runs in one thread only, whatever happened to earlier starts. Whoever waits for its end holds no lock.
Not for: calls with a deadline (``deadlines``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sparklog.client.condition import Condition
from sparklog.errors import SparklogError
from sparklog.threads import start_thread

EXIT_SECONDS = 1.0
"""The longest wait for a thread whose work is over: for the interpreter's own steps."""


class BackgroundThread:
    """Runs ``work`` in a daemon thread, once. Thread-safe. ``lock`` is not held during ``join``."""

    def __init__(self, work: Callable[[], object], name: str, lock: Any = None) -> None:
        self._work = work
        self._name = name
        self._runners: dict[str, threading.Thread] = {}
        self._latest: threading.Thread | None = None
        self._is_over = False
        self._over = Condition(lock)

    @property
    def thread(self) -> threading.Thread | None:
        """The thread that runs the work, or has run it; None before."""
        latest = self._latest
        return self._runners.get("thread") or (latest if latest is not None and latest.ident is not None else None)

    def start(self) -> None:
        """Start the thread unless it was started before. Raises SparklogError if the system starts no thread now."""
        latest = self._latest
        if self._runners or (latest is not None and latest.is_alive()):
            return
        self._latest = latest = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            start_thread(latest)
        except RuntimeError as error:
            raise SparklogError(
                f"the thread {self._name} was not started: {error}; the process or its container has as many threads "
                "as it may have (ulimit -u, pids.max): use fewer clients or raise the limit, then call again"
            ) from error

    def join(self, seconds: float | None = None) -> bool:
        """Wait at most ``seconds`` until the thread ends; return whether none is running. Never waits for itself."""
        thread = self.thread
        if thread is None or thread is threading.current_thread():
            return True
        if not self._over.wait_for(lambda: self._is_over, seconds):
            return False
        thread.join(EXIT_SECONDS if seconds is None else min(seconds, EXIT_SECONDS))
        return True

    def _run(self) -> None:
        current = threading.current_thread()
        if self._runners.setdefault("thread", current) is current:  # else an interrupted start had succeeded
            try:
                self._work()
            finally:
                self._work = _nothing  # it may refer to what refers to this
                self._is_over = True
                self._over.notify_all()


def _nothing() -> None:
    """Stands for work that is over."""
