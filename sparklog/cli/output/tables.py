"""Formats tables. Not for: their contents (the commands)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparklog.types import printable


def table(rows: Iterable[Sequence[object]], widths: Sequence[int], separator: str = " ") -> list[str]:
    """Pad columns to their width, or, if it is negative, to at least its absolute value and their longest value.

    A value becomes one word or phrase on one line, with control characters escaped.
    """
    texts = [[printable(value) for value in row] for row in rows]
    padded = [
        max([-width, *(len(row[column]) for row in texts)]) if width < 0 else width
        for column, width in enumerate(widths)
    ]
    return [separator.join(value.ljust(width) for value, width in zip(row, padded, strict=True)) for row in texts]
