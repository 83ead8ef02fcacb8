"""Representation of objects: a short ``repr``, and a small table in notebooks.

    class Producer(Shown):
        def _facts(self): return {"root": self._coordinator.store.root, ...}

Rules: only values in memory are shown: no storage request, no lock, nothing that may block. Showing never raises, even
for an object that is closed, partly constructed, or changed by another thread at the same time. Everything in HTML is
escaped. Not for: contents of records beyond a preview.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

LONGEST_TEXT = 100
"""characters shown of a value."""

MOST_NAMES = 5
"""items of a list that are shown; the others are counted."""

Facts = Mapping[str, object]


class Shown:
    """Gives a class ``__repr__`` and ``_repr_html_``, made from ``_facts``; values of None are omitted."""

    __slots__ = ()

    def _facts(self) -> Facts:
        raise NotImplementedError

    def __repr__(self) -> str:
        facts = [f"{name}={shorten(value)}" if name else str(value) for name, value in _facts_of(self).items()]
        return f"<{' '.join([type(self).__name__, *facts])}>"

    def _repr_html_(self) -> str:
        rows = [(name or "state", shorten(value)) for name, value in _facts_of(self).items()]
        return table(type(self).__name__, [], rows)


def _facts_of(shown: Shown) -> Facts:
    try:
        return {name: value for name, value in shown._facts().items() if value is not None}
    except Exception:  # partly constructed, or changed by another thread: must not break a log line or a debugger
        return {"": "not ready"}


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return an HTML table with a title; everything in it is escaped."""
    lines = [f"<table><caption>{html.escape(title)}</caption>"]
    if head:
        lines.append(f"<thead><tr>{''.join(f'<th>{html.escape(name)}</th>' for name in head)}</tr></thead>")
    cells = ("".join(f'<td style="text-align:left">{html.escape(str(cell))}</td>' for cell in row) for row in rows)
    return "".join([*lines, "<tbody>", *(f"<tr>{row}</tr>" for row in cells), "</tbody></table>"])


def shorten(value: object) -> str:
    """Return a value as text of at most ``LONGEST_TEXT`` characters, on one line."""
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value[: LONGEST_TEXT + 1])
        with suppress(UnicodeDecodeError):
            value = value.decode()
    if isinstance(value, str):
        value = value[: LONGEST_TEXT + 1]
        text = value if value and value.isprintable() and " " not in value else repr(value)
    else:
        text = _repr_of(value)
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"


def _repr_of(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # an object of the program
        return f"<{type(value).__name__}>"


def join_names(names: Iterable[str]) -> str:
    """Return names as one short text: all of them, or the first ones and the total number."""
    ordered = sorted(names)
    shown = ",".join(ordered[:MOST_NAMES])
    return shown if len(ordered) <= MOST_NAMES else f"{shown},…({len(ordered)})"
