"""Reads and verifies record batches of a ``.log`` file with its ``.index``.

It reads the metadata of the record batch's message and the sections of the requested columns, each verified by its own
CRC32C; adjacent regions are read together, so a whole batch is one read. An envelope is always read whole.

Rules: no byte is interpreted before its checksum is verified, and even then it is untrusted: sizes are bounded by the
index and ``limits``, buffers by the bytes that were read. Nothing is copied: arrays of an uncompressed file are slices
of what ``read_at`` returned, so they keep a memory map alive. Nothing of a damaged batch is returned.
Not for: opening files, caching, prefetch, offsets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn

import pyarrow as pa

from sparklog.errors import CorruptRecordError, InvalidRequestError
from sparklog.format import codecs, schema
from sparklog.format.checksum import crc32c
from sparklog.format.column_bounds import Bounds
from sparklog.format.columns import ColumnLayout, decode_column, layout, offsets_rise, section_bounds
from sparklog.format.index import BatchEntry, Index, Region
from sparklog.format.message import (
    END_OF_STREAM,
    MAGIC,
    MAGIC_LENGTH,
    TAIL_LENGTH,
    Block,
    Message,
    parse_footer,
    parse_record_batch,
    prefix,
)

ReadAt = Callable[[int, int], pa.Buffer]
"""(position, length) -> the bytes there, fewer only at the end of the file."""

_ENVELOPE_LAYOUT = layout(pa.schema([pa.field(schema.ENVELOPE, pa.binary())]))


class SegmentReader:
    """Reads one ``.log``. As thread-safe as ``read_at``; it keeps nothing between reads.

    ``path`` is for messages only.
    """

    def __init__(self, read_at: ReadAt, index: Index, path: str) -> None:
        self._read_at = read_at
        self._index = index
        self._path = path
        self._layout = layout(schema.record_schema(index.columns))
        self._envelope = codecs.is_envelope(index.codec)

    def read(self, batch: int, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """Return one record batch, by its number in the file.

        ``columns`` selects columns and their order; None means the four of a record, which are null if the file lacks
        them; ``offset`` is only in files with explicit offsets. Raises CorruptRecordError, CorruptIndexError, or
        InvalidRequestError for an unknown column.
        """
        wanted = schema.COLUMNS if columns is None else tuple(columns)
        known = schema.STORED_COLUMNS if self._index.summary.has_offsets else schema.COLUMNS
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise InvalidRequestError(f"{self._path} has no column {unknown[0]!r}: choose from {', '.join(known)}")
        entry = self._index.entry(batch)
        present = [column for column in self._layout if column.name in wanted]
        arrays = self._columns(batch, entry, present) if present else {}
        result = schema.record_schema(wanted)
        for field in result:
            if field.name not in arrays:
                arrays[field.name] = pa.nulls(entry.count, field.type)
        return pa.RecordBatch.from_arrays([arrays[name] for name in wanted], schema=result)

    def read_offsets(self, batch: int) -> pa.Array:
        """Return the explicit offsets of a record batch as they are stored: relative to the run's base offset.

        Raises CorruptRecordError, CorruptIndexError.
        """
        return self.read(batch, [schema.OFFSET]).column(0)

    def read_typed(self, batch: int, fields: Sequence[pa.Field]) -> dict[str, pa.Array]:
        """Return typed columns of one record batch, by name: a ``.log`` has none, so they are null."""
        return {field.name: pa.nulls(self._index.entry(batch).count, field.type) for field in fields}

    def typed_bounds(self, batch: int, fields: Sequence[pa.Field]) -> Bounds:
        """Return what the file states of typed columns of one record batch: nothing."""
        return {}

    def read_stored(self, batch: int) -> list[pa.Buffer]:
        """Return the stored bytes of one record batch's message, verified, as parts to be joined: for a copy of it.

        Raises CorruptRecordError, CorruptIndexError.
        """
        entry = self._index.entry(batch)
        names = [schema.VALUE] if self._envelope else list(self._index.columns)
        return self._verified(batch, select_regions(entry, names))

    def check_file(self) -> None:
        """Check the parts outside record batches against the index: the file's length, schema and footer.

        Raises CorruptRecordError.
        """
        summary = self._index.summary
        (header,) = self._verified(None, [summary.header])
        (footer,) = self._verified(None, [summary.footer])
        if self._read_at(summary.log_length, 1).size:
            self._corrupt(None, f"it is longer than the {summary.log_length} bytes that the index states")
        try:
            fault = self._header_fault(header) or self._footer_fault(footer)
        except (ValueError, pa.ArrowException) as error:
            fault = str(error)
        if fault:
            self._corrupt(None, f"its checksums are right, its content is not: {fault}")

    def _columns(self, batch: int, entry: BatchEntry, wanted: Sequence[ColumnLayout]) -> dict[str, pa.Array]:
        names = [schema.VALUE] if self._envelope else [column.name for column in wanted]
        metadata, *sections = self._verified(batch, select_regions(entry, names))
        try:
            message = parse_record_batch(metadata)
            if message.body_length != entry.length - entry.metadata_length:
                raise ValueError(f"it states a body of {message.body_length} bytes")
            if self._envelope:
                return self._open_envelope(message, sections[0], entry, wanted)
            bounds = section_bounds(message, self._layout)
            if [end - start for start, end in itertools.pairwise(bounds)] != self._section_lengths(entry):
                raise ValueError(f"its columns are bounded by {bounds}, the index says otherwise")
            starts = dict(zip(self._index.columns, bounds, strict=False))
            located = {name: (section, starts[name]) for name, section in zip(names, sections, strict=True)}
            return self._decode(message, wanted, located, entry, self._index.codec)
        except (ValueError, OSError, OverflowError, MemoryError, pa.ArrowException) as error:
            self._refuse(batch, "its checksum is right, its content is not", error, entry.position)

    def _section_lengths(self, entry: BatchEntry) -> list[int]:
        return [entry.section(name)[0] for name in self._index.columns]

    def _decode(
        self,
        message: Message,
        wanted: Sequence[ColumnLayout],
        sections: dict[str, tuple[pa.Buffer, int]],
        entry: BatchEntry,
        codec: str,
    ) -> dict[str, pa.Array]:
        """Decode the wanted columns; ``sections`` has the bytes of each one's section, and its start in the body."""
        if message.rows != entry.count:
            raise ValueError(f"it has {message.rows} rows, the index says {entry.count}")
        limit = entry.decoded_length
        arrays = {
            column.name: decode_column(message, column, *sections[column.name], codec, limit) for column in wanted
        }
        offsets = arrays.get(schema.OFFSET)
        if offsets is not None and (offsets[0].as_py() != entry.first_offset or not offsets_rise(offsets)):
            raise ValueError(f"its offsets do not rise from {entry.first_offset}, the first one in the index")
        return arrays

    def _open_envelope(
        self, envelope: Message, body: pa.Buffer, entry: BatchEntry, wanted: Sequence[ColumnLayout]
    ) -> dict[str, pa.Array]:
        """Decompress the message inside an envelope; its size is bounded by the index, which is bounded by limits."""
        message, inner, size = open_envelope(
            envelope, body, lambda data: codecs.decompress(self._index.codec, data, entry.decoded_length)
        )
        length = size - inner.size + message.body_length
        if length != size:
            raise ValueError(f"it holds a message of {length} bytes, the index says {size}")
        bounds = section_bounds(message, self._layout)
        located = {
            name: (inner.slice(start, end - start), start)
            for name, (start, end) in zip(self._index.columns, itertools.pairwise(bounds), strict=True)
        }
        return self._decode(message, wanted, located, entry, codecs.NONE)

    def _verified(self, batch: int | None, regions: Sequence[Region]) -> list[pa.Buffer]:
        """Return the verified bytes of each region; adjacent regions are read together."""
        parts: list[pa.Buffer] = []
        for run in _runs(regions):
            start, length = run[0].position, run[-1].position + run[-1].length - run[0].position
            data = self._read_at(start, length)
            if data.size != length:
                what = f"it is cut short: {length} bytes were expected at position {start}, {data.size} are there"
                self._corrupt(batch, what, position=start)
            for region in run:
                _, name, position, size, expected = region
                part = data.slice(position - start, size)
                actual = crc32c(part)
                if actual != expected:
                    what = f"the checksum of its {name} is {actual:#010x}, the index says {expected:#010x}"
                    self._corrupt(batch, what, position=position, expected=expected, actual=actual)
                parts.append(part)
        return parts

    def _header_fault(self, header: pa.Buffer) -> str | None:
        if header.slice(0, len(MAGIC)).to_pybytes() != MAGIC:
            return "it does not start as an Arrow file"
        found = pa.ipc.read_schema(header.slice(MAGIC_LENGTH))
        summary = self._index.summary
        expected = schema.file_schema(*summary[:4])
        return None if found.equals(expected, check_metadata=True) else f"its schema is {found}, not {expected}"

    def _footer_fault(self, footer: pa.Buffer) -> str | None:
        tail = footer.slice(max(footer.size - TAIL_LENGTH, 0)).to_pybytes()
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != MAGIC or length + TAIL_LENGTH + len(END_OF_STREAM) != footer.size:
            return "it does not end as an Arrow file"
        blocks = parse_footer(footer.slice(len(END_OF_STREAM), length))
        if len(blocks) != len(self._index):
            return f"its footer lists {len(blocks)} record batches, the index {len(self._index)}"
        for block, entry in zip(blocks, self._index.entries, strict=True):
            indexed = Block(entry.position, entry.metadata_length, entry.length - entry.metadata_length)
            if block != indexed:
                return f"its footer has a record batch at {block}, the index at {indexed}"
        return None

    def _refuse(self, batch: int | None, what: str, error: Exception, position: int | None = None) -> NoReturn:
        """Raise CorruptRecordError for an error of decoding; a time limit of a signal's handler, which is an OSError as
        some of Arrow's errors are, goes on."""
        if isinstance(error, TimeoutError):
            raise error
        self._corrupt(batch, f"{what}: {error}", position=position)

    def _corrupt(
        self,
        batch: int | None,
        what: str,
        *,
        position: int | None = None,
        expected: int | None = None,
        actual: int | None = None,
    ) -> NoReturn:
        where = "the file" if batch is None else f"record batch {batch}"
        raise CorruptRecordError(
            f"{self._path}: {where} is damaged: {what}. Read another replica, or restore the file",
            path=self._path,
            batch=batch,
            position=position,
            expected=expected,
            actual=actual,
        )


class OpenMessage(NamedTuple):
    """A message with records, its body, and the size of both in bytes once decompressed."""

    message: Message
    body: pa.Buffer
    size: int


def open_envelope(envelope: Message, body: pa.Buffer, decompress: Callable[[pa.Buffer], pa.Buffer]) -> OpenMessage:
    """Decompress and parse the message inside an envelope. Raises ValueError, or the errors of ``decompress``."""
    section_bounds(envelope, _ENVELOPE_LAYOUT)
    if envelope.rows != 1:
        raise ValueError(f"an envelope of {envelope.rows} rows")
    data = decompress(decode_column(envelope, _ENVELOPE_LAYOUT[0], body, 0, codecs.NONE, 0)[0].as_buffer())
    length = prefix(data)
    return OpenMessage(parse_record_batch(data.slice(0, length)), data.slice(length), data.size)


def find_first_row(timestamps: pa.Array, timestamp_us: int) -> int | None:
    """Return the first row whose timestamp is ``timestamp_us`` (us since 1970) or later; None if there is none.

    ``timestamps`` is a batch's timestamp column; it need not be sorted.
    """
    import pyarrow.compute as pc

    times = timestamps.view(pa.int64())
    row = pc.index(pc.greater_equal(times, pa.scalar(timestamp_us, pa.int64())), pa.scalar(True)).as_py()
    return None if row < 0 else int(row)


def select_regions(entry: BatchEntry, names: Sequence[str]) -> list[Region]:
    """Return the regions of the metadata and of the named columns of a message."""
    wanted = {"metadata", *names}
    return [region for region in entry.regions() if region.name in wanted]


def _runs(regions: Sequence[Region]) -> list[list[Region]]:
    runs: list[list[Region]] = []
    for region in regions:
        if runs and runs[-1][-1].position + runs[-1][-1].length == region.position:
            runs[-1].append(region)
        else:
            runs.append([region])
    return runs
