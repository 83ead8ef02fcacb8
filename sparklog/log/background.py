"""Runs work in a background thread: at most one at a time, and the process does not exit before it ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable


class BackgroundTask:
    """Runs ``work`` after each ``request``; requests during a run are combined into one more run.

    ``work`` must not raise. Thread-safe. A forked child starts without the thread and without pending requests.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._name = name
        self._work = work
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._requested = False

    def request(self) -> None:
        """Request a run. If no thread can be started any more (the interpreter exits), the work runs in this one."""
        if self._process != os.getpid():
            self._reset()
        with self._lock:
            self._requested = True
            if self._thread is not None and self._thread.is_alive():  # not after an interrupted start
                return
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=False)
            try:
                self._thread.start()
                return
            except RuntimeError:
                self._thread = None
        self._run()

    def wait(self) -> None:
        """Wait until all requests so far are done."""
        thread = self._thread if self._process == os.getpid() else None
        if thread is not None and thread.ident is not None and thread is not threading.current_thread():
            thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._requested:
                    self._thread = None
                    return
                self._requested = False
            self._work()
