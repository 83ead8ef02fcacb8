"""Layout of the columns in a message, and decoding of their bytes to Arrow arrays.

In the body of a record batch message the buffers of the columns are adjacent, so each column has one *section*: from
the start of its first buffer to the start of the next column's (padding belongs to the column before it). The sections
tile the body. A reader of one column reads, sums and decodes one section.

Arrays are built directly from the buffers rather than by Arrow's message decoder, since that needs the whole body,
including columns that were not requested; from a remote store these would have to be fetched or faked.

Rules: nothing is copied; every buffer must be inside its section; the claimed decompressed sizes are added up before
the first buffer is decompressed; each array passes Arrow's full validation (6 us for 10,000 values), without which
hostile offsets would read outside the buffers. Faults are ValueErrors.
Not for: checksums, which the caller has already verified.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from sparklog.format import codecs
from sparklog.format.message import COMPRESSIONS, NOT_COMPRESSED, Message

_LENGTH = struct.Struct("<q")
_STORED_RAW = -1
"""Instead of the length before a compressed buffer: Arrow stored the buffer uncompressed."""


class ColumnLayout(NamedTuple):
    """The nodes and buffers of one column in a message."""

    name: str
    type: pa.DataType
    first_node: int
    nodes: int
    first_buffer: int
    buffers: int


@lru_cache(maxsize=64)
def layout(schema: pa.Schema) -> tuple[ColumnLayout, ...]:
    """Return the nodes and buffers of each column of a schema."""
    columns: list[ColumnLayout] = []
    node = buffer = 0
    for field in schema:
        nodes, buffers = _size(field.type)
        columns.append(ColumnLayout(field.name, field.type, node, nodes, buffer, buffers))
        node, buffer = node + nodes, buffer + buffers
    return tuple(columns)


def _size(kind: pa.DataType) -> tuple[int, int]:
    nodes, buffers = 1, kind.num_buffers
    for child in range(kind.num_fields):
        below = _size(kind.field(child).type)
        nodes, buffers = nodes + below[0], buffers + below[1]
    return nodes, buffers


def section_bounds(message: Message, columns: Sequence[ColumnLayout]) -> list[int]:
    """Return where the sections begin in the body, and where the last one ends: the body's length.

    Raises ValueError if the message does not have exactly these columns.
    """
    last = columns[-1]
    expected = (2 * (last.first_node + last.nodes), 2 * (last.first_buffer + last.buffers))
    if (len(message.nodes), len(message.buffers)) != expected:
        raise ValueError(f"{len(message.nodes) // 2} arrays in {len(message.buffers) // 2} buffers is not its schema")
    bounds = [message.buffers[2 * column.first_buffer] for column in columns]
    bounds[0] = 0
    bounds.append(message.body_length)
    if bounds != sorted(bounds):
        raise ValueError(f"the columns start at {bounds[:-1]} in a body of {message.body_length} bytes")
    return bounds


def decode_column(
    message: Message, column: ColumnLayout, section: pa.Buffer, start: int, codec: str, limit: int
) -> pa.Array:
    """Decode one column of a record batch from the bytes of its section, which begins at ``start`` in the body.

    ``limit`` is the most bytes that its compressed buffers may have together when decompressed.
    Raises ValueError, or an Arrow error, if the bytes are not such a column.
    """
    if message.compression != COMPRESSIONS.get(codec, NOT_COMPRESSED):
        raise ValueError(f"its buffers are compressed as Arrow's type {message.compression}, which is not {codec}")
    first, last = 2 * column.first_buffer, 2 * (column.first_buffer + column.buffers)
    locations = message.buffers[first:last]
    buffers = [
        _cut(section, offset - start, length) for offset, length in zip(locations[::2], locations[1::2], strict=True)
    ]
    if message.compression != NOT_COMPRESSED:
        buffers = _decompress(codec, buffers, limit)
    nodes = message.nodes[2 * column.first_node : 2 * (column.first_node + column.nodes)]
    if nodes[0] != message.rows:
        raise ValueError(f"column {column.name} has {nodes[0]} rows, its batch {message.rows}")
    array = _array(column.type, iter(zip(nodes[::2], nodes[1::2], strict=True)), iter(buffers))
    array.validate(full=True)
    return array


def _cut(section: pa.Buffer, start: int, length: int) -> pa.Buffer:
    if start < 0 or length < 0 or start + length > section.size:
        raise ValueError(f"a buffer at {start} of {length} bytes in a section or body of {section.size}")
    return section.slice(start, length)


def _decompress(codec: str, buffers: list[pa.Buffer], limit: int) -> list[pa.Buffer]:
    sizes = [decompressed_size(buffer) for buffer in buffers]
    if sum(sizes) > limit:
        raise ValueError(f"its buffers claim a decompressed size of {sum(sizes)} bytes, the index allows {limit}")
    result: list[pa.Buffer] = []
    for buffer, size in zip(buffers, sizes, strict=True):
        if buffer.size == 0:
            result.append(buffer)
        elif _LENGTH.unpack_from(buffer)[0] == _STORED_RAW:
            result.append(buffer.slice(_LENGTH.size))
        else:
            result.append(codecs.decompress(codec, buffer.slice(_LENGTH.size), size))
    return result


def decompressed_size(buffer: pa.Buffer) -> int:
    """Return the decompressed size of a buffer in bytes, from its first 8 bytes (Arrow, format/Message.fbs)."""
    if buffer.size == 0:
        return 0
    if buffer.size < _LENGTH.size:
        raise ValueError(f"a compressed buffer of {buffer.size} bytes")
    size = int(_LENGTH.unpack_from(buffer)[0])
    if size < _STORED_RAW:
        raise ValueError(f"a compressed buffer claims a decompressed size of {size} bytes")
    return buffer.size - _LENGTH.size if size == _STORED_RAW else size


def decompressed_body(message: Message, body: pa.Buffer) -> int:
    """Return the decompressed size of a message's body in bytes, as its buffers claim it. Raises ValueError."""
    if message.compression == NOT_COMPRESSED:
        return message.body_length
    buffers = zip(message.buffers[::2], message.buffers[1::2], strict=True)
    return sum(decompressed_size(_cut(body, start, length)) for start, length in buffers)


def _array(kind: pa.DataType, nodes: Iterator[tuple[int, int]], buffers: Iterator[pa.Buffer]) -> pa.Array:
    length, nulls = next(nodes)
    validity, *own = [next(buffers) for _ in range(kind.num_buffers)]
    if not 0 <= nulls <= length:
        raise ValueError(f"an array of {length} values, {nulls} of them null")
    if nulls and validity.size * 8 < length:
        raise ValueError(f"an array of {length} values has {validity.size} bytes for its nulls")
    children = [_array(kind.field(i).type, nodes, buffers) for i in range(kind.num_fields)]
    return pa.Array.from_buffers(kind, length, [validity if nulls else None, *own], nulls, 0, children)


def offsets_rise(offsets: pa.Array) -> bool:
    """Return whether these are valid explicit offsets: none is null or negative, and each is above the previous one."""
    import pyarrow.compute as pc  # imported here, since most files have none

    if offsets.null_count or (len(offsets) and offsets[0].as_py() < 0):
        return False
    return pc.all(pc.greater(offsets[1:], offsets[:-1]), min_count=0).as_py() is True
