"""Rebuilds the ``.index`` of a ``.log`` from the ``.log`` alone.

Everything in an index can be derived from its file, except the producers of its batches, which the caller may know, and
the proof that the bytes are those that were written: the checksums computed here are of the bytes as they are now,
corrupt or not. So a rebuilt index proves nothing about its file: the caller needs other evidence that the bytes are
right, such as the remains of the old index.

Rules: the file has to be a complete and valid Arrow file, with adjacent messages; sizes are bounded before anything is
decompressed. Any fault is a CorruptRecordError.
Not for: deciding whether the result can be trusted (``sparklog.maintenance.fsck``).
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import CorruptionError, CorruptRecordError, InvalidConfigurationError
from sparklog.format import codecs, schema
from sparklog.format.checksum import crc32c
from sparklog.format.columns import decode_column, decompressed_size, layout, section_bounds
from sparklog.format.index import _ENTRY as ENTRY
from sparklog.format.index import _HEADER as HEADER
from sparklog.format.index import (
    MAX_MESSAGE_BYTES,
    NO_PRODUCER,
    BatchEntry,
    BatchProducer,
    FileSummary,
    decode_index,
    encode_index,
)
from sparklog.format.message import (
    END_OF_STREAM,
    NOT_COMPRESSED,
    PREFIX_LENGTH,
    TAIL_LENGTH,
    Message,
    parse_record_batch,
    prefix,
)
from sparklog.format.scan import read_header, read_message
from sparklog.format.segment_reader import ReadAt, SegmentReader
from sparklog.limits import MAX_BATCHES_PER_FILE
from sparklog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

_CRC_BYTES = 4
_CHECKSUM_FIELDS = [name for name in BatchEntry._fields if name.endswith("_crc32c")]
_MAX_FOOTER_BYTES = 64 * MAX_BATCHES_PER_FILE + TAIL_LENGTH + len(END_OF_STREAM)
_FAULTS = (
    CorruptionError,
    ValueError,
    KeyError,
    OSError,
    OverflowError,
    MemoryError,
    zlib.error,
    pa.ArrowException,
    InvalidConfigurationError,
)


ProducerOf = Callable[[int, int], BatchProducer]
"""(number of a batch, its first row) -> its producer."""


def rebuild_index(
    read_at: ReadAt, size: int, path: str, producer_of: ProducerOf = lambda batch, row: NO_PRODUCER
) -> bytes:
    """Return the bytes of the index of a ``.log`` of ``size`` bytes. Raises CorruptRecordError."""
    try:
        return _Rebuild(read_at, size).index(producer_of, path)
    except _FAULTS as error:
        _corrupt(path, str(error))


def _corrupt(path: str, what: str) -> NoReturn:
    raise CorruptRecordError(f"{path}: cannot rebuild an index from it: {what}", path=path)


class _Rebuild:
    """Rebuilds the index of one file. Not thread-safe."""

    def __init__(self, read_at: ReadAt, size: int) -> None:
        self._read_at = read_at
        self._size = size

    def index(self, producer_of: ProducerOf, path: str) -> bytes:
        stored, header = read_header(self._read_at, self._size)
        codec = (stored.metadata or {})[b"sparklog.codec"].decode()
        codecs.codec_number(codec)
        present = self._columns(stored, codec)
        entries: list[BatchEntry] = []
        position, first_row = header.size, 0
        while self._read_at(position, PREFIX_LENGTH).to_pybytes() != END_OF_STREAM:
            metadata, message = read_message(self._read_at, position, self._size)
            body = self._read_at(position + metadata.size, message.body_length)
            entry = _make_entry(position, metadata, message, body, stored, present, codec, first_row)
            producer = producer_of(len(entries), first_row)
            entries.append(entry._replace(**producer._asdict()))
            position, first_row = position + entry.length, entry.end_row
        if self._size - position > _MAX_FOOTER_BYTES:
            raise ValueError(f"its footer has {self._size - position} bytes, above the limit of {_MAX_FOOTER_BYTES}")
        summary = FileSummary(
            codec=codec,
            has_key=schema.KEY in present,
            has_headers=schema.HEADERS in present,
            has_offsets=schema.OFFSET in present,
            rows=first_row,
            log_length=self._size,
            footer_position=position,
            header_length=header.size,
            header_crc32c=crc32c(header),
            footer_crc32c=crc32c(self._read_at(position, self._size - position)),
        )
        index = encode_index(summary, entries)
        SegmentReader(self._read_at, decode_index(index, path), path).check_file()
        return index

    def _columns(self, stored: pa.Schema, codec: str) -> tuple[str, ...]:
        names = _record_schema(stored, codec).names
        present = schema.columns_present(*(name in names for name in (schema.KEY, schema.HEADERS, schema.OFFSET)))
        if not stored.equals(
            schema.file_schema(codec, *(name in names for name in (schema.KEY, schema.HEADERS, schema.OFFSET))),
            check_metadata=True,
        ):
            raise ValueError(f"its schema is not a segment schema: {stored}")
        return present


def _record_schema(stored: pa.Schema, codec: str) -> pa.Schema:
    if not codecs.is_envelope(codec):
        return stored
    import base64

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored.metadata[b"sparklog.schema"])))


def _make_entry(
    position: int,
    metadata: pa.Buffer,
    message: Message,
    body: pa.Buffer,
    stored: pa.Schema,
    present: tuple[str, ...],
    codec: str,
    row: int,
) -> BatchEntry:
    sections = {
        column.name: body.slice(start, end - start)
        for column, (start, end) in zip(
            layout(stored), itertools.pairwise(section_bounds(message, layout(stored))), strict=True
        )
    }
    inner, decoded_length = _open_message(message, body, metadata.size, stored, codec)
    columns = _decode_columns(inner, present, decoded_length, codecs.NONE if codecs.is_envelope(codec) else codec)
    timestamps = columns[schema.TIMESTAMP]
    earliest, latest = (value.value for value in pc.min_max(timestamps).values())
    if codecs.is_envelope(codec):
        sections = {schema.VALUE: sections[schema.ENVELOPE]}
    key, value, timestamp, headers, offset = (_measure_section(sections.get(name)) for name in schema.STORED_COLUMNS)
    rows = len(timestamps)
    return BatchEntry(
        row,
        position,
        earliest,
        latest,
        NO_PRODUCER_ID,
        rows,
        metadata.size + body.size,
        decoded_length,
        metadata.size,
        crc32c(metadata),
        *key,
        *value,
        *timestamp,
        *headers,
        *offset,
        columns[schema.KEY].null_count if schema.KEY in columns else rows,
        columns[schema.VALUE].null_count,
        NO_SEQUENCE,
        NO_PRODUCER_EPOCH,
        codecs.codec_number(codec),
        0,
        columns[schema.OFFSET][0].as_py() if schema.OFFSET in columns else 0,
    )


def _measure_section(section: pa.Buffer | None) -> tuple[int, int]:
    return (section.size, crc32c(section)) if section is not None else (0, 0)


class _Inner(NamedTuple):
    """The message with the records: the stored one, or the one inside its envelope."""

    message: Message
    body: pa.Buffer


def _open_message(
    message: Message, body: pa.Buffer, metadata_length: int, stored: pa.Schema, codec: str
) -> tuple[_Inner, int]:
    """Return the message with the records, and its decompressed size in bytes."""
    if codecs.is_envelope(codec):
        if message.rows != 1:
            raise ValueError(f"an envelope of {message.rows} rows")
        value = decode_column(message, layout(stored)[0], body, 0, codecs.NONE, 0)[0].as_buffer()
        data = _decompress_envelope(codec, value)
        length = prefix(data)
        return _Inner(parse_record_batch(data.slice(0, length)), data.slice(length)), data.size
    total = metadata_length
    if message.compression == NOT_COMPRESSED:
        total += message.body_length
    else:
        buffers = zip(message.buffers[::2], message.buffers[1::2], strict=True)
        total += sum(decompressed_size(_cut(body, start, length)) for start, length in buffers if length >= 8)
    if total > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message claims a decompressed size of {total} bytes")
    return _Inner(message, body), total


def _cut(body: pa.Buffer, start: int, length: int) -> pa.Buffer:
    if start < 0 or start + length > body.size:
        raise ValueError(f"a buffer at {start} of {length} bytes in a body of {body.size}")
    return body.slice(start, length)


def _decompress_envelope(codec: str, data: pa.Buffer) -> pa.Buffer:
    """Decompress an envelope, whose size is not recorded elsewhere: gzip marks its end, snappy states the size
    first."""
    if codec == codecs.GZIP:
        stream = zlib.decompressobj(wbits=31)
        content = stream.decompress(data, MAX_MESSAGE_BYTES)
        if not stream.eof or stream.unused_data:
            raise ValueError("its gzip stream is incomplete")
        return pa.py_buffer(content)
    size = shift = 0
    for byte in data.slice(0, 5).to_pybytes():
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(f"an envelope claims a decompressed size of {size} bytes")
    return codecs.decompress(codec, data, size)


def _decode_columns(inner: _Inner, present: tuple[str, ...], limit: int, codec: str) -> dict[str, pa.Array]:
    """Decode the columns. Headers are only decoded to check that they can be."""
    columns = layout(schema.record_schema(present))
    bounds = section_bounds(inner.message, columns)
    arrays: dict[str, pa.Array] = {}
    for column, (start, end) in zip(columns, itertools.pairwise(bounds), strict=True):
        section = inner.body.slice(start, end - start)
        arrays[column.name] = decode_column(inner.message, column, section, start, codec, limit)
    return arrays


def vouches_for(damaged: bytes, rebuilt: bytes) -> bool:
    """Return whether the remains of a damaged index prove that the file, from which ``rebuilt`` was made, is intact.

    Either its final checksum equals that of the rebuilt one, which then is the original index, byte for byte; or all
    its checksums of the file match the file as it is now, so the damage is elsewhere in the index. It is practically
    impossible that a changed byte of the file and a changed checksum hide each other.
    """
    if len(damaged) != len(rebuilt) or len(rebuilt) < HEADER.size + _CRC_BYTES:
        return False
    return damaged[-_CRC_BYTES:] == rebuilt[-_CRC_BYTES:] or _extract_checksums(damaged) == _extract_checksums(rebuilt)


def _extract_checksums(index: bytes) -> list[int]:
    """Return all checksums of the file in an index, whether the index is intact or not."""
    header = HEADER.unpack_from(index)
    checksums = [header[-2], header[-1]]
    for at in range(HEADER.size, len(index) - _CRC_BYTES, ENTRY.size):
        entry = BatchEntry._make(ENTRY.unpack_from(index, at))
        checksums += [getattr(entry, name) for name in _CHECKSUM_FIELDS]
    return checksums


def producers_in(damaged: bytes) -> ProducerOf:
    """Return the producers of batches from the remains of a damaged index; ``NO_PRODUCER`` beyond its end."""

    def producer_of(batch: int, row: int) -> BatchProducer:
        at = HEADER.size + batch * ENTRY.size
        if at + ENTRY.size > len(damaged):
            return NO_PRODUCER
        entry = BatchEntry._make(ENTRY.unpack_from(damaged, at))
        return BatchProducer(entry.producer_id, entry.producer_epoch, entry.base_sequence)

    return producer_of
