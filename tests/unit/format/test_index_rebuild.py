"""An index rebuilt from its file is identical to the one that was written with it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptRecordError
from sparklog.format.index import NO_PRODUCER, BatchProducer
from sparklog.format.index_rebuild import producers_in, rebuild_index, vouches_for
from tests.unit.format.segments import ROWS, Reads, Segment, write_gapped, write_segment

CODECS = ["none", "lz4", "zstd", "gzip", "snappy"]


def rebuilt(segment: Segment) -> bytes:
    def producer_of(batch: int, row: int) -> BatchProducer:
        return NO_PRODUCER

    return rebuild_index(Reads(segment.log), len(segment.log), "t-0/0.log", producer_of)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("has_key", [True, False])
@pytest.mark.parametrize("has_headers", [True, False])
def test_a_rebuilt_index_is_identical_to_the_written_one(codec: str, has_key: bool, has_headers: bool) -> None:
    big = [(b"key", b"value" * 1000, 7, None)] * 50
    segment = write_segment([ROWS, big, ROWS[:1]], codec=codec, has_key=has_key, has_headers=has_headers)
    assert rebuilt(segment) == segment.index


@pytest.mark.parametrize("codec", CODECS)
def test_a_rebuilt_index_has_the_explicit_offsets_of_a_file_with_gaps(codec: str) -> None:
    segment = write_gapped([[0, 4, 5], [9], [100, 2000]], codec=codec)
    assert rebuilt(segment) == segment.index


def test_a_rebuilt_index_has_the_given_producers() -> None:
    segment = write_segment([ROWS, ROWS])
    index = rebuild_index(
        Reads(segment.log), len(segment.log), "t-0/0.log", lambda batch, row: BatchProducer(7, 1, row)
    )
    entries = Segment(segment.log, index).decode().entries
    assert [(e.producer_id, e.producer_epoch, e.base_sequence) for e in entries] == [(7, 1, 0), (7, 1, 4)]


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_an_index_rebuilt_from_a_corrupt_file_differs_or_fails(codec: str, data: st.DataObject) -> None:
    segment = write_segment([ROWS, ROWS[:2], ROWS], codec=codec)
    position = data.draw(st.integers(0, len(segment.log) - 1))
    segment.log[position] ^= 1 << data.draw(st.integers(0, 7))
    index = b""
    with suppress(CorruptRecordError):
        index = rebuilt(segment)
    assert index != segment.index


@given(st.integers(0, 2000))
def test_no_index_is_rebuilt_from_a_truncated_file(length: int) -> None:
    segment = write_segment([ROWS, ROWS])
    cut = Segment(segment.log[: min(length, len(segment.log) - 1)], segment.index)
    with pytest.raises(CorruptRecordError, match="cannot rebuild an index"):
        rebuilt(cut)


@given(st.data())
def test_an_index_with_a_flipped_bit_still_verifies_its_intact_file(data: st.DataObject) -> None:
    segment = write_segment([ROWS, ROWS[:2], ROWS])
    damaged = bytearray(segment.index)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert vouches_for(bytes(damaged), rebuilt(segment))


@given(st.data())
def test_an_index_with_a_flipped_bit_does_not_verify_a_corrupt_file(data: st.DataObject) -> None:
    segment = write_segment([ROWS, ROWS[:2], ROWS])
    damaged = bytearray(segment.index)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    segment.log[data.draw(st.integers(0, len(segment.log) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(CorruptRecordError):
        assert not vouches_for(bytes(damaged), rebuilt(segment))


def test_a_truncated_index_verifies_nothing() -> None:
    segment = write_segment([ROWS, ROWS])
    assert not vouches_for(segment.index[:-4], rebuilt(segment))


def test_producers_can_be_read_from_a_corrupt_index() -> None:
    segment = write_segment([ROWS, ROWS])
    index = rebuild_index(Reads(segment.log), len(segment.log), "p", lambda batch, row: BatchProducer(7, 1, row))
    damaged = index[:-1] + bytes([index[-1] ^ 1])
    again = rebuild_index(Reads(segment.log), len(segment.log), "p", producers_in(damaged))
    assert again == index
