"""Verification of a whole file detects every changed byte, names its batch, and reads each byte once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.format import verification
from sparklog.format.checksum import crc32c
from sparklog.format.verification import Damage, verify
from tests.unit.format.segments import ROWS, Reads, Segment, write_gapped, write_segment

CODECS = ["none", "lz4", "zstd", "gzip", "snappy"]


def damage(segment: Segment) -> list[Damage]:
    return verify(Reads(segment.log), segment.decode(), "t-0/0.log").damage


@pytest.mark.parametrize("codec", CODECS)
def test_an_intact_file_has_no_damage_and_the_checksum_of_all_its_bytes(codec: str) -> None:
    segment = write_segment([ROWS, ROWS[:2], ROWS], codec=codec)
    result = verify(Reads(segment.log), segment.decode(), "t-0/0.log")
    assert result.damage == []
    assert (result.crc32c, result.bytes_read) == (crc32c(bytes(segment.log)), len(segment.log))


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.data())
def test_a_flipped_bit_is_located_in_its_batch(codec: str, data: st.DataObject) -> None:
    segment = write_segment([ROWS, ROWS[:2], ROWS], codec=codec)
    index = segment.decode()
    position = data.draw(st.integers(0, len(segment.log) - 1))
    segment.log[position] ^= 1 << data.draw(st.integers(0, 7))
    batch = next((n for n, e in enumerate(index.entries) if e.position <= position < e.end), -1)
    assert [found.batch for found in damage(segment)] == [batch]


@given(st.data())
def test_a_truncated_file_is_damaged_from_the_cut_on(data: st.DataObject) -> None:
    segment = write_segment([ROWS, ROWS[:2], ROWS])
    index = segment.decode()
    length = data.draw(st.integers(0, len(segment.log) - 1))
    cut = Segment(segment.log[:length], segment.index)
    before = 0 if length < index.entries[0].position else -1  # without its start no batch is there, without its end all
    batch = next((n for n, e in enumerate(index.entries) if e.position <= length < e.end), before)
    damages = damage(cut)
    assert [d.batch for d in damages] == [batch]
    assert f"ends at byte {length}" in damages[0].what


def test_a_file_with_bytes_after_its_footer_is_damaged() -> None:
    segment = write_segment([ROWS])
    assert [d.batch for d in damage(Segment(segment.log + b"x", segment.index))] == [-1]


def test_all_damaged_batches_are_reported() -> None:
    segment = write_segment([ROWS, ROWS, ROWS])
    entries = segment.decode().entries
    for entry in (entries[0], entries[2]):
        segment.log[entry.position + entry.metadata_length] ^= 1
    assert [d.batch for d in damage(segment)] == [0, 2]


def test_an_index_of_another_file_matches_no_batch() -> None:
    segment = write_segment([ROWS, ROWS])
    other = write_segment([ROWS[::-1], ROWS[::-1]])
    assert {d.batch for d in damage(Segment(other.log, segment.index))} >= {0, 1}


@pytest.mark.parametrize("codec", CODECS)
def test_explicit_offsets_are_compared_with_the_index(codec: str) -> None:
    assert damage(write_gapped([[0, 4, 5], [9], [100, 2000]], codec=codec)) == []


def test_each_byte_is_read_once_in_large_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "READ_BYTES", 1000)
    segment = write_segment([ROWS] * 20)
    reads = Reads(segment.log)
    assert verify(reads, segment.decode(), "t-0/0.log").damage == []
    large = [call for call in reads.calls if call[1] == 1000]
    assert [position for position, _ in large] == list(range(0, len(segment.log) - 999, 1000))
