"""What can stand before an encoded value: the prefix of Confluent's serializers, or that of Avro's single objects.

    00 | schema id, 4 bytes, big endian | value         Confluent: Avro, JSON Schema
    C3 01 | fingerprint, 8 bytes | value                Avro: the CRC-64-AVRO of the writer's schema, little endian

The id is that of a schema registry, which is not asked: the schema of the value is one of the topic's.
"""

from __future__ import annotations

FRAME_BYTES = 5
"""Bytes of Confluent's prefix."""

SINGLE_OBJECT = b"\xc3\x01"
FINGERPRINT_END = 10
"""Bytes of the prefix of a single object."""


def is_framed(value: bytes) -> bool:
    """Return whether a value can have Confluent's prefix."""
    return len(value) > FRAME_BYTES and value[0] == 0


def has_likely_id(value: bytes) -> bool:
    """Return whether a value that can have Confluent's prefix is more likely to have it than not: registries count
    their schemas from 1, while a value in Avro may begin with a zero as well."""
    return value[1] == 0 and value[1:FRAME_BYTES] != bytes(4)


def unframe(value: bytes) -> bytes:
    """Return a value without Confluent's prefix."""
    return value[FRAME_BYTES:]


def fingerprint_of(value: bytes) -> bytes:
    """Return the fingerprint of a single object, empty for other values."""
    return value[2:FINGERPRINT_END] if value.startswith(SINGLE_OBJECT) else b""
