"""Formats the bytes of keys, values and headers as text, by deserializers with the names of Kafka's classes.

``org.apache.kafka.common.serialization.LongDeserializer``, ``LongDeserializer`` and dump-log's
``kafka.serializer.LongDecoder`` are the same: 8 bytes, big-endian, two's complement.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from sparklog.cli.arguments.parser import UsageError
from sparklog.errors import InvalidRecordError
from sparklog.errors.suggestions import did_you_mean

Deserializer = Callable[[bytes], bytes]
"""Takes bytes, returns bytes to print. Raises InvalidRecordError for bytes that are not of its type."""


def _number(name: str, layout: str) -> Deserializer:
    size = struct.calcsize(layout)

    def deserialize(data: bytes) -> bytes:
        if len(data) != size:
            raise InvalidRecordError(f"Size of data received by {name} is not {size}: it has {len(data)} bytes")
        return str(struct.unpack(layout, data)[0]).encode()

    return deserialize


def _boolean(data: bytes) -> bytes:
    if data not in (b"\x00", b"\x01"):
        raise InvalidRecordError(f"Unexpected data received by BooleanDeserializer: {data!r} is neither 0 nor 1")
    return b"true" if data == b"\x01" else b"false"


def _uuid(data: bytes) -> bytes:
    """Format a UUID, which is stored as text."""
    text = data.decode("utf-8", "replace").lower()
    digits = text.replace("-", "")
    if len(digits) != 32 or any(digit not in "0123456789abcdef" for digit in digits):
        raise InvalidRecordError(f"Error parsing data into UUID: {text!r}")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])).encode()


def _void(data: bytes) -> bytes:
    raise InvalidRecordError(f"Data should be null for a VoidDeserializer, not {len(data)} bytes")


def _escape(data: bytes) -> bytes:
    """Escape bytes that are not printable ASCII as ``\\x00``, as Kafka's class ``Bytes`` does."""
    return b"".join(bytes([c]) if 32 <= c < 127 and c != 92 else b"\\x%02X" % c for c in data)


def _text(data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode()


def _as_is(data: bytes) -> bytes:
    return data


_BY_TYPE: dict[str, Deserializer] = {
    "String": _text,
    "Integer": _number("IntegerDeserializer", ">i"),
    "Long": _number("LongDeserializer", ">q"),
    "Short": _number("ShortDeserializer", ">h"),
    "Float": _number("FloatDeserializer", ">f"),
    "Double": _number("DoubleDeserializer", ">d"),
    "Boolean": _boolean,
    "UUID": _uuid,
    "Void": _void,
    "Bytes": _escape,
    "ByteArray": _as_is,
    "ByteBuffer": _as_is,
    "Default": _as_is,
}
_PACKAGES = ("", "org.apache.kafka.common.serialization.", "org.apache.kafka.tools.api.", "kafka.serializer.")


def deserializer(name: str) -> Deserializer:
    """Return the deserializer with a class name, with or without its package. Raises UsageError for an unknown name."""
    package, _, simple = name.strip().rpartition(".")
    kind = simple.removesuffix("Deserializer").removesuffix("Decoder")
    is_known = kind != simple and kind in _BY_TYPE and (f"{package}." if package else "") in _PACKAGES
    if not is_known:
        classes = [f"{kind}Deserializer" for kind in _BY_TYPE if kind != "Default"]
        raise UsageError(
            f"unknown deserializer {name!r}: must be one of {', '.join(classes)}{did_you_mean(simple, classes)}"
        )
    return _BY_TYPE[kind]
