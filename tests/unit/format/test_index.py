"""The index finds the record batch of a row or a timestamp, and refuses invalid fields."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptIndexError, UnsupportedVersionError
from sparklog.format.checksum import crc32c
from sparklog.format.index import BatchEntry, FileSummary, Index, decode_index, encode_index

from .segments import ROWS, write_gapped, write_segment

ENTRY = BatchEntry(
    first_row=0,
    position=512,
    min_timestamp_us=10,
    max_timestamp_us=20,
    producer_id=-1,
    count=5,
    length=368,
    decoded_length=368,
    metadata_length=264,
    metadata_crc32c=1,
    key_length=40,
    key_crc32c=2,
    value_length=48,
    value_crc32c=3,
    timestamp_length=16,
    timestamp_crc32c=4,
    headers_length=0,
    headers_crc32c=0,
    offset_length=0,
    offset_crc32c=0,
    null_keys=0,
    null_values=0,
    base_sequence=-1,
    producer_epoch=-1,
    codec_number=0,
    flags=0,
)


def entries_of(batches: list[tuple[int, int]]) -> list[BatchEntry]:
    """Consecutive entries, from (count, largest timestamp) of each."""
    rows = itertools.accumulate([count for count, _ in batches], initial=0)
    return [
        ENTRY._replace(
            first_row=row, position=512 + 368 * number, count=count, max_timestamp_us=time, min_timestamp_us=-(2**63)
        )
        for number, (row, (count, time)) in enumerate(zip(rows, batches, strict=False))
    ]


def summary_of(entries: list[BatchEntry]) -> FileSummary:
    end = 512 + 368 * len(entries)
    return FileSummary("none", True, False, False, sum(entry.count for entry in entries), end + 100, end, 512, 5, 6)


def index_of(batches: list[tuple[int, int]]) -> Index:
    entries = entries_of(batches)
    return decode_index(encode_index(summary_of(entries), entries), "t-0/0.index")


batches = st.lists(st.tuples(st.integers(1, 100), st.integers(-(2**63), 2**63 - 1)), max_size=30)


def test_layout_matches_the_docstring() -> None:
    data = encode_index(summary_of([ENTRY, ENTRY]), [ENTRY, ENTRY])
    assert len(data) == 308
    assert data[:12] == b"SLINDEX\x00\x01\x00\x01\x00"
    assert struct.unpack_from("<I", data, 16) == (2,)
    assert struct.unpack_from("<qqqqq", data, 64) == (0, 512, 10, 20, -1)
    assert struct.unpack_from("<IIIII", data, 64 + 40) == (5, 368, 368, 264, 1)
    assert struct.unpack_from("<8I", data, 64 + 60) == (40, 2, 48, 3, 16, 4, 0, 0)
    assert struct.unpack_from("<IIihBB4s", data, 64 + 100) == (0, 0, -1, -1, 0, 0, bytes(4))
    assert struct.unpack_from("<I", data, 304) == (crc32c(data[:304]),)


@given(batches)
def test_entries_round_trip(written: Any) -> None:
    entries = entries_of(written)
    index = index_of(written)
    assert (list(index.entries), len(index), index.rows) == (entries, len(entries), sum(e.count for e in entries))
    assert (index.summary, index.columns) == (summary_of(entries), ("key", "value", "timestamp"))
    assert index.entries[1:3] == entries[1:3]


def test_entries_support_negative_indexes_and_index_errors() -> None:
    index = index_of([(1, 0), (2, 0)])
    assert index.entries[-1].count == 2
    with pytest.raises(IndexError):
        index.entries[2]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, pa.py_buffer])
def test_any_buffer_can_be_decoded(kind: Any) -> None:
    assert decode_index(kind(write_segment([ROWS]).index), "x").find_timestamp(0, 1, 0) == 0


@given(batches.filter(bool), st.data())
def test_each_row_is_found_in_its_batch(written: Any, data: Any) -> None:
    index = index_of(written)
    row = data.draw(st.integers(0, index.rows - 1))
    entry = index.entries[index.find_row(row)]
    assert entry.first_row <= row < entry.end_row


@pytest.mark.parametrize("row", [-1, 3, 2**60])
def test_row_beyond_the_file_is_an_error(row: int) -> None:
    with pytest.raises(CorruptIndexError, match=f"it has rows 0 to 2, row {row} was requested"):
        index_of([(1, 0), (2, 0)]).find_row(row)


@given(batches, st.data(), st.integers(-(2**63), 2**63 - 1))
def test_timestamp_is_found_where_the_running_maximum_reaches_it(written: Any, data: Any, wanted: int) -> None:
    index = index_of(written)
    first = data.draw(st.integers(0, len(written)))
    count = data.draw(st.integers(0, len(written) - first))
    running = itertools.accumulate([time for _, time in written[first : first + count]], max)
    expected = next((first + number for number, time in enumerate(running) if time >= wanted), None)
    assert index.find_timestamp(first, count, wanted) == expected


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=5), min_size=1, max_size=8), st.data())
def test_offset_is_searched_in_the_last_batch_that_begins_at_or_before_it(steps: Any, data: Any) -> None:
    offsets: list[list[int]] = []
    following = 0
    for batch in steps:
        offsets.append([following := following + step + 1 for step in batch])
    index = write_gapped(offsets).decode()
    first = data.draw(st.integers(0, len(offsets) - 1))
    count = data.draw(st.integers(1, len(offsets) - first))
    wanted = data.draw(st.integers(-1, following + 2))
    found = index.find_offset(first, count, wanted)
    run = range(first, first + count)
    assert found == max((number for number in run if offsets[number][0] <= wanted), default=first)


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, 3), (3, 0), (0, -1)])
def test_run_beyond_the_file_is_an_error(first: int, count: int) -> None:
    with pytest.raises(CorruptIndexError, match="were requested"):
        index_of([(1, 0), (2, 0)]).find_timestamp(first, count, 0)
    with pytest.raises(CorruptIndexError, match="were requested"):
        index_of([(1, 0), (2, 0)]).find_offset(first, count, 0)


# --- invalid fields with a correct checksum

TWO = entries_of([(5, 20), (5, 20)])


@pytest.mark.parametrize(
    "change",
    [
        {"first_row": 1},
        {"first_row": -1},
        {"position": 0},
        {"position": 513},
        {"position": 2**62},
        {"count": 0},
        {"count": 4},
        {"count": 2**32 - 1},
        {"length": 0},
        {"length": 367},
        {"length": 2**32 - 1},
        {"decoded_length": 2**32 - 1},
        {"metadata_length": 0},
        {"metadata_length": 263},
        {"metadata_length": 2**32 - 1},
        {"key_length": 41},
        {"key_length": 0, "headers_length": 40},
        {"key_length": 0, "offset_length": 40},
        {"null_keys": 6},
        {"null_values": 6},
        {"min_timestamp_us": 21},
        {"codec_number": 3},
        {"codec_number": 255},
        {"flags": 1},
        {"first_offset": 1},
        {"first_offset": -1},
    ],
)
@pytest.mark.parametrize("batch", [0, 1])
def test_invalid_entry_is_refused_when_used(batch: int, change: dict[str, Any]) -> None:
    entries = list(TWO)
    entries[batch] = entries[batch]._replace(**change)
    index = decode_index(encode_index(summary_of(TWO), entries), "t-0/0.index")
    with pytest.raises(CorruptIndexError, match=f"entry of record batch {batch} is impossible"):
        index.entry(batch)
    with pytest.raises(CorruptIndexError):
        index.check()


@pytest.mark.parametrize(
    "change",
    [
        {"rows": -1},
        {"rows": 0},
        {"log_length": 0},
        {"log_length": -(2**63)},
        {"footer_position": 511},
        {"footer_position": 2**62},
        {"header_length": 0},
        {"header_length": 2**32 - 1},
    ],
)
def test_invalid_header_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptIndexError):
        decode_index(encode_index(summary_of(TWO)._replace(**change), TWO), "t-0/0.index")


@given(st.data())
def test_hostile_fields_give_an_error_or_existing_rows(data: Any) -> None:
    raw = bytearray(encode_index(summary_of(TWO), TWO))
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(raw) - 5))
        raw[position] = data.draw(st.integers(0, 255))
    raw[-4:] = crc32c(bytes(raw[:-4])).to_bytes(4, "little")
    try:
        index = decode_index(raw, "t-0/0.index")
        index.check()
    except (CorruptIndexError, UnsupportedVersionError):
        return
    assert index.entries[index.find_row(index.rows - 1)].end_row == index.rows


def resealed(data: bytes, position: int, new: bytes) -> bytes:
    body = data[:position] + new + data[position + len(new) : -4]
    return body + crc32c(body).to_bytes(4, "little")


def test_newer_version_asks_for_an_upgrade() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"version 2 .* upgrade sparklog"):
        decode_index(resealed(write_segment([ROWS]).index, 8, b"\x02"), "t-0/0.index")


def test_unknown_flag_asks_for_an_upgrade() -> None:
    with pytest.raises(UnsupportedVersionError, match="flags 0x23"):
        decode_index(resealed(write_segment([ROWS]).index, 10, b"\x23"), "t-0/0.index")


@pytest.mark.parametrize(("position", "new"), [(8, b"\x00"), (10, b"\x13"), (12, b"\x05")])
def test_versions_and_codecs_that_never_existed_are_corrupt(position: int, new: bytes) -> None:
    with pytest.raises(CorruptIndexError):
        decode_index(resealed(write_segment([ROWS]).index, position, new), "t-0/0.index")
