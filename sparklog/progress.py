"""Shows how far long work is: a line that is overwritten on a terminal, or updated in a notebook; elsewhere nothing.

    with Progress("fsck") as progress:
        check_cluster(store, progress=progress.show)

Work that takes less than ``FIRST_SECONDS`` shows nothing, and what was shown is removed at the end, so nothing of it is
in an output that is kept. Without a terminal or a notebook lines are written only if they are asked for (``always``).

Rules: standard output stays clean, lines go to standard error; nothing that goes wrong with showing ends the work. A
notebook is found by the IPython that runs already, which is never imported. Several objects may be used at a time.
Not for: results and problems.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from sparklog.clock import Clock, SystemClock

FIRST_SECONDS = 0.5
"""seconds of work before the first line."""
TERMINAL_SECONDS = 0.25
LINE_SECONDS = 5.0
"""seconds between two updates on a terminal and in a notebook, and between two lines elsewhere."""

DEFAULT_COLUMNS = 80
"""Characters of a line on a terminal that does not say how many it has."""

Show = Callable[[str, int, int], None]
"""Is called with a unit, how many are done, and the total, 0 if that is not known."""

_lock = threading.RLock()
_on_terminal: list[TextIO] = []
"""The streams that show a line that has not ended."""


class Progress:
    """The progress of one piece of work, which has a title. Thread-safe; close it, or use it as a context manager.

    ``always``: also without a terminal or notebook, a line every ``LINE_SECONDS``.

        >>> with Progress("copy") as progress:
        ...     progress.show("files", 1, 2)
    """

    def __init__(
        self, title: str, always: bool = False, stream: TextIO | None = None, clock: Clock | None = None
    ) -> None:
        self._title = title
        self._always = always
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock or SystemClock()
        self._notebook = _find_display() if stream is None else None
        self._is_terminal = self._notebook is None and _is_terminal(self._stream)
        self._handle: Any = None
        self._unit = ""
        self._began = self._reported = self._clock.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_shown(self) -> bool:
        """Whether anybody may see it."""
        return self._always or self._is_terminal or self._notebook is not None

    def show(self, unit: str, done: int, total: int = 0) -> None:
        """Show that ``done`` of ``total`` units are done; "bytes" are shown as kB, MB and so on."""
        if not self.is_shown:
            return
        with _lock:
            now = self._clock.monotonic()
            is_first = unit != self._unit
            if is_first:
                self._unit, self._began = unit, now
            is_live = self._is_terminal or self._notebook is not None
            wait = (FIRST_SECONDS if is_first else TERMINAL_SECONDS) if is_live else LINE_SECONDS
            is_end = self._always and not is_live and done == total
            if now - self._reported < wait and not is_end:
                return
            self._reported = now
            self._write(f"{self._title}: {describe(unit, done, total, now - self._began)}")

    def say(self, text: str) -> None:
        """Show a text in place of a number, as ``show`` does but without a wait."""
        if self.is_shown:
            with _lock:
                self._write(f"{self._title}: {text}")

    def close(self) -> None:
        """Remove what is shown."""
        with _lock, suppress(Exception):
            if self._handle is not None:
                self._handle.update({"text/plain": ""}, raw=True)
            elif self._is_terminal:
                clear()

    def _write(self, line: str) -> None:
        with suppress(Exception):  # a closed terminal must not end the work
            if self._notebook is not None:
                if self._handle is None:
                    self._handle = self._notebook({"text/plain": line}, raw=True, display_id=True)
                else:
                    self._handle.update({"text/plain": line}, raw=True)
            elif self._is_terminal:
                clear()
                self._stream.write(line[: _columns(self._stream) - 1])  # a line that wraps could not be removed
                self._stream.flush()
                _on_terminal.append(self._stream)
            else:
                self._stream.write(f"{line}\n")
                self._stream.flush()


def clear() -> None:
    """Remove the lines that terminals show, before something else is printed."""
    with _lock:
        while _on_terminal:
            with suppress(Exception):
                stream = _on_terminal.pop()
                stream.write("\r\x1b[K")
                stream.flush()


def describe(unit: str, done: int, total: int, seconds: float) -> str:
    """Return progress as text, with the time that is left if that can be told."""
    if not total:
        return size(done) if unit == "bytes" else f"{done:,} {unit}"
    amount = f"{size(done)} of {size(total)}" if unit == "bytes" else f"{done:,} of {total:,} {unit}"
    left = f", {seconds * (total - done) / done:.0f} s left" if 0 < done < total and seconds > 1 else ""
    return f"{amount} ({100 * done / total:.0f} %){left}"


def size(number: float) -> str:
    """Format a number of bytes: three digits and a unit."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if number < 1000 or unit == "TB":
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.3g} {unit}"
        number /= 1000
    return ""


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # replaced by a program, or closed
        return False


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_COLUMNS
    except (OSError, ValueError):  # no terminal of the system
        return DEFAULT_COLUMNS


def _find_display() -> Callable[..., Any] | None:
    """Return IPython's function that displays something, None outside of a notebook."""
    ipython = sys.modules.get("IPython")
    try:
        shell = ipython.get_ipython() if ipython is not None else None
        if shell is None or getattr(shell, "kernel", None) is None:
            return None
        display: Callable[..., Any] = sys.modules["IPython.display"].display
    except Exception:  # another package of this name
        return None
    return display
