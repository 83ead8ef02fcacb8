"""Record batches copied between files in stored form: the copy is a file like any other."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptRecordError, InvalidRequestError
from sparklog.format import codecs
from sparklog.format.index import decode_index
from sparklog.format.segment_reader import SegmentReader
from sparklog.format.segment_writer import SegmentWriter
from tests.unit.format.segments import ROWS, Reads, Segment, record_batch


def file_of(batches: list[pa.RecordBatch], codec: str) -> Segment:
    sink = io.BytesIO()
    writer = SegmentWriter(sink, codec=codec, has_headers=True)
    for number, batch in enumerate(batches):
        writer.write(batch, producer_id=7, producer_epoch=1, base_sequence=10 * number)
    return finished(writer, sink)


def finished(writer: SegmentWriter, sink: io.BytesIO) -> Segment:
    index = writer.finish()
    return Segment(bytearray(sink.getvalue()), index)


def batch_of(rows: int) -> pa.RecordBatch:
    return record_batch([ROWS[number % len(ROWS)] for number in range(rows)])


def mixed(source: Segment, codec: str, copied: list[bool]) -> Segment:
    """Batches of a file, each copied in stored form or encoded again."""
    sink = io.BytesIO()
    writer = SegmentWriter(sink, codec=codec, has_headers=True)
    index, reader = source.decode(), source.reader()
    for number, copy in enumerate(copied):
        entry = index.entry(number)
        if copy:
            writer.copy(reader.read_stored(number), entry)
        else:
            writer.write(reader.read(number), producer_id=7, producer_epoch=1, base_sequence=10 * number)
    return finished(writer, sink)


@pytest.mark.parametrize("codec", codecs.CODECS)
@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, max_size=6))
def test_a_file_of_copied_batches_is_identical(codec: str, shape: list[tuple[int, bool]]) -> None:
    source = file_of([batch_of(rows) for rows, _ in shape], codec)
    copied = mixed(source, codec, [copy for _, copy in shape])
    assert copied == source
    copied.reader().check_file()


@pytest.mark.parametrize("codec", ["none", "zstd", "lz4"])
def test_arrow_reads_a_file_with_copied_batches_by_its_footer(codec: str) -> None:
    first, second = file_of([batch_of(5)], codec), file_of([batch_of(3), batch_of(2)], codec)
    sink = io.BytesIO()
    writer = SegmentWriter(sink, codec=codec, has_headers=True)
    writer.write(batch_of(1))
    for source in (first, second):
        for number, entry in enumerate(source.decode().entries):
            writer.copy(source.reader().read_stored(number), entry)
    copy = finished(writer, sink)
    table = pa.ipc.open_file(pa.py_buffer(bytes(copy.log))).read_all()
    assert [chunk.num_rows for chunk in table.to_batches()] == [1, 5, 3, 2]
    assert table.column("value").to_pylist() == [
        value for rows in (1, 5, 3, 2) for value in batch_of(rows).column(1).to_pylist()
    ]
    index = decode_index(copy.index, "copy.index")
    assert [(entry.first_row, entry.count) for entry in index.entries] == [(0, 1), (1, 5), (6, 3), (9, 2)]
    SegmentReader(Reads(copy.log), index, "copy.log").check_file()


def test_corrupt_bytes_are_not_copied() -> None:
    source = file_of([batch_of(5)], "none")
    entry = source.decode().entry(0)
    source.log[entry.position + entry.length // 2] ^= 1
    with pytest.raises(CorruptRecordError):
        source.reader().read_stored(0)


def test_a_batch_of_another_codec_or_length_is_refused() -> None:
    source = file_of([batch_of(5)], "lz4")
    entry, parts = source.decode().entry(0), source.reader().read_stored(0)
    with pytest.raises(InvalidRequestError):
        SegmentWriter(io.BytesIO(), codec="zstd", has_headers=True).copy(parts, entry)
    with pytest.raises(InvalidRequestError):
        SegmentWriter(io.BytesIO(), codec="lz4", has_headers=True).copy(parts[:-1], entry)
    with pytest.raises(InvalidRequestError):
        SegmentWriter(io.BytesIO(), codec="lz4", has_headers=True, has_offsets=True).copy(parts, entry)
