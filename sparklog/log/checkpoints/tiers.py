"""Tiers: rows kept in several parts, of which only changed rows are written, and the plan how parts are merged.

The rows of a checkpoint (``heads``, ``lists``) are stored in parts, oldest first. A row of a newer part replaces an
older one; a row without a body deletes it. A checkpoint adds a part with the changed rows. To keep parts few, and few
of their rows out of date:

* At the maximum number of parts, the new part is merged with all newest parts of the lowest level, and gets the next
  level. Each byte is then written once per level it rises, and at most ``k`` parts of which none rose more than ``w``
  times hold C(k + w, w) changes (Bentley and Saxe's transformation for decomposable searches): 40 parts hold the
  changes of 860 checkpoints with each byte written twice.
* Once half of all rows are out of date, all rows are written again as one part.

Rules: pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from sparklog.store.base import BytesLike

BOTTOM = 1_000_000
"""The level of a part with all rows, which is merged only by writing all rows again."""

SMALL_ROWS = 256
"""rows up to which all are written each time: they cost less than another file."""

Row = tuple[Any, ...]
"""The fields of a key, then a body."""

Rows = Mapping[str, Sequence[Row]]
"""Rows by kind."""


class RowEncoding(NamedTuple):
    """How the rows of a part are stored."""

    encoder: msgspec.json.Encoder
    decoder: msgspec.json.Decoder[Any]

    def encode(self, rows: Rows) -> bytes:
        return self.encoder.encode(rows)

    def decode(self, data: BytesLike) -> dict[str, list[Row]]:
        """Return the rows with encoded bodies. Raises msgspec.MsgspecError."""
        return msgspec.structs.asdict(self.decoder.decode(data))


class FileReference(msgspec.Struct, frozen=True):
    """A file of a checkpoint: key, length in bytes, CRC32C of all bytes, rows."""

    key: str
    size: int
    crc: int
    rows: int


class PartReference(FileReference, frozen=True, omit_defaults=True):
    """A part. ``level``: how often its bytes were merged."""

    level: int = 0


class TierPlan(NamedTuple):
    """Parts to keep, parts to merge into the new one, and the new one's level. ``whole``: it has all rows."""

    kept: tuple[PartReference, ...]
    merged: tuple[PartReference, ...]
    level: int

    @property
    def whole(self) -> bool:
        return self.level == BOTTOM


def plan(parts: Sequence[PartReference], changed: int, most: int, count: Callable[[], int]) -> TierPlan:
    """Plan where to write a checkpoint's ``changed`` rows, with ``most`` parts at most.

    ``count`` returns the number of current rows.
    """
    total = sum(part.rows for part in parts) + changed
    bottom = parts[0].rows if parts and parts[0].level == BOTTOM else 0
    if not parts or total <= SMALL_ROWS or _is_stale(total, bottom, count):
        return TierPlan((), tuple(parts), BOTTOM)
    if len(parts) < most:
        return TierPlan(tuple(parts), (), 0)
    level = parts[-1].level
    if level == BOTTOM:
        return TierPlan((), tuple(parts), BOTTOM)
    first = len(parts)
    while first and parts[first - 1].level <= level:
        first -= 1
    return TierPlan(tuple(parts[:first]), tuple(parts[first:]), level + 1)


def _is_stale(total: int, bottom: int, count: Callable[[], int]) -> bool:
    """Return whether half of the rows are out of date. Counting is slow, so it is skipped before the new rows are a
    third of the last count, which it takes even if each new row deletes one."""
    if 3 * (total - bottom) < bottom:
        return False
    return total >= 2 * count()


def merge_rows(parts: Iterable[Rows]) -> dict[str, list[Row]]:
    """Merge the rows of several parts, oldest first, of which older ones are left: deleted rows stay."""
    newest: dict[str, dict[Row, Row]] = {}
    for part in parts:
        for kind, rows in part.items():
            newest.setdefault(kind, {}).update((row[:-1], row) for row in rows)
    return {kind: [rows[key] for key in sorted(rows)] for kind, rows in newest.items() if rows}
