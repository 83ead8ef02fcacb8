"""Builds Arrow arrays and scalars directly from buffers.

``pa.array``, ``pa.scalar`` and ``to_numpy`` import pandas if it is installed: 44 MB and up to seconds, of no use here.

Rules: pure. Types are those of listings and lists of segments (32- and 64-bit integers, text, booleans, without nulls)
and those of records: bytes, timestamps, headers. Not for: other types.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from sparklog.format.schema import HEADERS_TYPE, TIMESTAMP_TYPE

_BOOL, _STRING = pa.bool_().id, pa.string().id
_CODES = {pa.int32().id: "i", pa.int64().id: "q"}


def plain_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of these values. Raises OverflowError or TypeError for one that is not of the type."""
    number = kind.id  # compared faster than types
    if number == _BOOL:
        buffers = [None, _bits(values)]
    elif number == _STRING:
        encoded = [value.encode() for value in values]
        offsets = array("i", itertools.chain((0,), itertools.accumulate(map(len, encoded))))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    else:
        buffers = [None, pa.py_buffer(array(_CODES[number], values))]
    return pa.Array.from_buffers(kind, len(values), buffers, 0)


def plain_scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return a scalar of this value. Errors as ``plain_array``."""
    return plain_array([value], kind)[0]


def timestamp_scalar(microseconds: int) -> pa.Scalar:
    """Return a timestamp, in microseconds since the epoch."""
    return timestamp_array([microseconds])[0]


def null_scalar(kind: pa.DataType) -> pa.Scalar:
    return pa.nulls(1, kind)[0]


def plain_batch(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return a record batch of these columns, one for each field of the schema."""
    arrays = [plain_array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class BinaryColumn(NamedTuple):
    """A column of bytes, the start of each value and the end of the last one, and the rows that are null."""

    array: pa.Array
    offsets: array[int]
    missing: Sequence[int]


def binary_column(values: Sequence[bytes | None]) -> BinaryColumn:
    """Return a column of these values, None for null. Raises OverflowError over 2 GiB."""
    try:
        data, missing = b"".join(values), []  # type: ignore[arg-type]
    except TypeError:
        missing = [number for number, value in enumerate(values) if value is None]
        values = [value or b"" for value in values]
        data = b"".join(values)  # type: ignore[arg-type]
    offsets = array("i", itertools.chain((0,), itertools.accumulate(map(len, values))))  # type: ignore[arg-type]
    buffers = [validity(len(values), missing), pa.py_buffer(offsets), pa.py_buffer(data)]
    return BinaryColumn(pa.Array.from_buffers(pa.binary(), len(values), buffers, len(missing)), offsets, missing)


def timestamp_array(microseconds: Sequence[int]) -> pa.Array:
    """Return a column of timestamps, in microseconds since the epoch."""
    stamps = microseconds if isinstance(microseconds, array) else array("q", microseconds)
    return pa.Array.from_buffers(TIMESTAMP_TYPE, len(stamps), [None, pa.py_buffer(stamps)], 0)


def headers_array(rows: Sequence[Sequence[tuple[str, bytes | None]] | None]) -> pa.Array:
    """Return a column of records' headers, None for null."""
    pairs = [pair for row in rows for pair in row or ()]
    names = plain_array([name for name, _ in pairs], pa.string())
    values = binary_column([value for _, value in pairs]).array
    items = pa.Array.from_buffers(HEADERS_TYPE.value_type, len(pairs), [None], 0, children=[names, values])
    offsets = array("i", itertools.chain((0,), itertools.accumulate(len(row or ()) for row in rows)))
    missing = [number for number, row in enumerate(rows) if row is None]
    buffers = [validity(len(rows), missing), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(HEADERS_TYPE, len(rows), buffers, len(missing), children=[items])


def validity(rows: int, missing: Sequence[int]) -> pa.Buffer | None:
    """Return Arrow's validity bitmap: bit i is 1 if row i has a value, lowest bit first; None if all have one."""
    if not missing:
        return None
    bits = bytearray(b"\xff" * ((rows + 7) // 8))
    for row in missing:
        bits[row >> 3] &= ~(1 << (row & 7))
    return pa.py_buffer(bytes(bits))


def _bits(values: Sequence[bool]) -> pa.Buffer:
    """Return Arrow's bitmap of booleans: bit i is value i, lowest bit first."""
    bits = bytearray((len(values) + 7) // 8)
    for row, value in enumerate(values):
        if value:
            bits[row >> 3] |= 1 << (row & 7)
    return pa.py_buffer(bytes(bits))
