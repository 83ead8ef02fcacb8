"""CRC32C (Castagnoli), the checksum of Kafka's record batches, and of everything in ``.log`` and ``.index`` files.

Rules: buffers are never copied to be summed; ``combine`` computes the sum of a whole from the sums of its parts, so
that a record batch is read once although there is a checksum of the whole and of each column.

Not for: the checksum of the live segments (``protocol.segment_checksum``).

Worked example: ``crc32c(b"123456789") == 0xE3069283`` (RFC 3720, appendix B.4, gives more).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import google_crc32c
import pyarrow as pa

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = object

IMPLEMENTATION: str = google_crc32c.implementation
"""``c`` (about 25 GB/s) or ``python`` (about 10 MB/s), which is only meant for machines without a built wheel."""

_POLYNOMIAL = 0x82F63B78
_extend: Callable[[int, object], int] = google_crc32c.extend


def crc32c(data: Buffer, previous: int = 0) -> int:
    """Return the CRC32C of ``data``, continued from ``previous``, the sum of the bytes before it."""
    if IMPLEMENTATION != "c":
        return _extend(previous, bytes(memoryview(data)))
    if not isinstance(data, (bytes, pa.Buffer)):
        data = pa.py_buffer(data)
    if isinstance(data, pa.Buffer) and data.is_mutable:
        data = _read_only(data)
    return _extend(previous, data)


def combine(first: int, second: int, second_length: int) -> int:
    """Return the CRC32C of two adjacent byte ranges from the sum of each; ``second_length`` in bytes.

    A CRC is linear: appending n bytes first moves the sum by n zero bytes, which is one fixed linear map of 32 bits,
    then adds the sum of the appended bytes.
    """
    power = 0
    while second_length:
        if second_length & 1:
            b0, b1, b2, b3 = _zero_bytes_tables(power)
            first = b0[first & 255] ^ b1[first >> 8 & 255] ^ b2[first >> 16 & 255] ^ b3[first >> 24]
        second_length >>= 1
        power += 1
    return first ^ second


def _read_only(data: pa.Buffer) -> pa.Buffer:
    """Return the same memory as a read-only buffer: the C function refuses any other."""
    return pa.foreign_buffer(data.address, data.size, data)


@lru_cache(maxsize=40)
def _zero_bytes_tables(power: int) -> tuple[list[int], ...]:
    """Return the effect of 2**power zero bytes on a sum, as one table per byte of it; the results are added (xor)."""
    images = [_move(1 << bit, power) for bit in range(32)]
    tables: list[list[int]] = []
    for byte in range(4):
        table = [0] * 256
        for value in range(1, 256):
            low = value & -value
            table[value] = table[value ^ low] ^ images[byte * 8 + low.bit_length() - 1]
        tables.append(table)
    return tuple(tables)


def _move(crc: int, power: int) -> int:
    """Return a sum after 2**power zero bytes: twice the map of half as many, down to one byte, computed bit by bit."""
    if power == 0:
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        return crc
    for _ in range(2):
        b0, b1, b2, b3 = _zero_bytes_tables(power - 1)
        crc = b0[crc & 255] ^ b1[crc >> 8 & 255] ^ b2[crc >> 16 & 255] ^ b3[crc >> 24]
    return crc
