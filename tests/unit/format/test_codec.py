"""Codecs have Kafka's names, numbers and levels; invalid ones are refused with a clear message."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import InvalidConfigurationError
from sparklog.format import codecs

TEXT = b"".join(b'{"carrier":"UA","tailnum":"N%d"}' % (i * 7919 % 9973) for i in range(2000))


def test_numbers_match_the_batch_attributes_of_kafka() -> None:
    assert [codecs.codec_number(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == [0, 1, 2, 3, 4]


def test_the_error_for_an_unknown_codec_lists_the_known_ones() -> None:
    with pytest.raises(InvalidConfigurationError, match="'brotli': choose one of none, gzip, snappy, lz4, zstd"):
        codecs.compressor("brotli")


@pytest.mark.parametrize(
    ("codec", "level"),
    [("gzip", 0), ("gzip", 10), ("gzip", -2), ("lz4", 0), ("lz4", 18), ("lz4", -1), ("zstd", 23), ("zstd", -131073)],
)
def test_level_outside_the_range_of_the_codec_is_refused(codec: str, level: int) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"codec {codec} has no level {level}: give"):
        codecs.compressor(codec, level)


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_codec_without_levels_refuses_one(codec: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=f"codec {codec} has no levels"):
        codecs.compressor(codec, 1)


@pytest.mark.parametrize(
    ("codec", "level"),
    [("gzip", -1), ("gzip", 1), ("gzip", 9), ("lz4", 1), ("lz4", 9), ("lz4", 17), ("zstd", -131072), ("zstd", 22)],
)
def test_every_level_in_the_range_of_kafka_works(codec: str, level: int) -> None:
    compressor = codecs.compressor(codec, level)
    assert compressor is not None
    assert codecs.decompress(codec, compressor.compress(TEXT), len(TEXT)).to_pybytes() == TEXT


def compress(codec: str, data: bytes, level: int | None = None) -> Any:
    compressor = codecs.compressor(codec) if level is None else codecs.compressor(codec, level)
    assert compressor is not None
    return compressor.compress(data)


def test_level_9_of_lz4_is_its_fast_compressor_as_in_kafka() -> None:
    fast = pa.Codec("lz4", compression_level=1).compress(TEXT)
    assert compress("lz4", TEXT, 9) == fast
    assert compress("lz4", TEXT) == fast
    assert len(compress("lz4", TEXT, 8)) < len(fast)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_nothing_is_decompressed_beyond_the_size_allowed(codec: str) -> None:
    bomb = compress(codec, bytes(10_000_000))
    with pytest.raises((OSError, ValueError)):
        codecs.decompress(codec, bomb, 1000)
