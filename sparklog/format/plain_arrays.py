"""Arrow arrays without nulls, made from their buffers.

``pa.array`` and ``pa.scalar`` import pandas where that is installed, 44 MB and up to seconds for who has no use for it.

Rules: pure. Types are those that listings and lists of segments have: 32- and 64-bit integers, text, booleans.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_CODES = {pa.int32(): "i", pa.int64(): "q"}


def plain_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of these values. Raises OverflowError or TypeError for one that is not of the type."""
    if kind == pa.bool_():
        buffers = [None, _bits(values)]
    elif kind == pa.string():
        encoded = [value.encode() for value in values]
        offsets = array("i", itertools.chain((0,), itertools.accumulate(map(len, encoded))))
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    else:
        buffers = [None, pa.py_buffer(array(_CODES[kind], values))]
    return pa.Array.from_buffers(kind, len(values), buffers, 0)


def plain_batch(columns: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """A record batch of these columns, as many as the schema has."""
    arrays = [plain_array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _bits(values: Sequence[bool]) -> pa.Buffer:
    """Arrow's bitmap: bit i of the whole is value i, least significant bit first."""
    bits = bytearray((len(values) + 7) // 8)
    for row, value in enumerate(values):
        if value:
            bits[row >> 3] |= 1 << (row & 7)
    return pa.py_buffer(bytes(bits))
