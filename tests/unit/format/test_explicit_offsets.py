"""Compacted files store the offset of each record, and every offset is validated."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptIndexError, CorruptRecordError, InvalidRecordError, InvalidRequestError
from sparklog.format import schema
from sparklog.format.codecs import CODECS, is_envelope
from sparklog.format.index import decode_index, encode_index
from sparklog.format.segment_reader import SegmentReader
from sparklog.format.segment_writer import SegmentWriter

from .segments import ROWS, Reads, Segment, forge, gapped_batch, rows_of, section_range, write_gapped, write_segment

OFFSETS = [[0, 1, 7], [8, 2_000_000_000], [2**31 - 1]]
rising = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=9, unique=True).map(sorted)


@given(st.lists(rising, max_size=4), st.sampled_from(CODECS), st.booleans())
def test_offsets_are_read_with_the_records(offsets: Any, codec: str, optional: bool) -> None:
    segment = write_gapped(offsets, codec=codec, has_key=optional, has_headers=optional)
    reader, index = segment.reader(), segment.decode()
    index.check()
    reader.check_file()
    for number, written in enumerate(offsets):
        read = reader.read(number, ["offset", "value"])
        assert read.column("offset").to_pylist() == written
        assert read.column("value").to_pylist() == [ROWS[row % len(ROWS)][1] for row in range(len(written))]
        assert index.entry(number).first_offset == written[0]


@pytest.mark.parametrize("codec", CODECS)
def test_a_read_without_columns_returns_those_of_a_record(codec: str) -> None:
    found = write_gapped([[3, 5]], codec=codec).reader().read(0)
    assert found.schema.names == list(schema.COLUMNS)
    assert rows_of(found) == ROWS[:2]


def test_offsets_alone_are_read_without_touching_the_records() -> None:
    segment = write_gapped(OFFSETS)
    reads, entry = Reads(segment.log), segment.decode().entry(1)
    reader = SegmentReader(reads, segment.decode(), "t-0/0.log")
    assert reader.read(1, ["offset"]).column(0).to_pylist() == OFFSETS[1]
    for column in schema.COLUMNS:
        assert not reads.touched(*section_range(entry, column))


def test_plain_arrow_reads_the_offsets() -> None:
    table = pa.ipc.open_file(pa.py_buffer(write_gapped(OFFSETS).log)).read_all()
    assert table.column("offset").to_pylist() == [offset for batch in OFFSETS for offset in batch]


def test_a_file_without_the_column_has_zeros_instead() -> None:
    index = write_segment([ROWS, ROWS]).decode()
    assert not index.summary.has_offsets
    assert [(e.offset_length, e.offset_crc32c, e.first_offset) for e in index.entries] == [(0, 0, 0)] * 2
    with pytest.raises(InvalidRequestError, match="no column 'offset'"):
        write_segment([ROWS]).reader().read(0, ["offset"])


# --- refused before anything is written


@pytest.mark.parametrize("offsets", [[-1, 0], [0, 0], [2, 1], [0, 5, 4], [0, None], [None]])
def test_offsets_that_do_not_increase_are_refused(offsets: Any) -> None:
    with pytest.raises(InvalidRecordError, match="explicit offsets must not be negative"):
        write_gapped([offsets])


def test_batch_without_the_column_is_refused() -> None:
    with pytest.raises(InvalidRecordError, match="does not fit a file of"):
        SegmentWriter(io.BytesIO(), has_headers=True, has_offsets=True).write(gapped_batch([1]).drop_columns("offset"))


# --- corruption


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_bit_of_the_offsets_is_detected(codec: str) -> None:
    segment = write_gapped(OFFSETS, codec=codec)
    entry, reader = segment.decode().entry(0), segment.reader()
    start, end = (entry.position, entry.end) if is_envelope(codec) else section_range(entry, "offset")
    assert end > start
    for position in range(start, end):
        for bit in range(8):
            segment.log[position] ^= 1 << bit
            with pytest.raises(CorruptRecordError):
                pytest.fail(f"bit {bit} of byte {position} went unnoticed: {reader.read(0, ['offset'])}")
            segment.log[position] ^= 1 << bit


def test_decreasing_offsets_are_corrupt_despite_a_correct_checksum() -> None:
    segment = write_gapped([[0, 5, 9]])
    start, _ = section_range(segment.decode().entry(0), "offset")
    segment.log[start + 4 : start + 8] = (10).to_bytes(4, "little")
    with pytest.raises(CorruptRecordError, match="do not rise from 0"):
        segment.reader(forge(segment)).read(0, ["offset"])


@pytest.mark.parametrize("codec", CODECS)
def test_first_offset_of_the_index_must_match_the_column(codec: str) -> None:
    segment = write_gapped([[4, 5, 9]], codec=codec)
    index = segment.decode()
    forged = encode_index(index.summary, [index.entry(0)._replace(first_offset=3)])
    with pytest.raises(CorruptRecordError, match="do not rise from 3"):
        segment.reader(decode_index(forged, "t-0/0.index")).read(0, ["offset"])


def test_negative_first_offset_is_an_invalid_entry() -> None:
    segment = write_gapped([[4, 5, 9]])
    index = segment.decode()
    forged = decode_index(encode_index(index.summary, [index.entry(0)._replace(first_offset=-1)]), "t-0/0.index")
    with pytest.raises(CorruptIndexError, match="a first offset of -1"):
        Segment(segment.log, segment.index).reader(forged).read(0)
