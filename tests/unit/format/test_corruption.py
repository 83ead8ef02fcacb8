"""Corrupt bytes are never returned: each flipped bit and each missing byte that a read touches is an error."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptIndexError, CorruptRecordError
from sparklog.format import schema
from sparklog.format.checksum import crc32c
from sparklog.format.codecs import CODECS, is_envelope
from sparklog.format.index import BatchEntry, decode_index, encode_index
from tests.sample import chosen

from .segments import ROWS, Segment, forge, rows_of, section_range, write_segment

SMALL = ROWS[:3]


def flips(segment: Segment, start: int, end: int) -> Iterator[str]:
    """Each single bit of a range of the ``.log``, flipped while the body of the loop runs."""
    for position in range(start, end):
        for bit in range(8):
            segment.log[position] ^= 1 << bit
            yield f"bit {bit} of byte {position}"
            segment.log[position] ^= 1 << bit


def assert_damage_is_named(error: CorruptRecordError, batch: int | None) -> None:
    assert (error.path, error.batch) == ("t-0/0.log", batch)
    assert error.expected != error.actual
    assert f"{error.expected:#010x}" in error.message
    assert f"{error.actual:#010x}" in error.message


def covered(entry: BatchEntry, codec: str, column: str) -> list[tuple[int, int]]:
    """The ranges of the ``.log`` that reading one column depends on."""
    if is_envelope(codec):
        return [(entry.position, entry.end)]
    return [(entry.position, entry.position + entry.metadata_length), section_range(entry, column)]


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_bit_of_a_record_batch_is_detected(codec: str) -> None:
    segment = write_segment([SMALL, SMALL], codec=codec)
    reader, entry = segment.reader(), segment.decode().entries[1]
    for flip in flips(segment, entry.position, entry.end):
        with pytest.raises(CorruptRecordError) as caught:
            pytest.fail(f"{flip} went unnoticed: {reader.read(1)}")
        assert_damage_is_named(caught.value, 1)


@pytest.mark.parametrize("codec", CODECS)
def test_every_flipped_bit_outside_the_record_batches_is_detected_by_verification(codec: str) -> None:
    segment = write_segment([SMALL], codec=codec)
    reader, summary = segment.reader(), segment.decode().summary
    for start, end in [(0, summary.header_length), (summary.footer_position, summary.log_length)]:
        for flip in flips(segment, start, end):
            with pytest.raises(CorruptRecordError) as caught:
                pytest.fail(f"{flip} went unnoticed: {reader.check_file()}")
            assert_damage_is_named(caught.value, None)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("column", schema.COLUMNS)
def test_every_flipped_bit_that_a_projection_reads_is_detected(codec: str, column: str) -> None:
    segment = write_segment([SMALL], codec=codec)
    reader, entry = segment.reader(), segment.decode().entries[0]
    for start, end in covered(entry, codec, column):
        for flip in flips(segment, start, end):
            with pytest.raises(CorruptRecordError) as caught:
                pytest.fail(f"{flip} went unnoticed: {reader.read(0, [column])}")
            assert_damage_is_named(caught.value, 0)


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("column", schema.COLUMNS)
def test_corruption_in_other_columns_does_not_fail_a_projection(codec: str, column: str) -> None:
    segment = write_segment([SMALL], codec=codec)
    reader, entry = segment.reader(), segment.decode().entries[0]
    expected = reader.read(0, [column]).column(0).to_pylist()
    for other in schema.COLUMNS:
        if other != column:
            start, end = section_range(entry, other)
            segment.log[start:end] = bytes(end - start)
    assert reader.read(0, [column]).column(0).to_pylist() == expected


@pytest.mark.sampled
@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation_of_the_log_is_detected(codec: str) -> None:
    segment = write_segment([SMALL, SMALL], codec=codec)
    index = segment.decode()
    for length in chosen(range(len(segment.log))):
        reader = Segment(segment.log[:length], segment.index).reader(index)
        with pytest.raises(CorruptRecordError, match="cut short"):
            reader.check_file()
        for batch, entry in enumerate(index.entries):
            if length >= entry.end:
                assert rows_of(reader.read(batch)) == SMALL
                continue
            with pytest.raises(CorruptRecordError, match=f"record batch {batch} is damaged: it is cut short"):
                reader.read(batch)


def test_bytes_after_the_end_are_detected() -> None:
    segment = write_segment([SMALL])
    with pytest.raises(CorruptRecordError, match="is longer than"):
        Segment(segment.log + b"\x00", segment.index).reader().check_file()


def test_index_of_another_file_is_detected() -> None:
    first, second = write_segment([SMALL]), write_segment([ROWS])
    reader = Segment(first.log, second.index).reader()
    with pytest.raises(CorruptRecordError):
        reader.read(0)
    with pytest.raises(CorruptRecordError):
        reader.check_file()


def test_every_flipped_bit_of_an_index_is_detected() -> None:
    data = bytearray(write_segment([SMALL, SMALL]).index)
    for position in range(len(data)):
        for bit in range(8):
            data[position] ^= 1 << bit
            with pytest.raises(CorruptIndexError) as caught:
                pytest.fail(f"bit {bit} of byte {position} went unnoticed: {decode_index(data, 't-0/0.index')}")
            assert caught.value.path == "t-0/0.index"
            data[position] ^= 1 << bit


def test_every_truncation_of_an_index_is_detected() -> None:
    data = write_segment([SMALL, SMALL]).index
    for length in range(len(data)):
        with pytest.raises(CorruptIndexError):
            decode_index(data[:length], "t-0/0.index")


# --- hostile content with correct checksums


@given(st.data(), st.sampled_from(CODECS), st.integers(1, 4))
def test_hostile_content_with_correct_checksums_is_refused_or_valid(data: Any, codec: str, changes: int) -> None:
    segment = write_segment([ROWS], codec=codec)
    entry = segment.decode().entries[0]
    for _ in range(changes):
        position = data.draw(st.integers(entry.position, entry.end - 1))
        segment.log[position] = data.draw(st.integers(0, 255))
    try:
        decoded = segment.reader(forge(segment)).read(0)
    except CorruptRecordError as error:
        refusal = error
    else:
        decoded.validate(full=True)
        assert decoded.num_rows == len(ROWS)
        return
    assert "its checksum is right, its content is not" in refusal.message


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_buffer_with_a_huge_claimed_size_is_refused_before_allocation(codec: str) -> None:
    segment = write_segment([ROWS * 100], codec=codec)
    start, end = section_range(segment.decode().entries[0], "timestamp")
    assert int.from_bytes(segment.log[start : start + 8], "little") == 8 * 100 * len(ROWS)
    segment.log[start : start + 8] = (2**40).to_bytes(8, "little")
    with pytest.raises(CorruptRecordError, match=f"claim a decompressed size of {2**40} bytes, the index allows"):
        segment.reader(forge(segment)).read(0, ["timestamp"])
    assert end > start


@pytest.mark.parametrize("codec", ["gzip", "snappy"])
def test_envelope_larger_than_in_the_index_is_refused(codec: str) -> None:
    segment = write_segment([ROWS * 100], codec=codec)
    index = segment.decode()
    entry = index.entries[0]
    lying = decode_index(encode_index(index.summary, [entry._replace(decoded_length=1000)]), "t-0/0.index")
    with pytest.raises(CorruptRecordError, match="its content is not"):
        segment.reader(lying).read(0)


@given(st.binary(max_size=1000))
def test_random_bytes_are_never_decoded_as_an_index(data: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        decode_index(data, "t-0/0.index")


def test_hostile_counts_allocate_nothing() -> None:
    data = bytearray(write_segment([SMALL]).index)
    data[16:20] = (2**32 - 1).to_bytes(4, "little")
    data[-4:] = crc32c(bytes(data[:-4])).to_bytes(4, "little")
    tracemalloc.start()
    with pytest.raises(CorruptIndexError, match="4294967295 entries do not make"):
        decode_index(data, "t-0/0.index")
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()
