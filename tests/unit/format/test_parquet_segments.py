"""History segments: records written as Parquet are read back exactly, and no damaged byte is returned."""

from __future__ import annotations

import gc
import io
from contextlib import suppress
from copy import copy
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptIndexError, CorruptRecordError, InvalidRecordError, InvalidRequestError
from sparklog.format import codecs, schema
from sparklog.format.checksum import crc32c
from sparklog.format.index import NO_PRODUCER, BatchEntry, BatchProducer, decode_index, encode_index
from sparklog.format.index_rebuild import rebuild_index
from sparklog.format.parquet.pages import PLAIN, encode_varint, read_pages
from sparklog.format.parquet.reader import ParquetSegmentReader
from sparklog.format.parquet.writer import ParquetSegmentWriter
from sparklog.format.verification import regions, verify
from tests.sample import chosen
from tests.unit.format.parquet_files import StoredFile

Row = dict[str, Any]

header = st.fixed_dictionaries({"key": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)})
rows = st.fixed_dictionaries(
    {
        schema.KEY: st.none() | st.binary(max_size=5),
        schema.VALUE: st.none() | st.binary(max_size=40),
        schema.TIMESTAMP: st.integers(0, 2**53),
        schema.HEADERS: st.none() | st.lists(header, max_size=2),
    }
)
batches = st.lists(st.lists(rows, min_size=1, max_size=20), max_size=4)


def record_batch(rows: list[Row], offsets: list[int] | None = None) -> pa.RecordBatch:
    columns = schema.columns_present(True, True, offsets is not None)
    fields = schema.record_schema(columns)
    content: dict[str, Any] = {name: [row[name] for row in rows] for name in schema.COLUMNS}
    content[schema.OFFSET] = offsets
    return pa.RecordBatch.from_arrays([pa.array(content[field.name], field.type) for field in fields], schema=fields)


class File(StoredFile):
    """A file in memory, with its index."""

    def __init__(
        self, written: list[pa.RecordBatch], codec: str = codecs.ZSTD, base_offset: int = 0, **options: Any
    ) -> None:
        sink = io.BytesIO()
        writer = ParquetSegmentWriter(sink, base_offset=base_offset, codec=codec, **options)
        for batch in written:
            writer.write(batch)
        index_bytes = writer.finish()
        super().__init__(sink.getvalue(), index_bytes)

    def table(self) -> pa.Table:
        """As any reader of Parquet sees it."""
        return pq.read_table(io.BytesIO(bytes(self.data)))

    def read_all(self) -> list[pa.RecordBatch]:
        return [self.reader().read(number) for number in range(len(self.index))]

    def sign(self) -> None:
        """Make the index fit the bytes, as whoever forges a file would."""

        def signed(entry: BatchEntry) -> BatchEntry:
            position, sums = entry.position, {}
            for part in ("metadata", *schema.STORED_COLUMNS):
                length = getattr(entry, f"{part}_length")
                sums[f"{part}_crc32c"] = crc32c(bytes(self.data[position : position + length]))
                position += length
            return entry._replace(**sums)

        summary = self.index.summary
        footer = bytes(self.data[summary.footer_position :])
        self.index_bytes = encode_index(
            summary._replace(header_crc32c=crc32c(bytes(self.data[:4])), footer_crc32c=crc32c(footer)),
            [signed(entry) for entry in self.index.entries],
        )


@settings(deadline=None)
@given(batches, st.sampled_from(codecs.CODECS), st.integers(0, 2**40))
def test_records_are_read_back_exactly(content: list[list[Row]], codec: str, base_offset: int) -> None:
    written = [record_batch(rows) for rows in content]
    file = File(written, codec, base_offset)
    reader = file.reader()
    assert [reader.read(number) for number in range(len(written))] == written
    reader.check_file()
    file.index.check()
    table = file.table()
    assert table.column(schema.OFFSET).to_pylist() == list(range(base_offset, base_offset + table.num_rows))


@settings(deadline=None)
@given(st.lists(rows, min_size=1, max_size=20), st.data())
def test_explicit_offsets_are_relative_to_the_base_offset(content: list[Row], data: st.DataObject) -> None:
    steps = data.draw(st.lists(st.integers(1, 9), min_size=len(content), max_size=len(content)))
    offsets = [sum(steps[: number + 1]) for number in range(len(content))]
    batch = record_batch(content, offsets)
    file = File([batch], base_offset=10**12, has_offsets=True)
    assert file.reader().read(0, batch.schema.names) == batch
    assert file.index.entry(0).first_offset == offsets[0]
    assert pq.read_table(io.BytesIO(bytes(file.data))).column(schema.OFFSET).to_pylist() == [
        10**12 + o for o in offsets
    ]


@pytest.mark.parametrize("column", schema.COLUMNS)
def test_one_column_is_read_without_the_bytes_of_the_others(column: str) -> None:
    file = File([record_batch(ROWS), record_batch(ROWS[:1])])
    asked: list[tuple[int, int]] = []

    def read_at(position: int, size: int) -> pa.Buffer:
        asked.append((position, size))
        return pa.py_buffer(bytes(file.data[position : position + size]))

    reader = ParquetSegmentReader(read_at, file.index, "x.parquet")
    assert reader.read(1, [column]) == record_batch(ROWS[:1]).select([column])
    entry, summary = file.index.entry(1), file.index.summary
    footer = (summary.footer_position, summary.log_length - summary.footer_position)
    assert [size for position, size in asked if (position, size) != footer] == [entry.section(column)[0]]


@pytest.mark.sampled
@pytest.mark.parametrize("codec", [codecs.NONE, codecs.ZSTD])
def test_every_flipped_byte_is_detected(codec: str) -> None:
    file = File([record_batch(ROWS), record_batch(ROWS[:1])], codec)
    assert not verify(file.read_at, file.index, "x.parquet").damage
    for position in chosen(range(len(file.data))):
        file.data[position] ^= 0x40
        assert verify(file.read_at, file.index, "x.parquet").damage
        file.data[position] ^= 0x40


@pytest.mark.parametrize("column", schema.STORED_COLUMNS)
def test_a_reader_of_one_column_detects_every_flipped_byte_of_it(column: str) -> None:
    file = File([record_batch(ROWS, [1, 2, 4])], has_offsets=True)
    (region,) = [region for region in regions(file.index) if region.name == column]
    for position in range(region.position, region.position + region.length):
        file.data[position] ^= 0x40
        with pytest.raises(CorruptRecordError, match=f"checksum of its {column}"):
            file.reader().read(0, [column])
        file.data[position] ^= 0x40


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.ZSTD])
def test_a_forged_file_is_refused_or_read_but_neither_ends_the_process_nor_fills_memory(codec: str) -> None:
    """Bytes are changed at random, and all checksums fit them."""
    random = Random(7)
    headers = [{"key": "h", "value": b"x" * 9}] * 3
    written = [record_batch([*ROWS, *(row(b"k", b"v" * 30, n, headers) for n in range(200))])]
    whole = File(written, codec)
    refused = 0
    for _ in range(1500):
        file = copy(whole)
        file.data = bytearray(whole.data)
        for _ in range(random.choice([1, 1, 2, 4])):
            file.data[random.randrange(len(file.data))] = random.randrange(256)
        file.sign()
        before = pa.total_allocated_bytes()
        try:
            reader = file.reader()
            read = reader.read(0)
            reader.check_file()
            assert read.num_rows == 203
        except CorruptRecordError:
            refused += 1
        assert pa.total_allocated_bytes() - before < 4 * 1024 * 1024
    assert refused > 100


def replace_in_keys(file: File, at: int, removed: bytes, inserted: bytes) -> None:
    """Replace bytes of the first page of the keys, ``at`` bytes after its beginning, with an index that fits."""
    entry, summary = file.index.entry(0), file.index.summary
    start = entry.position + at
    assert file.data[start : start + len(removed)] == removed
    file.data[start : start + len(removed)] = inserted
    grown = len(inserted) - len(removed)
    file.index_bytes = encode_index(
        summary._replace(log_length=summary.log_length + grown, footer_position=summary.footer_position + grown),
        [entry._replace(length=entry.length + grown, key_length=entry.key_length + grown)],
    )
    file.sign()


def stated_length(file: File) -> bytes:
    """The second field of the first page of the keys: its size once decompressed."""
    entry = file.index.entry(0)
    (page,) = read_pages(file.read_at(entry.position, entry.key_length), PLAIN, 1)
    return bytes([0x15, *encode_varint(2 * page.decoded_length)])


def test_a_page_that_states_gigabytes_is_refused_before_they_are_allocated() -> None:
    file = File([record_batch(ROWS)])
    replace_in_keys(file, 2, stated_length(file), bytes([0x15, *encode_varint(2**32 - 2)]))
    with pytest.raises(CorruptRecordError, match="its key states 2147483647 bytes decompressed"):
        file.reader().read(0, [schema.KEY])


@pytest.mark.parametrize(
    "twice",
    [bytes([0x15, *encode_varint(2**32 - 2), 0x06, 0x04]), bytes([0x15, *encode_varint(2**32 - 2), 0x05, 0x04])],
    ids=["as a longer integer", "as an integer"],
)
def test_a_page_that_states_its_size_twice_is_refused(twice: bytes) -> None:
    """Parsers differ in which of two fields of the same number they take."""
    file = File([record_batch(ROWS)])
    stated = stated_length(file)
    replace_in_keys(file, 2, stated, twice + stated[1:])
    with pytest.raises(CorruptRecordError, match="a field of a far or repeated number"):
        file.reader().read(0, [schema.KEY])


def test_a_column_of_many_pages_without_values_is_refused() -> None:
    file = File([record_batch(ROWS)])
    empty = bytes.fromhex("1500 1500 1500 2c 1500 1500 1506 1506 00 00")
    replace_in_keys(file, 0, b"", empty * 1000)
    with pytest.raises(CorruptRecordError, match="a page of type 0 with 0 values"):
        file.reader().read(0, [schema.KEY])


@pytest.mark.parametrize("value", [b"", b"v" * 300])
def test_a_row_group_of_many_pages_is_read_back(value: bytes) -> None:
    headers = [{"key": "h", "value": b"x"}]
    batch = record_batch([row(b"k", value, number, headers) for number in range(100_000)])
    assert File([batch], codecs.NONE).reader().read(0) == batch


def test_an_index_that_claims_more_rows_than_its_bytes_can_hold_is_refused() -> None:
    file = File([record_batch(ROWS)])
    entry = file.index.entry(0)
    rows = 2**31 - 1
    file.index_bytes = encode_index(file.index.summary._replace(rows=rows), [entry._replace(count=rows)])
    with pytest.raises(CorruptIndexError, match="2147483647 rows in"):
        file.reader().read(0, [schema.TIMESTAMP])


def test_an_index_of_a_parquet_file_without_headers_is_refused() -> None:
    file = File([record_batch(ROWS)])
    file.index_bytes = encode_index(file.index.summary._replace(has_headers=False), file.index.entries)
    with pytest.raises(CorruptIndexError, match="keys and headers"):
        file.reader()


def test_a_writer_that_is_abandoned_writes_nothing_to_a_closed_sink() -> None:
    sink = io.BytesIO()
    writer = ParquetSegmentWriter(sink, base_offset=0)
    writer.write(record_batch(ROWS))
    written = writer.bytes_written
    del writer
    gc.collect()
    assert len(sink.getvalue()) == written


def test_a_writer_whose_sink_failed_does_not_try_again_when_it_is_deleted() -> None:
    class Full(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell() > 100:
                raise OSError("no space left")
            return super().write(data)

    writer = ParquetSegmentWriter(Full(), base_offset=0)
    with pytest.raises(OSError, match="no space left"):
        writer.write(record_batch(ROWS * 100))
    del writer
    gc.collect()  # pytest fails a test in which a finalizer raises


@pytest.mark.parametrize(
    "typed",
    [
        {},
        {"amount": pa.array([1.5])},
        {"amount": pa.array([1, 2, 3])},
        {"amount": pa.array([1.5, None, 2.0])},
    ],
    ids=["none", "too short", "another type", "a null"],
)
def test_typed_columns_that_do_not_fit_are_refused_before_anything_is_written(typed: dict[str, pa.Array]) -> None:
    sink = io.BytesIO()
    writer = ParquetSegmentWriter(sink, base_offset=0, typed=[pa.field("amount", pa.float64(), nullable=False)])
    before = sink.getvalue()
    with pytest.raises(InvalidRequestError, match="amount"):
        writer.write(record_batch(ROWS), typed)
    assert sink.getvalue() == before


@pytest.mark.sampled
def test_every_truncation_is_detected() -> None:
    file = File([record_batch(ROWS), record_batch(ROWS[:1])])
    for length in reversed(chosen(range(len(file.data)))):
        del file.data[length:]
        with pytest.raises(CorruptRecordError, match="cut short"):
            file.reader().check_file()


def test_the_regions_of_the_index_are_the_whole_file() -> None:
    typed = [pa.field("amount", pa.float64()), pa.field("city", pa.string())]
    sink = io.BytesIO()
    writer = ParquetSegmentWriter(sink, base_offset=5, typed=typed)
    producer = BatchProducer(7, 1, 3)
    writer.write(
        record_batch(ROWS),
        {"amount": pa.array([1.5, None, 2.0]), "city": pa.array(["a", None, "b"])},
        **producer._asdict(),
    )
    index = decode_index(writer.finish(), "x.index")
    position = 0
    for region in regions(index):
        assert region.position == position
        position += region.length
    assert position == len(sink.getvalue()) == index.summary.log_length
    assert index.entry(0).metadata_length > 0
    assert (index.entry(0).producer_id, index.entry(0).producer_epoch, index.entry(0).base_sequence) == producer
    table = pq.read_table(io.BytesIO(sink.getvalue()))
    assert table.column_names == ["amount", "city", *schema.STORED_COLUMNS]
    assert table.column("amount").to_pylist() == [1.5, None, 2.0]


def test_row_groups_state_bounds_of_typed_columns_except_floating_point_numbers() -> None:
    """Arrow leaves NaN out of bounds, and readers that take NaN for the largest number would skip it."""
    typed = [pa.field("whole", pa.int32()), pa.field("single", pa.float32()), pa.field("double", pa.float64())]
    sink = io.BytesIO()
    writer = ParquetSegmentWriter(sink, base_offset=0, typed=typed)
    values = [None, *range(len(ROWS) - 2), float("nan")]
    columns = {"single": pa.array(values, pa.float32()), "double": pa.array(values, pa.float64())}
    writer.write(record_batch(ROWS), {"whole": pa.array(range(len(ROWS)), pa.int32()), **columns})
    writer.finish()
    group = pq.ParquetFile(sink).metadata.row_group(0)
    assert [group.column(number).is_stats_set for number in range(3)] == [True, False, False]


def test_a_file_without_records_has_no_row_groups() -> None:
    file = File([])
    file.reader().check_file()
    assert len(file.index) == 0
    assert file.table().num_rows == 0


def test_a_row_group_cannot_be_copied() -> None:
    with pytest.raises(InvalidRequestError, match="cannot be copied"):
        File([record_batch(ROWS)]).reader().read_stored(0)


@pytest.mark.parametrize("broken", [[5, 5], [3, 2], [-1, 2]])
def test_offsets_that_do_not_rise_are_refused_before_anything_is_written(broken: list[int]) -> None:
    sink = io.BytesIO()
    writer = ParquetSegmentWriter(sink, base_offset=0, has_offsets=True)
    before = writer.bytes_written
    with pytest.raises(InvalidRecordError, match="offsets"):
        writer.write(record_batch(ROWS[:2], broken))
    assert writer.bytes_written == before


def row(key: bytes | None, value: bytes | None, timestamp: int, headers: list[Row] | None) -> Row:
    return {schema.KEY: key, schema.VALUE: value, schema.TIMESTAMP: timestamp, schema.HEADERS: headers}


ROWS: list[Row] = [
    row(b"k", b"v" * 50, 1_700_000_000_000_000, None),
    row(None, None, 1, []),
    row(b"", b"", 2, [{"key": "h", "value": None}, {"key": "h", "value": b"x"}]),
]


# -- an index that is rebuilt from its file


def rebuilt(file: File, producer: BatchProducer = NO_PRODUCER, base_offset: int = 0, has_gaps: bool = False) -> bytes:
    size = len(file.data)
    return rebuild_index(file.read_at, size, "x.parquet", lambda *_: producer, base_offset, has_gaps)


@settings(deadline=None)
@given(batches.filter(bool), st.sampled_from(codecs.CODECS), st.integers(0, 2**40))
def test_a_rebuilt_index_is_the_one_that_was_written(content: list[list[Row]], codec: str, base_offset: int) -> None:
    file = File([record_batch(rows) for rows in content], codec, base_offset)
    assert rebuilt(file, base_offset=base_offset) == file.index_bytes


def test_a_rebuilt_index_has_explicit_offsets_and_the_producers_that_are_given() -> None:
    file = File([record_batch(ROWS, [1, 5, 9]), record_batch(ROWS, [10, 12, 14])], base_offset=100, has_offsets=True)
    assert rebuilt(file, base_offset=100, has_gaps=True) == file.index_bytes
    index = decode_index(rebuilt(file, BatchProducer(7, 1, 3), 100, True), "x.index")
    assert (index.entry(1).producer_id, index.entry(1).base_sequence) == (7, 3)


def test_no_index_is_rebuilt_for_another_base_offset() -> None:
    with pytest.raises(CorruptRecordError, match="begins at offset 5, 6 is expected"):
        rebuilt(File([record_batch(ROWS)], base_offset=5), base_offset=6)


def test_a_forged_footer_is_refused_or_gives_an_index_but_does_not_end_the_process() -> None:
    random = Random(3)
    whole = File([record_batch(ROWS), record_batch(ROWS[:2])])
    start = whole.index.summary.footer_position
    for _ in range(1000):
        file = copy(whole)
        file.data = bytearray(whole.data)
        file.data[random.randrange(start, len(file.data))] = random.randrange(256)
        with suppress(CorruptRecordError):
            rebuilt(file)
