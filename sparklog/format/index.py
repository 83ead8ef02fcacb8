"""The ``.index`` of a segment: one fixed-width entry per record batch of its ``.log``. Little-endian throughout.

    header, 64 bytes                                entry, 120 bytes, one per record batch
      0  8s  magic, b"SLINDEX" and a zero byte        0  i64  first row, counted from the start of the file
      8  u16 version, 1                               8  i64  position of the message in the .log
     10  u16 flags: 1 has key, 2 has headers,        16  i64  smallest timestamp, us
             4 has explicit offsets, 8 is Parquet,   24  i64  largest timestamp, us
             16 values are elided
     12  u8  codec number, 3 bytes of zero           32  i64  producer id, -1 for none
     16  u32 entries, 4 bytes of zero                40  u32  rows
     24  i64 rows in the file                        44  u32  length of the message, its metadata included
     32  i64 length of the .log                      48  u32  bytes it takes once decompressed, metadata included
     40  i64 position of the footer in the .log      52  u32  length of the metadata
     48  u32 length of what comes before the first   56  u32  CRC32C of the metadata
             message; u32 its CRC32C                 60  5 x (u32 length, u32 CRC32C): the sections of key, value,
     56  u32 CRC32C of the .log from the footer               timestamp, headers, offset
             on, 4 bytes of zero                    100  u32  null keys
                                                    104  u32  null values
    and after the last entry                        108  i32  base sequence, -1 for none
      with flag 16, for each entry: u32 bytes       112  i16  producer epoch, -1 for none
        of the values, u32 their CRC32C             114  u8   codec number
      u32 CRC32C of all bytes before it
                                                    115  u8   flags, zero
                                                    116  i32  offset of the first record, counted from the base
                                                              offset of its run; 0 in a file without flag 4

Sections have no positions because they tile the message: metadata, then the columns that the file has, in the order
above. In an envelope file (gzip, snappy) the value's section is the whole body and the others are empty. So the
checksums cover every byte of the message once; the one of the whole follows from them (``checksum.combine``).

Worked example: a file with key, value and timestamp, whose first batch is at position 512 and has 264 bytes of metadata
and sections of 40, 48 and 16 bytes, has an entry of position 512 and length 368; its value is bytes 816 to 864 of the
``.log`` (512 + 264 + 40, and 48 on). The next entry's position is 880. An index of 2 entries is 64 + 2 * 120 + 4 = 308
bytes.

With flag 16 some values of a Parquet file are elided, since its typed columns state them
(``parquet.elided_values``): the length and checksum after the entries are those of all values, as they are once they
are restored.

Rules: the checksum is verified first, then the header, and an entry when it is used, so that opening does not decode
entries; ``check`` checks all of them. Any fault is a CorruptIndexError.
Not for: base offsets. The commit log assigns them to runs; ``row`` here counts from the start of the file.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn, overload

import pyarrow as pa

from sparklog.errors import CorruptIndexError, InvalidRequestError, UnsupportedVersionError
from sparklog.format import codecs, schema
from sparklog.format.checksum import combine, crc32c
from sparklog.limits import MAX_BATCH_BYTES, MAX_BATCHES_PER_FILE, MAX_INDEX_BYTES
from sparklog.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

if TYPE_CHECKING:
    from typing_extensions import Buffer
else:
    Buffer = object

MAGIC = b"SLINDEX\x00"
MAX_MESSAGE_BYTES = MAX_BATCH_BYTES + MAX_BATCH_BYTES // 64
"""bytes. A batch at the limit, with metadata, padding, and what a codec may add to incompressible data."""

_HAS_KEY, _HAS_HEADERS, _HAS_OFFSETS, _IS_PARQUET, _ELIDES_VALUES = 1, 2, 4, 8, 16
_KNOWN_FLAGS = _HAS_KEY | _HAS_HEADERS | _HAS_OFFSETS | _IS_PARQUET | _ELIDES_VALUES

_LEAST_ROW_BYTES = 16
"""bytes that a row takes in memory at least: timestamp and offset. In Parquet, many rows may take a few bytes."""

_HEADER = struct.Struct("<8sHHB3xI4xqqqIII4x")
_ENTRY = struct.Struct("<qqqqqIIIIIIIIIIIIIIIIIihBBi")
_VALUE_SUM = struct.Struct("<II")
_CRC = struct.Struct("<I")
_FIRST_ROW_AND_POSITION = struct.Struct("<qq")
_FIRST_ROW = struct.Struct("<q")
_FIRST_OFFSET = struct.Struct("<i")
_FIRST_OFFSET_AT = _ENTRY.size - _FIRST_OFFSET.size
_MAX_TIMESTAMP_WORD = 3
_WORDS_PER_ENTRY = _ENTRY.size // 8


class BatchProducer(NamedTuple):
    """Producer id, epoch and sequence of a batch; the defaults mean a producer that is not idempotent."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE


NO_PRODUCER = BatchProducer()

ProducerOf = Callable[[int, int], BatchProducer]
"""(number of a batch, its first row) -> its producer."""


class Region(NamedTuple):
    """Adjacent bytes with one checksum. ``batch`` is -1 outside record batches; ``name`` is for messages."""

    batch: int
    name: str
    position: int
    length: int
    crc32c: int


class ValueSum(NamedTuple):
    """The bytes of all values of a record batch together, and the CRC32C of their lengths (i32 each, 0 for null) and of
    them."""

    length: int
    crc32c: int


class BatchEntry(NamedTuple):
    """One record batch. Positions and lengths in bytes, timestamps in us since 1970, checksums CRC32C."""

    first_row: int
    position: int
    min_timestamp_us: int
    max_timestamp_us: int
    producer_id: int
    count: int  # type: ignore[assignment]  # hides tuple.count, of no use here
    length: int
    decoded_length: int
    metadata_length: int
    metadata_crc32c: int
    key_length: int
    key_crc32c: int
    value_length: int
    value_crc32c: int
    timestamp_length: int
    timestamp_crc32c: int
    headers_length: int
    headers_crc32c: int
    offset_length: int
    offset_crc32c: int
    null_keys: int
    null_values: int
    base_sequence: int
    producer_epoch: int
    codec_number: int
    flags: int
    first_offset: int = 0

    @property
    def codec(self) -> str:
        """The codec's name."""
        return codecs.CODECS[self.codec_number]

    @property
    def crc32c(self) -> int:
        """The checksum of the whole message, combined from those of its parts."""
        total = 0
        for region in self.regions():
            total = combine(total, region.crc32c, region.length)
        return total

    @property
    def end(self) -> int:
        """The position of the first byte after the message."""
        return self.position + self.length

    @property
    def end_row(self) -> int:
        """The first row of the next batch."""
        return self.first_row + self.count

    def section(self, column: str) -> tuple[int, int]:
        """Return length and CRC32C of a column's section."""
        at = _SECTIONS_AT + 2 * schema.STORED_COLUMNS.index(column)
        return self[at], self[at + 1]

    def regions(self, number: int = 0) -> Iterator[Region]:
        """Yield the metadata of the message of batch ``number``, and the sections of all ``schema.STORED_COLUMNS``."""
        yield Region(number, "metadata", self.position, self.metadata_length, self.metadata_crc32c)
        position = self.position + self.metadata_length
        sections = self[_SECTIONS_AT : _SECTIONS_AT + 2 * len(schema.STORED_COLUMNS)]
        for column, length, crc in zip(schema.STORED_COLUMNS, sections[::2], sections[1::2], strict=True):
            yield Region(number, column, position, length, crc)
            position += length


_SECTIONS_AT = BatchEntry._fields.index("key_length")


class FileSummary(NamedTuple):
    """The header of an index, which describes the ``.log`` as a whole."""

    codec: str
    has_key: bool
    has_headers: bool
    has_offsets: bool
    rows: int
    log_length: int
    footer_position: int
    header_length: int
    header_crc32c: int
    footer_crc32c: int
    is_parquet: bool = False
    elides_values: bool = False

    @property
    def header(self) -> Region:
        """The bytes before the first message."""
        return Region(-1, "schema", 0, self.header_length, self.header_crc32c)

    @property
    def footer(self) -> Region:
        """The bytes after the last message."""
        length = self.log_length - self.footer_position
        return Region(-1, "footer", self.footer_position, length, self.footer_crc32c)


def encode_index(summary: FileSummary, entries: Iterable[BatchEntry], values: Sequence[ValueSum] = ()) -> bytes:
    """Return the bytes of an ``.index`` file. ``values``: those of each record batch, if some are elided."""
    packed = [_ENTRY.pack(*entry) for entry in entries]
    if len(values) != (len(packed) if summary.elides_values else 0):
        raise InvalidRequestError(f"{len(values)} sums of values for {len(packed)} record batches")
    codec = codecs.codec_number(summary.codec)
    head = _HEADER.pack(MAGIC, schema.FORMAT_VERSION, _flags(summary), codec, len(packed), *summary[4:10])
    body = b"".join([head, *packed, *(_VALUE_SUM.pack(*each) for each in values)])
    return body + _CRC.pack(crc32c(body))


def _flags(summary: FileSummary) -> int:
    flags = (
        (_HAS_KEY, summary.has_key),
        (_HAS_HEADERS, summary.has_headers),
        (_HAS_OFFSETS, summary.has_offsets),
        (_IS_PARQUET, summary.is_parquet),
        (_ELIDES_VALUES, summary.elides_values),
    )
    return sum(flag for flag, there in flags if there)


def decode_index(data: Buffer, path: str) -> Index:
    """Verify an ``.index`` file's checksum and header; entries are decoded and checked one by one as they are used.

    Raises CorruptIndexError, or UnsupportedVersionError for an intact file of a later version.
    """
    return Index(data if isinstance(data, (bytes, pa.Buffer)) else pa.py_buffer(data), path)


class Index:
    """A decoded ``.index``. Immutable and thread-safe; ``len`` is the number of record batches."""

    def __init__(self, data: bytes | pa.Buffer, path: str) -> None:
        self.path = path
        self._data = data
        self._verify_checksum()
        _, version, flags, codec, count, *sizes = _HEADER.unpack_from(data)
        self._count: int = count
        self._verify_version(version, flags)
        if codec >= len(codecs.CODECS):
            self._corrupt(f"it names codec number {codec}, which does not exist")
        present = [bool(flags & flag) for flag in (_HAS_KEY, _HAS_HEADERS, _HAS_OFFSETS)]
        summary = FileSummary(codecs.CODECS[codec], *present, *sizes)
        elides_values = bool(flags & _ELIDES_VALUES)
        self.summary = summary._replace(is_parquet=bool(flags & _IS_PARQUET), elides_values=elides_values)
        if self.summary.is_parquet and not all(present[:2]):
            self._corrupt(f"a Parquet file has keys and headers, flags {flags:#x} say otherwise")
        if elides_values and not self.summary.is_parquet:
            self._corrupt(f"only a Parquet file elides values, flags {flags:#x} say otherwise")
        self._verify_summary()
        self.codec = self.summary.codec
        self.rows = self.summary.rows
        self.columns = schema.columns_present(*present)

    @property
    def entries(self) -> Sequence[BatchEntry]:
        """The entries, each decoded and checked on access."""
        return _Entries(self)

    def __len__(self) -> int:
        return self._count

    def entry(self, batch: int) -> BatchEntry:
        """Return the checked entry of a record batch. Raises CorruptIndexError if the batch does not exist."""
        if not 0 <= batch < self._count:
            self._corrupt(f"it has {self._count} record batches, number {batch} was requested")
        entry = BatchEntry._make(_ENTRY.unpack_from(self._data, _HEADER.size + batch * _ENTRY.size))
        fault = self._chain_fault(batch, entry) or _size_fault(entry, self.summary)
        if fault:
            self._corrupt(f"the entry of record batch {batch} is impossible: {fault}")
        return entry

    def value_sum(self, batch: int) -> ValueSum:
        """Return the length and checksum of the values of a record batch, in a file that leaves some out. Raises
        CorruptIndexError if the batch does not exist."""
        if not (self.summary.elides_values and 0 <= batch < self._count):
            self._corrupt(f"it says nothing of the values of record batch {batch}")
        at = _HEADER.size + self._count * _ENTRY.size + batch * _VALUE_SUM.size
        return ValueSum._make(_VALUE_SUM.unpack_from(self._data, at))

    def find_row(self, row: int) -> int:
        """Find the record batch with a row, by binary search. Raises CorruptIndexError if the file lacks the row."""
        if not 0 <= row < self.rows:
            self._corrupt(f"it has rows 0 to {self.rows - 1}, row {row} was requested")
        batch = bisect_right(range(self._count), row, key=self._first_row) - 1
        entry = self.entry(max(batch, 0))
        if not entry.first_row <= row < entry.end_row:
            self._corrupt(f"the entries' first rows do not rise: no record batch has row {row}")
        return batch

    def find_offset(self, first_batch: int, batches: int, offset: int) -> int:
        """Find the record batch of a run in which the first record at or after an offset may be, by binary search.

        ``offset`` counts from the run's base offset. If that batch ends before it, the record is the first of the next
        one. Only for a file with explicit offsets. Raises CorruptIndexError for a run the file does not have.
        """
        self._check_run(first_batch, batches)
        run = range(first_batch, first_batch + batches)
        return first_batch + max(bisect_right(run, offset, key=self._first_offset) - 1, 0)

    def find_timestamp(self, first_batch: int, batches: int, timestamp_us: int) -> int | None:
        """Find the first record batch of a run with a record of this time or later, None if there is none.

        That is where the largest timestamp so far in the run first reaches it: Kafka's time index stores that running
        maximum. ``timestamp_us`` in us since 1970. Raises CorruptIndexError for a run the file does not have.
        """
        self._check_run(first_batch, batches)
        largest = self._words(_MAX_TIMESTAMP_WORD, first_batch, first_batch + batches)
        for batch, timestamp in enumerate(largest, first_batch):
            if timestamp >= timestamp_us:
                return batch
        return None

    def check(self) -> None:
        """Check all entries. Raises CorruptIndexError at the first invalid one."""
        for batch in range(self._count):
            self.entry(batch)

    def _check_run(self, first_batch: int, batches: int) -> None:
        if first_batch < 0 or batches < 0 or first_batch + batches > self._count:
            self._corrupt(f"it has {self._count} record batches, {batches} from number {first_batch} were requested")

    def _first_offset(self, batch: int) -> int:
        at = _HEADER.size + batch * _ENTRY.size + _FIRST_OFFSET_AT
        offset: int = _FIRST_OFFSET.unpack_from(self._data, at)[0]
        return offset

    def _first_row(self, batch: int) -> int:
        row: int = _FIRST_ROW.unpack_from(self._data, _HEADER.size + batch * _ENTRY.size)[0]
        return row

    def _words(self, word: int, first: int, end: int) -> Sequence[int]:
        """Return one 64-bit field of a range of entries, without decoding the others."""
        view = memoryview(self._data)[_HEADER.size + first * _ENTRY.size : _HEADER.size + end * _ENTRY.size]
        if sys.byteorder == "little":
            words: Sequence[int] = view.cast("B").cast("q")[word::_WORDS_PER_ENTRY]
            return words
        swapped = array("q", view.tobytes())
        swapped.byteswap()
        return swapped[word::_WORDS_PER_ENTRY]

    def _verify_checksum(self) -> None:
        size = len(self._data)
        if not _HEADER.size + _CRC.size <= size <= MAX_INDEX_BYTES:
            self._corrupt(f"its {size} bytes are outside {_HEADER.size + _CRC.size} to {MAX_INDEX_BYTES}")
        if bytes(memoryview(self._data)[: len(MAGIC)]) != MAGIC:
            self._corrupt(f"it does not start with {MAGIC!r}: this is not an index")
        body = self._data if isinstance(self._data, pa.Buffer) else pa.py_buffer(self._data)
        actual = crc32c(body.slice(0, size - _CRC.size))
        expected: int = _CRC.unpack_from(self._data, size - _CRC.size)[0]
        if actual != expected:
            self._corrupt(f"its checksum is {actual:#010x}, it should be {expected:#010x}", expected, actual)

    def _verify_version(self, version: int, flags: int) -> None:
        if version > schema.FORMAT_VERSION or flags & ~_KNOWN_FLAGS:
            raise UnsupportedVersionError(
                f"{self.path}: written in version {version} of the format with flags {flags:#x}; this sparklog reads "
                f"version {schema.FORMAT_VERSION} with flags {_KNOWN_FLAGS:#x}: upgrade sparklog",
                path=self.path,
            )
        if version != schema.FORMAT_VERSION:
            self._corrupt(f"there is no version {version} of the format")

    def _verify_summary(self) -> None:
        count, summary = self._count, self.summary
        each = _ENTRY.size + (_VALUE_SUM.size if summary.elides_values else 0)
        if count > MAX_BATCHES_PER_FILE or _HEADER.size + count * each + _CRC.size != len(self._data):
            self._corrupt(f"{count} entries do not make {len(self._data)} bytes")
        if not 0 < summary.header_length <= summary.footer_position < summary.log_length:
            self._corrupt(f"its .log is laid out impossibly: {summary}")
        if summary.rows < 0 or (count == 0) != (summary.rows == 0):
            self._corrupt(f"{count} record batches hold {summary.rows} rows")

    def _chain_fault(self, batch: int, entry: BatchEntry) -> str | None:
        """Check that an entry begins at or after the file's start, and ends where the next one or the footer begins."""
        summary = self.summary
        start = (0, summary.header_length)
        if (entry.first_row, entry.position) != start if batch == 0 else entry[:2] < start:
            return f"it starts at row {entry.first_row} and position {entry.position}"
        after = (summary.rows, summary.footer_position)
        if batch + 1 < self._count:
            after = _FIRST_ROW_AND_POSITION.unpack_from(self._data, _HEADER.size + (batch + 1) * _ENTRY.size)
        end_row, end = ends = entry.end_row, entry.end
        if ends != after:
            return f"it ends at row {end_row} and position {end}, what comes next begins at {after}"
        if end_row > summary.rows or end > summary.footer_position:
            return f"it ends at row {end_row} and position {end}, beyond the file"
        return None

    def _corrupt(self, what: str, expected: int | None = None, actual: int | None = None) -> NoReturn:
        raise CorruptIndexError(
            f"{self.path}: the index is damaged: {what}. Read another replica, or restore the file",
            path=self.path,
            expected=expected,
            actual=actual,
        )


def _size_fault(entry: BatchEntry, summary: FileSummary) -> str | None:
    """Return a fault of an entry by itself, None if there is none."""
    if not (0 < entry.count <= 2**31 - 1 and 0 < entry.length <= MAX_MESSAGE_BYTES):
        return f"{entry.count} rows in {entry.length} bytes"
    least = 0 if summary.is_parquet else 8
    if not least <= entry.metadata_length <= entry.length or entry.decoded_length > MAX_MESSAGE_BYTES:
        return f"{entry.metadata_length} bytes of metadata, {entry.decoded_length} bytes decompressed"
    lengths = key, value, timestamp, headers, offset = entry[_SECTIONS_AT : _SECTIONS_AT + 10 : 2]
    if key + value + timestamp + headers + offset != entry.length - entry.metadata_length:
        return f"sections of {lengths} bytes in a message of {entry.length}"
    if summary.is_parquet:
        if entry.count * _LEAST_ROW_BYTES > entry.decoded_length:
            return f"{entry.count} rows in {entry.decoded_length} bytes decompressed"
        surplus = 0
    elif codecs.is_envelope(summary.codec):
        surplus = key or timestamp or headers or offset
    else:
        surplus = (
            (key and not summary.has_key)
            or (headers and not summary.has_headers)
            or (offset and not summary.has_offsets)
        )
    if surplus:
        return f"sections of {lengths} bytes, of columns that the file lacks"
    if entry.flags or entry.codec_number != codecs.codec_number(summary.codec):
        return f"codec number {entry.codec_number}, flags {entry.flags}"
    if entry.first_offset < 0 or (entry.first_offset and not summary.has_offsets):
        return f"a first offset of {entry.first_offset}"
    if entry.min_timestamp_us > entry.max_timestamp_us or max(entry.null_keys, entry.null_values) > entry.count:
        return f"timestamps {entry.min_timestamp_us} to {entry.max_timestamp_us}, {entry.null_keys} null keys"
    return None


class _Entries(Sequence[BatchEntry]):
    """The entries of an index as a sequence. Immutable and thread-safe."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    @overload
    def __getitem__(self, at: int) -> BatchEntry: ...
    @overload
    def __getitem__(self, at: slice) -> list[BatchEntry]: ...
    def __getitem__(self, at: int | slice) -> BatchEntry | list[BatchEntry]:
        if isinstance(at, slice):
            return [self._index.entry(batch) for batch in range(*at.indices(len(self)))]
        return self._index.entry(range(len(self))[at])

    def __iter__(self) -> Iterator[BatchEntry]:
        return map(self._index.entry, range(len(self)))
