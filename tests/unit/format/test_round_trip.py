"""Records round-trip for any codec, columns and nulls."""

from __future__ import annotations

import base64
import gzip
import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import (
    CorruptIndexError,
    InvalidRecordError,
    InvalidRequestError,
    RecordListTooLargeError,
    StorageFullError,
)
from sparklog.format import schema, segment_writer
from sparklog.format.checksum import crc32c
from sparklog.format.codecs import CODECS
from sparklog.format.segment_reader import SegmentReader, find_first_row
from sparklog.format.segment_writer import SegmentWriter
from tests.sample import examples

from .segments import ROWS, Reads, Segment, record_batch, rows_of, section_range, write_segment

times = st.integers(-(2**63), 2**63 - 1)
headers = st.none() | st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=4)
rows = st.tuples(st.none() | st.binary(max_size=8), st.none() | st.binary(max_size=300), times, headers)
segments = st.lists(st.lists(rows, min_size=1, max_size=8), max_size=4)


@settings(max_examples=examples(200))
@given(segments, st.sampled_from(CODECS), st.booleans(), st.booleans())
def test_records_round_trip(batches: Any, codec: str, has_key: bool, has_headers: bool) -> None:
    segment = write_segment(batches, codec=codec, has_key=has_key, has_headers=has_headers)
    reader = segment.reader()
    reader.check_file()
    for number, written in enumerate(batches):
        expected = [(k if has_key else None, v, t, h if has_headers else None) for k, v, t, h in written]
        assert rows_of(reader.read(number)) == expected


@settings(max_examples=examples(100))
@given(
    st.lists(rows, min_size=1, max_size=8),
    st.sampled_from(CODECS),
    st.booleans(),
    st.permutations(schema.COLUMNS),
    st.integers(1, 4),
)
def test_projection_returns_the_same_values_in_the_requested_order(
    written: Any, codec: Any, optional: Any, order: Any, wanted: Any
) -> None:
    columns = order[:wanted]
    segment = write_segment([written], codec=codec, has_key=optional, has_headers=optional)
    read = segment.reader().read(0, columns)
    assert read.schema == schema.record_schema(columns)
    assert read.equals(segment.reader().read(0).select(columns))


@settings(max_examples=examples(100))
@given(segments.filter(bool), st.sampled_from(CODECS))
def test_entries_describe_their_batches(batches: Any, codec: str) -> None:
    segment = write_segment(batches, codec=codec)
    index = segment.decode()
    index.check()
    assert index.rows == sum(map(len, batches))
    for entry, written in zip(index.entries, batches, strict=True):
        keys, values, times, _ = zip(*written, strict=True)
        assert entry.count == len(written)
        assert (entry.min_timestamp_us, entry.max_timestamp_us) == (min(times), max(times))
        assert (entry.null_keys, entry.null_values) == (keys.count(None), values.count(None))
        assert entry.crc32c == crc32c(bytes(segment.log[entry.position : entry.end]))
        assert (entry.codec, entry.producer_id, entry.producer_epoch, entry.base_sequence) == (codec, -1, -1, -1)


@pytest.mark.parametrize("codec", CODECS)
def test_null_and_empty_are_distinct_and_headers_keep_order_and_duplicates(codec: str) -> None:
    assert rows_of(write_segment([ROWS], codec=codec).reader().read(0)) == ROWS


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_plain_arrow_reads_the_log(codec: str) -> None:
    segment = write_segment([ROWS, ROWS[:1]], codec=codec)
    table = pa.ipc.open_file(pa.py_buffer(segment.log)).read_all()
    assert [rows_of(batch) for batch in table.to_batches()] == [ROWS, ROWS[:1]]
    assert table.schema.metadata == {b"sparklog.format": b"1", b"sparklog.codec": codec.encode()}


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_plain_arrow_opens_an_envelope_with_the_metadata_of_the_file(codec: str) -> None:
    file = pa.ipc.open_file(pa.py_buffer(write_segment([ROWS], codec=codec).log))
    message = file.get_batch(0).column("envelope")[0].as_py()
    data = gzip.decompress(message) if codec == "gzip" else _unsnap(message)
    inner = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(file.schema.metadata[b"sparklog.schema"])))
    assert file.schema.metadata[b"sparklog.codec"] == codec.encode()
    assert rows_of(pa.ipc.read_record_batch(pa.py_buffer(data), inner)) == ROWS


def _unsnap(message: bytes) -> pa.Buffer:
    """A snappy block starts with its size as a base-128 varint."""
    size = shift = 0
    for byte in message:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    return pa.Codec("snappy").decompress(message, size)


@pytest.mark.parametrize("codec", CODECS)
def test_a_file_without_batches_is_complete(codec: str) -> None:
    segment = write_segment([], codec=codec)
    segment.reader().check_file()
    assert (len(segment.decode()), segment.decode().rows) == (0, 0)
    assert pa.ipc.open_file(pa.py_buffer(segment.log)).num_record_batches == 0


def test_a_slice_of_a_larger_batch_is_written_without_the_rest() -> None:
    sink = io.BytesIO()
    writer = SegmentWriter(sink, has_headers=True)
    writer.write(record_batch(ROWS * 3).slice(3, 6))
    index = writer.finish()
    segment = Segment(bytearray(sink.getvalue()), index)
    assert rows_of(segment.reader().read(0)) == (ROWS * 3)[3:9]


@pytest.mark.parametrize("codec", CODECS)
def test_a_record_of_64_mib_round_trips(codec: str) -> None:
    value = bytes(64 * 1024 * 1024)
    segment = write_segment([[(b"k", value, 0, None)]], codec=codec)
    assert segment.reader().read(0, ["value"]).column(0)[0].as_buffer().equals(pa.py_buffer(value))


def test_header_type_of_spark_is_accepted() -> None:
    item = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    kind = pa.list_(pa.field("element", item, nullable=False))
    batch = record_batch(ROWS)
    headers = pa.array(batch.column("headers").to_pylist(), kind)
    sink = io.BytesIO()
    writer = SegmentWriter(sink, has_headers=True)
    writer.write(pa.record_batch([*batch.columns[:3], headers], names=list(schema.COLUMNS)))
    index = writer.finish()
    assert rows_of(Segment(bytearray(sink.getvalue()), index).reader().read(0)) == ROWS


def test_producer_is_kept_per_batch() -> None:
    writer = SegmentWriter(io.BytesIO())
    batch = record_batch(ROWS, ("key", "value", "timestamp"))
    writer.write(batch, producer_id=2**62, producer_epoch=7, base_sequence=2**31 - 1)
    entry = writer.entries[0]
    assert (entry.producer_id, entry.producer_epoch, entry.base_sequence) == (2**62, 7, 2**31 - 1)


# --- refused before anything is written


def test_empty_batch_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="empty record batch"):
        SegmentWriter(io.BytesIO(), has_headers=True).write(record_batch(ROWS).slice(0, 0))


def test_other_columns_are_refused_by_name() -> None:
    with pytest.raises(InvalidRecordError, match=r"\['key', 'value', 'timestamp', 'headers'\] does not fit"):
        SegmentWriter(io.BytesIO()).write(record_batch(ROWS))


def test_other_type_is_refused_with_both_types() -> None:
    batch = record_batch(ROWS, ("value", "timestamp"))
    batch = batch.set_column(1, "timestamp", batch.column(1).cast(pa.timestamp("ns", "UTC"), safe=False))
    with pytest.raises(InvalidRecordError, match=r"timestamp is of type timestamp\[ns, tz=UTC\], .*\[us, tz=UTC\]"):
        SegmentWriter(io.BytesIO(), has_key=False).write(batch)


def test_null_timestamp_is_refused() -> None:
    batch = record_batch([(None, b"v", None, None)], ("value", "timestamp"))
    with pytest.raises(InvalidRecordError, match="1 of 1 records have no timestamp"):
        SegmentWriter(io.BytesIO(), has_key=False).write(batch)


@pytest.mark.parametrize("headers", [[None], [{"key": None, "value": b"v"}]])
def test_header_without_key_is_refused(headers: Any) -> None:
    batch = record_batch(ROWS[:1])
    batch = batch.set_column(3, "headers", pa.array([headers], schema.HEADERS_TYPE))
    with pytest.raises(InvalidRecordError, match="null key"):
        SegmentWriter(io.BytesIO(), has_headers=True).write(batch)


def test_header_key_that_is_not_utf8_is_refused() -> None:
    batch = record_batch(ROWS[:1])
    damaged = pa.array(
        [[{"key": b"\xff", "value": b"v"}]], pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    )
    keys = pa.Array.from_buffers(pa.string(), 1, damaged.flatten().field("key").buffers())
    items = pa.StructArray.from_arrays(
        [keys, damaged.flatten().field("value")], fields=list(schema.HEADERS_TYPE.value_type)
    )
    headers = pa.ListArray.from_arrays(damaged.offsets, items, type=schema.HEADERS_TYPE)
    with pytest.raises(InvalidRecordError, match="UTF-8"):
        SegmentWriter(io.BytesIO(), has_headers=True).write(batch.set_column(3, "headers", headers))


def test_batch_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_writer, "MAX_BATCH_BYTES", 100)
    with pytest.raises(RecordListTooLargeError, match=r"4 records has .* bytes, over the limit of 100"):
        SegmentWriter(io.BytesIO(), has_headers=True).write(record_batch(ROWS))


def test_file_over_the_limit_of_batches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_writer, "MAX_BATCHES_PER_FILE", 1)
    writer = SegmentWriter(io.BytesIO(), has_headers=True)
    writer.write(record_batch(ROWS))
    with pytest.raises(RecordListTooLargeError, match="at most 1 record batches"):
        writer.write(record_batch(ROWS))


def test_refused_batch_does_not_change_the_file() -> None:
    sink = io.BytesIO()
    writer = SegmentWriter(sink, has_headers=True)
    writer.write(record_batch(ROWS))
    with pytest.raises(InvalidRecordError):
        writer.write(record_batch(ROWS, ("value", "timestamp")))
    writer.write(record_batch(ROWS[:2]))
    index = writer.finish()
    segment = Segment(bytearray(sink.getvalue()), index)
    segment.reader().check_file()
    assert rows_of(segment.reader().read(1)) == ROWS[:2]


def test_error_of_the_sink_is_raised_unchanged() -> None:
    class Full:
        def write(self, data: object, /) -> int:
            raise StorageFullError("no space")

    with pytest.raises(StorageFullError):
        SegmentWriter(Full(), has_headers=True).write(record_batch(ROWS))


def test_bytes_written_counts_the_bytes_of_the_sink() -> None:
    sink = io.BytesIO()
    writer = SegmentWriter(sink, has_headers=True)
    writer.write(record_batch(ROWS))
    assert (writer.bytes_written, writer.rows) == (len(sink.getvalue()), len(ROWS))
    writer.finish()
    assert writer.bytes_written == len(sink.getvalue())


# --- what a read touches


def reads_of(segment: Segment, columns: Any) -> Reads:
    reads = Reads(segment.log)
    index = segment.decode()
    SegmentReader(reads, index, "t-0/0.log").read(1, columns)
    return reads


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("column", schema.COLUMNS)
def test_projection_reads_no_byte_of_another_column(codec: str, column: str) -> None:
    segment = write_segment([ROWS, ROWS, ROWS], codec=codec)
    reads, entry = reads_of(segment, [column]), segment.decode().entries[1]
    for other in schema.COLUMNS:
        assert reads.touched(*section_range(entry, other)) == (other == column)
    assert not reads.touched(0, entry.position)
    assert not reads.touched(entry.end, len(segment.log))


@pytest.mark.parametrize(
    ("columns", "reads"),
    [(["key"], 1), (["value"], 2), (["value", "timestamp"], 2), (["headers", "key"], 2), (None, 1)],
)
def test_adjacent_sections_are_read_together(columns: Any, reads: int) -> None:
    assert len(reads_of(write_segment([ROWS, ROWS]), columns).calls) == reads


def test_columns_missing_in_the_file_are_not_read() -> None:
    segment = write_segment([ROWS, ROWS], has_key=False, has_headers=False)
    reads = Reads(segment.log)
    found = SegmentReader(reads, segment.decode(), "t-0/0.log").read(1, ["headers", "key"])
    assert reads.calls == []
    assert found.to_pylist() == [{"headers": None, "key": None}] * len(ROWS)


def test_values_of_an_uncompressed_file_are_not_copied() -> None:
    segment = write_segment([ROWS])
    memory = pa.py_buffer(segment.log)
    data = segment.reader().read(0, ["value"]).column(0).buffers()[2]
    assert memory.address <= data.address < memory.address + memory.size


def test_unknown_column_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="no column 'offset': choose from key, value, timestamp, headers"):
        write_segment([ROWS]).reader().read(0, ["offset"])


@pytest.mark.parametrize("batch", [-1, 1, 2**40])
def test_batch_that_does_not_exist_is_an_error(batch: int) -> None:
    with pytest.raises(CorruptIndexError, match=f"number {batch} was requested"):
        write_segment([ROWS]).reader().read(batch)


# --- finding a record by time within a batch


@given(st.lists(times, max_size=20), times)
def test_first_row_at_or_after_a_timestamp(timestamps: Any, wanted: int) -> None:
    column = pa.array(timestamps, schema.TIMESTAMP_TYPE)
    expected = next((row for row, time in enumerate(timestamps) if time >= wanted), None)
    assert find_first_row(column, wanted) == expected
    assert find_first_row(column.slice(len(timestamps) // 2), wanted) == next(
        (row for row, time in enumerate(timestamps[len(timestamps) // 2 :]) if time >= wanted), None
    )
