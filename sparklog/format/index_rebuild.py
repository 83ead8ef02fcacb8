"""Rebuilds the ``.index`` of a ``.log`` from the ``.log`` alone.

Everything in an index can be derived from its file, except the producers of its batches, which the caller may know,
what typed columns take in memory, which decoded lengths lack here, and the proof that the bytes are those that were
written: the checksums computed here are of the bytes as they are now, corrupt or not. So a rebuilt index proves nothing
about its file: the caller needs other evidence that the bytes are right, such as the remains of the old index.

Rules: the file has to be a complete and valid Arrow file, with adjacent messages; sizes are bounded before anything is
decompressed. Any fault is a CorruptRecordError.
Not for: deciding whether the result can be trusted (``sparklog.maintenance.fsck``).
"""

from __future__ import annotations

import base64
import itertools
import zlib
from functools import partial

import pyarrow as pa

from sparklog.errors import CorruptionError, CorruptRecordError, InvalidConfigurationError
from sparklog.format import codecs, schema
from sparklog.format.checksum import crc32c
from sparklog.format.columns import decode_column, decompressed_body, layout, section_bounds
from sparklog.format.index import _ENTRY as ENTRY
from sparklog.format.index import _HEADER as HEADER
from sparklog.format.index import _VALUE_SUM as VALUE_SUM
from sparklog.format.index import (
    MAX_MESSAGE_BYTES,
    NO_PRODUCER,
    BatchEntry,
    BatchProducer,
    FileSummary,
    ProducerOf,
    decode_index,
    encode_index,
)
from sparklog.format.message import END_OF_STREAM, PREFIX_LENGTH, TAIL_LENGTH, Message
from sparklog.format.parquet.pages import MAGIC as PARQUET_MAGIC
from sparklog.format.parquet.rebuild import rebuild_history_index
from sparklog.format.scan import read_header, read_message
from sparklog.format.segment_reader import OpenMessage, ReadAt, SegmentReader, open_envelope
from sparklog.format.segment_writer import describe_batch
from sparklog.limits import MAX_BATCHES_PER_FILE

_CRC_BYTES = 4
_HEADER_CHECKSUMS_AT = (52, 56)
_ENTRY_CHECKSUMS_AT = (56, 64, 72, 80, 88, 96)
"""Positions of checksums in the header and in an entry: see the layout in ``index``."""
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


def rebuild_index(
    read_at: ReadAt, size: int, path: str, producer_of: ProducerOf, base_offset: int = 0, has_gaps: bool = False
) -> bytes:
    """Return the bytes of the index of a ``.log`` or ``.parquet`` of ``size`` bytes. Raises CorruptRecordError.

    ``base_offset`` is that of the run in a ``.parquet``, and ``has_gaps`` whether there are gaps between its offsets.
    """
    try:
        if read_at(0, len(PARQUET_MAGIC)).to_pybytes() == PARQUET_MAGIC:
            return rebuild_history_index(read_at, size, path, producer_of, base_offset, has_gaps)
        return _rebuild(read_at, size, path, producer_of)
    except TimeoutError:  # a time limit, of a signal's handler: Arrow raises none
        raise
    except _FAULTS as error:
        raise CorruptRecordError(f"{path}: cannot rebuild an index from it: {error}", path=path) from error


def _rebuild(read_at: ReadAt, size: int, path: str, producer_of: ProducerOf) -> bytes:
    stored, header = read_header(read_at, size)
    codec = (stored.metadata or {})[b"sparklog.codec"].decode()
    codecs.codec_number(codec)
    records = _find_record_schema(stored, codec)
    entries: list[BatchEntry] = []
    position, first_row = header.size, 0
    while read_at(position, PREFIX_LENGTH).to_pybytes() != END_OF_STREAM:
        metadata, message = read_message(read_at, position, size)
        body = read_at(position + metadata.size, message.body_length)
        inner = _open_message(message, body, metadata.size, codec)
        batch = _decode_batch(inner, records, codecs.NONE if codecs.is_envelope(codec) else codec)
        bounds = itertools.pairwise(section_bounds(message, layout(stored)))
        sections = [(end - start, crc32c(body.slice(start, end - start))) for start, end in bounds]
        producer = producer_of(len(entries), first_row)
        entry = describe_batch(batch, (first_row, position), metadata, inner.size, sections, codec, producer)
        entries.append(entry)
        position, first_row = position + entry.length, entry.end_row
    if size - position > _MAX_FOOTER_BYTES:
        raise ValueError(f"its footer has {size - position} bytes, above the limit of {_MAX_FOOTER_BYTES}")
    summary = FileSummary(
        codec=codec,
        has_key=schema.KEY in records.names,
        has_headers=schema.HEADERS in records.names,
        has_offsets=schema.OFFSET in records.names,
        rows=first_row,
        log_length=size,
        footer_position=position,
        header_length=header.size,
        header_crc32c=crc32c(header),
        footer_crc32c=crc32c(read_at(position, size - position)),
    )
    index = encode_index(summary, entries)
    SegmentReader(read_at, decode_index(index, path), path).check_file()
    return index


def _find_record_schema(stored: pa.Schema, codec: str) -> pa.Schema:
    """Return the schema of the records, which in an envelope file is in the metadata of the stored one."""
    records = stored
    if codecs.is_envelope(codec):
        records = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(stored.metadata[b"sparklog.schema"])))
    optional = [name in records.names for name in (schema.KEY, schema.HEADERS, schema.OFFSET)]
    if not stored.equals(schema.file_schema(codec, *optional), check_metadata=True):
        raise ValueError(f"its schema is not a segment schema: {stored}")
    return schema.record_schema(schema.columns_present(*optional))


def _open_message(message: Message, body: pa.Buffer, metadata_length: int, codec: str) -> OpenMessage:
    """Return the message with the records: the stored one, or the one inside its envelope."""
    if codecs.is_envelope(codec):
        return open_envelope(message, body, partial(_decompress_envelope, codec))
    size = metadata_length + decompressed_body(message, body)
    if size > MAX_MESSAGE_BYTES:
        raise ValueError(f"a message claims a decompressed size of {size} bytes")
    return OpenMessage(message, body, size)


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


def _decode_batch(inner: OpenMessage, records: pa.Schema, codec: str) -> pa.RecordBatch:
    """Decode all columns. Headers are only decoded to check that they can be."""
    columns = layout(records)
    bounds = itertools.pairwise(section_bounds(inner.message, columns))
    arrays = [
        decode_column(inner.message, column, inner.body.slice(start, end - start), start, codec, inner.size)
        for column, (start, end) in zip(columns, bounds, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=records)


def vouches_for(damaged: bytes, rebuilt: bytes) -> bool:
    """Return whether the remains of a damaged index prove that the file, from which ``rebuilt`` was made, is intact.

    ``rebuilt`` has nothing of the remains. Either all checksums of the file, and of values that the file elides,
    match it as it is now, so the damage is elsewhere in the index; or only such checksums differ, and the checksum of
    the index says that the rebuilt ones are the original ones.

    The checksum of the index alone proves less: CRCs are linear, so that of the index may hide that a changed bit of
    the file changed a checksum in it, if another field of the index is changed as well.
    """
    if len(damaged) != len(rebuilt):
        return False
    fields = _checksum_fields(len(decode_index(rebuilt, "a rebuilt index")), len(rebuilt))
    if all(damaged[field] == rebuilt[field] for field in fields):
        return True
    mended = bytearray(damaged)
    for field in fields:
        mended[field] = rebuilt[field]
    return mended == rebuilt


def vouches_for_history(damaged: bytes, rebuilt: bytes) -> bool:
    """Return the same for a history segment, of which only the remains know the decoded lengths.

    Its pages have checksums of their own, which were verified to rebuild the index; its header and footer have not.
    """
    if vouches_for(damaged, rebuilt):
        return True
    header = slice(_HEADER_CHECKSUMS_AT[0], _HEADER_CHECKSUMS_AT[-1] + _CRC_BYTES)
    return damaged[header] == rebuilt[header] and vouches_for(damaged, with_lengths_of(damaged, rebuilt))


def _checksum_fields(batches: int, size: int) -> list[slice]:
    """Return the positions of the file's checksums in an index of ``size`` bytes with this many record batches."""
    end = HEADER.size + batches * ENTRY.size
    starts = list(_HEADER_CHECKSUMS_AT)
    starts += [at + field for at in range(HEADER.size, end, ENTRY.size) for field in _ENTRY_CHECKSUMS_AT]
    starts += range(end + _CRC_BYTES, size - _CRC_BYTES, VALUE_SUM.size)
    return [slice(at, at + _CRC_BYTES) for at in starts]


def with_lengths_of(damaged: bytes, rebuilt: bytes) -> bytes:
    """Return a rebuilt index with the decoded lengths that the remains of a damaged one state: those of a history
    segment include its typed columns, whose types the rebuilt one does not know."""
    if len(damaged) != len(rebuilt):
        return rebuilt
    index = decode_index(rebuilt, "a rebuilt index")
    entries = [
        entry._replace(
            decoded_length=BatchEntry._make(ENTRY.unpack_from(damaged, HEADER.size + at * ENTRY.size)).decoded_length
        )
        for at, entry in enumerate(index.entries)
    ]
    values = [index.value_sum(at) for at in range(len(entries))] if index.summary.elides_values else []
    return encode_index(index.summary, entries, values)


def producers_in(damaged: bytes) -> ProducerOf:
    """Return the producers of batches from the remains of a damaged index; ``NO_PRODUCER`` beyond its end."""

    def producer_of(batch: int, row: int) -> BatchProducer:
        at = HEADER.size + batch * ENTRY.size
        if at + ENTRY.size > len(damaged):
            return NO_PRODUCER
        entry = BatchEntry._make(ENTRY.unpack_from(damaged, at))
        return BatchProducer(entry.producer_id, entry.producer_epoch, entry.base_sequence)

    return producer_of
