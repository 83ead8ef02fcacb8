"""Batches of the right size, and from stored records to rows with topic, partition and offset, for Spark and for Arrow.

Batches of about 1 MiB, or some 10,000 rows, are the fastest to pass on, so the small ones that small appends left
behind are joined. Columns that are the same in all records of a task (topic, partition, the kind of timestamp) are
made once and sliced; offsets are counted from a sequence made once.

Rules: the rows are those of Spark's Kafka source; nothing is read that is not asked for: where no stored column is, no
file is opened at all, but for the offsets of records that compaction left gaps between.
Not for: which offsets (``spark.planning``, ``client.scan``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparklog import limits
from sparklog.log.records.records import Records, without_columns
from sparklog.protocol.segments import NO_APPEND_TIME, Segment
from sparklog.types import CREATE_TIME, LOG_APPEND_TIME

ROWS_WITHOUT_FILES = 65_536
"""rows of a batch that holds nothing but what follows from where records are."""
JOIN_BELOW_BYTES = limits.TARGET_BATCH_BYTES // 2
JOIN_BELOW_ROWS = 8_192
"""bytes and rows. Batches smaller than both are joined with what follows."""
JOINED_ROWS = 16_384
"""rows after which a joined batch is done, if it has not come to ``TARGET_BATCH_BYTES`` before."""


class RowBuilder:
    """Turns stored records of one partition into batches of one schema. Not thread-safe.

    ``columns`` are the names of the source's columns in the order of ``schema``; one without a name is null.
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str], topic: str, partition: int) -> None:
        self._schema = schema
        self._columns = columns
        self._values: dict[str, str | int] = {"topic": topic, "partition": partition}
        self._repeated: dict[tuple[str, int], pa.Array] = {}
        self._counting = pa.arange(0, 0)

    def build(self, records: Records) -> pa.RecordBatch:
        """The rows for these records."""
        rows = records.batch.num_rows
        arrays = [
            self._column(name, field.type, records, rows)
            for name, field in zip(self._columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str, kind: pa.DataType, records: Records, rows: int) -> pa.Array:
        if not name:
            return pa.nulls(rows, kind)
        if name in ("topic", "partition"):
            return self._repeat(name, self._values[name], kind, rows)
        if name == "timestampType":
            return self._repeat(name, records.timestamp_type, kind, rows)
        if name == "offset":
            return self._offsets(records.base_offset, rows) if records.offsets is None else records.offsets
        column = records.batch.column(name)
        if name == "headers":
            column = _without_empty_lists(column)
        return column if column.type == kind else column.cast(kind)

    def _repeat(self, name: str, value: str | int, kind: pa.DataType, rows: int) -> pa.Array:
        key = (name, value if isinstance(value, int) else 0)
        found = self._repeated.get(key)
        if found is None or len(found) < rows:
            found = self._repeated[key] = pa.repeat(pa.scalar(value, kind), max(rows, ROWS_WITHOUT_FILES))
        return found.slice(0, rows)

    def _offsets(self, first: int, rows: int) -> pa.Array:
        if len(self._counting) < rows:
            self._counting = pa.arange(0, max(rows, ROWS_WITHOUT_FILES))
        return pc.add(self._counting.slice(0, rows), pa.scalar(first, pa.int64()))


def _without_empty_lists(column: pa.Array) -> pa.Array:
    """Null where there is no header, as Spark's Kafka source has it."""
    is_empty = pc.equal(pc.list_value_length(column), 0)
    return pc.if_else(is_empty, pa.scalar(None, column.type), column) if is_empty.true_count else column


def positions(segment: Segment, start: int, end: int) -> Iterator[Records]:
    """The records ``[start, end)`` of a segment without any stored column, known from the segment alone.

    Of a segment with gaps they are as many as it has, and not where: that its file says.
    """
    kind = CREATE_TIME if segment.append_time_ms == NO_APPEND_TIME else LOG_APPEND_TIME
    end = start + segment.records if segment.has_gaps else end
    for offset in range(start, end, ROWS_WITHOUT_FILES):
        yield Records(offset, without_columns(min(ROWS_WITHOUT_FILES, end - offset)), kind)


def positions_of(
    segments: Iterable[Segment],
    start: int,
    end: int,
    with_offsets: bool,
    read: Callable[[Segment, int, int], Iterator[Records]],
) -> Iterator[Records]:
    """The records ``[start, end)`` of some segments without any stored column.

    ``read`` opens a segment, which only offsets that leave gaps need. Unless asked for, offsets are not told, only how
    many records there are.
    """
    for segment in segments:
        first, last = max(start, segment.base_offset), min(end, segment.end_offset)
        whole = last - first == segment.end_offset - segment.base_offset
        if segment.has_gaps and (with_offsets or not whole):
            yield from read(segment, first, last)
        else:
            yield from positions(segment, first, last)


def gather(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of at least ``size`` bytes, but for the last; 0 only leaves out empty ones."""
    waiting: list[pa.RecordBatch] = []
    found = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if not size:
            yield batch
            continue
        waiting.append(batch)
        found += batch.nbytes
        if found >= size:
            yield _joined(waiting)
            waiting, found = [], 0
    if waiting:
        yield _joined(waiting)


def join_small(batches: Iterable[tuple[pa.RecordBatch, int]]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about ``TARGET_BATCH_BYTES``, as far as joining gets there; order is kept.

    Each batch comes with its size in bytes, which ``nbytes`` takes long to find out.
    """
    waiting: list[pa.RecordBatch] = []
    size = rows = 0
    for batch, its_size in batches:
        is_large = its_size >= JOIN_BELOW_BYTES or batch.num_rows >= JOIN_BELOW_ROWS
        if waiting and (is_large or size >= limits.TARGET_BATCH_BYTES or rows >= JOINED_ROWS):
            yield _joined(waiting)
            waiting, size, rows = [], 0, 0
        if is_large:
            yield batch
            continue
        waiting.append(batch)
        size, rows = size + its_size, rows + batch.num_rows
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
