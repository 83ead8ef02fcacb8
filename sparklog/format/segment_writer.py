"""Writes a ``.log`` file, and builds its ``.index``.

Arrow's own file writer produces the bytes; here they are summed column by column on their way to the sink, and the
index is built from the bytes that were actually written.

Rules: a batch is checked before any byte of it is written; a batch's bytes reach the sink in order and once; nothing is
copied except the small pieces between the buffers, which are joined to save calls of the sink.
Not for: choosing batch sizes, files or names, or durability: the caller owns the sink.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import InvalidRecordError, InvalidRequestError, RecordListTooLargeError
from sparklog.format import codecs, schema
from sparklog.format.checksum import crc32c
from sparklog.format.columns import decompressed_size, layout, offsets_rise, section_bounds
from sparklog.format.index import MAX_MESSAGE_BYTES, BatchEntry, BatchProducer, FileSummary, encode_index
from sparklog.format.message import (
    END_OF_STREAM,
    MAGIC_LENGTH,
    NOT_COMPRESSED,
    PREFIX_LENGTH,
    TAIL_LENGTH,
    Block,
    Message,
    parse_record_batch,
    prefix,
    with_blocks,
)
from sparklog.format.plain_arrays import plain_array
from sparklog.limits import MAX_BATCH_BYTES, MAX_BATCHES_PER_FILE
from sparklog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

_SMALL = 4096
"""bytes. Pieces below it are joined with their neighbours before they go to the sink."""

Piece = Any
"""A write of Arrow's writer: bytes, or a ``pa.Buffer`` that is not copied."""


class Sink(Protocol):
    """Destination of the bytes: an OutputFile of a store, or any file opened for binary writing."""

    def write(self, data: Any, /) -> object: ...


class SegmentWriter:
    """Writes record batches into one ``.log`` file. Not thread-safe; one per file.

    ``codec`` and ``level`` as in ``codecs.compressor``. With ``has_key``, ``has_headers`` or ``has_offsets`` false the
    file has no such column, and batches must have none. After any error the file is unusable: abort the sink.

    ``entries`` lists the batches written so far, ``rows`` and ``bytes_written`` count records and bytes.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        codec: str = codecs.NONE,
        level: int | None = None,
        has_key: bool = True,
        has_headers: bool = False,
        has_offsets: bool = False,
    ) -> None:
        self.entries: list[BatchEntry] = []
        self.rows = 0
        self.bytes_written = 0
        self._sink = sink
        self._codec = codec
        self._codec_number = codecs.codec_number(codec)
        self._compressor = codecs.compressor(codec, level)
        self._schema = schema.record_schema(schema.columns_present(has_key, has_headers, has_offsets))
        self._file_schema = schema.file_schema(codec, has_key, has_headers, has_offsets)
        self._has_key, self._has_headers, self._has_offsets = has_key, has_headers, has_offsets
        self._columns = layout(self._file_schema)
        self._pieces = _Pieces()
        self._arrow = self._open_arrow()
        self._header_length = 0
        self._header_crc32c = 0
        self._copied = False

    def write(
        self,
        batch: pa.RecordBatch,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
    ) -> BatchEntry:
        """Append one record batch and return its entry. The batch has the file's columns, in order.

        Raises InvalidRecordError for other columns, a null timestamp, a header without a key or explicit offsets that
        do not rise; InvalidRequestError for an empty batch; RecordListTooLargeError over ``limits.MAX_BATCH_BYTES`` or
        ``MAX_BATCHES_PER_FILE``. These write nothing.
        """
        batch = check_batch(batch, self._schema)
        self._check_room(batch)
        decoded_length = self._encode(batch)
        pieces = self._take()
        entry = self._measure(batch, pieces, decoded_length, BatchProducer(producer_id, producer_epoch, base_sequence))
        self._forward(pieces)
        self.entries.append(entry)
        self.rows += entry.count
        return entry

    def copy(self, parts: Sequence[pa.Buffer], stored: BatchEntry) -> BatchEntry:
        """Append a record batch as stored in another file of the same columns and codec (see
        ``SegmentReader.read_stored``), and return its entry in this file.

        Raises InvalidRequestError if its length or codec differs from its entry, and RecordListTooLargeError over
        ``MAX_BATCHES_PER_FILE``. Not for files with explicit offsets.
        """
        if stored.codec_number != self._codec_number or sum(map(len, parts)) != stored.length or self._has_offsets:
            raise InvalidRequestError(f"{stored} cannot be copied into a file of codec {self._codec}")
        if len(self.entries) >= MAX_BATCHES_PER_FILE:
            raise RecordListTooLargeError(f"a file holds at most {MAX_BATCHES_PER_FILE} record batches: start another")
        # Arrow's footer lists only batches that Arrow wrote: an empty one reserves the entry.
        self._arrow.write_batch(pa.RecordBatch.from_pylist([], schema=self._file_schema))
        self._take()
        self._copied = True
        entry = stored._replace(first_row=self.rows, position=self.bytes_written)
        self._forward(parts)
        self.entries.append(entry)
        self.rows += entry.count
        return entry

    def finish(self) -> bytes:
        """Write the Arrow footer to the sink, which stays open, and return the bytes of the ``.index``."""
        self._arrow.close()
        footer = self._with_real_blocks(b"".join(self._take()))
        summary = FileSummary(
            codec=self._codec,
            has_key=self._has_key,
            has_headers=self._has_headers,
            has_offsets=self._has_offsets,
            rows=self.rows,
            log_length=self.bytes_written + len(footer),
            footer_position=self.bytes_written,
            header_length=self._header_length,
            header_crc32c=self._header_crc32c,
            footer_crc32c=crc32c(footer),
        )
        self._forward([footer])
        return encode_index(summary, self.entries)

    def _with_real_blocks(self, footer: bytes) -> bytes:
        """Return the footer with the positions of all record batches, including copied ones."""
        if not self._copied:
            return footer
        start, end = len(END_OF_STREAM), len(footer) - TAIL_LENGTH
        head, flatbuffer, tail = footer[:start], footer[start:end], footer[end:]
        blocks = [
            Block(entry.position, entry.metadata_length, entry.length - entry.metadata_length) for entry in self.entries
        ]
        return head + with_blocks(flatbuffer, blocks) + tail

    def _open_arrow(self) -> pa.RecordBatchFileWriter:
        arrow_compresses = self._compressor is not None and not codecs.is_envelope(self._codec)
        options = pa.ipc.IpcWriteOptions(compression=self._compressor if arrow_compresses else None)
        return pa.ipc.new_file(pa.PythonFile(self._pieces, "w"), self._file_schema, options=options)

    def _take(self) -> list[Piece]:
        """Return what Arrow wrote. The magic and the schema, which come first, go to the sink immediately."""
        pieces = self._pieces.take()
        if self._header_length:
            return pieces
        magic, pieces = _split(pieces, MAGIC_LENGTH)
        message, pieces = _split_message(pieces)
        header = magic + message
        self._header_length, self._header_crc32c = len(header), crc32c(header)
        self._forward([header])
        return pieces

    def _check_room(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            raise InvalidRequestError("an empty record batch cannot be written: it would have no offsets")
        if batch.get_total_buffer_size() > MAX_BATCH_BYTES and batch.nbytes > MAX_BATCH_BYTES:
            raise RecordListTooLargeError(
                f"a record batch of {batch.num_rows} records has {batch.nbytes} bytes, over the limit of "
                f"{MAX_BATCH_BYTES}: write fewer records at a time"
            )
        if len(self.entries) >= MAX_BATCHES_PER_FILE:
            raise RecordListTooLargeError(f"a file holds at most {MAX_BATCHES_PER_FILE} record batches: start another")

    def _encode(self, batch: pa.RecordBatch) -> int:
        """Let Arrow encode a batch as pieces; return the size of the inner message of an envelope, else 0."""
        if not codecs.is_envelope(self._codec):
            self._arrow.write_batch(batch)
            return 0
        assert self._compressor is not None
        message = batch.serialize()
        self._arrow.write_batch(_envelope(self._compressor.compress(message), self._file_schema))
        return int(message.size)

    def _measure(
        self, batch: pa.RecordBatch, pieces: Sequence[Piece], decoded_length: int, producer: BatchProducer
    ) -> BatchEntry:
        metadata, body = _split_message(pieces)
        message = parse_record_batch(metadata)
        length = len(metadata) + message.body_length
        decoded_length = decoded_length or len(metadata) + _decoded_body(message, body)
        if max(length, decoded_length) > MAX_MESSAGE_BYTES:
            raise RecordListTooLargeError(f"a record batch takes {length} bytes: write fewer records at a time")
        sections = _section_sums(body, section_bounds(message, self._columns))
        start = (self.rows, self.bytes_written)
        return describe_batch(batch, start, metadata, decoded_length, sections, self._codec, producer)

    def _forward(self, pieces: Sequence[Piece]) -> None:
        small: list[bytes] = []
        for piece in pieces:
            if len(piece) < _SMALL:
                small.append(bytes(piece))
                continue
            self._put(b"".join(small))
            small.clear()
            self._put(piece)
        self._put(b"".join(small))

    def _put(self, data: Piece) -> None:
        if len(data):
            self._sink.write(data)
            self.bytes_written += len(data)


class _Pieces:
    """The file that Arrow's writer writes to: keeps the pieces until ``take``. Not thread-safe."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[Piece] = []

    def write(self, data: Piece) -> int:
        self._pieces.append(data)
        return len(data)

    def take(self) -> list[Piece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def flush(self) -> None:
        """Nothing to do: the caller's sink is flushed by its owner."""

    def close(self) -> None:
        """Nothing to do: the caller's sink is closed by its owner."""


def describe_batch(
    batch: pa.RecordBatch,
    start: tuple[int, int],
    metadata: Piece,
    decoded_length: int,
    sections: Sequence[tuple[int, int]],
    codec: str,
    producer: BatchProducer,
) -> BatchEntry:
    """Return the entry of a record batch whose message begins at ``start``: a row and a position.

    ``metadata`` is that of the message, ``sections`` has length and sum of the section of each column in the message.
    """
    first_row, position = start
    names = batch.schema.names
    stored = [schema.VALUE] if codecs.is_envelope(codec) else names
    sums: dict[str, tuple[int, int]] = dict(zip(stored, sections, strict=True))
    key, value, timestamp, headers, offset = (sums.get(name, (0, 0)) for name in schema.STORED_COLUMNS)
    earliest, latest = (bound.value for bound in pc.min_max(batch.column(schema.TIMESTAMP)).values())
    return BatchEntry(
        first_row,
        position,
        earliest,
        latest,
        producer.producer_id,
        batch.num_rows,
        len(metadata) + sum(length for length, _ in sections),
        decoded_length,
        len(metadata),
        crc32c(metadata),
        *key,
        *value,
        *timestamp,
        *headers,
        *offset,
        batch.column(schema.KEY).null_count if schema.KEY in names else batch.num_rows,
        batch.column(schema.VALUE).null_count,
        producer.base_sequence,
        producer.producer_epoch,
        codecs.codec_number(codec),
        0,
        batch.column(schema.OFFSET)[0].as_py() if schema.OFFSET in names else 0,
    )


def check_batch(batch: pa.RecordBatch, expected: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the file's schema. Raises InvalidRecordError if its columns do not match."""
    if not batch.schema.equals(expected):
        if batch.schema.names != expected.names:
            raise InvalidRecordError(f"a batch of columns {batch.schema.names} does not fit a file of {expected.names}")
        columns = [_cast_column(column, field) for column, field in zip(batch.columns, expected, strict=True)]
        batch = pa.RecordBatch.from_arrays(columns, schema=expected)
    missing = batch.column(schema.TIMESTAMP).null_count
    if missing:
        raise InvalidRecordError(f"{missing} of {batch.num_rows} records have no timestamp")
    if schema.HEADERS in expected.names:
        _check_headers(batch.column(schema.HEADERS))
    if schema.OFFSET in expected.names and not offsets_rise(batch.column(schema.OFFSET)):
        raise InvalidRecordError("explicit offsets must not be negative, and each must be above the previous one")
    return batch


def _cast_column(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    if field.name == schema.HEADERS:
        try:
            return column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            pass
    raise InvalidRecordError(f"column {field.name} is of type {column.type}, a file needs {field.type}: cast it")


def _check_headers(headers: pa.Array) -> None:
    items = headers.flatten()
    if items.null_count or items.field("key").null_count:
        raise InvalidRecordError("a header is null or has a null key: Kafka's headers always have a key")
    try:
        items.field("key").validate(full=True)  # Spark's strings may hold any bytes, and a reader refuses them
    except pa.ArrowInvalid as error:
        raise InvalidRecordError(f"a header's key is not UTF-8 text: {error}") from error


def _envelope(compressed: pa.Buffer, file_schema: pa.Schema) -> pa.RecordBatch:
    """Return a one-row batch that contains a compressed message, without copying it."""
    offsets = plain_array([0, compressed.size], pa.int32()).buffers()[1]
    value = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, compressed])
    return pa.RecordBatch.from_arrays([value], schema=file_schema)


def _split(pieces: Sequence[Piece], length: int) -> tuple[bytes, list[Piece]]:
    """Return the first ``length`` bytes, joined, and the pieces after them."""
    head, at = b"", 0
    while len(head) < length:
        head += bytes(pieces[at])
        at += 1
    assert len(head) == length, "a piece of Arrow's writer crosses the end of the metadata"
    return head, list(pieces[at:])


def _split_message(pieces: Sequence[Piece]) -> tuple[bytes, list[Piece]]:
    """Return the metadata of a message, joined, and the pieces of its body."""
    start, _ = _split(pieces, PREFIX_LENGTH)
    return _split(pieces, prefix(start))


def _section_sums(body: Sequence[Piece], bounds: Sequence[int]) -> list[tuple[int, int]]:
    """Return length and sum of each section. A piece never spans two: it is one buffer, or the padding after one."""
    sums: list[tuple[int, int]] = []
    pieces = iter(body)
    position = 0
    for start, end in itertools.pairwise(bounds):
        total = 0
        while position < end:
            piece = next(pieces)
            total = crc32c(piece, total)
            position += len(piece)
        assert position == end, "a piece of Arrow's writer crosses from one column into the next"
        sums.append((end - start, total))
    return sums


def _decoded_body(message: Message, body: Sequence[Piece]) -> int:
    """Return the decompressed size of the body's buffers in bytes."""
    if message.compression == NOT_COMPRESSED:
        return message.body_length
    starts = set(message.buffers[::2])
    position = total = 0
    for piece in body:
        if position in starts and len(piece) >= 8:
            total += decompressed_size(piece if isinstance(piece, pa.Buffer) else pa.py_buffer(piece))
        position += len(piece)
    return total
