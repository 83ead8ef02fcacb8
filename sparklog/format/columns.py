"""Which bytes of a message belong to which column, and how they become Arrow arrays again.

In the body of a record batch message the buffers of the columns stand one after the other, so each column has one
*section*: from the start of its first buffer to the start of the next column's (padding belongs to the column before
it). The sections tile the body. A reader that wants one column reads, sums and decodes one section.

Arrays are made straight from the buffers rather than by Arrow's message decoder, since that one wants the whole body
at hand, also of columns nobody asked for; over a remote store these would have to be fetched or faked.

Rules: nothing is copied; every buffer is checked to lie in its section; what compressed buffers claim to become is
added up before the first is decompressed; each array passes Arrow's full validation (6 us for 10,000
values), without which hostile offsets would read outside the buffers. Faults are ValueErrors.
Not for: checksums, which the caller has verified before any of this runs.
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
"""In place of the length before a compressed buffer: Arrow kept the buffer as it was."""


class ColumnLayout(NamedTuple):
    """The part of a message's nodes and buffers that one column has."""

    name: str
    type: pa.DataType
    first_node: int
    nodes: int
    first_buffer: int
    buffers: int


@lru_cache(maxsize=64)
def layout(schema: pa.Schema) -> tuple[ColumnLayout, ...]:
    """How the columns of a schema share out the nodes and buffers of a message."""
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
    """Where the sections begin in the body, and where the last one ends: the body's length.

    ValueError where the message does not have exactly these columns.
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
    """One column of a record batch, from the bytes of its section, which begins at ``start`` in the body.

    ``limit`` bounds in bytes what its compressed buffers may become together.
    Raises ValueError, or an Arrow error, where the bytes are not such a column.
    """
    if message.compression != COMPRESSIONS.get(codec, NOT_COMPRESSED):
        raise ValueError(f"its buffers are compressed as Arrow's type {message.compression}, which is not {codec}")
    first, last = 2 * column.first_buffer, 2 * (column.first_buffer + column.buffers)
    places = message.buffers[first:last]
    buffers = [_cut(section, offset - start, length) for offset, length in zip(places[::2], places[1::2], strict=True)]
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
        raise ValueError(f"a buffer at {start} of {length} bytes in a section of {section.size}")
    return section.slice(start, length)


def _decompress(codec: str, buffers: list[pa.Buffer], limit: int) -> list[pa.Buffer]:
    sizes = [decompressed_size(buffer) for buffer in buffers]
    if sum(sizes) > limit:
        raise ValueError(f"its buffers claim to become {sum(sizes)} bytes, the index says at most {limit}")
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
    """bytes that a buffer of a compressed message becomes: its first 8 bytes say so (Arrow, format/Message.fbs)."""
    if buffer.size == 0:
        return 0
    if buffer.size < _LENGTH.size:
        raise ValueError(f"a compressed buffer of {buffer.size} bytes")
    size = int(_LENGTH.unpack_from(buffer)[0])
    if size < _STORED_RAW:
        raise ValueError(f"a compressed buffer that claims to become {size} bytes")
    return buffer.size - _LENGTH.size if size == _STORED_RAW else size


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
    """Whether these can be explicit offsets: none is null or negative, each is above the one before."""
    import pyarrow.compute as pc  # late: most files have none

    if offsets.null_count or (len(offsets) and offsets[0].as_py() < 0):
        return False
    return pc.all(pc.greater(offsets[1:], offsets[:-1]), min_count=0).as_py() is True
