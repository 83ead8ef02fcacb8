"""Turns stored records into rows with topic, partition and offset, in batches of a good size, for Spark and Arrow.

Batches of about 1 MiB, or some 10,000 rows, are the fastest to process, so the small batches of small appends are
joined. Columns with one value for all records of a task (topic, partition, timestamp type) are built once and sliced;
offsets are added to a sequence built once.

Rules: the rows are those of Spark's Kafka source; only requested columns are read: if none is stored, no file is
opened, except for the offsets of compacted records with gaps.
Not for: choosing offsets (``spark.source.planning``, ``client.scan``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparklog import limits
from sparklog.format.plain_arrays import null_scalar, plain_scalar
from sparklog.log.records.records import Records, without_columns
from sparklog.protocol.segments import NO_APPEND_TIME, Segment
from sparklog.types import CREATE_TIME, LOG_APPEND_TIME

ROWS_WITHOUT_FILES = 65_536
"""rows of a batch that needs no file."""
JOIN_BELOW_BYTES = limits.TARGET_BATCH_BYTES // 2
JOIN_BELOW_ROWS = 8_192
"""bytes and rows. Batches smaller than both are joined with the following ones."""
JOINED_ROWS = 16_384
"""rows after which a joined batch is complete, if it has not reached ``TARGET_BATCH_BYTES`` before."""


class RowBuilder:
    """Turns stored records of one partition into batches of one schema. Not thread-safe.

    ``columns`` are the names of the source's columns in the order of ``schema``; one without a name is null.
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str], topic: str, partition: int) -> None:
        self._schema = schema
        self._columns = columns
        self._values: dict[str, str | int] = {"topic": topic, "partition": partition}
        self._repeated: dict[tuple[str, int], pa.Array] = {}
        self._sequence: pa.Array | None = None

    def build(self, records: Records) -> pa.RecordBatch:
        """Return the rows of these records."""
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
        column = self._repeated.get(key)
        if column is None or len(column) < rows:
            column = self._repeated[key] = pa.repeat(plain_scalar(value, kind), _reserve(rows, column))
        return column.slice(0, rows)

    def _offsets(self, first: int, rows: int) -> pa.Array:
        if self._sequence is None or len(self._sequence) < rows:
            self._sequence = pa.arange(0, _reserve(rows, self._sequence))
        return pc.add(self._sequence.slice(0, rows), plain_scalar(first, pa.int64()))


def _reserve(rows: int, before: pa.Array | None) -> int:
    """Return how many rows to build of a column that all batches share: as many as the first batch has, since many
    tasks read one, and from the second time on enough for most."""
    return rows if before is None else max(rows, ROWS_WITHOUT_FILES)


def _without_empty_lists(column: pa.Array) -> pa.Array:
    """Replace empty lists of headers by null, as Spark's Kafka source does."""
    is_empty = pc.equal(pc.list_value_length(column), plain_scalar(0, pa.int32()))
    return pc.if_else(is_empty, null_scalar(column.type), column) if is_empty.true_count else column


def positions(segment: Segment, start: int, end: int) -> Iterator[Records]:
    """Yield the records ``[start, end)`` of a segment without stored columns, known from the segment alone.

    For a segment with gaps their number is right but their offsets are not: only its file has those.
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
    """Yield the records ``[start, end)`` of some segments without stored columns.

    ``read`` opens a segment, which is needed only for offsets with gaps. Without ``with_offsets`` only the number of
    records is right.
    """
    for segment in segments:
        first, last = max(start, segment.base_offset), min(end, segment.end_offset)
        whole = last - first == segment.end_offset - segment.base_offset
        if segment.has_gaps and (with_offsets or not whole):
            yield from read(segment, first, last)
        else:
            yield from positions(segment, first, last)


def gather(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of at least ``size`` bytes, except the last; 0 only drops empty batches."""
    waiting: list[pa.RecordBatch] = []
    gathered_bytes = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if not size:
            yield batch
            continue
        waiting.append(batch)
        gathered_bytes += batch.nbytes
        if gathered_bytes >= size:
            yield _join(waiting)
            waiting, gathered_bytes = [], 0
    if waiting:
        yield _join(waiting)


def join_small(batches: Iterable[tuple[pa.RecordBatch, int]]) -> Iterator[pa.RecordBatch]:
    """Join small batches, in order, to about ``TARGET_BATCH_BYTES``; large ones are not split.

    Each batch comes with its size in bytes, which ``nbytes`` computes slowly.
    """
    waiting: list[pa.RecordBatch] = []
    size = rows = 0
    for batch, batch_size in batches:
        is_large = batch_size >= JOIN_BELOW_BYTES or batch.num_rows >= JOIN_BELOW_ROWS
        if waiting and (is_large or size >= limits.TARGET_BATCH_BYTES or rows >= JOINED_ROWS):
            yield _join(waiting)
            waiting, size, rows = [], 0, 0
        if is_large:
            yield batch
            continue
        waiting.append(batch)
        size, rows = size + batch_size, rows + batch.num_rows
    if waiting:
        yield _join(waiting)


def _join(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
