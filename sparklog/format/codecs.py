"""Compression codecs under Kafka's names, numbers and levels.

    name    number  how                                        levels
    none    0       -                                          -
    gzip    1       envelope: the whole message compressed     1..9, or -1 for zlib's default
    snappy  2       envelope, raw snappy block                 -
    lz4     3       Arrow buffer compression (LZ4 frame)       1..17
    zstd    4       Arrow buffer compression                   -131072..22

Rules: a level means the same as in Kafka's Java client. There, level 9 of lz4, the default, is lz4's *fast* compressor,
and any other is a level of the high compressor (Kafka, Lz4BlockOutputStream), which in the C library ends at 12, so
that 13 to 17 become 12. Nothing is decompressed into more bytes than the caller allows.

Not for: parsing topic configs (``config``).
"""

from __future__ import annotations

import pyarrow as pa

from sparklog.errors import InvalidConfigurationError

NONE = "none"
GZIP = "gzip"
SNAPPY = "snappy"
LZ4 = "lz4"
ZSTD = "zstd"
CODECS = (NONE, GZIP, SNAPPY, LZ4, ZSTD)
"""By number: ``CODECS[number]`` is the name. The numbers are those of Kafka's batch attributes."""

_LEVELS = {GZIP: (1, 9), LZ4: (1, 17), ZSTD: (-131072, 22)}
_DEFAULT_LEVELS = {GZIP: -1, LZ4: 9, ZSTD: 3}
_LZ4_FAST_LEVEL = 9
_LZ4_HIGHEST = 12


def is_envelope(codec: str) -> bool:
    """Return whether a whole message is compressed into one value, since Arrow has no buffer compression for the
    codec."""
    return codec in (GZIP, SNAPPY)


def codec_number(codec: str) -> int:
    """Return a codec's number in files. Raises InvalidConfigurationError for an unknown name."""
    if codec not in CODECS:
        raise InvalidConfigurationError(f"unknown codec {codec!r}: choose one of {', '.join(CODECS)}", codec=codec)
    return CODECS.index(codec)


def compressor(codec: str, level: int | None = None) -> pa.Codec | None:
    """Return the Arrow codec for writing, None for ``none``. ``level`` None is Kafka's default level.

    Raises InvalidConfigurationError for an unknown codec, and for a level that the codec does not have.
    """
    codec_number(codec)
    if codec in _LEVELS:
        return pa.Codec(codec, compression_level=_arrow_level(codec, level))
    if level is not None:
        raise InvalidConfigurationError(f"codec {codec} has no levels, but level {level} was given: leave it out")
    return None if codec == NONE else pa.Codec(codec)


def decompress(codec: str, data: pa.Buffer, size: int) -> pa.Buffer:
    """Decompress ``data`` to exactly ``size`` bytes; the caller must have bounded ``size``.

    Raises ValueError or Arrow's OSError if that fails. Creates a codec object per call, since gzip's has state.
    """
    return pa.Codec(codec).decompress(data, size)


def _arrow_level(codec: str, level: int | None) -> int:
    level = _DEFAULT_LEVELS[codec] if level is None else level
    low, high = _LEVELS[codec]
    default = codec == GZIP and level == -1
    if not (low <= level <= high or default):
        also = ", or -1 for its default" if codec == GZIP else ""
        raise InvalidConfigurationError(f"codec {codec} has no level {level}: give {low} to {high}{also}", codec=codec)
    if codec != LZ4:
        return level
    return 1 if level == _LZ4_FAST_LEVEL else max(min(level, _LZ4_HIGHEST), 2)
