"""Elides the values that the typed columns of a history segment state exactly, and makes them again.

A value is elided if it is, byte for byte, the text that ``json_texts`` makes of its typed columns. Any other keeps
its bytes: one with other fields or another order of them, with spaces or a prefix, or that does not fit the schema.
A file says by which fields it elides values, in its footer, and for each record in the column ``_value_kept``; its
index has the checksum of all values of a row group (``index``).

Rules: pure. What was elided is only returned if the values have the length and checksum that the index says.
Not for: reading columns (``typed_reader``), and which topics leave values out (``config.topic_configs``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidRecordError
from sparklog.format.checksum import combine, crc32c
from sparklog.format.index import ValueSum
from sparklog.format.json_texts import encode_objects
from sparklog.schema.languages.ddl import UNFIT, VALUE_KEPT, SchemaField, format_ddl, parse_ddl, value_column

FIELDS_NAME = "sparklog.value.fields"
"""The name in the footer under which the fields stand, in DDL."""

ENCODED_ROWS = 16 * 1024
"""Rows whose texts are made at a time: more need more memory for the parts of the texts."""


class StoredValues(NamedTuple):
    """The column ``value`` of a row group, null also where a value is elided, and where it is not: ``kept``."""

    values: pa.Array
    kept: pa.Array


def find_fields(fields: Sequence[SchemaField]) -> tuple[SchemaField, ...]:
    """Return the fields by which values can be elided: these, or none if the footer could not state them."""
    return tuple(fields) if fields and parse_ddl(format_ddl(fields)) == tuple(fields) else ()


def elide(fields: Sequence[SchemaField], values: pa.Array, columns: Mapping[str, pa.Array]) -> StoredValues:
    """Elide the values that the ``columns`` of these fields state."""
    candidates = pc.and_(values.is_valid(), pc.invert(columns[UNFIT]))
    try:
        texts = _encode(fields, columns, candidates)
    except (InvalidRecordError, pa.ArrowException, MemoryError):  # texts over 2 GiB
        return StoredValues(values, pa.repeat(pa.scalar(True), len(values)))
    is_same = pc.equal(texts, values.filter(candidates))
    elided = pc.replace_with_mask(candidates, candidates, is_same)
    return StoredValues(pc.if_else(elided, pa.scalar(None, pa.binary()), values), pc.invert(elided))


def restore(
    fields: Sequence[SchemaField], stored: pa.Array, columns: Mapping[str, pa.Array], most_bytes: int
) -> pa.Array:
    """Return all values of a row group. Raises ValueError if they cannot be made, or take more than ``most_bytes``."""
    kept = columns[VALUE_KEPT]
    if kept.null_count or pc.any(pc.and_(pc.invert(kept), stored.is_valid())).as_py():
        raise ValueError(f"its {VALUE_KEPT} contradicts its values")
    elided = pc.invert(kept)
    try:
        texts = _encode(fields, columns, elided, most_bytes)
    except InvalidRecordError as error:
        raise ValueError(f"values that are elided cannot be made: {error}") from error
    return pc.replace_with_mask(stored, elided, texts)


def sum_values(values: pa.Array) -> ValueSum:
    """Return the length and checksum of the values of a row group."""
    filled = values.fill_null(b"")
    lengths = pc.binary_length(filled)
    offsets, data = filled.buffers()[1:]
    view = memoryview(offsets).cast("i")[filled.offset : filled.offset + len(filled) + 1]
    length = view[-1] - view[0]
    content = data.slice(view[0], length) if length else pa.py_buffer(b"")
    of_lengths = lengths.buffers()[1].slice(4 * lengths.offset, 4 * len(lengths))
    return ValueSum(length, combine(crc32c(of_lengths), crc32c(content), length))


def _encode(
    fields: Sequence[SchemaField], columns: Mapping[str, pa.Array], chosen: pa.Array, most_bytes: int = 2**31 - 1
) -> pa.Array:
    """Return the texts of the chosen rows."""
    every = chosen.true_count == len(chosen)
    table = {field.name: columns[value_column(field.name)] for field in fields}
    if not every:
        table = {name: column.filter(chosen) for name, column in table.items()}
    rows, parts, size = chosen.true_count, [pa.array([], pa.binary())], 0
    for first in range(0, rows, ENCODED_ROWS):
        count = min(ENCODED_ROWS, rows - first)
        some = {name: column.slice(first, count) for name, column in table.items()}
        parts.append(encode_objects(fields, some, count).cast(pa.binary()))
        size += parts[-1].nbytes
        if size > most_bytes + 8 * rows:
            raise ValueError(f"the values that are elided take over {most_bytes} bytes")
    return pa.concat_arrays(parts)
