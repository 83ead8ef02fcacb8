"""Records as Arrow batches with their offsets.

If no record was removed from a log, offsets are consecutive and the first one suffices. If compaction removed some,
each batch carries its records' offsets. A reader continues at ``end_offset``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa


class Records(NamedTuple):
    """Records of one partition in offset order, with the requested columns.

    Their offsets are ``[base_offset, base_offset + batch.num_rows)``, or if there are gaps those in ``offsets``, int64,
    which starts with ``base_offset``.
    """

    base_offset: int
    batch: pa.RecordBatch
    timestamp_type: int
    offsets: pa.Array | None = None

    @property
    def end_offset(self) -> int:
        """The offset after the last of these records."""
        return offset_after(self.base_offset, self.batch.num_rows, self.offsets)

    def slice(self, first: int, rows: int | None = None) -> Records:
        """Return ``rows`` of these records from row ``first`` on, all by default."""
        base_offset, offsets = slice_offsets(self.base_offset, self.offsets, first, rows)
        return self._replace(base_offset=base_offset, batch=self.batch.slice(first, rows), offsets=offsets)

    def all_offsets(self) -> Sequence[int]:
        """Return the offset of each record."""
        return all_offsets(self.base_offset, self.batch.num_rows, self.offsets)


def offset_after(base_offset: int, rows: int, offsets: pa.Array | None) -> int:
    """Return the offset after the last of ``rows`` records."""
    return base_offset + rows if offsets is None or not rows else int(offsets[rows - 1].as_py()) + 1


def offset_at(base_offset: int, offsets: pa.Array | None, row: int) -> int:
    """Return the offset of the record in a row."""
    return base_offset + row if offsets is None else int(offsets[row].as_py())


def all_offsets(base_offset: int, rows: int, offsets: pa.Array | None) -> Sequence[int]:
    """Return the offset of each record."""
    return range(base_offset, base_offset + rows) if offsets is None else offsets.to_pylist()


def rows_before(base_offset: int, rows: int, offsets: pa.Array | None, offset: int) -> int:
    """Return how many of these records are before an offset; without a search if all or none are."""
    if offsets is None:
        return min(max(offset - base_offset, 0), rows)
    if not rows or offsets[0].as_py() >= offset:
        return 0
    if offsets[rows - 1].as_py() < offset:
        return rows
    return bisect_left(range(rows), offset, key=lambda row: offsets[row].as_py())


def slice_offsets(
    base_offset: int, offsets: pa.Array | None, first: int, rows: int | None
) -> tuple[int, pa.Array | None]:
    """Return the first offset and the offsets of a slice of these records."""
    if offsets is None:
        return base_offset + first, None
    kept = offsets.slice(first, rows)
    return (int(kept[0].as_py()) if len(kept) else base_offset), kept


def without_columns(rows: int) -> pa.RecordBatch:
    """Return a batch of ``rows`` rows without columns."""
    return pa.RecordBatch.from_struct_array(pa.nulls(rows, pa.struct([])))
