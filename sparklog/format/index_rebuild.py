"""The ``.index`` of a ``.log``, worked out anew from the ``.log`` alone.

Everything in an index is in its file too, but for three things: the producers of its batches, which the caller knows or
not, and that the bytes are those that were written. The checksums made here are of the bytes as they are now, damaged
or not. So an index made from a file proves nothing about it: the caller has to know from elsewhere that the bytes are
right, such as from what is left of the old index.

Rules: the file has to be whole and sound as an Arrow file, its messages side by side as they were written; sizes are
bounded before anything is decompressed. Any fault is a CorruptRecordError.
Not for: deciding whether the result can be trusted (``sparklog.maintenance``).
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable
from typing import NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import CorruptRecordError, InvalidConfigurationError
from sparklog.format import codecs, schema
from sparklog.format.checksum import crc32c
from sparklog.format.columns import decode_column, decompressed_size, layout, section_bounds
from sparklog.format.index import _ENTRY as ENTRY
from sparklog.format.index import _HEADER as HEADER
from sparklog.format.index import MAX_MESSAGE_BYTES, BatchEntry, FileSummary, encode_index
from sparklog.format.message import NOT_COMPRESSED, Block, Message, parse_footer, parse_record_batch, prefix
from sparklog.format.segment_reader import ReadAt
from sparklog.limits import MAX_BATCHES_PER_FILE
from sparklog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

_MAGIC = b"ARROW1\x00\x00"
_TAIL = 10
_END_OF_STREAM = 8
_CRC_BYTES = 4
_CHECKSUM_FIELDS = [name for name in BatchEntry._fields if name.endswith("_crc32c")]
_MAX_FOOTER_BYTES = 64 * MAX_BATCHES_PER_FILE
_FAULTS = (
    ValueError,
    KeyError,
    OSError,
    OverflowError,
    MemoryError,
    zlib.error,
    pa.ArrowException,
    InvalidConfigurationError,
)


class BatchProducer(NamedTuple):
    """Whose a batch is; the defaults are of nobody in particular."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


NOBODY = BatchProducer()
ProducerOf = Callable[[int, int], BatchProducer]
"""(number of a batch, its first row) -> whose it is."""


def rebuild_index(read_at: ReadAt, size: int, path: str, producer_of: ProducerOf = lambda batch, row: NOBODY) -> bytes:
    """The bytes of the index that goes with a ``.log`` of ``size`` bytes. Raises CorruptRecordError."""
    try:
        return _Rebuild(read_at, size).index(producer_of)
    except _FAULTS as error:
        _corrupt(path, str(error))


def _corrupt(path: str, what: str) -> NoReturn:
    raise CorruptRecordError(f"{path}: no index can be made from it: {what}", path=path)


class _Rebuild:
    """One file. Not thread-safe."""

    def __init__(self, read_at: ReadAt, size: int) -> None:
        self._read_at = read_at
        self._size = size

    def index(self, producer_of: ProducerOf) -> bytes:
        header = self._header()
        stored = pa.ipc.read_schema(header.slice(len(_MAGIC)))
        codec = (stored.metadata or {})[b"sparklog.codec"].decode()
        codecs.codec_number(codec)
        present = self._columns(stored, codec)
        blocks, footer_position = self._footer(header.size)
        entries: list[BatchEntry] = []
        row = 0
        for number, block in enumerate(blocks):
            entry = _entry(self._message(block), block, stored, present, codec, row)
            producer = producer_of(number, row)
            entries.append(
                entry._replace(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    base_sequence=producer.base_sequence,
                )
            )
            row = entry.end_row
        summary = FileSummary(
            codec=codec,
            has_key=schema.KEY in present,
            has_headers=schema.HEADERS in present,
            has_offsets=schema.OFFSET in present,
            rows=row,
            log_length=self._size,
            footer_position=footer_position,
            header_length=header.size,
            header_crc32c=crc32c(header),
            footer_crc32c=crc32c(self._read_at(footer_position, self._size - footer_position)),
        )
        return encode_index(summary, entries)

    def _header(self) -> pa.Buffer:
        if self._read_at(0, len(_MAGIC)).to_pybytes() != _MAGIC:
            raise ValueError("its first bytes are not ARROW1")
        length = prefix(self._read_at(len(_MAGIC), 8))
        if length > self._size:
            raise ValueError(f"it states a schema of {length} bytes")
        return self._read_at(0, len(_MAGIC) + length)

    def _columns(self, stored: pa.Schema, codec: str) -> tuple[str, ...]:
        names = _record_schema(stored, codec).names
        present = schema.columns_present(*(name in names for name in (schema.KEY, schema.HEADERS, schema.OFFSET)))
        if not stored.equals(
            schema.file_schema(codec, *(name in names for name in (schema.KEY, schema.HEADERS, schema.OFFSET))),
            check_metadata=True,
        ):
            raise ValueError(f"its schema is none of a segment: {stored}")
        return present

    def _footer(self, header_length: int) -> tuple[list[Block], int]:
        tail = self._read_at(max(self._size - _TAIL, 0), _TAIL).to_pybytes()
        length = int.from_bytes(tail[:4], "little")
        position = self._size - _TAIL - length - _END_OF_STREAM
        if tail[4:] != _MAGIC[:6] or not header_length <= position or length > _MAX_FOOTER_BYTES:
            raise ValueError("it does not end as an Arrow file: it was cut short")
        blocks = parse_footer(self._read_at(position + _END_OF_STREAM, length))
        at = header_length
        for block in blocks:
            if block.position != at or block.metadata_length < 8 or block.body_length < 0:
                raise ValueError(f"its footer names a message at {block.position}, and {at} is where one begins")
            at += block.metadata_length + block.body_length
        if at != position:
            raise ValueError(f"its messages end at {at}, and its footer begins at {position}")
        return blocks, position

    def _message(self, block: Block) -> pa.Buffer:
        length = block.metadata_length + block.body_length
        if length > MAX_MESSAGE_BYTES:
            raise ValueError(f"a message of {length} bytes")
        return self._read_at(block.position, length)


def _record_schema(stored: pa.Schema, codec: str) -> pa.Schema:
    if not codecs.is_envelope(codec):
        return stored
    import base64

    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored.metadata[b"sparklog.schema"])))


def _entry(
    data: pa.Buffer, block: Block, stored: pa.Schema, present: tuple[str, ...], codec: str, row: int
) -> BatchEntry:
    metadata, body = data.slice(0, block.metadata_length), data.slice(block.metadata_length)
    message = parse_record_batch(metadata)
    if message.body_length != body.size:
        raise ValueError(f"a message states {message.body_length} bytes, and the footer {body.size}")
    sections = {
        column.name: body.slice(start, end - start)
        for column, (start, end) in zip(
            layout(stored), itertools.pairwise(section_bounds(message, layout(stored))), strict=True
        )
    }
    inner, decoded_length = _records(message, body, block, stored, codec)
    columns = _decoded(inner, present, decoded_length, codecs.NONE if codecs.is_envelope(codec) else codec)
    timestamps = columns[schema.TIMESTAMP]
    earliest, latest = (value.value for value in pc.min_max(timestamps).values())
    if codecs.is_envelope(codec):
        sections = {schema.VALUE: sections[schema.ENVELOPE]}
    key, value, timestamp, headers, offset = (_length_and_sum(sections.get(name)) for name in schema.STORED_COLUMNS)
    rows = len(timestamps)
    return BatchEntry(
        row,
        block.position,
        earliest,
        latest,
        NO_PRODUCER_ID,
        rows,
        data.size,
        decoded_length,
        block.metadata_length,
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


def _length_and_sum(section: pa.Buffer | None) -> tuple[int, int]:
    return (section.size, crc32c(section)) if section is not None else (0, 0)


class _Inner(NamedTuple):
    """The message that holds the records: the stored one, or the one inside its envelope."""

    message: Message
    body: pa.Buffer


def _records(message: Message, body: pa.Buffer, block: Block, stored: pa.Schema, codec: str) -> tuple[_Inner, int]:
    """The message of the records, and the bytes it takes once decompressed."""
    if codecs.is_envelope(codec):
        if message.rows != 1:
            raise ValueError(f"an envelope of {message.rows} rows")
        value = decode_column(message, layout(stored)[0], body, 0, codecs.NONE, 0)[0].as_buffer()
        data = _decompressed(codec, value)
        length = prefix(data)
        return _Inner(parse_record_batch(data.slice(0, length)), data.slice(length)), data.size
    total = block.metadata_length
    if message.compression == NOT_COMPRESSED:
        total += message.body_length
    else:
        places = zip(message.buffers[::2], message.buffers[1::2], strict=True)
        total += sum(decompressed_size(_cut(body, start, length)) for start, length in places if length >= 8)
    if total > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message that claims to become {total} bytes")
    return _Inner(message, body), total


def _cut(body: pa.Buffer, start: int, length: int) -> pa.Buffer:
    if start < 0 or start + length > body.size:
        raise ValueError(f"a buffer at {start} of {length} bytes in a body of {body.size}")
    return body.slice(start, length)


def _decompressed(codec: str, data: pa.Buffer) -> pa.Buffer:
    """The content of an envelope, whose size nobody has noted: gzip ends by itself, snappy says it first."""
    if codec == codecs.GZIP:
        stream = zlib.decompressobj(wbits=31)
        found = stream.decompress(data, MAX_MESSAGE_BYTES)
        if not stream.eof or stream.unused_data:
            raise ValueError("its gzip stream is not whole")
        return pa.py_buffer(found)
    size = shift = 0
    for byte in data.slice(0, 5).to_pybytes():
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(f"an envelope that claims to become {size} bytes")
    return codecs.decompress(codec, data, size)


def _decoded(inner: _Inner, present: tuple[str, ...], limit: int, codec: str) -> dict[str, pa.Array]:
    """The columns that an index says something of. Headers are only decoded to see that they can be."""
    columns = layout(schema.record_schema(present))
    bounds = section_bounds(inner.message, columns)
    found: dict[str, pa.Array] = {}
    for column, (start, end) in zip(columns, itertools.pairwise(bounds), strict=True):
        section = inner.body.slice(start, end - start)
        found[column.name] = decode_column(inner.message, column, section, start, codec, limit)
    return found


def vouches_for(damaged: bytes, rebuilt: bytes) -> bool:
    """Whether what is left of a damaged index shows that the file, from which ``rebuilt`` was made, is as written.

    Either the checksum at its end is that of the rebuilt one, which then is the index that was written, byte for byte;
    or every checksum of the file in it is the one that the file has now, so the damage is elsewhere in the index. A
    changed byte of the file and a changed checksum that hides it do not come about together.
    """
    if len(damaged) != len(rebuilt) or len(rebuilt) < HEADER.size + _CRC_BYTES:
        return False
    return damaged[-_CRC_BYTES:] == rebuilt[-_CRC_BYTES:] or _checksums(damaged) == _checksums(rebuilt)


def _checksums(index: bytes) -> list[int]:
    """Every checksum of its file that an index holds, whether the index is sound or not."""
    header = HEADER.unpack_from(index)
    found = [header[-2], header[-1]]
    for at in range(HEADER.size, len(index) - _CRC_BYTES, ENTRY.size):
        entry = BatchEntry._make(ENTRY.unpack_from(index, at))
        found += [getattr(entry, name) for name in _CHECKSUM_FIELDS]
    return found


def producers_in(damaged: bytes) -> ProducerOf:
    """Whose the batches are by what is left of a damaged index; nobody's where it does not reach."""

    def producer_of(batch: int, row: int) -> BatchProducer:
        at = HEADER.size + batch * ENTRY.size
        if at + ENTRY.size > len(damaged):
            return NOBODY
        entry = BatchEntry._make(ENTRY.unpack_from(damaged, at))
        return BatchProducer(entry.producer_id, entry.producer_epoch, entry.base_sequence)

    return producer_of
