"""Tiers: rows kept in several files, of which only what changed is written, and how the files are merged.

The rows of a checkpoint (``heads``, ``lists``) lie in parts, oldest first. A row of a newer part takes the place of an
older one; a row without a body says that it is gone. A checkpoint adds a part with the rows that changed. So that the
parts stay few, and few of their rows are out of date:

* Once there are as many parts as there may be, the new one takes in all newest parts of the lowest level, and is of the
  next level. Each byte is then written once per level it rises, and with at most ``k`` parts of which none rose more
  than ``w`` times there is room for C(k + w, w) changes (Bentley and Saxe's transformation for decomposable searches):
  40 parts hold 860 checkpoints' changes with each of their bytes written twice.
* Once the rows that are out of date are as many as the others, all is written again as one part.

Rules: pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

BOTTOM = 1_000_000
"""The level of a part that has all rows; nothing is merged with it but by writing all again."""

SMALL_ROWS = 256
"""rows that are written whole each time: a file more costs more than they do."""

GONE = b"null"
"""The body of a row that says that the entry is gone."""

Row = tuple[Any, ...]
"""The fields of a key, and a body."""

Rows = Mapping[str, Sequence[Row]]
"""Rows by kind."""


class PartReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """A part: key, length in bytes, CRC32C of all of it, rows. ``level``: how often its bytes were merged."""

    key: str
    size: int
    crc: int
    rows: int
    level: int = 0


class Plan(NamedTuple):
    """Parts that stay, those whose rows the new one takes in, and the new one's level. ``whole``: it has all rows."""

    kept: tuple[PartReference, ...]
    merged: tuple[PartReference, ...]
    level: int

    @property
    def whole(self) -> bool:
        return self.level == BOTTOM


def plan(parts: Sequence[PartReference], changed: int, most: int, count: Callable[[], int]) -> Plan:
    """Where a checkpoint's ``changed`` rows go; ``most`` parts there may be.

    ``count`` says how many rows are current.
    """
    total = sum(part.rows for part in parts) + changed
    bottom = parts[0].rows if parts and parts[0].level == BOTTOM else 0
    if not parts or total <= SMALL_ROWS or _is_stale(total, bottom, count):
        return Plan((), tuple(parts), BOTTOM)
    if len(parts) < most:
        return Plan(tuple(parts), (), 0)
    level = parts[-1].level
    if level == BOTTOM:
        return Plan((), tuple(parts), BOTTOM)
    first = len(parts)
    while first and parts[first - 1].level <= level:
        first -= 1
    return Plan(tuple(parts[:first]), tuple(parts[first:]), level + 1)


def _is_stale(total: int, bottom: int, count: Callable[[], int]) -> bool:
    """Whether as many rows are out of date as are not. Counting takes its time: a third of the last count comes first,
    since that many new rows it takes even where each says that one is gone."""
    if 3 * (total - bottom) < bottom:
        return False
    return total >= 2 * count()


def merged(parts: Iterable[Rows], whole: bool) -> dict[str, list[Row]]:
    """The rows of several parts, oldest first, as those of one; bodies are ``msgspec.Raw``.

    ``whole``: nothing older is left, so what is gone need not be mentioned.
    """
    found: dict[str, dict[Row, Row]] = {}
    for part in parts:
        for kind, rows in part.items():
            found.setdefault(kind, {}).update((row[:-1], row) for row in rows)
    if whole:
        found = {
            kind: {key: row for key, row in rows.items() if bytes(row[-1]) != GONE} for kind, rows in found.items()
        }
    return {kind: [rows[key] for key in sorted(rows)] for kind, rows in found.items() if rows}
