"""Parser of the metadata of Arrow IPC messages, with bounds checks: the position of each buffer of a record batch.

An encapsulated message, as stored in a ``.log`` file:

    FF FF FF FF | int32 n | n bytes of flatbuffer, padded | body: the buffers, each padded
    `-------- metadata_length = 8 + n bytes --------------'

    Message     { 0 version, 1 header_type, 2 header, 3 bodyLength }            (Arrow, format/Message.fbs)
    RecordBatch { 0 length, 1 nodes: [FieldNode], 2 buffers: [Buffer], 3 compression }
    Footer      { 0 version, 1 schema, 2 dictionaries, 3 recordBatches: [Block] } (Arrow, format/File.fbs)

Rules: every position is checked against the available bytes, every count against what can fit, so that hostile
metadata costs nothing; every fault is a ValueError, which callers turn into an error that names the file.
Not for: schemas and dictionaries, which Arrow itself reads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = object

MAGIC = b"ARROW1"
"""the first and the last bytes of an Arrow file."""
MAGIC_LENGTH = 8
"""bytes before the schema message: ``MAGIC`` and two zeros."""
END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""bytes after the last message, before the footer's flatbuffer."""
TAIL_LENGTH = 10
"""bytes after the footer's flatbuffer: its length and ``MAGIC``."""
PREFIX_LENGTH = 8
"""bytes before the flatbuffer: the continuation marker and the flatbuffer's length."""
NOT_COMPRESSED = -1
COMPRESSIONS = {"lz4": 0, "zstd": 1}
"""Arrow's CompressionType by codec."""

_CONTINUATION = 0xFFFFFFFF
_HEADER_RECORD_BATCH = 3


class Message(NamedTuple):
    """The metadata of one record batch. Lengths and offsets in bytes; offsets from the start of the body."""

    rows: int
    body_length: int
    nodes: tuple[int, ...]
    """length, null count, length, null count, ... of the columns and their children, depth first."""
    buffers: tuple[int, ...]
    """offset, length, offset, length, ... of their buffers, in the same order."""
    compression: int
    """Arrow's CompressionType, or NOT_COMPRESSED."""


class Block(NamedTuple):
    """Location of a message according to the footer of an Arrow file."""

    position: int
    metadata_length: int
    body_length: int


def prefix(data: Buffer) -> int:
    """Return the metadata length, prefix included, from the first 8 bytes of an encapsulated message."""
    marker, length = _unpack("<Ii", data, 0)
    if marker != _CONTINUATION or length < 0:
        raise ValueError(f"no Arrow message starts here (first bytes {marker:#010x}, length {length})")
    return PREFIX_LENGTH + int(length)


def parse_record_batch(metadata: Buffer) -> Message:
    """Parse the metadata of a record batch message, prefix included."""
    if prefix(metadata) != memoryview(metadata).nbytes:
        raise ValueError(f"the message states {prefix(metadata)} bytes of metadata, not {memoryview(metadata).nbytes}")
    message = _root(metadata, PREFIX_LENGTH)
    header_type = _scalar(metadata, message, 1, "<B")
    if header_type != _HEADER_RECORD_BATCH:
        raise ValueError(f"the message is of Arrow's type {header_type}, not a record batch")
    batch = _child(metadata, message, 2)
    compression = _child(metadata, batch, 3, optional=True)
    body_length, rows = _scalar(metadata, message, 3, "<q"), _scalar(metadata, batch, 0, "<q")
    if body_length < 0 or rows < 0:
        raise ValueError(f"the message states {rows} rows in {body_length} bytes")
    return Message(
        rows,
        body_length,
        _vector(metadata, batch, 1, "qq", 16),
        _vector(metadata, batch, 2, "qq", 16),
        _scalar(metadata, compression, 0, "<b") if compression else NOT_COMPRESSED,
    )


def parse_footer(footer: Buffer) -> list[Block]:
    """Return the record batch blocks in an Arrow file's footer flatbuffer."""
    fields = _vector(footer, _root(footer, 0), 3, "qi4xq", 24)
    return [Block(*fields[i : i + 3]) for i in range(0, len(fields), 3)]


def with_blocks(footer: bytes, blocks: Sequence[Block]) -> bytes:
    """Return the footer flatbuffer with its blocks replaced by as many others. Raises ValueError for another number."""
    start = _child(footer, _root(footer, 0), 3)
    if _unpack("<I", footer, start)[0] != len(blocks):
        raise ValueError(f"a footer of {_unpack('<I', footer, start)[0]} record batches cannot list {len(blocks)}")
    changed = bytearray(footer)
    for number, block in enumerate(blocks):
        struct.pack_into("<qi4xq", changed, start + 4 + 24 * number, *block)
    return bytes(changed)


def _unpack(layout: str, data: Buffer, position: int) -> tuple[int, ...]:
    if position < 0:
        raise ValueError(f"invalid position {position} in the message's metadata")
    try:
        return struct.unpack_from(layout, data, position)
    except struct.error as error:
        raise ValueError(f"the message's metadata ends before position {position} + {layout}: {error}") from None


def _root(data: Buffer, start: int) -> int:
    return start + _unpack("<I", data, start)[0]


def _field(data: Buffer, table: int, number: int) -> int:
    """Return the position of a table's field, 0 if it is absent and so has its default."""
    vtable = table - _unpack("<i", data, table)[0]
    slot = 4 + 2 * number
    if slot + 2 > _unpack("<H", data, vtable)[0]:
        return 0
    offset = _unpack("<H", data, vtable + slot)[0]
    return table + offset if offset else 0


def _scalar(data: Buffer, table: int, number: int, layout: str) -> int:
    position = _field(data, table, number)
    return _unpack(layout, data, position)[0] if position else 0


def _child(data: Buffer, table: int, number: int, optional: bool = False) -> int:
    position = _field(data, table, number)
    if not position:
        if optional:
            return 0
        raise ValueError(f"the message's metadata lacks field {number}")
    return position + _unpack("<I", data, position)[0]


def _vector(data: Buffer, table: int, number: int, item: str, item_bytes: int) -> tuple[int, ...]:
    """Return all fields of all items of a vector of structs, as one flat tuple."""
    start = _child(data, table, number, optional=True)
    if not start:
        return ()
    count = _unpack("<I", data, start)[0]
    if count * item_bytes > memoryview(data).nbytes - start - 4:
        raise ValueError(f"the message's metadata lists {count} items in fewer bytes than they take")
    return _unpack("<" + item * count, data, start + 4)
