"""The available codecs: ``kafka.codec``. All come with the package. Not for: record batches (``format.codecs``)."""

from __future__ import annotations

import gzip

__all__ = ["gzip_decode", "gzip_encode", "has_gzip", "has_lz4", "has_snappy", "has_zstd"]


def has_gzip() -> bool:
    """Return True: the codec comes with the package."""
    return True


has_snappy = has_lz4 = has_zstd = has_gzip


def gzip_encode(payload: bytes, compresslevel: int | None = None) -> bytes:
    """Return the bytes compressed with gzip."""
    return gzip.compress(payload, 9 if compresslevel is None else compresslevel)


def gzip_decode(payload: bytes) -> bytes:
    """Decompress gzip bytes. Raises ``gzip.BadGzipFile``, an OSError, and EOFError if they are truncated."""
    return gzip.decompress(payload)
