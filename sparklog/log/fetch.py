"""Reading records: from a partition's segments to Arrow batches with offsets.

A lookup is three steps: binary search over the segments by base offset (or by running largest timestamp), binary search
over the segment's sparse index, one slice of one record batch. A read touches no more than the batches that hold the
records asked for, and of those no more than the columns asked for; everything touched is verified by checksum.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from sparklog import limits
from sparklog.errors import CorruptIndexError, DataLossError, ObjectNotFoundError
from sparklog.format.index import Index, decode_index
from sparklog.format.segment_reader import SegmentReader, find_first_row
from sparklog.log.segments import PartitionSegments
from sparklog.protocol.segments import NO_APPEND_TIME, Segment
from sparklog.store.base import InputFile, Store
from sparklog.types import CREATE_TIME, LOG_APPEND_TIME

OPEN_SEGMENTS = 256
"""segments whose index and open file a fetcher keeps, for lookups that come back to them."""

TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")


class Records(NamedTuple):
    """Records ``[base_offset, base_offset + batch.num_rows)``; the columns are those asked for."""

    base_offset: int
    batch: pa.RecordBatch
    timestamp_type: int


class TimedOffset(NamedTuple):
    """A record found by time."""

    offset: int
    timestamp_us: int


class _Open(NamedTuple):  # a tuple has an index method
    entries: Index
    reader: SegmentReader
    file: InputFile


class Fetcher:
    """Reads segments from the brokers' stores. Not thread-safe: one per thread. Keeps ``OPEN_SEGMENTS`` files open.

    ``store_of`` gives the store of a broker id.
    """

    def __init__(self, store_of: Callable[[int], Store]) -> None:
        self._store_of = store_of
        self._open: OrderedDict[tuple[int, str], _Open] = OrderedDict()
        self._bytes_read = 0

    @property
    def bytes_read(self) -> int:
        """Bytes of ``.log`` and ``.index`` read so far."""
        return self._bytes_read + sum(opened.file.bytes_read for opened in self._open.values())

    def close(self) -> None:
        """Let go of all open files."""
        for opened in self._open.values():
            self._close(opened)
        self._open.clear()

    def _close(self, opened: _Open) -> None:
        self._bytes_read += opened.file.bytes_read
        opened.file.close()

    def read(
        self, topic: str, segments: Iterable[Segment], start: int, end: int, columns: Sequence[str] | None = None
    ) -> Iterator[Records]:
        """The records of ``[start, end)`` in offset order, a stored batch at a time.

        Raises DataLossError when a segment's file is gone, CorruptRecordError or CorruptIndexError when it is damaged.
        """
        for segment in segments:
            if segment.end_offset > start and segment.base_offset < end:
                yield from self._read_segment(topic, segment, start, end, columns)

    def _read_segment(
        self, topic: str, segment: Segment, start: int, end: int, columns: Sequence[str] | None
    ) -> Iterator[Records]:
        opened = self._opened(topic, segment)
        index = opened.entries
        first = segment.row_of(max(start, segment.base_offset))
        last = segment.row_of(min(end, segment.end_offset))
        for number in range(index.find_row(first), segment.first_batch + segment.batches):
            entry = index.entry(number)
            if entry.first_row >= last:
                return
            batch = self._read_batch(topic, segment, opened, number, columns)
            lower, upper = max(first - entry.first_row, 0), min(last - entry.first_row, entry.count)
            if upper - lower < entry.count:
                batch = batch.slice(lower, upper - lower)
            base_offset = segment.base_offset + (entry.first_row + lower - segment.first_row)
            yield _stamped(Records(base_offset, batch, CREATE_TIME), segment)

    def find_timestamp(
        self, topic: str, segments: PartitionSegments, timestamp_us: int, end: int
    ) -> TimedOffset | None:
        """The first record before offset ``end`` whose timestamp is at or after ``timestamp_us``, in Kafka's order:
        the earliest offset, not the earliest time."""
        for number in range(segments.find_timestamp(timestamp_us), len(segments)):
            segment = segments[number]
            if segment.base_offset >= end:
                return None
            if segment.max_timestamp_us < timestamp_us:
                continue
            if segment.append_time_ms != NO_APPEND_TIME:
                return TimedOffset(segment.base_offset, segment.append_time_ms * 1000)
            found = self._find_in_segment(topic, segment, timestamp_us)
            if found is not None:
                return found if found.offset < end else None
        return None

    def _find_in_segment(self, topic: str, segment: Segment, timestamp_us: int) -> TimedOffset | None:
        opened = self._opened(topic, segment)
        number = opened.entries.find_timestamp(segment.first_batch, segment.batches, timestamp_us)
        if number is None:
            return None
        entry = opened.entries.entry(number)
        column = self._read_batch(topic, segment, opened, number, ["timestamp"]).column(0)
        row = find_first_row(column, timestamp_us)
        if row is None:
            return None
        offset = segment.base_offset + (entry.first_row + row - segment.first_row)
        return TimedOffset(offset, column[row].value)

    def _read_batch(
        self, topic: str, segment: Segment, opened: _Open, number: int, columns: Sequence[str] | None
    ) -> pa.RecordBatch:
        try:
            return opened.reader.read(number, columns)
        except ObjectNotFoundError as error:  # object stores say so only at the first read
            raise _lost(topic, segment, self._store_of(segment.broker).root, error) from error

    # -- open files

    def _opened(self, topic: str, segment: Segment) -> _Open:
        key = (segment.broker, segment.path)
        found = self._open.get(key)
        if found is not None:
            self._open.move_to_end(key)
            return found
        opened = self._open_segment(topic, segment)
        self._open[key] = opened
        while len(self._open) > OPEN_SEGMENTS:
            self._close(self._open.popitem(last=False)[1])
        return opened

    def _open_segment(self, topic: str, segment: Segment) -> _Open:
        store = self._store_of(segment.broker)
        try:
            data = store.get(segment.index_path, limits.MAX_INDEX_BYTES)
            file = store.open_input(segment.path)
        except ObjectNotFoundError as error:
            raise _lost(topic, segment, store.root, error) from error
        self._bytes_read += len(data)
        path = f"{store.root}/{segment.path}"
        index = decode_index(data, f"{store.root}/{segment.index_path}")
        _check_run(index, segment, path)
        return _Open(index, SegmentReader(file.read_at, index, path), file)


def _lost(topic: str, segment: Segment, root: str, error: ObjectNotFoundError) -> DataLossError:
    path = error.path or segment.path
    return DataLossError(
        f"records {segment.base_offset} to {segment.end_offset - 1} of {topic}-{segment.partition} cannot be read: "
        f"{path} is missing from {root}; restore it from a copy",
        topic=topic,
        partition=segment.partition,
        offset=segment.base_offset,
        path=path,
    )


def _check_run(index: Index, segment: Segment, path: str) -> None:
    """The index must hold the run that the commit names."""
    last = segment.first_batch + segment.batches - 1
    if last < len(index) and index.entry(segment.first_batch).first_row == segment.first_row:
        final = index.entry(last)
        if final.first_row + final.count == segment.first_row + segment.records:
            return
    raise CorruptIndexError(
        f"the index of {path} does not hold the run the commit log names: batches {segment.first_batch} to {last} with "
        f"{segment.records} records from row {segment.first_row}; restore both files from a copy",
        path=path,
        partition=segment.partition,
        offset=segment.base_offset,
    )


def _stamped(records: Records, segment: Segment) -> Records:
    """Where the topic stamps on append, the commit's time instead of the producer's."""
    if segment.append_time_ms == NO_APPEND_TIME:
        return records
    batch = records.batch
    position = batch.schema.get_field_index("timestamp")
    if position >= 0:
        stamp = pa.scalar(segment.append_time_ms * 1000, pa.int64()).cast(TIMESTAMP_TYPE)
        batch = batch.set_column(position, batch.schema.field(position), pa.repeat(stamp, batch.num_rows))
    return Records(records.base_offset, batch, LOG_APPEND_TIME)
