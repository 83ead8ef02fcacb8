"""CRC32C is the standard one and copies nothing, and checksums of parts combine to that of the whole."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.format import checksum
from sparklog.format.checksum import combine, crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_checksum_matches_rfc_3720(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, pa.py_buffer])
def test_any_buffer_is_accepted(kind: Any) -> None:
    assert crc32c(kind(b"123456789")) == 0xE3069283


def test_writable_arrow_buffer_is_accepted() -> None:
    assert crc32c(pa.py_buffer(bytearray(b"0123456789")).slice(1)) == 0xE3069283


def test_slow_implementation_gives_the_same_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checksum, "IMPLEMENTATION", "python")
    assert crc32c(pa.py_buffer(b"123456789")) == 0xE3069283


def test_the_c_implementation_is_in_use() -> None:
    assert checksum.IMPLEMENTATION == "c"


@given(st.binary(), st.binary())
def test_a_checksum_can_be_continued(first: bytes, second: bytes) -> None:
    assert crc32c(second, crc32c(first)) == crc32c(first + second)


@given(st.binary(), st.binary(max_size=3000))
def test_checksums_of_parts_combine_to_that_of_the_whole(first: bytes, second: bytes) -> None:
    assert combine(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


def test_combining_works_with_a_long_second_part() -> None:
    second = bytes(16 * 1024 * 1024 + 3)
    assert combine(crc32c(b"first"), crc32c(second), len(second)) == crc32c(b"first" + second)
