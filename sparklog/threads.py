"""Starts threads, whatever interrupts the one that does.

Not for: what a client does when none can be started (``client.background_thread``), or a store (``store.threads``).
"""

from __future__ import annotations

import _thread
import threading
from queue import SimpleQueue


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
