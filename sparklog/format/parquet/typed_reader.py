"""Reads the typed columns of a history segment, each without the bytes of the others.

The index has one checksum for all typed columns of a row group. So that a query of one of twenty reads only that one,
they are verified by Parquet's own checksums: a page's covers its body, and what its header says has to add up to what
the footer says (``pages.read_stated_pages``), whose checksum is in the index.

Rules: as in ``reader``: no header or footer that was read is given to Parquet's reader, but for a column's schema
elements that differ from the expected ones in the types of numbers alone, and what pages take in memory is bounded
first. A column, or a field of a struct, that the file does not have is null, one of a narrower type is widened, and one
of any other type is an error.
Not for: what the values mean, and which columns a topic has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparklog.format.column_bounds import ALL_NULL, ColumnBounds
from sparklog.format.index import BatchEntry
from sparklog.format.parquet.nested_fields import add_fields, stored_type
from sparklog.format.parquet.pages import (
    BYTE_ARRAY,
    DICTIONARY_PAGE,
    DOUBLE,
    FIXED_LEN_BYTE_ARRAY,
    FLOAT,
    INT32,
    INT64,
    PAGE_OVERHEAD,
    Chunk,
    Footer,
    SchemaElement,
    StoredColumn,
    codec_name,
    column_elements,
    encode_file,
    read_elements,
    read_stated_pages,
    split_schema,
)
from sparklog.limits import MAX_BATCH_BYTES

ReadBytes = Callable[[int, int], pa.Buffer]
"""(position, length) -> exactly these bytes. Raises CorruptRecordError if the file is shorter."""

_MAY_BE_LATER = "; if the topic's schema has changed since this read began, begin it again"
"""A file that is compacted by a later schema may have wider types, and structs with more fields."""


class TypedReader:
    """Reads some typed columns of one file. Immutable. All methods raise ValueError or a fault of Arrow for a file that
    is not as ``writer`` writes it."""

    def __init__(self, footer: Footer, codec: str, names: Collection[str]) -> None:
        self.names = frozenset(names)
        self._groups = [[column for column in group.columns if column.root in self.names] for group in footer.groups]
        self._elements = split_schema(footer.schema)
        self._codec = codec

    def read(
        self, batch: int, entry: BatchEntry, fields: Sequence[pa.Field], read_bytes: ReadBytes
    ) -> dict[str, pa.Array]:
        """Return these columns of a row group, by name."""
        arrays = {field.name: pa.nulls(entry.count, field.type) for field in fields}
        for field in fields:
            if self.has(field):
                arrays[field.name] = self._read_column(batch, entry, field, read_bytes)
        return arrays

    def bounds(self, batch: int, entry: BatchEntry, fields: Sequence[pa.Field]) -> dict[str, ColumnBounds]:
        """Return what the footer states of these columns of a row group, by name."""
        found: dict[str, ColumnBounds] = {}
        for field in fields:
            if not self.has(field):
                found[field.name] = ALL_NULL
            elif not pa.types.is_nested(field.type) and not pa.types.is_floating(field.type):  # NaN is outside of these
                stats = self._leaves(batch, entry, field.name)[0].stats
                if stats.nulls == entry.count:
                    found[field.name] = ALL_NULL
                elif stats.smallest is not None and stats.largest is not None:
                    leaf = read_elements(self._elements[field.name])[0]
                    smallest, largest = (_plain(bound, leaf, field.type) for bound in (stats.smallest, stats.largest))
                    found[field.name] = ColumnBounds(smallest, largest, stats.nulls != 0)
        return found

    def has(self, field: pa.Field) -> bool:
        """Return whether the file has a column. Raises ValueError if it has one of another type."""
        return field.name in self._elements and self._stored_field(field) is not None

    def _stored_field(self, field: pa.Field) -> pa.Field:
        """Return a column as the file has it, but for the types of numbers. Raises ValueError if its type differs."""
        elements = self._elements[field.name]
        try:
            stored = field.with_type(stored_type(field.type, read_elements(elements)))
        except (LookupError, ValueError) as error:
            raise ValueError(f"its column {field.name} is not {field.type}{_MAY_BE_LATER}") from error
        if not _are_alike(elements, column_elements(stored)):
            raise ValueError(f"its column {field.name} is not {field.type}{_MAY_BE_LATER}")
        return stored

    def _leaves(self, batch: int, entry: BatchEntry, name: str) -> list[StoredColumn]:
        """Return the leaves of a column in a row group, which lie among its typed columns."""
        leaves = [column for column in self._groups[batch] if column.root == name]
        for leaf in leaves:
            end = leaf.position + leaf.length
            if leaf.length < 0 or not entry.position <= leaf.position <= end <= entry.position + entry.metadata_length:
                raise ValueError(f"its column {name} is at {leaf.position} to {end}, beside the typed columns")
            if codec_name(leaf.codec) != self._codec:
                raise ValueError(f"its column {name} is compressed by {codec_name(leaf.codec)}, not {self._codec}")
        return leaves

    def _read_column(self, batch: int, entry: BatchEntry, field: pa.Field, read_bytes: ReadBytes) -> pa.Array:
        elements, stored = self._elements[field.name], self._stored_field(field)
        leaves = self._leaves(batch, entry, field.name)
        if [(leaf.path, leaf.kind) for leaf in leaves] != _leaf_types(elements):
            raise ValueError(f"its column {field.name} has leaves {[leaf.path for leaf in leaves]}")
        chunks = [_chunk(leaf, read_bytes(leaf.position, leaf.length), entry, field) for leaf in leaves]
        file = pa.BufferReader(encode_file(pa.schema([stored]), entry.count, self._codec, chunks, elements))
        for chunk in chunks:
            if _may_expand(chunk):
                _check_texts(file, chunk.path)
        file.seek(0)
        table = pq.ParquetFile(file, pre_buffer=False).read(use_threads=False)
        if table.num_rows != entry.count or table.column_names != [field.name]:
            raise ValueError(f"it has {table.num_rows} rows of {table.schema}, the index says {entry.count}")
        array = table.column(0).combine_chunks()
        array = array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
        array.validate(full=True)
        if array.type != stored.type:
            if not _widens(array.type, stored.type):
                raise ValueError(f"its column {field.name} is {array.type}, not {stored.type}{_MAY_BE_LATER}")
            array = array.cast(stored.type)
        return add_fields(array, field.type)


def _chunk(leaf: StoredColumn, data: pa.Buffer, entry: BatchEntry, field: pa.Field) -> Chunk:
    """Return a leaf's pages, verified. Raises ValueError if they would take more memory than a batch may."""
    pages = read_stated_pages(data, leaf)
    if sum(page.decoded_length for page in pages) > MAX_BATCH_BYTES + PAGE_OVERHEAD * len(pages):
        raise ValueError(f"its {field.name} states over {MAX_BATCH_BYTES} bytes decompressed")
    most = entry.count
    if pa.types.is_nested(field.type):
        most += min(8 * entry.decoded_length, MAX_BATCH_BYTES)  # an element takes a bit in memory, and a byte in Avro
    if not entry.count <= leaf.values <= most:
        raise ValueError(f"its {field.name} has {leaf.values} values, from {entry.count} to {most} are possible")
    return Chunk(leaf.path, pages, leaf.kind)


def _may_expand(chunk: Chunk) -> bool:
    """Return whether values of a dictionary may take more memory than a batch may: each may be as long as all are."""
    first = chunk.pages[0]
    values = sum(page.values for page in chunk.pages)
    is_text = first.kind == DICTIONARY_PAGE and chunk.kind == BYTE_ARRAY
    return is_text and values * first.decoded_length > MAX_BATCH_BYTES


def _check_texts(file: pa.BufferReader, path: Sequence[str]) -> None:
    """Raise ValueError if the texts of a leaf with a dictionary take more than a batch may."""
    file.seek(0)
    name = ".".join(path)
    column = pq.ParquetFile(file, pre_buffer=False, read_dictionary=[name]).read(use_threads=False).column(0)
    size = 0
    for dictionary in (found for chunk in column.chunks for found in _dictionaries(chunk)):
        lengths = pc.take(pc.binary_length(dictionary.dictionary), dictionary.indices)
        size += pc.sum(pc.cast(lengths, pa.int64())).as_py() or 0
    if size > MAX_BATCH_BYTES:
        raise ValueError(f"its {name} takes {size} bytes, over the limit of {MAX_BATCH_BYTES}")


def _dictionaries(array: pa.Array) -> Iterator[pa.DictionaryArray]:
    """Yield the parts of an array that have a dictionary."""
    if isinstance(array, pa.DictionaryArray):
        yield array
    elif isinstance(array, pa.MapArray):
        yield from _dictionaries(array.keys)
        yield from _dictionaries(array.items)
    elif isinstance(array, pa.ListArray):
        yield from _dictionaries(array.values)
    elif isinstance(array, pa.StructArray):
        for number in range(array.type.num_fields):
            yield from _dictionaries(array.field(number))


def _are_alike(elements: bytes, expected: bytes) -> bool:
    """Return whether a column has the parts that are expected, and differs in the types of numbers at most."""
    if elements == expected:
        return True
    pairs = list(zip(read_elements(elements), read_elements(expected), strict=False))
    return len(elements) > 0 and all(
        found[:3] == wanted[:3]
        and (found.kind == wanted.kind or {found.kind, wanted.kind} <= _NUMBERS)
        and 0 <= found.type_length <= _MOST_NUMBER_BYTES
        for found, wanted in pairs
    )


_NUMBERS = {INT32, INT64, FLOAT, DOUBLE, FIXED_LEN_BYTE_ARRAY}
_MOST_NUMBER_BYTES = 16


def _widens(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether every value of a type is one of another."""
    if found == wanted:
        return True
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return _widens(found.key_type, wanted.key_type) and _widens(found.item_type, wanted.item_type)
    if pa.types.is_list(found) and pa.types.is_list(wanted):  # Arrow has two names for the elements
        return _widens(found.value_type, wanted.value_type)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted) and found.num_fields == wanted.num_fields:
        parts = [(found.field(number), wanted.field(number)) for number in range(found.num_fields)]
        return all(part.name == other.name and _widens(part.type, other.type) for part, other in parts)
    if pa.types.is_decimal(found) and pa.types.is_decimal(wanted):
        return bool(found.scale <= wanted.scale and found.precision - found.scale <= wanted.precision - wanted.scale)
    if pa.types.is_signed_integer(found) and pa.types.is_signed_integer(wanted):
        return bool(found.bit_width < wanted.bit_width)
    return bool(pa.types.is_float32(found) and pa.types.is_float64(wanted))


def _leaf_types(elements: bytes) -> list[tuple[tuple[str, ...], int]]:
    """Return path and Parquet type of each leaf of a column."""
    leaves: list[tuple[tuple[str, ...], int]] = []
    waiting: list[tuple[tuple[str, ...], int]] = []
    for element in read_elements(elements):
        path = (*(waiting[-1][0] if waiting else ()), element.name)
        if waiting:
            waiting[-1] = (waiting[-1][0], waiting[-1][1] - 1)
        if element.children:
            waiting.append((path, element.children))
        else:
            leaves.append((path, element.kind))
        while waiting and not waiting[-1][1]:
            waiting.pop()
    return leaves


def _plain(data: bytes, leaf: SchemaElement, kind: pa.DataType) -> pa.Scalar:
    """Return a value in Parquet's plain encoding. Raises ValueError."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.scalar(data.decode() if pa.types.is_string(kind) else data, kind)
    if pa.types.is_decimal(kind):
        number = int.from_bytes(data, "big" if leaf.kind == FIXED_LEN_BYTE_ARRAY else "little", signed=True)
        digits = tuple(map(int, str(abs(number))))
        return pa.scalar(Decimal((number < 0, digits, -leaf.scale)), kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(data != b"\0", kind)
    stored = pa.int32() if kind.bit_width < 32 or (leaf.kind == INT32 and kind == pa.int64()) else kind
    if len(data) != stored.bit_width // 8:
        raise ValueError(f"a bound of {len(data)} bytes of a column of {kind}")
    return pa.Array.from_buffers(stored, 1, [None, pa.py_buffer(data)]).cast(kind)[0]
