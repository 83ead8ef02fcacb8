"""Read a cluster from Python: offsets by name and by time, and records of a range.

Rules: a reader uses the newest state its coordinator has read; ``refresh`` advances it. No positions are kept: the
caller keeps the next offset. If files were merged into others while a range is read, their segments are looked up
again, which also advances the state.

Not for: consumer groups, subscriptions, deserializing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.clock import Clock
from sparklog.coordinator import Coordinator
from sparklog.coordinator.kept_reading import start_reading
from sparklog.coordinator.record_reader import RecordReader, Select
from sparklog.errors import DataLossError, StorageError, UnknownTopicOrPartitionError
from sparklog.format.schema import TIMESTAMP
from sparklog.log.records.batches import positions_of
from sparklog.log.records.fetch import TimedOffset
from sparklog.log.records.records import Records
from sparklog.log.segments import PartitionSegments
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, State
from sparklog.records.record_checks import Headers
from sparklog.types import EARLIEST, LATEST

if TYPE_CHECKING:
    from typing_extensions import Self


class ConsumerRecord(NamedTuple):
    """One record that was read; ``timestamp_us``: microseconds since the epoch, ``timestamp_type`` as in ``types``."""

    topic: str
    partition: int
    offset: int
    timestamp_us: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int


class Fetched(NamedTuple):
    """Records of one partition as Arrow, with the leader epoch in which they were appended."""

    records: Records
    leader_epoch: int

    @property
    def end_offset(self) -> int:
        """The offset after the last of these records."""
        return self.records.end_offset


class Bounds(NamedTuple):
    """The readable offsets ``[start, end)`` of a partition of the topic with this id.

    ``is_log``: it is a stored log, whose end is reached when nothing is left to read, even if its last records were
    deleted.
    """

    topic_id: str
    start: int
    end: int
    leader_epoch: int
    is_log: bool = True


class LogReader:
    """Reads the partitions of a cluster. Not thread-safe: use one per thread; they may share a coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._reader = RecordReader(lambda: coordinator, self.clock)
        self._end_reading: Callable[[], None] | None = None

    def __enter__(self) -> Self:
        self._end_reading = start_reading(self._coordinator)  # a read may take longer than commits are kept
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close open files."""
        if self._end_reading is not None:
            self._end_reading()
        self._reader.close()

    @property
    def clock(self) -> Clock:
        """The clock of the cluster."""
        return self._coordinator.log.clock

    @property
    def state(self) -> State:
        """The newest state read so far."""
        return self._coordinator.state

    @property
    def bytes_read(self) -> int:
        """Bytes of ``.log`` and ``.index`` read so far."""
        return self._reader.fetcher.bytes_read

    @property
    def last_broker(self) -> int:
        """The broker whose location was read last, -1 before the first read."""
        return self._reader.fetcher.last_broker

    def refresh(self) -> State:
        """Read and return the newest state."""
        return self._coordinator.refresh()

    # -- offsets

    def bounds(self, topic: str, partition: int, state: State | None = None) -> Bounds | None:
        """Return the bounds of a partition in this state, by default the newest one read so far; None if it has no such
        partition."""
        state = state or self.state
        log = state.find_partition(topic, partition)
        if log is None:
            return None
        return Bounds(state.topics[topic].topic_id, log.log_start_offset, log.high_watermark, log.leader_epoch)

    def end_offset(self, topic: str, partition: int) -> int | None:
        """Return the log end offset in the newest state read so far, without a request."""
        bounds = self.bounds(topic, partition)
        return None if bounds is None else bounds.end

    def offset(self, topic: str, partition: int, where: int) -> int | None:
        """Return an offset by Kafka's special number (``types.EARLIEST``, ``types.LATEST``) or by time in milliseconds.

        By time, it is the offset of the first record at or after it, None if there is none. Raises
        UnknownTopicOrPartitionError.
        """
        state = self.state.partition(topic, partition)
        if where == EARLIEST:
            return state.log_start_offset
        if where == LATEST:
            return state.high_watermark
        timed = self.find_timestamp(topic, partition, where * 1000)
        return None if timed is None else timed.offset

    def find_timestamp(self, topic: str, partition: int, timestamp_us: int) -> TimedOffset | None:
        """Return the first record at or after a time in microseconds, None if there is none."""
        return self._search(topic, partition, lambda segments: timestamp_us)

    def max_timestamp(self, topic: str, partition: int) -> TimedOffset | None:
        """Return the first of the records with the largest timestamp, None if the partition is empty."""
        found = self._search(topic, partition, largest_timestamp)
        return found or self._search(topic, partition, lambda segments: self._largest_left(topic, partition, segments))

    def _largest_left(self, topic: str, partition: int, segments: PartitionSegments) -> int | None:
        """Return the largest timestamp of the records at or after the log start offset, where a segment that begins
        before it states that of a deleted one; None if there are none."""
        start = self.state.partition(topic, partition).log_start_offset
        live = [segment for segment in segments if segment.end_offset > start]
        cut = sum(segment.base_offset < start for segment in live)
        left = [largest_timestamp(live[cut:])]
        for fetched in self.fetch(topic, partition, start, live[0].end_offset, [TIMESTAMP]) if cut else ():
            left.append(pc.max(fetched.records.batch.column(0).cast(pa.int64())).as_py())
        return max((timestamp for timestamp in left if timestamp is not None), default=None)

    def _search(
        self, topic: str, partition: int, timestamp_us: Callable[[PartitionSegments], int | None]
    ) -> TimedOffset | None:
        """Return the first record at or after a time that a function derives from the list of segments."""
        while True:
            state = self.state
            partition_state, segments = state.partition(topic, partition), self._segments(state, topic, partition)
            target_us = timestamp_us(segments)
            if target_us is None:
                return None
            end, start = partition_state.high_watermark, partition_state.log_start_offset
            try:
                return self._reader.fetcher.find_timestamp(topic, segments, target_us, end, start)
            except (DataLossError, StorageError):
                if self._has_not_changed(topic, partition, partition_state):
                    raise

    def _has_not_changed(self, topic: str, partition: int, before: PartitionState) -> bool:
        """Return whether the list of segments is still the one that was used, so that a missing file is lost."""
        try:
            return self.refresh().partition(topic, partition).changes == before.changes
        except UnknownTopicOrPartitionError:
            return True

    # -- records

    def fetch(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        columns: Sequence[str] | None = None,
        state: State | None = None,
        select: Select | None = None,
    ) -> Iterator[Fetched]:
        """Yield the existing records of ``[start, end)`` as Arrow, one stored batch at a time.

        ``columns`` selects from key, value, timestamp and headers, in this order; ``state`` reads in an older state;
        ``select`` says what is read of each segment, instead of ``columns``.
        Raises UnknownTopicOrPartitionError, DataLossError, CorruptRecordError, CorruptIndexError, and
        OffsetOutOfRangeError if records of the range are deleted before they are read.
        """
        state = state or self.state
        start = max(start, state.partition(topic, partition).log_start_offset)
        end = min(end, state.partition(topic, partition).high_watermark)
        for segment, records in self._reader.read(topic, partition, start, end, columns, state, select):
            yield Fetched(records, segment.leader_epoch)

    def segments(self, topic: str, partition: int, start: int, end: int, state: State) -> list[Segment]:
        """Return the segments that hold records of ``[start, end)``, in this state. Errors as ``fetch``."""
        return self._segments(state, topic, partition).between(start, end)

    def positions(
        self, topic: str, partition: int, start: int, end: int, with_offsets: bool, state: State
    ) -> Iterator[Records]:
        """Yield the number of records of ``[start, end)`` and, ``with_offsets``, their offsets, without any column.

        ``start`` is not below the log start offset in this state. Errors as ``fetch``.
        """

        def read(segment: Segment, first: int, last: int) -> Iterator[Records]:
            return (fetched.records for fetched in self.fetch(topic, partition, first, last, [], state))

        segments = self.segments(topic, partition, start, end, state)
        return positions_of(segments, start, end, with_offsets, read)

    def records(
        self, topic: str, partition: int, start: int, end: int, state: State | None = None
    ) -> Iterator[ConsumerRecord]:
        """Yield the records of ``[start, end)`` as Python objects. Errors as ``fetch``."""
        for fetched in self.fetch(topic, partition, start, end, state=state):
            yield from to_records(topic, partition, fetched)

    def _segments(self, state: State, topic: str, partition: int) -> PartitionSegments:
        return self._coordinator.segments(topic, state).partition(partition)


def largest_timestamp(segments: Iterable[Segment]) -> int | None:
    return max((segment.max_timestamp_us for segment in segments), default=None)


def to_records(topic: str, partition: int, fetched: Fetched) -> Iterator[ConsumerRecord]:
    """Convert Arrow records to Python objects; columns that were not fetched are None, such a timestamp is 0."""
    batch, timestamp_type = fetched.records.batch, fetched.records.timestamp_type
    count = batch.num_rows
    names = batch.schema.names
    keys = batch.column("key").to_pylist() if "key" in names else [None] * count
    values = batch.column("value").to_pylist() if "value" in names else [None] * count
    stamps = batch.column("timestamp").view("int64").to_pylist() if "timestamp" in names else [0] * count
    headers = batch.column("headers").to_pylist() if "headers" in names else [None] * count
    for row, offset in enumerate(fetched.records.all_offsets()):
        yield ConsumerRecord(
            topic,
            partition,
            offset,
            stamps[row],
            timestamp_type,
            keys[row],
            values[row],
            [(header["key"], header["value"]) for header in headers[row] or ()],
            fetched.leader_epoch,
        )
