"""Reads records: from a partition's segments to Arrow batches with offsets.

A lookup has three steps: binary search over the segments by base offset (or by running maximum of timestamps), binary
search over the segment's sparse index, one slice of one record batch. A read touches only the batches that hold the
requested records, and only the requested columns of these; all bytes read are verified by checksum.

If a replica fails (its storage fails, a file is missing or damaged), the next one is read immediately.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from sparklog import limits
from sparklog.clock import Clock, SystemClock
from sparklog.errors import SparklogError, StorageError
from sparklog.format import schema
from sparklog.format.column_bounds import Admits, Bounds, ColumnBounds
from sparklog.format.index import BatchEntry, Index, decode_index
from sparklog.format.open_segment import open_segment
from sparklog.format.plain_arrays import plain_scalar, timestamp_scalar
from sparklog.format.segment_reader import SegmentReader, find_first_row
from sparklog.log.records.index_checks import check_run
from sparklog.log.records.open_files import OpenFiles
from sparklog.log.records.read_order import REPLICA_FAILED, ReadOrder, ReplicasOf, Result, StoreOf, read_any
from sparklog.log.records.records import Records, rows_before, without_columns
from sparklog.log.segments import PartitionSegments
from sparklog.protocol.segments import NO_APPEND_TIME, Segment
from sparklog.store.base import InputFile
from sparklog.store.os_errors import is_out_of_descriptors
from sparklog.types import CREATE_TIME, LOG_APPEND_TIME

TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")


class TimedOffset(NamedTuple):
    """A record found by time."""

    offset: int
    timestamp_us: int


class Selection(NamedTuple):
    """What to read of a segment: ``columns`` of its records, ``None`` for the four of a record; after them ``typed``
    columns of a history segment, null where its file does not have them; of record batches that ``admits`` admits.

    ``bounded``: the typed columns whose bounds ``admits`` gets, besides offset and timestamp.
    """

    columns: Sequence[str] | None = None
    typed: Sequence[pa.Field] = ()
    admits: Admits | None = None
    bounded: Sequence[pa.Field] = ()


class _Open(NamedTuple):  # a tuple has an index method
    broker: int
    entries: Index
    reader: SegmentReader
    file: InputFile
    closed: Callable[[int], None]

    def close(self) -> None:
        """Close the file, and report how many bytes were read of it."""
        self.closed(self.file.bytes_read)
        self.file.close()


class Fetcher:
    """Reads segments from the brokers' stores. Not thread-safe: one per thread. Keeps up to ``OPEN_SEGMENTS`` files
    open, within the limit of all fetchers of the process (see ``open_files``).

    ``store_of`` returns the store of a broker id, ``replicas_of`` a partition's brokers in sync, leader first; without
    it a segment is read from the broker that it names.
    """

    def __init__(self, store_of: StoreOf, replicas_of: ReplicasOf | None = None, clock: Clock | None = None) -> None:
        self._store_of = store_of
        self._read_order = ReadOrder(store_of, replicas_of, clock or SystemClock())
        self._open: OpenFiles[_Open] = OpenFiles()
        self._bytes_read = 0
        self.last_broker = -1
        """The broker that served the last read, -1 before the first."""

    @property
    def bytes_read(self) -> int:
        """Bytes of ``.log`` and ``.index`` read so far."""
        with self._open.lock:
            return self._bytes_read + sum(opened.file.bytes_read for opened in self._open)

    def close(self) -> None:
        """Close all open files."""
        with self._open.lock:
            self._open.drop_all()

    def _count(self, size: int) -> None:
        self._bytes_read += size

    # -- by offset

    def read(
        self, topic: str, segments: Iterable[Segment], start: int, end: int, columns: Sequence[str] | None = None
    ) -> Iterator[Records]:
        """Yield the records of ``[start, end)`` in offset order, one stored batch at a time.

        Raises DataLossError if a segment's file is missing, CorruptRecordError or CorruptIndexError if it is damaged;
        with several replicas only if that is so for all of them.
        """
        for segment in segments:
            yield from self.select(topic, segment, start, end, Selection(columns))

    def select(self, topic: str, segment: Segment, start: int, end: int, selection: Selection) -> Iterator[Records]:
        """Yield what is selected of the records of ``[start, end)`` of a segment. As ``read``."""
        if start < end and segment.end_offset > start and segment.base_offset < end:
            read = self._read_gapped if segment.has_gaps else self._read_segment
            yield from read(topic, segment, max(start, segment.base_offset), min(end, segment.end_offset), selection)

    def _read_segment(
        self, topic: str, segment: Segment, start: int, end: int, selection: Selection
    ) -> Iterator[Records]:
        first, last = segment.row_of(start), segment.row_of(end)
        start_batch = self._attempt(topic, segment, lambda opened: check_run(segment, opened.entries).find_row(first))
        for number in range(start_batch, segment.first_batch + segment.batches):
            entry, batch = self._read_batch(topic, segment, number, selection)
            if batch is not None:
                lower, upper = max(first - entry.first_row, 0), min(last - entry.first_row, entry.count)
                if upper - lower < entry.count:
                    batch = batch.slice(lower, upper - lower)
                base_offset = segment.base_offset + (entry.first_row + lower - segment.first_row)
                yield _apply_append_time(Records(base_offset, batch, CREATE_TIME), segment)
            if entry.end_row >= last:
                return

    def _read_gapped(
        self, topic: str, segment: Segment, start: int, end: int, selection: Selection
    ) -> Iterator[Records]:
        """Read a segment whose file stores each record's offset."""
        columns = schema.COLUMNS if selection.columns is None else tuple(selection.columns)
        names = [*columns, *(field.name for field in selection.typed)]
        selection = selection._replace(columns=[*columns, schema.OFFSET])
        lower, upper = start - segment.base_offset, end - segment.base_offset

        def batches(opened: _Open) -> range:
            run = (segment.first_batch, segment.batches)
            index = check_run(segment, opened.entries)
            return range(index.find_offset(*run, lower), index.find_offset(*run, upper - 1) + 1)

        for number in self._attempt(topic, segment, batches):
            _, batch = self._read_batch(topic, segment, number, selection)
            if batch is None:
                continue
            offsets = batch.column(len(columns))
            first, last = (rows_before(0, len(offsets), offsets, offset) for offset in (lower, upper))
            if first < last:
                batch = batch.select(names) if names else without_columns(batch.num_rows)
                lower = offsets[last - 1].as_py() + 1  # whatever the file contains, no record is returned twice
                records = _with_offsets(batch.slice(first, last - first), offsets.slice(first, last - first), segment)
                yield _apply_append_time(records, segment)

    def _read_batch(
        self, topic: str, segment: Segment, number: int, selection: Selection
    ) -> tuple[BatchEntry, pa.RecordBatch | None]:
        """Return a record batch, None if it is not admitted."""

        def read(opened: _Open) -> tuple[BatchEntry, pa.RecordBatch | None]:
            entry = opened.entries.entry(number)
            if selection.admits is not None:
                typed = opened.reader.typed_bounds(number, selection.bounded)
                if not selection.admits({**_batch_bounds(segment, entry), **typed}):
                    return entry, None
            batch = opened.reader.read(number, selection.columns)
            if selection.typed:
                batch = _with_columns(batch, opened.reader.read_typed(number, selection.typed))
            return entry, batch

        return self._attempt(topic, segment, read)

    # -- by time

    def find_timestamp(
        self, topic: str, segments: PartitionSegments, timestamp_us: int, end: int, start: int = 0
    ) -> TimedOffset | None:
        """Return the first record of offsets ``[start, end)`` whose timestamp is at or after ``timestamp_us``, in
        Kafka's order: the earliest offset, not the earliest time."""
        for number in range(segments.find_timestamp(timestamp_us), len(segments)):
            segment = segments[number]
            if segment.base_offset >= end:
                return None
            if segment.max_timestamp_us < timestamp_us or segment.end_offset <= start:
                continue
            if segment.append_time_ms >= 0:
                return _if_before(TimedOffset(max(segment.base_offset, start), segment.append_time_ms * 1000), end)
            timed_offset = self._find_in_segment(topic, segment, timestamp_us, start)
            if timed_offset is not None:
                return _if_before(timed_offset, end)
        return None

    def _find_in_segment(self, topic: str, segment: Segment, timestamp_us: int, start: int) -> TimedOffset | None:
        first, end = segment.first_batch, segment.first_batch + segment.batches
        while first < end:
            number = self._batch_at_time(topic, segment, first, end - first, timestamp_us)
            if number is None:
                return None
            timed_offset = self._find_in_batch(topic, segment, number, timestamp_us, start)
            if timed_offset is not None:
                return timed_offset
            first = number + 1  # its records of that time are before the log start offset
        return None

    def _batch_at_time(self, topic: str, segment: Segment, first: int, batches: int, timestamp_us: int) -> int | None:
        return self._attempt(
            topic,
            segment,
            lambda opened: check_run(segment, opened.entries).find_timestamp(first, batches, timestamp_us),
        )

    def _find_in_batch(
        self, topic: str, segment: Segment, number: int, timestamp_us: int, start: int
    ) -> TimedOffset | None:
        columns = [schema.TIMESTAMP, schema.OFFSET] if segment.has_gaps else [schema.TIMESTAMP]
        entry, batch = self._read_batch(topic, segment, number, Selection(columns))
        assert batch is not None, "every batch is admitted"
        if segment.has_gaps:
            records = _with_offsets(batch, batch.column(1), segment)
        else:
            records = Records(segment.base_offset + (entry.first_row - segment.first_row), batch, CREATE_TIME)
        offsets = records.all_offsets()
        skipped = bisect_left(offsets, start)
        times = batch.column(0).slice(skipped)
        row = find_first_row(times, timestamp_us)
        return None if row is None else TimedOffset(offsets[skipped + row], times[row].value)

    # -- replicas

    def _attempt(self, topic: str, segment: Segment, action: Callable[[_Open], Result]) -> Result:
        """Run an action on a segment's open files, or else on the files of one broker after another."""
        failures: dict[int, SparklogError] = {}

        def attempt(broker: int) -> Result:
            try:
                return action(self._open_copy(segment, broker))
            except REPLICA_FAILED:
                self._open.drop(segment.path)
                raise

        with self._open.lock:
            opened = self._open.get(segment.path)
            if opened is not None:
                try:
                    result = action(opened)
                    self.last_broker = opened.broker
                    return result
                except REPLICA_FAILED as error:
                    failures[opened.broker] = error
                    self._open.drop(segment.path)
            brokers = self._read_order.brokers_for(topic, segment)
            self.last_broker, result = read_any(topic, segment, brokers, attempt, self._store_of, failures)
            self._read_order.penalize(failed for failed, error in failures.items() if isinstance(error, StorageError))
            return result

    def _open_copy(self, segment: Segment, broker: int) -> _Open:
        self._open.make_room()
        try:
            return self._open_files(segment, broker)
        except StorageError as error:
            if not is_out_of_descriptors(error) or not self._open.spare():
                raise
            return self._open_files(segment, broker)

    def _open_files(self, segment: Segment, broker: int) -> _Open:
        store = self._store_of(broker)
        data = store.get(segment.index_path, limits.MAX_INDEX_BYTES)
        file = store.open_input(segment.path)
        self._bytes_read += len(data)
        path = f"{store.root}/{segment.path}"
        try:
            index = decode_index(data, f"{store.root}/{segment.index_path}")
        except BaseException:
            file.close()
            raise
        opened = _Open(broker, index, open_segment(file.read_at, index, path), file, self._count)
        self._open.add(segment.path, opened)
        return opened


def _with_offsets(batch: pa.RecordBatch, relative: pa.Array, segment: Segment) -> Records:
    """Return records with the offsets in their file, or without them if there is no gap."""
    import pyarrow.compute as pc  # late: the import takes 40 ms, which most commands do not need

    first, last = (segment.base_offset + relative[row].as_py() for row in (0, len(relative) - 1))
    if last - first + 1 == len(relative):
        return Records(first, batch, CREATE_TIME)
    offsets = pc.add(relative.cast(pa.int64()), plain_scalar(segment.base_offset, pa.int64()))
    return Records(first, batch, CREATE_TIME, offsets)


def _batch_bounds(segment: Segment, entry: BatchEntry) -> Bounds:
    """Return the bounds of the offsets and timestamps of a record batch of a segment."""
    first, last = segment.base_offset, segment.end_offset - 1
    if not segment.has_gaps:
        first = segment.base_offset + entry.first_row - segment.first_row
        last = first + entry.count - 1
    earliest, latest = entry.min_timestamp_us, entry.max_timestamp_us
    if segment.append_time_ms >= 0:
        earliest = latest = segment.append_time_ms * 1000
    return offset_and_time_bounds(first, last, earliest, latest)


def offset_and_time_bounds(first: int, last: int, earliest_us: int, latest_us: int) -> Bounds:
    """Return the bounds of records by their offsets and timestamps."""
    offsets = ColumnBounds(plain_scalar(first, pa.int64()), plain_scalar(last, pa.int64()))
    return {"offset": offsets, "timestamp": ColumnBounds(timestamp_scalar(earliest_us), timestamp_scalar(latest_us))}


def _with_columns(batch: pa.RecordBatch, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """Return a batch with more columns, also one that had none."""
    return pa.RecordBatch.from_arrays([*batch.columns, *columns.values()], [*batch.schema.names, *columns])


def _if_before(timed_offset: TimedOffset, end: int) -> TimedOffset | None:
    return timed_offset if timed_offset.offset < end else None


def _apply_append_time(records: Records, segment: Segment) -> Records:
    """Replace the producers' timestamps by the commit's time if the topic stamps on append."""
    if segment.append_time_ms == NO_APPEND_TIME:
        return records
    batch = records.batch
    position = batch.schema.get_field_index(schema.TIMESTAMP)
    if segment.append_time_ms >= 0 and position >= 0:
        stamp = timestamp_scalar(segment.append_time_ms * 1000)
        batch = batch.set_column(position, batch.schema.field(position), pa.repeat(stamp, batch.num_rows))
    return records._replace(batch=batch, timestamp_type=LOG_APPEND_TIME)
