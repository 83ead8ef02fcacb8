"""Which codecs there are: ``kafka.codec``. All come with the package; what compresses records is not here."""

from __future__ import annotations

import gzip

__all__ = ["gzip_decode", "gzip_encode", "has_gzip", "has_lz4", "has_snappy", "has_zstd"]


def has_gzip() -> bool:
    """Always."""
    return True


has_snappy = has_lz4 = has_zstd = has_gzip


def gzip_encode(payload: bytes, compresslevel: int | None = None) -> bytes:
    """The bytes as gzip."""
    return gzip.compress(payload, 9 if compresslevel is None else compresslevel)


def gzip_decode(payload: bytes) -> bytes:
    """The bytes of gzip. Raises ``gzip.BadGzipFile``, which is an OSError, and EOFError where they end early."""
    return gzip.decompress(payload)
