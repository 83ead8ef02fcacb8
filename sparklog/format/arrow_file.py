"""Reads small Arrow files of the metadata, with a bound on their size in memory.

Rules: pure. A compressed buffer states its decompressed size; these are added up before the first is decompressed, so
that a file of some kilobytes cannot take gigabytes. Results have passed Arrow's full validation. Any fault is a
ValueError.
Not for: segments, whose index bounds them (``segment_reader``).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa

from sparklog.format.columns import decompressed_body
from sparklog.format.message import MAGIC, NOT_COMPRESSED, TAIL_LENGTH, parse_footer, parse_record_batch, prefix
from sparklog.format.plain_arrays import plain_array

_NONE: Mapping[str, object] = MappingProxyType({})


def read_arrow_file(data: pa.Buffer, limit: int) -> tuple[pa.Schema, pa.RecordBatch]:
    """Return the file's own schema, and its rows.

    ``limit`` is the most bytes that its compressed buffers may have when decompressed; 0 allows no compression. Raises
    ValueError.
    """
    _check_size(data, limit)
    try:
        table = pa.ipc.open_file(data).read_all().combine_chunks()
        batches = table.to_batches()
        for batch in batches:
            if batch.num_rows:  # an empty column may have no buffers, which Arrow calls invalid
                batch.validate(full=True)
    except TimeoutError:  # a time limit, of a signal's handler: Arrow raises none
        raise
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"it is not an Arrow file: {error}") from error
    if batches:
        return table.schema, batches[0]
    return table.schema, pa.RecordBatch.from_arrays(
        [_make_empty(field.type) for field in table.schema], schema=table.schema
    )


def _make_empty(kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, 0, [None] + [pa.py_buffer(bytes(8))] * (kind.num_buffers - 1))


def with_columns(rows: pa.RecordBatch, schema: pa.Schema, defaults: Mapping[str, object] = _NONE) -> pa.RecordBatch:
    """Return the rows with exactly these columns; those in ``defaults`` may be absent, others are dropped.

    Raises ValueError.
    """
    columns = []
    for field in schema:
        indices = rows.schema.get_all_field_indices(field.name)
        if not indices and field.name in defaults:
            columns.append(plain_array([defaults[field.name]] * rows.num_rows, field.type))
        elif len(indices) == 1 and rows.schema.field(indices[0]).type == field.type:
            columns.append(rows.column(indices[0]))
        else:
            raise ValueError(f"its columns are {rows.schema.to_string()}, and {field} was expected among them")
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _check_size(data: pa.Buffer, limit: int) -> None:
    """Check the sum of the decompressed sizes that compressed buffers claim."""
    size = data.size
    if size < 2 * len(MAGIC) + 6 or data.slice(size - len(MAGIC)).to_pybytes() != MAGIC:
        raise ValueError("it does not end like an Arrow file")
    (length,) = struct.unpack("<i", data.slice(size - TAIL_LENGTH, 4).to_pybytes())
    if not 0 < length <= size - TAIL_LENGTH:
        raise ValueError(f"its footer claims {length} bytes")
    total = 0
    for block in parse_footer(data.slice(size - TAIL_LENGTH - length, length)):
        if block.position < 0 or block.position + 8 > size:
            raise ValueError(f"a message at {block.position} in a file of {size} bytes")
        metadata = data.slice(block.position, prefix(data.slice(block.position, 8)))
        message = parse_record_batch(metadata)
        if message.compression == NOT_COMPRESSED:
            continue
        if not limit:
            raise ValueError("its buffers are compressed, which is not allowed in this kind of file")
        total += decompressed_body(message, data.slice(block.position + metadata.size))
    if total > limit:
        raise ValueError(f"its buffers claim a decompressed size of {total:,} bytes, above the limit of {limit:,}")
