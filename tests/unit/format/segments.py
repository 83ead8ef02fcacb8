"""Small segments for the tests of the format: written to memory, and read back with a record of the reads."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from sparklog.format import schema
from sparklog.format.checksum import crc32c
from sparklog.format.index import BatchEntry, Index, decode_index, encode_index
from sparklog.format.segment_reader import SegmentReader
from sparklog.format.segment_writer import SegmentWriter

Row = tuple[Any, ...]

ROWS: list[Row] = [
    (b"N14228", b'{"delay":2}', 1_357_034_400_000_000, None),
    (None, None, 1_357_034_400_000_001, []),
    (b"", b"", 0, [("trace", b"1"), ("trace", None), ("größe", b""), ("", b"\x00")]),
    (b"N619AA", b"x" * 40, -5, [("\N{SNOWMAN}", "é".encode())]),
]


class Segment(NamedTuple):
    """The two files of a segment; ``log`` can be damaged in place."""

    log: bytearray
    index: bytes  # type: ignore[assignment]

    def decode(self) -> Index:
        return decode_index(self.index, "t-0/0.index")

    def reader(self, index: Index | None = None) -> SegmentReader:
        return SegmentReader(Reads(self.log), index or self.decode(), "t-0/0.log")


class Reads:
    """A read_at over bytes in memory, shorter at the end like a store's; records each (position, length)."""

    def __init__(self, data: bytes | bytearray) -> None:
        self._buffer = pa.py_buffer(data)
        self.calls: list[tuple[int, int]] = []

    def __call__(self, position: int, length: int) -> pa.Buffer:
        self.calls.append((position, length))
        start = min(position, self._buffer.size)
        return self._buffer.slice(start, min(length, self._buffer.size - start))

    def touched(self, start: int, end: int) -> bool:
        return any(position < end and position + length > start for position, length in self.calls)


def record_batch(rows: Sequence[Row], columns: Sequence[str] = schema.COLUMNS) -> pa.RecordBatch:
    """Rows of (key, value, timestamp in us, headers as pairs or None) as a record batch of these columns."""
    fields = schema.record_schema(columns)
    by_name = dict(zip(schema.COLUMNS, zip(*rows, strict=True), strict=True))
    headers = [None if h is None else [{"key": k, "value": v} for k, v in h] for h in by_name[schema.HEADERS]]
    by_name[schema.HEADERS] = tuple(headers)
    return pa.RecordBatch.from_arrays([pa.array(by_name[f.name], f.type) for f in fields], schema=fields)


def rows_of(batch: pa.RecordBatch) -> list[Row]:
    """The inverse of ``record_batch``, for a batch with all columns; times beyond Python's datetime included."""
    rows = []
    times = batch.column(schema.TIMESTAMP).view(pa.int64()).to_pylist()
    for row, time in zip(batch.drop_columns(schema.TIMESTAMP).to_pylist(), times, strict=True):
        headers = None if row["headers"] is None else [(h["key"], h["value"]) for h in row["headers"]]
        rows.append((row["key"], row["value"], time, headers))
    return rows


def write_segment(
    batches: Sequence[Sequence[Row]], *, codec: str = "none", has_key: bool = True, has_headers: bool = True
) -> Segment:
    sink = io.BytesIO()
    writer = SegmentWriter(sink, codec=codec, has_key=has_key, has_headers=has_headers)
    for rows in batches:
        writer.write(record_batch(rows, schema.columns_present(has_key, has_headers)))
    index = writer.finish()
    return Segment(bytearray(sink.getvalue()), index)


def write_gapped(
    offsets: Sequence[Sequence[int]], *, codec: str = "none", has_key: bool = True, has_headers: bool = True
) -> Segment:
    """A segment with explicit offsets: one batch for each list, with the rows of ``ROWS`` repeated."""
    sink = io.BytesIO()
    writer = SegmentWriter(sink, codec=codec, has_key=has_key, has_headers=has_headers, has_offsets=True)
    for batch in offsets:
        writer.write(gapped_batch(batch, schema.columns_present(has_key, has_headers)))
    index = writer.finish()
    return Segment(bytearray(sink.getvalue()), index)


def gapped_batch(offsets: Sequence[int], columns: Sequence[str] = schema.COLUMNS) -> pa.RecordBatch:
    records = record_batch([ROWS[number % len(ROWS)] for number in range(len(offsets))], columns)
    arrays = [*records.columns, pa.array(offsets, pa.int32())]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.record_schema((*columns, schema.OFFSET)))


def forge(segment: Segment, batch: int = 0) -> Index:
    """The index that an attacker would write for the changed log: every checksum of the batch is correct again."""
    index = segment.decode()
    entries = list(index.entries)
    entry = entries[batch]
    fields = {"metadata_crc32c": _sum(segment, entry.position, entry.metadata_length)}
    position = entry.position + entry.metadata_length
    for name in schema.STORED_COLUMNS:
        length = entry.section(name)[0]
        fields[f"{name}_crc32c"] = _sum(segment, position, length) if length else 0
        position += length
    entries[batch] = entry._replace(**fields)
    return decode_index(encode_index(index.summary, entries), "t-0/0.index")


def _sum(segment: Segment, position: int, length: int) -> int:
    return crc32c(bytes(segment.log[position : position + length]))


def section_range(entry: BatchEntry, column: str) -> tuple[int, int]:
    """The positions in the ``.log`` where a column's section starts and ends."""
    start = entry.position + entry.metadata_length
    for name in schema.STORED_COLUMNS[: schema.STORED_COLUMNS.index(column)]:
        start += entry.section(name)[0]
    return start, start + entry.section(column)[0]
