"""What the program's own code raises where a client calls it: serializers, deserializers, partitioners.

Rules: it comes out as it is, so that the program catches its own errors; where it happened is added as a note, which
Python shows from 3.11 on. Not for: callbacks and listeners, which run in the client's time.
"""

from __future__ import annotations


def add_note(error: BaseException, text: str) -> None:
    """Add a line to what a traceback of this error shows, once."""
    if text not in getattr(error, "__notes__", ()) and hasattr(error, "add_note"):
        error.add_note(text)
