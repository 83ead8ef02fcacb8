"""The parts of Parquet's metadata that the reader of a history segment needs: page headers, and a footer of its own.

Parquet's reader trusts a footer: what one states about rows, sizes and encodings it allocates, and some of it ends the
process. So no header or footer that was read is given to it: another parser could read other numbers from the same
bytes. ``read_pages`` walks over the pages of a column, whose numbers the caller bounds, and ``encode_file`` puts their
bodies into a file of one row group whose page headers and footer are made here.

    page header, compact Thrift        1 type, 2 size once decompressed, 3 size, 4 CRC32 of the body,
                                       5 data page: 1 values, 2 encoding, 3 encoding of definition levels,
                                       7 dictionary page: 1 values, 2 encoding
    footer (FileMetaData)              1 version, 2 list of schema elements, 3 rows, 4 list of row groups,
                                       5 list of 1 key, 2 value
    row group                          1 list of columns, 2 bytes, 3 rows
    column                             2 position, 3 metadata: 1 type, 2 encodings, 3 path, 4 codec, 5 values,
                                       6 bytes once decompressed, 7 bytes, 9 position of the first data page,
                                       11 position of the dictionary, 12 statistics: 3 nulls, 5 largest value,
                                       6 smallest value; 13 list of 1 type, 2 encoding and 3 number of pages

Rules: only pages that ``writer`` writes are accepted: data pages of version 1. Those of a record's columns have plain
values, or integers as differences; so a value of unlimited size takes as many bytes in its page as in memory. Those of
typed columns may have a dictionary, and the caller bounds them. Faults are ValueErrors.
Source: parquet.thrift of Apache Parquet, and the specification of Thrift's compact protocol.
"""

from __future__ import annotations

import io
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from sparklog.format import codecs
from sparklog.limits import MAX_ROW_GROUPS_PER_FILE

MAGIC = b"PAR1"
"""The first bytes of a file, and the last."""

PLAIN, RLE, DELTA_BINARY_PACKED, RLE_DICTIONARY = 0, 3, 5, 8

PAGE_OVERHEAD = 4096
"""bytes. More than levels, lengths and a block of differences take of a page, beyond those of its values in memory."""

_CODECS = {codecs.NONE: 0, codecs.SNAPPY: 1, codecs.GZIP: 2, codecs.ZSTD: 6, codecs.LZ4: 7}
BOOLEAN, INT32, INT64, FLOAT, DOUBLE, BYTE_ARRAY, FIXED_LEN_BYTE_ARRAY = 0, 1, 2, 4, 5, 6, 7
DATA_PAGE, DICTIONARY_PAGE = 0, 2

# Thrift's compact types
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_MAX_DEPTH = 8


class Page(NamedTuple):
    """One page: its values (nulls and empty lists count), its bytes without header, and their size once
    decompressed."""

    values: int
    encoding: int
    body: pa.Buffer
    decoded_length: int
    kind: int = DATA_PAGE


class Chunk(NamedTuple):
    """The pages of one leaf column, of which a dictionary is the first. ``path`` is that of the leaf in the schema,
    ``kind`` its Parquet type."""

    path: tuple[str, ...]
    pages: Sequence[Page]
    kind: int


class StoredStats(NamedTuple):
    """Statistics of a leaf column of a row group: the plain encoding of its smallest and largest value, and the number
    of nulls; what is not stated is None."""

    smallest: bytes | None = None
    largest: bytes | None = None
    nulls: int | None = None


class StoredColumn(NamedTuple):
    """Where a leaf column of a row group lies: its path in the schema, codec number, position and length in bytes; and
    what is in it: its Parquet type, values, bytes with page headers once decompressed, and the number of its pages by
    type and encoding."""

    path: tuple[str, ...]
    codec: int
    position: int
    length: int
    kind: int
    values: int
    decoded_length: int
    pages: Mapping[tuple[int, int], int]
    stats: StoredStats

    @property
    def root(self) -> str:
        """The column in the schema that it is a leaf of."""
        return self.path[0] if self.path else ""


class StoredGroup(NamedTuple):
    """A row group as a footer states it."""

    rows: int
    columns: list[StoredColumn]


class Footer(NamedTuple):
    """The encoded list of schema elements, the row groups, and the texts that the writer added, by name."""

    schema: bytes
    groups: list[StoredGroup]
    texts: Mapping[str, str]


def read_pages(data: pa.Buffer, encoding: int, most: int) -> list[Page]:
    """Return the pages that tile ``data``. Raises ValueError for anything else than at most ``most`` data pages of this
    encoding that have values."""
    pages: list[Page] = []
    for header, body in _walk(data):
        if header.kind != DATA_PAGE or header.encoding != encoding:
            raise ValueError(f"a page of type {header.kind} and encoding {header.encoding}, not {encoding}")
        if len(pages) == most:
            raise ValueError(f"more than {most} pages")
        pages.append(Page(header.values, encoding, body, header.decoded_length))
    return pages


def read_stated_pages(data: pa.Buffer, column: StoredColumn) -> list[Page]:
    """Return the pages that tile ``data``, verified by their own checksums and by what a footer states of the column.

    A page's checksum covers its body; each field of its header is used for a sum that the footer has. Raises ValueError
    for pages of another kind than plain ones, integers as differences, ones of a dictionary, and a first one with the
    dictionary.
    """
    allowed = {DICTIONARY_PAGE: {PLAIN}, DATA_PAGE: {PLAIN, RLE_DICTIONARY}}
    if column.kind in (INT32, INT64):
        allowed[DATA_PAGE].add(DELTA_BINARY_PACKED)
    pages: list[Page] = []
    counts: Counter[tuple[int, int]] = Counter()
    decoded_length = 0
    for header, body in _walk(data):
        _verify_page(header, body, len(pages), column)
        if (header.kind == DICTIONARY_PAGE and pages) or header.encoding not in allowed[header.kind]:
            raise ValueError(f"page {len(pages)} has type {header.kind} and encoding {header.encoding}")
        counts[header.kind, header.encoding] += 1
        decoded_length += header.header_length + header.decoded_length
        pages.append(Page(header.values, header.encoding, body, header.decoded_length, header.kind))
    values = sum(page.values for page in pages if page.kind == DATA_PAGE)
    found = (values, decoded_length, dict(counts))
    if found != (column.values, column.decoded_length, dict(column.pages)):
        raise ValueError(f"the pages of {'.'.join(column.path)} are not those of the footer: {found}")
    return pages


def verify_pages(data: pa.Buffer, column: StoredColumn) -> None:
    """Raise ValueError if the bytes of a page of ``data``, which are those of a column, do not match its checksum."""
    for number, (header, body) in enumerate(_walk(data)):
        _verify_page(header, body, number, column)


def _verify_page(header: _PageHeader, body: pa.Buffer, number: int, column: StoredColumn) -> None:
    if header.crc is None or zlib.crc32(body) != header.crc & 0xFFFFFFFF:
        raise ValueError(f"the checksum of page {number} of {'.'.join(column.path)} does not match its bytes")


def _walk(data: pa.Buffer) -> Iterator[tuple[_PageHeader, pa.Buffer]]:
    """Yield the pages that tile ``data``: header and body."""
    view, position = memoryview(data).cast("B"), 0
    while position < len(view):
        compact = _Compact(view, position)
        header = _read_page_header(compact)
        position = compact.position + header.length
        if position > len(view):
            raise ValueError(f"a page that ends at {position} of a column of {len(view)} bytes")
        yield header, data.slice(compact.position, header.length)


def split_leaves(pages: Sequence[Page]) -> tuple[Sequence[Page], Sequence[Page]]:
    """Return the pages of each of two leaf columns that have the same number of values and lie side by side.

    Raises ValueError if no page begins in the middle.
    """
    values = sum(page.values for page in pages)
    seen = number = 0
    while 2 * seen < values:
        seen += pages[number].values
        number += 1
    if 2 * seen != values:
        raise ValueError(f"two columns of {values} values together")
    return pages[:number], pages[number:]


def read_footer(footer: pa.Buffer) -> Footer:
    """Read the bytes from a file's footer to its end. Raises ValueError."""
    tail = footer.slice(max(footer.size - 8, 0)).to_pybytes()
    if tail[4:] != MAGIC or int.from_bytes(tail[:4], "little") + len(tail) != footer.size:
        raise ValueError("it does not end as a Parquet file")
    compact = _Compact(memoryview(footer).cast("B"), 0)
    schema, groups, texts = b"", [], {}
    for field, kind in compact.fields():
        start = compact.position
        if field == 4:
            count = compact.items(kind)
            if count > MAX_ROW_GROUPS_PER_FILE:
                raise ValueError(f"a footer of {count} row groups")
            groups = [_read_group(compact) for _ in range(count)]
        elif field == 5:
            texts = dict(_read_text(compact) for _ in range(compact.items(kind)))
        else:
            compact.skip(kind)
        if field == 2:
            schema = footer.slice(start, compact.position - start).to_pybytes()
    return Footer(schema, groups, texts)


def codec_name(number: int) -> str:
    """Return the codec of a number in a footer. Raises ValueError for one that history segments do not have."""
    names = [name for name, code in _CODECS.items() if code == number]
    if not names:
        raise ValueError(f"its columns are compressed by Parquet's codec {number}")
    return names[0]


def encode_schema(schema: pa.Schema) -> bytes:
    """Return the encoded schema elements of these columns, without the list's length and the root: as they are in the
    footer of a file in which they are the last ones."""
    elements = _schema_elements(schema)
    compact = _Compact(memoryview(elements), 0)
    compact.items(_LIST)
    compact.skip(_STRUCT)
    return elements[compact.position :]


def split_schema(elements: bytes) -> dict[str, bytes]:
    """Return the encoded schema elements of each column from a list of all, by the column's name. Raises ValueError."""
    compact = _Compact(memoryview(elements), 0)
    count = compact.items(_LIST)
    compact.skip(_STRUCT)
    columns: dict[str, bytes] = {}
    seen = 1
    while seen < count:
        start, waiting, root = compact.position, 1, None
        while waiting:
            element = _read_element(compact)
            root = element.name if root is None else root
            waiting += element.children - 1
            seen += 1
            if seen + waiting > count:
                raise ValueError(f"a schema of {count} elements")
        columns[root or ""] = elements[start : compact.position]
    return columns


def column_elements(column: pa.Field) -> bytes:
    """Return the encoded schema elements of a column, as in the footer of a file that has it."""
    return split_schema(_schema_elements(pa.schema([column])))[column.name]


class SchemaElement(NamedTuple):
    """An element of a schema: a column, or a part of one. ``kind`` is its Parquet type, -1 if it has children."""

    name: str
    children: int
    repetition: int
    kind: int
    type_length: int
    scale: int


def read_elements(elements: bytes) -> list[SchemaElement]:
    """Return the schema elements of one column, which ``split_schema`` returned."""
    compact = _Compact(memoryview(elements), 0)
    found = []
    while compact.position < len(elements):
        found.append(_read_element(compact))
    return found


def _read_element(compact: _Compact) -> SchemaElement:
    name, numbers = "", {1: -1, 2: 0, 3: -1, 5: 0, 7: 0}
    for field, kind in compact.fields():
        if field == 4:
            name = compact.binary().decode()
        elif field in numbers:
            numbers[field] = compact.integer(kind)
        else:
            compact.skip(kind)
    if numbers[5] < 0:
        raise ValueError(f"a schema element with {numbers[5]} children")
    return SchemaElement(name, numbers[5], numbers[3], numbers[1], numbers[2], numbers[7])


def _read_text(compact: _Compact) -> tuple[str, str]:
    name = text = ""
    for field, kind in compact.fields():
        if kind != _BINARY:
            raise ValueError(f"a text of type {kind}")
        found = compact.binary().decode()
        name, text = (found, text) if field == 1 else (name, found)
    return name, text


def _read_group(compact: _Compact) -> StoredGroup:
    rows, columns = -1, []
    for field, kind in compact.fields():
        if field == 1:
            columns = [_read_column(compact) for _ in range(compact.items(kind))]
        elif field == 3:
            rows = compact.integer(kind)
        else:
            compact.skip(kind)
    return StoredGroup(rows, columns)


def _read_column(compact: _Compact) -> StoredColumn:
    path: tuple[str, ...] = ()
    numbers = {1: -1, 4: -1, 5: -1, 6: -1, 7: -1, 9: -1, 11: -1}
    pages: dict[tuple[int, int], int] = {}
    stats = StoredStats()
    for field, kind in compact.fields():
        if field != 3 or kind != _STRUCT:
            compact.skip(kind)
            continue
        for inner, inner_kind in compact.fields():
            if inner == 3:
                path = tuple(compact.binary().decode() for _ in range(compact.items(inner_kind)))
            elif inner in numbers:
                numbers[inner] = compact.integer(inner_kind)
            elif inner == 12 and inner_kind == _STRUCT:
                stats = _read_stats(compact)
            elif inner == 13:
                pages = dict(_read_page_count(compact) for _ in range(compact.items(inner_kind)))
            else:
                compact.skip(inner_kind)
    parquet_type, codec, values, decoded_length, length, data, dictionary = numbers.values()
    position = data if dictionary < 0 else dictionary
    return StoredColumn(path, codec, position, length, parquet_type, values, decoded_length, pages, stats)


def _read_stats(compact: _Compact) -> StoredStats:
    smallest = largest = nulls = None
    for field, kind in compact.fields():
        if field == 3:
            nulls = compact.integer(kind)
        elif field in (5, 6) and kind == _BINARY:
            bound = compact.binary()
            smallest, largest = (smallest, bound) if field == 5 else (bound, largest)
        else:
            compact.skip(kind)
    return StoredStats(smallest, largest, nulls)


def _read_page_count(compact: _Compact) -> tuple[tuple[int, int], int]:
    found = {1: -1, 2: -1, 3: 0}
    for field, kind in compact.fields():
        found[field] = compact.integer(kind)
    return (found[1], found[2]), found[3]


def encode_file(
    schema: pa.Schema, rows: int, codec: str, chunks: Sequence[Chunk], elements: bytes | None = None
) -> pa.Buffer:
    """Return a Parquet file of one row group with these columns, which are those of ``schema``, in order.

    ``elements``: the encoded elements of its one column, if they are others than Arrow writes.
    """
    stated = _schema_elements(schema)
    if elements is not None:
        stated = stated[: len(stated) - len(column_elements(schema.field(0)))] + elements
    position, columns, parts = len(MAGIC), [], [pa.py_buffer(MAGIC)]
    for chunk in chunks:
        pages = [part for page in chunk.pages for part in (_encode_page_header(page), page.body)]
        length = sum(part.size for part in pages)
        columns.append(_encode_column(chunk, codec, position, length))
        parts += pages
        position += length
    group = _struct((1, _LIST, _list(_STRUCT, columns)), (2, _I64, _zigzag(position)), (3, _I64, _zigzag(rows)))
    footer = _struct(
        (1, _I32, _zigzag(2)),
        (2, _LIST, stated),
        (3, _I64, _zigzag(rows)),
        (4, _LIST, _list(_STRUCT, [group])),
    )
    parts.append(pa.py_buffer(footer + len(footer).to_bytes(4, "little") + MAGIC))
    return pa.py_buffer(b"".join(memoryview(part) for part in parts))


def _encode_page_header(page: Page) -> pa.Buffer:
    is_dictionary = page.kind == DICTIONARY_PAGE
    values = [(1, _I32, _zigzag(page.values)), (2, _I32, _zigzag(page.encoding))]
    levels = [] if is_dictionary else [(3, _I32, _zigzag(RLE)), (4, _I32, _zigzag(RLE))]
    header = _struct(
        (1, _I32, _zigzag(page.kind)),
        (2, _I32, _zigzag(page.decoded_length)),
        (3, _I32, _zigzag(page.body.size)),
        (7 if is_dictionary else 5, _STRUCT, _struct(*values, *levels)),
    )
    return pa.py_buffer(header)


def _encode_column(chunk: Chunk, codec: str, position: int, length: int) -> bytes:
    path = [encode_varint(len(name.encode())) + name.encode() for name in chunk.path]
    first, data = chunk.pages[0], [page for page in chunk.pages if page.kind == DATA_PAGE]
    encodings = sorted({RLE, *(page.encoding for page in chunk.pages)})
    fields = [
        (1, _I32, _zigzag(chunk.kind)),
        (2, _LIST, _list(_I32, [_zigzag(encoding) for encoding in encodings])),
        (3, _LIST, _list(_BINARY, path)),
        (4, _I32, _zigzag(_CODECS[codec])),
        (5, _I64, _zigzag(sum(page.values for page in data))),
        (6, _I64, _zigzag(sum(page.decoded_length for page in chunk.pages))),
        (7, _I64, _zigzag(length)),
        (9, _I64, _zigzag(position)),
    ]
    if first.kind == DICTIONARY_PAGE:
        after = position + _encode_page_header(first).size + first.body.size
        fields[-1:] = [(9, _I64, _zigzag(after)), (11, _I64, _zigzag(position))]
    return _struct((2, _I64, _zigzag(position)), (3, _STRUCT, _struct(*fields)))


@lru_cache(maxsize=64)
def _schema_elements(schema: pa.Schema) -> bytes:
    """Return the encoded list of schema elements, as Arrow writes it into an empty file of this schema."""
    file = io.BytesIO()
    pq.ParquetWriter(file, schema, version="2.6", store_schema=False).close()
    data = file.getvalue()
    end = len(data) - len(MAGIC) - 4
    return read_footer(pa.py_buffer(data[end - int.from_bytes(data[end : end + 4], "little") :])).schema


class _PageHeader(NamedTuple):
    kind: int
    values: int
    encoding: int
    length: int
    decoded_length: int
    header_length: int
    crc: int | None


def _read_page_header(header: _Compact) -> _PageHeader:
    start = header.position
    crc: int | None = None
    numbers = {1: -1, 2: -1, 3: -1}
    facts = {1: -1, 2: -1, 3: -1}
    for field, compact_type in header.fields():
        if field in numbers:
            numbers[field] = header.integer(compact_type)
        elif field == 4:
            crc = header.integer(compact_type)
        elif field == _HEADER_FIELDS.get(numbers[1]) and compact_type == _STRUCT:
            for inner, inner_type in header.fields():
                if inner < 3 or (inner == 3 and field == 5):
                    facts[inner] = header.integer(inner_type)
                else:
                    header.skip(inner_type)
        else:
            header.skip(compact_type)
    kind, decoded_length, length = numbers.values()
    values, encoding, levels = facts.values()
    if kind == DICTIONARY_PAGE:
        levels = RLE  # it has none
    least = 0 if kind == DICTIONARY_PAGE else 1  # there is nothing in that of a column of nulls
    if kind not in _HEADER_FIELDS or levels != RLE or min(decoded_length, length, encoding) < 0 or values < least:
        raise ValueError(f"a page of type {kind} with {values} values in {length} bytes, {decoded_length} decompressed")
    return _PageHeader(kind, values, encoding, length, decoded_length, header.position - start, crc)


_HEADER_FIELDS = {DATA_PAGE: 5, DICTIONARY_PAGE: 7}
"""The field of a page header that has the header of its type."""


class _Compact:
    """Reads Thrift's compact protocol from a position on. Not thread-safe. Raises ValueError for impossible bytes."""

    def __init__(self, data: memoryview, position: int) -> None:
        self.position = position
        self._data = data
        self._length = len(data)

    def fields(self) -> Iterator[tuple[int, int]]:
        """Yield number and type of each field of a struct; the caller reads or skips its value before the next."""
        number = 0
        while True:
            head = self._byte()
            if head == 0:
                return
            if not head >> 4:
                raise ValueError(f"a field of a far or repeated number at byte {self.position}")
            number += head >> 4
            yield number, head & 15

    def integer(self, kind: int) -> int:
        """Read an integer of 16 to 64 bits."""
        if kind not in (_I16, _I32, _I64):
            raise ValueError(f"a field of type {kind} instead of an integer at byte {self.position}")
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def items(self, kind: int) -> int:
        """Read the beginning of a list and return how many items follow."""
        if kind not in (_LIST, _SET):
            raise ValueError(f"a field of type {kind} instead of a list at byte {self.position}")
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        if count > len(self._data) - self.position:
            raise ValueError(f"a list of {count} items at byte {self.position} of {len(self._data)}")
        return count

    def binary(self) -> bytes:
        """Read the bytes of a binary or a text."""
        length = self._varint()
        self._advance(length)
        return bytes(self._data[self.position - length : self.position])

    def skip(self, kind: int, depth: int = 0) -> None:
        """Skip a value."""
        if depth > _MAX_DEPTH:
            raise ValueError(f"structures nested deeper than {_MAX_DEPTH} at byte {self.position}")
        if kind in (_TRUE, _FALSE):
            return
        if kind in (_BYTE, _DOUBLE):
            self._advance(1 if kind == _BYTE else 8)
        elif kind in (_I16, _I32, _I64):
            self._varint()
        elif kind == _BINARY:
            self._advance(self._varint())
        elif kind in (_LIST, _SET):
            item = self._data[self.position] & 15 if self.position < len(self._data) else 0
            for _ in range(self.items(kind)):
                self.skip(_BYTE if item in (_TRUE, _FALSE) else item, depth + 1)  # there a boolean takes a byte
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        else:
            raise ValueError(f"a field of type {kind} at byte {self.position}")

    def _byte(self) -> int:
        position = self.position
        if position >= self._length:
            raise ValueError(f"1 byte at {position} of {self._length}")
        self.position = position + 1
        return self._data[position]

    def _advance(self, length: int) -> None:
        if self.position + length > len(self._data):
            raise ValueError(f"{length} bytes at {self.position} of {len(self._data)}")
        self.position += length

    def _varint(self) -> int:
        value = self._byte()
        if value < 128:
            return value
        value &= 127
        for shift in range(7, 70, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
        raise ValueError(f"a number longer than 64 bits at byte {self.position}")


def _struct(*fields: tuple[int, int, bytes]) -> bytes:
    """Encode fields (number, type, encoded value), in rising order of numbers at most 15 apart."""
    encoded, last = b"", 0
    for number, kind, value in fields:
        encoded += bytes([(number - last) << 4 | kind]) + value
        last = number
    return encoded + b"\0"


def _list(kind: int, items: Sequence[bytes]) -> bytes:
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else bytes([0xF0 | kind]) + encode_varint(len(items))
    return head + b"".join(items)


def _zigzag(value: int) -> bytes:
    return encode_varint(value << 1)


def encode_varint(value: int) -> bytes:
    """Encode a number that is not negative, 7 bits to a byte."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])
