"""Builds Arrow arrays of plain values, of which any may be null (None).

As in ``plain_arrays``, from buffers: ``pa.array`` imports pandas. A text that repeats is stored once, so a column of
texts takes 4 bytes a row until ``dictionary_decode``.

Rules: pure. Types are 32- and 64-bit integers, times as integers, 64-bit floats, booleans, texts, lists of these, and
maps of texts. Not for: other types.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sparklog.format.plain_arrays import plain_array, validity


def nullable_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return an array of these values. Raises OverflowError or TypeError for one that is not of the type.

    The value of a list is a sequence, that of a map is a sequence of pairs.
    """
    if not values:  # Arrow warns of a buffer without memory
        return pa.nulls(0, kind)
    if pa.types.is_string(kind):
        return text_array(values).dictionary_decode()
    missing = _missing(values)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _nested(values, kind, missing)
    known = [0 if value is None else value for value in values] if missing else values
    if pa.types.is_boolean(kind):
        data = plain_array(known, kind).buffers()[1]
    else:
        data = pa.py_buffer(array("d" if pa.types.is_floating(kind) else "qi"[kind.bit_width == 32], known))
    return pa.Array.from_buffers(kind, len(values), [validity(len(values), missing), data], len(missing))


def text_array(values: Sequence[str | None]) -> pa.DictionaryArray:
    """Return an array of texts, each different one stored once."""
    if not values:
        return pa.nulls(0, pa.dictionary(pa.int32(), pa.string()))
    codes: dict[str | None, int] = {}
    indices = array("i", [codes.setdefault(value, len(codes)) for value in values])
    texts = plain_array([text or "" for text in codes], pa.string())
    missing = [codes[None]] if None in codes else []
    if missing:
        buffers = [validity(len(codes), missing), *texts.buffers()[1:]]
        texts = pa.Array.from_buffers(pa.string(), len(codes), buffers, 1)
    rows = pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(indices)], 0)
    return pa.DictionaryArray.from_arrays(rows, texts)


def _missing(values: Sequence[Any]) -> list[int]:
    return [number for number, value in enumerate(values) if value is None] if None in values else []


def _nested(values: Sequence[Any], kind: pa.DataType, missing: Sequence[int]) -> pa.Array:
    items: list[Any] = []
    for value in values:
        items.extend(value or ())
    offsets = array("i", itertools.chain((0,), itertools.accumulate(len(value or ()) for value in values)))
    if pa.types.is_map(kind):
        keys, texts = [key for key, _ in items], [text for _, text in items]
        fields = [pa.field("key", kind.key_type, nullable=False), pa.field("value", kind.item_type)]
        arrays = [nullable_array(keys, kind.key_type), nullable_array(texts, kind.item_type)]
        children = [pa.StructArray.from_arrays(arrays, fields=fields)]
    else:
        children = [nullable_array(items, kind.value_type)]
    buffers = [validity(len(values), missing), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(values), buffers, len(missing), children=children)
