"""Small Arrow files of the metadata, read with a bound on what they become in memory.

Rules: pure. A compressed buffer says itself how long it becomes; all of them are added up before the first is
decompressed, so that a file of some kilobytes cannot take gigabytes. What is read has passed Arrow's full validation.
Any fault is a ValueError.
Not for: segments, whose index bounds them (``segment_reader``).
"""

from __future__ import annotations

import struct

import pyarrow as pa

from sparklog.format.columns import decompressed_size
from sparklog.format.message import NOT_COMPRESSED, parse_footer, parse_record_batch, prefix
from sparklog.format.plain_arrays import plain_array, plain_batch

_MAGIC = b"ARROW1"
_TAIL = 4 + len(_MAGIC)


class UnknownColumnsError(ValueError):
    """A file has columns that this code does not know: a newer one wrote it."""


def read_arrow_file(data: pa.Buffer, schema: pa.Schema, limit: int, defaults: dict[str, object]) -> pa.RecordBatch:
    """The file's rows in the columns of ``schema``, of which those in ``defaults`` may be absent.

    ``limit`` bounds the bytes that its buffers become; 0 admits no compression. Raises ValueError, UnknownColumnsError.
    """
    _check_size(data, limit)
    try:
        table = pa.ipc.open_file(data).read_all().combine_chunks()
        batches = table.to_batches()
        for batch in batches:
            batch.validate(full=True)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"it is no Arrow file: {error}") from error
    names = set(table.column_names)
    unknown = sorted(names - set(schema.names))
    if unknown:
        raise UnknownColumnsError(f"it has the columns {', '.join(unknown)}")
    missing = [field.name for field in schema if field.name not in names and field.name not in defaults]
    found = [field for field in schema if field.name in names]
    wrong = [field.name for field in found if table.schema.field(field.name).type != field.type]
    if missing or wrong or len(names) != len(table.column_names):
        raise ValueError(f"its columns are {table.schema.to_string()}, and {schema.to_string()} was expected")
    if not batches:
        return plain_batch([()] * len(schema), schema)
    (rows,) = batches
    columns = [
        rows.column(field.name)
        if field.name in names
        else plain_array([defaults[field.name]] * rows.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _check_size(data: pa.Buffer, limit: int) -> None:
    """Add up what compressed buffers claim to become."""
    size = data.size
    if size < 2 * len(_MAGIC) + 6 or data.slice(size - len(_MAGIC)).to_pybytes() != _MAGIC:
        raise ValueError("it does not end as an Arrow file does")
    (length,) = struct.unpack("<i", data.slice(size - _TAIL, 4).to_pybytes())
    if not 0 < length <= size - _TAIL:
        raise ValueError(f"its footer claims {length} bytes")
    total = 0
    for block in parse_footer(data.slice(size - _TAIL - length, length)):
        if block.position < 0 or block.position + 8 > size:
            raise ValueError(f"a message at {block.position} in a file of {size} bytes")
        metadata = data.slice(block.position, prefix(data.slice(block.position, 8)))
        message = parse_record_batch(metadata)
        if message.compression == NOT_COMPRESSED:
            continue
        if not limit:
            raise ValueError("its buffers are compressed, which those of such a file never are")
        body = data.slice(block.position + metadata.size)
        for start, count in zip(message.buffers[::2], message.buffers[1::2], strict=True):
            if start < 0 or count < 0 or start + count > body.size:
                raise ValueError(f"a buffer at {start} of {count} bytes in a body of {body.size}")
            total += decompressed_size(body.slice(start, count))
    if total > limit:
        raise ValueError(f"its buffers claim to become {total:,} bytes, and {limit:,} are the most")
