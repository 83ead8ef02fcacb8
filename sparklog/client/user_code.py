"""What the program's own code raises where a client calls it.

Rules: of serializers, deserializers and partitioners it comes out as it is, so that the program catches its own errors;
where it happened is added as a note, which Python shows from 3.11 on. Of callbacks and metric reporters, which run in
the client's time, it is logged.
"""

from __future__ import annotations

import threading


def add_note(error: BaseException, text: str) -> None:
    """Add a line to what a traceback of this error shows, once."""
    if text not in getattr(error, "__notes__", ()) and hasattr(error, "add_note"):
        error.add_note(text)


def ends_program(error: BaseException) -> bool:
    """Whether what a callback raised is to come out of the client: Ctrl-C and ``SystemExit`` in the main thread.

    In any other thread they would end that thread, which others wait for, and not the program.
    """
    return not isinstance(error, Exception) and threading.current_thread() is threading.main_thread()
