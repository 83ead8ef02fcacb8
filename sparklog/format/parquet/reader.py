"""Reads and verifies row groups of a history segment, as ``segment_reader`` does record batches of a ``.log``.

Rules: as in ``segment_reader``: the bytes of the requested columns are verified by the checksums of the index before
Parquet's reader sees them, their page headers are bounded by the index, and the file's footer is not used to read
records (``pages`` says why).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparklog.errors import InvalidRequestError
from sparklog.format import schema
from sparklog.format.column_bounds import Bounds
from sparklog.format.columns import ColumnLayout, offsets_rise
from sparklog.format.index import BatchEntry, Region, ValueSum
from sparklog.format.parquet.elided_values import FIELDS_NAME, restore, sum_values
from sparklog.format.parquet.file_schema import ENCODINGS, HEADER_LEAVES, parquet_schema
from sparklog.format.parquet.pages import (
    BYTE_ARRAY,
    INT64,
    MAGIC,
    PAGE_OVERHEAD,
    PLAIN,
    Chunk,
    Footer,
    Page,
    encode_file,
    encode_schema,
    read_footer,
    read_pages,
    split_leaves,
)
from sparklog.format.parquet.typed_reader import TypedReader
from sparklog.format.segment_reader import SegmentReader, select_regions
from sparklog.schema.languages.ddl import VALUE_KEPT, SchemaField, parse_ddl, value_columns
from sparklog.schema.typed_columns import typed_fields

Result = TypeVar("Result")

_FAULTS = (LookupError, ValueError, OSError, OverflowError, MemoryError, pa.ArrowException)

_PAGE_ROWS, _PAGE_BYTES = 10_000, 512 * 1024
"""Half of the rows, and of the bytes, at which Arrow begins another page."""


class _Elided(NamedTuple):
    """How values that are elided are made: of these fields, whose typed columns the reader reads."""

    fields: Sequence[SchemaField]
    columns: Sequence[pa.Field]
    typed: TypedReader


class ParquetSegmentReader(SegmentReader):
    """Reads one ``.parquet``. As thread-safe as ``read_at``; between reads it keeps what the footer says of the typed
    columns that were read last.

    Values that the file elides are made of its typed columns, and verified. ``path`` is for messages only.
    """

    _typed: TypedReader | None = None
    _elided: _Elided | None = None

    def read_stored(self, batch: int) -> list[pa.Buffer]:
        """Not possible: a row group is only valid at its position in its file."""
        raise InvalidRequestError(f"{self._path}: row group {batch} of a Parquet file cannot be copied as stored")

    def read_offsets(self, batch: int) -> pa.Array:
        """Return the offsets of a row group as they are stored: absolute, rising.

        Raises CorruptRecordError, CorruptIndexError.
        """
        entry = self._index.entry(batch)
        return self._read(batch, entry, [schema.OFFSET])[schema.OFFSET]

    def read_typed(self, batch: int, fields: Sequence[pa.Field]) -> dict[str, pa.Array]:
        """Return typed columns of a row group, by name; null in a file that does not have them.

        Raises CorruptRecordError, also for a column that is there with another type, CorruptIndexError.
        """
        entry = self._index.entry(batch)

        def read_bytes(position: int, length: int) -> pa.Buffer:
            data = self._read_at(position, length)
            if data.size != length:
                self._corrupt(batch, f"it is cut short at position {position + data.size}", position=position)
            return data

        return self._with_typed(batch, fields, lambda typed: typed.read(batch, entry, fields, read_bytes))

    def typed_bounds(self, batch: int, fields: Sequence[pa.Field]) -> Bounds:
        """Return what the footer states of typed columns of a row group, as far as it does.

        Errors as ``read_typed``.
        """
        if not fields:
            return {}
        entry = self._index.entry(batch)
        return self._with_typed(batch, fields, lambda typed: typed.bounds(batch, entry, fields))

    def sum_values(self, batch: int) -> ValueSum:
        """Return the length and checksum of the values of a row group in a file that leaves some out, which are not
        compared with the index: for who makes one.

        Raises CorruptRecordError, CorruptIndexError.
        """
        return sum_values(self._read_values(batch, self._index.entry(batch), [schema.VALUE])[schema.VALUE])

    def _with_typed(self, batch: int, fields: Sequence[pa.Field], use: Callable[[TypedReader], Result]) -> Result:
        names = {field.name for field in fields}
        typed = self._typed
        try:
            if typed is None or not names <= typed.names:
                footer = self._verified(None, [self._index.summary.footer])[0]
                known = typed.names if typed else frozenset()
                typed = self._typed = TypedReader(read_footer(footer), self._index.codec, names | known)
            return use(typed)
        except _FAULTS as error:
            self._refuse(batch, "its typed columns cannot be read", error)

    def check_file(self) -> None:
        """Check the parts outside row groups against the index: the file's length, magic and footer.

        Raises CorruptRecordError.
        """
        summary = self._index.summary
        header, footer = (self._verified(None, [region])[0] for region in (summary.header, summary.footer))
        if header.to_pybytes() != MAGIC:
            self._corrupt(None, "it does not start as a Parquet file")
        if self._read_at(summary.log_length, 1).size:
            self._corrupt(None, f"it is longer than the {summary.log_length} bytes that the index states")
        try:
            self._check_footer(read_footer(footer))
        except _FAULTS as error:
            self._refuse(None, "its checksums are right, its content is not", error)

    def _check_footer(self, footer: Footer) -> None:
        """Check the parts of a footer on which other readers depend."""
        if not footer.schema.endswith(encode_schema(parquet_schema())):
            raise ValueError("its schema does not end with the columns of a record")
        if [group.rows for group in footer.groups] != [entry.count for entry in self._index.entries]:
            raise ValueError("its row groups have other numbers of rows than the index says")
        if (FIELDS_NAME in footer.texts) != self._index.summary.elides_values:
            raise ValueError("it says otherwise than the index whether values are elided")
        if self._index.summary.elides_values:
            self._find_elided()

    def _columns(self, batch: int, entry: BatchEntry, wanted: Sequence[ColumnLayout]) -> dict[str, pa.Array]:
        arrays = self._read(batch, entry, [column.name for column in wanted])
        if schema.OFFSET in arrays:
            arrays[schema.OFFSET] = _relative(arrays[schema.OFFSET], entry.first_offset)
        return {column.name: arrays[column.name].cast(column.type) for column in wanted}

    def _read(self, batch: int, entry: BatchEntry, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return columns with the types of the file."""
        if not (self._index.summary.elides_values and schema.VALUE in names):
            regions = [region for region in select_regions(entry, names) if region.name != "metadata"]
            return self._decode_sections(batch, entry, self._sections(batch, regions))
        arrays = self._read_values(batch, entry, names)
        found, expected = sum_values(arrays[schema.VALUE]), self._index.value_sum(batch)
        if found != expected:
            self._corrupt(
                batch,
                f"its values have {found.length} bytes and the checksum {found.crc32c:#010x}, the index says "
                f"{expected.length} and {expected.crc32c:#010x}",
                position=entry.position,
                expected=expected.crc32c,
                actual=found.crc32c,
            )
        return arrays

    def _read_values(self, batch: int, entry: BatchEntry, names: Sequence[str]) -> dict[str, pa.Array]:
        """Return columns, ``value`` among them, with the values that are elided."""
        elided = self._elided = self._elided or self._find_elided()
        sections = self._sections(batch, select_regions(entry, names))
        stated = sections.pop("metadata")
        arrays = self._decode_sections(batch, entry, sections)

        def read_bytes(position: int, length: int) -> pa.Buffer:
            return stated.slice(position - entry.position, length)

        try:
            typed = elided.typed.read(batch, entry, elided.columns, read_bytes)
            stored = arrays[schema.VALUE]
            return {**arrays, schema.VALUE: restore(elided.fields, stored, typed, entry.decoded_length)}
        except _FAULTS as error:
            self._refuse(batch, "its values cannot be restored", error, entry.position)

    def _find_elided(self) -> _Elided:
        """Read in the footer how values are elided."""
        data = self._verified(None, [self._index.summary.footer])[0]
        try:
            footer = read_footer(data)
            fields = parse_ddl(footer.texts[FIELDS_NAME])
            columns = [*typed_fields(value_columns(fields)), pa.field(VALUE_KEPT, pa.bool_())]
            typed = TypedReader(footer, self._index.codec, [column.name for column in columns])
            if not all(map(typed.has, columns)):
                raise ValueError("it lacks typed columns of values that are elided")
            return _Elided(fields, columns, typed)
        except _FAULTS as error:
            self._refuse(None, "its footer does not say how values are elided", error)

    def _sections(self, batch: int, regions: Sequence[Region]) -> dict[str, pa.Buffer]:
        parts = self._verified(batch, regions)
        return {region.name: part for region, part in zip(regions, parts, strict=True)}

    def _decode_sections(self, batch: int, entry: BatchEntry, sections: dict[str, pa.Buffer]) -> dict[str, pa.Array]:
        try:
            arrays = self._decode_pages(sections, entry)
            if schema.OFFSET in arrays:
                _check_offsets(arrays[schema.OFFSET], self._index.summary.has_offsets)
        except _FAULTS as error:
            self._refuse(batch, "its checksum is right, its content is not", error, entry.position)
        return arrays

    def _decode_pages(self, sections: dict[str, pa.Buffer], entry: BatchEntry) -> dict[str, pa.Array]:
        """Return the columns of these sections, with the types of the file."""
        names = list(sections)
        chunks = [chunk for name, data in sections.items() for chunk in _chunks(name, data, entry)]
        expected = parquet_schema(names=names)
        file = encode_file(expected, entry.count, self._index.codec, chunks)
        table = pq.ParquetFile(pa.BufferReader(file), pre_buffer=False).read(use_threads=False)
        if table.num_rows != entry.count or not table.schema.equals(expected):
            raise ValueError(f"it has {table.num_rows} rows of {table.schema}, the index says {entry.count}")
        arrays = {name: _one_array(table.column(name)) for name in names}
        for array in arrays.values():
            array.validate(full=True)
        return arrays


def _chunks(name: str, data: pa.Buffer, entry: BatchEntry) -> list[Chunk]:
    """Return the leaf columns of a section. Raises ValueError if they would take more memory than the index allows."""
    most_pages = 4 + entry.count // _PAGE_ROWS + entry.decoded_length // _PAGE_BYTES
    kind = BYTE_ARRAY if ENCODINGS[name] == PLAIN else INT64
    pages = read_pages(data, ENCODINGS[name], most_pages)
    decoded_length = sum(page.decoded_length for page in pages)
    if decoded_length > 2 * entry.decoded_length + PAGE_OVERHEAD * len(pages):
        raise ValueError(f"its {name} states {decoded_length} bytes decompressed, the index {entry.decoded_length}")
    if name != schema.HEADERS:
        _check_values(name, pages, entry.count, entry.count)
        return [Chunk((name,), pages, kind)]
    leaves = split_leaves(pages)
    most = entry.count + entry.decoded_length // 8  # two lengths of 4 bytes are in memory for each header
    _check_values(name, leaves[0], entry.count, most)
    return [Chunk(path, leaf, kind) for path, leaf in zip(HEADER_LEAVES, leaves, strict=True)]


def _check_values(name: str, pages: Sequence[Page], least: int, most: int) -> None:
    values = sum(page.values for page in pages)
    if not least <= values <= most:
        raise ValueError(f"its {name} has {values} values, from {least} to {most} are possible")


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _check_offsets(offsets: pa.Array, may_have_gaps: bool) -> None:
    if not offsets_rise(offsets):
        raise ValueError("its offsets do not rise")
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    if last - first >= (2**31 if may_have_gaps else len(offsets)):
        raise ValueError(f"its {len(offsets)} offsets are {first} to {last}")


def _relative(offsets: pa.Array, first: int) -> pa.Array:
    """Return absolute offsets relative to the run's base offset, from which the first is ``first`` away."""
    return pc.subtract(offsets, pa.scalar(offsets[0].as_py() - first, pa.int64()))
