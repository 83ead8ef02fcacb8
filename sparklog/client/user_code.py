"""Errors that the program's own code raises when a client calls it.

Rules: errors of serializers, deserializers and partitioners are raised unchanged, so that the program catches its own
errors; a note says where they happened, which Python shows from 3.11 on. Errors of callbacks and metric reporters,
which run in the client's threads, are logged.
"""

from __future__ import annotations

import threading


def add_note(error: BaseException, text: str) -> None:
    """Add a note to the error's traceback, once."""
    if text not in getattr(error, "__notes__", ()) and hasattr(error, "add_note"):
        error.add_note(text)


def ends_program(error: BaseException) -> bool:
    """Return whether a client must raise a callback's error: Ctrl-C and ``SystemExit`` in the main thread.

    In any other thread they would not end the program but only that thread, which others wait for.
    """
    return not isinstance(error, Exception) and threading.current_thread() is threading.main_thread()
