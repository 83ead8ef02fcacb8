"""Rebuilds the index of a history segment from its file, as ``index_rebuild`` does that of a ``.log``.

Where row groups lie, and how many rows they have, is taken from the file's footer; all else is read from them.

Rules: as in ``index_rebuild``: a rebuilt index proves nothing about its file, but that its pages match their own
checksums. Faults are ValueErrors, or of readers.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.format import codecs, schema
from sparklog.format.checksum import crc32c
from sparklog.format.index import (
    MAX_MESSAGE_BYTES,
    NO_PRODUCER,
    BatchEntry,
    BatchProducer,
    FileSummary,
    ProducerOf,
    ValueSum,
    decode_index,
    encode_index,
)
from sparklog.format.parquet.elided_values import FIELDS_NAME
from sparklog.format.parquet.file_schema import decoded_length, section_lengths
from sparklog.format.parquet.pages import MAGIC, Footer, StoredGroup, codec_name, read_footer, verify_pages
from sparklog.format.parquet.reader import ParquetSegmentReader
from sparklog.format.segment_reader import ReadAt
from sparklog.limits import MAX_BATCH_BYTES

_TAIL_LENGTH = 8
_MAX_FOOTER_BYTES = 64 * 1024 * 1024


def rebuild_history_index(
    read_at: ReadAt, size: int, path: str, producer_of: ProducerOf, base_offset: int, has_offsets: bool
) -> bytes:
    """Return the bytes of the index of a ``.parquet`` of ``size`` bytes.

    ``base_offset`` is that of the run; ``has_offsets`` says that there are gaps between its offsets.
    """
    stated, footer = _read_footer(read_at, size)
    groups = stated.groups
    if not groups:
        raise ValueError("it has no row groups")
    codec = codec_name(groups[0].columns[0].codec)
    entries: list[BatchEntry] = []
    row, position = 0, len(MAGIC)
    for group in groups:
        entries.append(_measure(read_at, group, row, position, codec))
        row, position = entries[-1].end_row, entries[-1].end
    if position != size - footer.size:
        raise ValueError(f"its row groups end at {position}, its footer begins at {size - footer.size}")
    summary = FileSummary(
        codec=codec,
        has_key=True,
        has_headers=True,
        has_offsets=has_offsets,
        rows=row,
        log_length=size,
        footer_position=position,
        header_length=len(MAGIC),
        header_crc32c=crc32c(read_at(0, len(MAGIC))),
        footer_crc32c=crc32c(footer),
        is_parquet=True,
        elides_values=FIELDS_NAME in stated.texts,
    )
    values = [ValueSum(0, 0)] * len(entries) if summary.elides_values else []
    reader = ParquetSegmentReader(read_at, decode_index(encode_index(summary, entries, values), path), path)
    if values:
        values = [reader.sum_values(number) for number in range(len(entries))]
        reader = ParquetSegmentReader(read_at, decode_index(encode_index(summary, entries, values), path), path)
    entries = [
        _complete(reader, number, entry, producer_of(number, entry.first_row), base_offset, has_offsets)
        for number, entry in enumerate(entries)
    ]
    entries = [_add_typed(entry, group) for entry, group in zip(entries, groups, strict=True)]
    index = encode_index(summary, entries, values)
    ParquetSegmentReader(read_at, decode_index(index, path), path).check_file()
    return index


def _read_footer(read_at: ReadAt, size: int) -> tuple[Footer, pa.Buffer]:
    length = _TAIL_LENGTH + int.from_bytes(read_at(size - _TAIL_LENGTH, 4).to_pybytes(), "little")
    if not _TAIL_LENGTH < length <= min(size - len(MAGIC), _MAX_FOOTER_BYTES):
        raise ValueError(f"a footer of {length} bytes in a file of {size}")
    footer = read_at(size - length, length)
    return read_footer(footer), footer


def _measure(read_at: ReadAt, group: StoredGroup, row: int, position: int, codec: str) -> BatchEntry:
    """Return the entry of a row group without what is in its records."""
    if any(codec_name(column.codec) != codec for column in group.columns):
        raise ValueError(f"a row group has columns that are not compressed by {codec}")
    lengths = section_lengths(((column.root, column.position, column.length) for column in group.columns), position)
    total, sums = sum(lengths), []
    if not 0 < group.rows <= MAX_BATCH_BYTES // 24 or total > MAX_MESSAGE_BYTES:
        raise ValueError(f"a row group of {group.rows} rows in {total} bytes")
    first = (row, position, 0, 0, NO_PRODUCER.producer_id, group.rows, total, MAX_BATCH_BYTES)
    for column in group.columns:
        verify_pages(read_at(column.position, column.length), column)
    for length in lengths:
        sums += [length, crc32c(read_at(position, length))]
        position += length
    last = (0, 0, NO_PRODUCER.base_sequence, NO_PRODUCER.producer_epoch, codecs.codec_number(codec), 0, 0)
    return BatchEntry._make([*first, *sums, *last])


def _complete(
    reader: ParquetSegmentReader,
    number: int,
    entry: BatchEntry,
    producer: BatchProducer,
    base_offset: int,
    has_offsets: bool,
) -> BatchEntry:
    batch, offsets = reader.read(number), reader.read_offsets(number)
    first_offset = offsets[0].as_py() - base_offset
    if not has_offsets and first_offset != entry.first_row:
        raise ValueError(
            f"row group {number} begins at offset {offsets[0]}, {base_offset + entry.first_row} is expected"
        )
    earliest, latest = (bound.value for bound in pc.min_max(batch.column(schema.TIMESTAMP)).values())
    return entry._replace(
        min_timestamp_us=earliest,
        max_timestamp_us=latest,
        decoded_length=decoded_length(batch),
        null_keys=batch.column(schema.KEY).null_count,
        null_values=batch.column(schema.VALUE).null_count,
        first_offset=first_offset if has_offsets else 0,
        **producer._asdict(),
    )


def _add_typed(entry: BatchEntry, group: StoredGroup) -> BatchEntry:
    """Count a byte for each value of the typed columns: lists of them may be longer than the values of the records,
    since a field that a value in Avro does not have takes its default."""
    typed = sum(column.values for column in group.columns if column.root not in schema.STORED_COLUMNS)
    return entry._replace(decoded_length=min(entry.decoded_length + max(typed, 0), MAX_BATCH_BYTES))
