"""Writes a history segment: records as Parquet, and the same ``.index`` as that of a ``.log``.

Arrow's Parquet writer produces the bytes; here they are summed on their way to the sink, and the index is built from
the bytes that were written. A record batch of the index is a row group; its columns are contiguous in the file, so an
entry has the length and checksum of each, as in a ``.log``. What precedes them in the row group, the typed columns,
takes the place of the metadata of an Arrow message.

Rules: a batch is checked before any byte of it is written; bytes reach the sink in order and once.
Not for: choosing the size of row groups, files or names, or durability: the caller owns the sink.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparklog.errors import InvalidRequestError, RecordListTooLargeError
from sparklog.format import codecs, schema
from sparklog.format.checksum import combine, crc32c
from sparklog.format.index import (
    MAX_MESSAGE_BYTES,
    BatchEntry,
    BatchProducer,
    FileSummary,
    ValueSum,
    encode_index,
)
from sparklog.format.parquet.delta_stats import TypedBounds, encode_stats
from sparklog.format.parquet.elided_values import FIELDS_NAME, elide, find_fields, sum_values
from sparklog.format.parquet.file_schema import (
    ENCODINGS,
    OFFSET_TYPE,
    columns_with_statistics,
    decoded_length,
    parquet_schema,
    section_lengths,
)
from sparklog.format.parquet.pages import DELTA_BINARY_PACKED, MAGIC
from sparklog.format.parquet.typed_encodings import choose_encodings
from sparklog.format.segment_writer import Sink, check_batch
from sparklog.limits import MAX_BATCH_BYTES, MAX_ROW_GROUPS_PER_FILE
from sparklog.schema.languages.ddl import VALUE_KEPT, SchemaField, format_ddl
from sparklog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

_PARQUET_CODECS = {codecs.NONE: "NONE", codecs.LZ4: "LZ4"}
_DIFFERENCES = {name: "DELTA_BINARY_PACKED" for name, code in ENCODINGS.items() if code == DELTA_BINARY_PACKED}
_PAGE_BYTES = 1024 * 1024


class _Written(NamedTuple):
    """What the index says about a row group and Parquet does not."""

    rows: int
    decoded_length: int
    earliest_us: int
    latest_us: int
    producer: BatchProducer
    null_keys: int
    null_values: int
    stored_null_values: int
    first_offset: int
    last_offset: int


class _Piece(NamedTuple):
    """One write of Arrow's writer."""

    position: int
    length: int
    crc32c: int


class ParquetSegmentWriter:
    """Writes record batches into one ``.parquet`` file, each as a row group. Not thread-safe; one per file.

    ``base_offset`` is that of the run. With ``has_offsets`` batches have a column of offsets relative to it; else
    offsets are consecutive from it on. ``codec`` and ``level`` as in ``codecs.compressor``. ``typed`` are the typed
    columns, which ``write`` gets beside each batch. ``value_fields``: values that these of them state are elided, and
    the typed column ``_value_kept`` says which. After any error the file is unusable: abort the sink.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        base_offset: int,
        codec: str = codecs.ZSTD,
        level: int | None = None,
        has_offsets: bool = False,
        typed: Sequence[pa.Field] = (),
        value_fields: Sequence[SchemaField] = (),
    ) -> None:
        self.rows = 0
        self._base_offset = base_offset
        self._codec = codec
        self._has_offsets = has_offsets
        self._batch_schema = schema.record_schema(schema.columns_present(True, True, has_offsets))
        self._schema = parquet_schema(typed)
        self._typed = tuple(typed)
        self._value_fields = find_fields(value_fields)
        self._value_sums: list[ValueSum] = []
        self._sums = _SummingSink(sink)
        self._written: list[_Written] = []
        self._bounds = TypedBounds()
        self._footers: list[pq.FileMetaData] = []
        self._entries: list[BatchEntry] = []
        self._options: dict[str, Any] = {
            "version": "2.6",
            "compression": _PARQUET_CODECS.get(codec, codec).upper(),
            "compression_level": _parquet_level(codec, level),
            "data_page_size": _PAGE_BYTES,
            "store_schema": False,
            "store_decimal_as_integer": True,
        }
        self._parquet: pq.ParquetWriter | None = None

    @property
    def bytes_written(self) -> int:
        """Bytes that the sink has got so far."""
        return self._sums.position

    @property
    def entries(self) -> Sequence[BatchEntry]:
        """The entries of the index, once the file is finished."""
        return self._entries

    def write(
        self,
        batch: pa.RecordBatch,
        typed: Mapping[str, pa.Array] | None = None,
        *,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
    ) -> None:
        """Write one row group. ``typed`` has the typed columns, as long as the batch.

        Raises InvalidRecordError for other columns, a null timestamp, a header without a key or explicit offsets that
        do not rise; InvalidRequestError for an empty batch or other typed columns; RecordListTooLargeError over
        ``limits.MAX_BATCH_BYTES`` or ``MAX_ROW_GROUPS_PER_FILE``. These write nothing.
        """
        batch = check_batch(batch, self._batch_schema)
        values = self._check_typed(typed or {}, batch.num_rows)
        size = decoded_length(batch) + sum(column.nbytes for column in values)
        if batch.num_rows == 0:
            raise InvalidRequestError("an empty record batch cannot be written: it would have no offsets")
        if size > MAX_BATCH_BYTES:
            raise RecordListTooLargeError(
                f"a record batch of {batch.num_rows} records has {size} bytes, over the limit of "
                f"{MAX_BATCH_BYTES}: write fewer records at a time"
            )
        if len(self._written) >= MAX_ROW_GROUPS_PER_FILE:
            raise RecordListTooLargeError(f"a file holds at most {MAX_ROW_GROUPS_PER_FILE} row groups: start another")
        offsets, records = self._offsets(batch), {name: batch.column(name) for name in schema.COLUMNS}
        if self._value_fields:
            records[schema.VALUE], values = self._elide(records[schema.VALUE], values)
        columns = [*values, *records.values(), offsets]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        with self._writing(values) as parquet:
            parquet.write_table(table, row_group_size=batch.num_rows)
        self._bounds.add({field.name: column for field, column in zip(self._typed, values, strict=True)})
        earliest, latest = (bound.value for bound in pc.min_max(batch.column(schema.TIMESTAMP)).values())
        self._written.append(
            _Written(
                batch.num_rows,
                size,
                earliest,
                latest,
                BatchProducer(producer_id, producer_epoch, base_sequence),
                batch.column(schema.KEY).null_count,
                batch.column(schema.VALUE).null_count,
                records[schema.VALUE].null_count,
                batch.column(schema.OFFSET)[0].as_py() if self._has_offsets else 0,
                offsets[-1].as_py(),
            )
        )
        self.rows += batch.num_rows

    @property
    def stats(self) -> str:
        """The statistics of the file, once it is finished (``delta_stats``)."""
        written = self._written
        nulls = {
            schema.KEY: sum(group.null_keys for group in written),
            schema.VALUE: sum(group.stored_null_values for group in written),
        }
        return encode_stats(
            self.rows,
            (self._base_offset + written[0].first_offset, written[-1].last_offset),
            (min(group.earliest_us for group in written), max(group.latest_us for group in written)),
            nulls,
            self._bounds.stats,
        )

    def finish(self) -> bytes:
        """Write the footer to the sink, which stays open, and return the bytes of the ``.index``.

        Raises RecordListTooLargeError if a row group is larger than an index can say.
        """
        with self._writing([pa.nulls(0, field.type) for field in self._typed]) as parquet:
            parquet.close()
        (metadata,) = self._footers
        sums = _Sums(self._sums.pieces)
        header = sums.take(len(MAGIC))
        row = 0
        for number, written in enumerate(self._written):
            entry = self._entry(metadata.row_group(number), written, row, sums)
            self._entries.append(entry)
            row = entry.end_row
        footer_position = sums.position
        footer_length = self._sums.position - footer_position
        summary = FileSummary(
            codec=self._codec,
            has_key=True,
            has_headers=True,
            has_offsets=self._has_offsets,
            rows=self.rows,
            log_length=self._sums.position,
            footer_position=footer_position,
            header_length=len(MAGIC),
            header_crc32c=header,
            footer_crc32c=sums.take(footer_length),
            is_parquet=True,
            elides_values=bool(self._value_fields),
        )
        return encode_index(summary, self._entries, self._value_sums)

    @contextmanager
    def _writing(self, typed: Sequence[pa.Array]) -> Iterator[pq.ParquetWriter]:
        """Let Arrow write to the sink; after an error it does not try to finish the file when it is deleted."""
        with self._sums:
            parquet = self._parquet = self._parquet or self._open(typed)
            try:
                yield parquet
            except BaseException:
                parquet.is_open = False
                raise

    def _open(self, typed: Sequence[pa.Array]) -> pq.ParquetWriter:
        """Begin the file, with encodings that suit these typed columns."""
        chosen = choose_encodings(typed, self._typed, **self._options)
        parquet = pq.ParquetWriter(
            pa.PythonFile(self._sums, "w"),
            self._schema,
            **self._options,
            use_dictionary=list(chosen.dictionaries) or False,
            column_encoding={**chosen.encodings, **_DIFFERENCES},
            write_statistics=[*columns_with_statistics(self._typed), schema.OFFSET, schema.TIMESTAMP],
            write_page_checksum=True,
            metadata_collector=self._footers,
        )
        if self._value_fields:
            parquet.add_key_value_metadata({FIELDS_NAME: format_ddl(self._value_fields)})
        return parquet

    def _elide(self, values: pa.Array, typed: Sequence[pa.Array]) -> tuple[pa.Array, list[pa.Array]]:
        """Return the values without those that typed columns state, and the typed columns, which say so."""
        columns = {field.name: column for field, column in zip(self._typed, typed, strict=True)}
        self._value_sums.append(sum_values(values))
        stored, kept = elide(self._value_fields, values, columns)
        return stored, list({**columns, VALUE_KEPT: kept}.values())

    def _check_typed(self, typed: Mapping[str, pa.Array], rows: int) -> list[pa.Array]:
        """Return the typed columns in the order of the file. Raises InvalidRequestError if they do not fit it."""
        for field in self._typed:
            column = typed.get(field.name)
            if column is None or column.type != field.type or len(column) != rows:
                raise InvalidRequestError(f"a batch of {rows} records needs a typed column {field} of {rows} values")
            if column.null_count and not field.nullable:
                raise InvalidRequestError(f"typed column {field.name} has {column.null_count} nulls")
        return [typed[field.name] for field in self._typed]

    def _offsets(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the absolute offsets of a batch."""
        if self._has_offsets:
            relative = batch.column(schema.OFFSET).cast(OFFSET_TYPE)
            return pc.add(relative, pa.scalar(self._base_offset, OFFSET_TYPE))
        first = self._base_offset + self.rows
        return pa.array(range(first, first + batch.num_rows), OFFSET_TYPE)

    def _entry(self, group: pq.RowGroupMetaData, written: _Written, row: int, sums: _Sums) -> BatchEntry:
        position = sums.position
        lengths = section_lengths(_leaves(group), position)
        typed = sums.take(lengths[0])
        key, value, timestamp, headers, offset = [(length, sums.take(length)) for length in lengths[1:]]
        length = sums.position - position
        if length > MAX_MESSAGE_BYTES:
            raise RecordListTooLargeError(f"a row group takes {length} bytes: write fewer records at a time")
        return BatchEntry(
            row,
            position,
            written.earliest_us,
            written.latest_us,
            written.producer.producer_id,
            written.rows,
            length,
            written.decoded_length,
            lengths[0],
            typed,
            *key,
            *value,
            *timestamp,
            *headers,
            *offset,
            written.null_keys,
            written.null_values,
            written.producer.base_sequence,
            written.producer.producer_epoch,
            codecs.codec_number(self._codec),
            0,
            written.first_offset,
        )


def _leaves(group: pq.RowGroupMetaData) -> Iterator[tuple[str, int, int]]:
    """Yield root, position and length of each leaf column."""
    for number in range(group.num_columns):
        chunk = group.column(number)
        start = chunk.data_page_offset if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset
        yield chunk.path_in_schema.partition(".")[0], start, chunk.total_compressed_size


def _parquet_level(codec: str, level: int | None) -> int | None:
    compressor = codecs.compressor(codec, level)
    return None if compressor is None or codec == codecs.SNAPPY else compressor.compression_level


class _SummingSink:
    """The file that Arrow's writer writes to: passes the bytes on, and keeps the checksum of each write.

    Only while it is entered: Arrow's writer also writes when it is collected as garbage, after the sink was closed.
    """

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._entered = False
        self.pieces: list[_Piece] = []
        self.position = 0
        self._sink = sink

    def write(self, data: Any) -> int:
        length = len(data) if self._entered else 0
        if length:
            self._sink.write(data)
            self.pieces.append(_Piece(self.position, length, crc32c(data)))
            self.position += length
        return length

    def __enter__(self) -> None:
        self._entered = True

    def __exit__(self, *_: object) -> None:
        self._entered = False

    def tell(self) -> int:
        return self.position

    def flush(self) -> None:
        """Nothing to do: the caller's sink is flushed by its owner."""

    def close(self) -> None:
        """Nothing to do: the caller's sink is closed by its owner."""


class _Sums:
    """Takes the checksums of consecutive ranges of a file from those of its pieces. Not thread-safe."""

    def __init__(self, pieces: Iterable[_Piece]) -> None:
        self.position = 0
        self._pieces = iter(pieces)

    def take(self, length: int) -> int:
        """Return the checksum of the next ``length`` bytes."""
        total, end = 0, self.position + length
        while self.position < end:
            piece = next(self._pieces)
            total = combine(total, piece.crc32c, piece.length)
            self.position += piece.length
        assert self.position == end, "a piece of Arrow's writer crosses from one column into the next"
        return total
