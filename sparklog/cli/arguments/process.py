"""The doors of the process: its arguments as text, and its standard streams.

Arguments are UTF-8, whatever the locale says; a byte that is not stays as Python's surrogate escape, so that a path or
a separator has the very bytes that were given (``argument_bytes``). Writing to standard output raises OutputError if it
fails, a closed pipe apart, which is BrokenPipeError as ever; what standard error does not take is lost, since nothing
else could say so.

Rules: this module imports nothing slow. Only the entry point of the process calls what changes global state.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import sys
from typing import Any


class OutputError(Exception):
    """Standard output cannot be written: its disk is full, its terminal is gone. Not an OSError, which would be taken
    for one of the storage."""


class _Output(io.FileIO):
    def write(self, data: Any, /) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        try:
            while left:
                written = super().write(left)
                if written is None:  # another process made the pipe non-blocking, and it is full
                    select.select([], [self.fileno()], [])
                left = left[written or 0 :]  # a signal may come after a part
            return size
        except BrokenPipeError:  # the reader of the pipe has read as much as it wants
            raise
        except OSError as error:
            raise OutputError(f"standard output cannot be written: {error.strerror or error}") from error


class _ErrorOutput(io.FileIO):
    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:  # full or gone
            return len(data)


def decode_arguments() -> list[str]:
    """Return the arguments of the process, read as UTF-8. Begins the program again in Python's UTF-8 mode if file names
    are in another encoding, in which the paths among them could not be opened."""
    if sys.getfilesystemencoding() != "utf-8" and not sys.flags.utf8_mode and sys.orig_argv[1:]:
        os.environ.setdefault("PYTHONIOENCODING", f"{sys.stdout.encoding}:backslashreplace")
        command = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execv(sys.executable, [os.fsencode(part) for part in command])
    return sys.argv[1:]


def argument_bytes(text: str) -> bytes:
    """Return the bytes of an argument: UTF-8, and those that are not as they were given."""
    return text.encode("utf-8", "surrogateescape")


def not_text(text: str) -> str:
    """Return the first byte of an argument that is not UTF-8, as 0xff; empty if there is none."""
    return next((f"0x{ord(char) - 0xDC00:02x}" for char in text if "\udc80" <= char <= "\udcff"), "")


def guard_streams() -> None:
    """Let standard output raise OutputError, and standard error lose what it does not take. They escape the characters
    that the terminal's encoding lacks."""
    _open_closed_streams()
    sys.stdout = _guarded(sys.stdout, _Output)
    sys.stderr = _guarded(sys.stderr, _ErrorOutput)


def _guarded(stream: Any, kind: type[io.FileIO]) -> Any:
    try:
        raw = kind(stream.fileno(), "w", closefd=False)
    except (OSError, ValueError, AttributeError):  # not a real file
        return stream
    unbuffered = isinstance(getattr(stream, "buffer", None), io.RawIOBase)  # as of `python -u`
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),
        encoding=stream.encoding,
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=unbuffered,
    )


def silence_output() -> None:
    """Discard output that is still buffered for a closed pipe or a full disk, so that the interpreter reports no error
    on exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # if stdout is not a real file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_closed_streams() -> None:
    """Connect closed standard streams (``>&-``, ``<&-``) to /dev/null, so that no log file gets their descriptors.

    In ascending order, since a newly opened file gets the lowest free descriptor.
    """
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if mode == "r" else os.O_WRONLY)
        if getattr(sys, name) is None:
            stream = io.TextIOWrapper(io.FileIO(os.devnull, mode), encoding="utf-8")
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)  # or its descriptor is closed once another stream replaces it
