"""The files of a checkpoint: referenced with length and CRC32C, read back after writing, read with limits.

Rules: a missing file raises CorruptMetadataError with ``missing`` set; one whose bytes differ from its reference, or
that cannot be decoded, raises CorruptMetadataError; one written by a newer sparklog raises UnsupportedVersionError.
Nothing is decompressed: these files are never compressed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pyarrow as pa

from sparklog import limits
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError, UnsupportedVersionError
from sparklog.format.arrow_file import read_arrow_file, with_columns
from sparklog.format.checksum import crc32c
from sparklog.log.checkpoints.tiers import FileReference, Row, RowEncoding
from sparklog.log.segments import DEFAULTS, SCHEMA, columns_of
from sparklog.store.base import BytesLike, Store

MEND = "delete this checkpoint if the commits up to it still exist, else restore it from a copy of the root"


def read_file(store: Store, file: FileReference) -> pa.Buffer:
    """Read a file and verify it. Raises CorruptMetadataError, StorageError."""
    path = f"{store.root}/{file.key}"
    if not 0 <= file.size <= limits.MAX_CHECKPOINT_PART_BYTES:
        raise CorruptMetadataError(f"checkpoint file {path} claims {file.size:,} bytes; {MEND}", path=path)
    try:
        opened = store.open_input(file.key)
        try:
            data = opened.read_at(0, file.size)
        finally:
            opened.close()
    except ObjectNotFoundError as error:
        raise CorruptMetadataError(f"checkpoint file {path} is missing; {MEND}", path=path, missing=True) from error
    actual = crc32c(data)
    if actual != file.crc or data.size != file.size:
        raise CorruptMetadataError(
            f"checkpoint file {path} is damaged: expected {file.size} bytes with CRC32C {file.crc:#010x}, found "
            f"{data.size} with {actual:#010x}; {MEND}",
            path=path,
        )
    return data


@contextmanager
def translate_damage(store: Store, key: str) -> Iterator[None]:
    """Raise CorruptMetadataError, which names this file, for content that cannot be decoded."""
    try:
        yield
    except (msgspec.MsgspecError, KeyError, ValueError, RecursionError) as error:
        path = f"{store.root}/{key}"
        raise CorruptMetadataError(f"checkpoint file {path} cannot be read: {error}; {MEND}", path=path) from error


def write_file(store: Store, file: FileReference, data: BytesLike) -> None:
    """Store the bytes of a reference, and read them back."""
    with store.open_output(file.key) as output:
        output.write(data)
    read_file(store, file)


def read_rows(store: Store, encoding: RowEncoding, part: FileReference) -> dict[str, list[Row]]:
    """Read a part of the heads or lists. Raises CorruptMetadataError, StorageError."""
    data = read_file(store, part)
    with translate_damage(store, part.key):
        return encoding.decode(memoryview(data))


def describe(key: str, data: BytesLike, rows: int) -> FileReference:
    """Return the reference of a file with these bytes."""
    return FileReference(key=key, size=memoryview(data).nbytes, crc=crc32c(data), rows=rows)


def read_segments_file(store: Store, file: FileReference) -> pa.RecordBatch:
    """Read a part of a topic's list. Raises CorruptMetadataError, UnsupportedVersionError."""
    return read_columns(store, file, SCHEMA, DEFAULTS)


def read_columns(store: Store, file: FileReference, schema: pa.Schema, defaults: dict[str, object]) -> pa.RecordBatch:
    """Read the rows of an Arrow file; columns in ``defaults`` may be absent. Raises as ``read_segments_file``."""
    data, path = read_file(store, file), f"{store.root}/{file.key}"
    with translate_damage(store, file.key):
        stored, rows = read_arrow_file(data, 0)
        unknown = sorted(set(stored.names) - set(schema.names))
        if unknown:
            raise UnsupportedVersionError(
                f"checkpoint file {path} was written by a newer sparklog: it has the columns {', '.join(unknown)}, "
                "which this version does not know; upgrade sparklog",
                path=path,
            )
        return with_columns(rows, schema, defaults)


def write_segments_file(store: Store, key: str, segments: pa.RecordBatch, level: int) -> FileReference:
    """Store a part of a topic's list with the columns of a level, and read it back."""
    batch = segments.select(columns_of(level))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = sink.getvalue()
    written = describe(key, data, batch.num_rows)
    write_file(store, written, data)
    return written
