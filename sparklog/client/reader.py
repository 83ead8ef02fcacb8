"""Reading a cluster from Python: offsets by name and by time, records of a range, and waiting for what comes.

Rules: a reader works on the newest state its coordinator has read; ``refresh`` or ``wait`` moves it on. Nothing here
keeps a position: who reads keeps the next offset. The only sleeping is the clock's. Files that were merged into others
while a range is read are looked up anew, which moves the state on as well.

Not for: consumer groups, subscriptions, deserialising.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sparklog.clock import Clock
from sparklog.coordinator import Coordinator
from sparklog.coordinator.newest import deleted_meanwhile, newest_segments
from sparklog.errors import DataLossError, OffsetOutOfRangeError, StorageError, UnknownTopicOrPartitionError
from sparklog.log.batches import positions_of
from sparklog.log.fetch import Fetcher, TimedOffset
from sparklog.log.ranges import read_range
from sparklog.log.records import Records
from sparklog.log.replicas import replicas_in_sync
from sparklog.log.segments import PartitionSegments
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, State
from sparklog.store.base import Store
from sparklog.types import EARLIEST, LATEST

if TYPE_CHECKING:
    from typing_extensions import Self

FIRST_POLL_SECONDS = 0.01
LONGEST_POLL_SECONDS = 1.0
"""An idle reader asks the storage this rarely at most, so that waiting costs two small requests a second."""

Headers = Sequence[tuple[str, "bytes | None"]]


class ConsumerRecord(NamedTuple):
    """One record as it is read; ``timestamp_us`` microseconds since the epoch, ``timestamp_type`` as in ``types``."""

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
    """Records of one partition as Arrow, with the leader epoch they were appended in."""

    records: Records
    leader_epoch: int

    @property
    def end_offset(self) -> int:
        """The offset after the last of these records."""
        return self.records.end_offset


class Bounds(NamedTuple):
    """What can be read of a partition: offsets ``[start, end)`` of the topic with this id.

    ``is_log``: it is a log, whose end is reached once there is no more to read, also where the last records are gone.
    """

    topic_id: str
    start: int
    end: int
    leader_epoch: int
    is_log: bool = True


class LogReader:
    """Reads the partitions of one cluster. Not thread-safe: one per thread; they may share a coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._fetcher = Fetcher(self._store_of, self._replicas_of, self.clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of open files."""
        self._fetcher.close()

    @property
    def clock(self) -> Clock:
        """The clock that waiting goes by."""
        return self._coordinator.log.clock

    @property
    def state(self) -> State:
        """The newest state read so far."""
        return self._coordinator.state

    @property
    def bytes_read(self) -> int:
        """Bytes of ``.log`` and ``.index`` read so far."""
        return self._fetcher.bytes_read

    @property
    def last_broker(self) -> int:
        """The broker whose location was read last, -1 before any was."""
        return self._fetcher.last_broker

    def refresh(self) -> State:
        """The newest state there is."""
        return self._coordinator.refresh()

    def wait(self, seen: State, timeout_seconds: float) -> State:
        """The newest state, once it differs from ``seen`` or the time is over, whichever is first.

        Asks often at first and then ever more rarely, at least every ``LONGEST_POLL_SECONDS``.
        """
        clock = self.clock
        deadline = clock.monotonic() + timeout_seconds
        pause = FIRST_POLL_SECONDS
        while True:
            state = self.refresh()
            left = deadline - clock.monotonic()
            if state.version != seen.version or left <= 0:
                return state
            clock.sleep(min(pause, left))
            pause = min(pause * 1.5, LONGEST_POLL_SECONDS)

    # -- offsets

    def bounds(self, topic: str, partition: int) -> Bounds | None:
        """What there is of a partition in the newest state read so far, None where there is no such partition."""
        found = self.state.topics.get(topic)
        if found is None or partition >= len(found.partitions):
            return None
        at = found.partitions[partition]
        return Bounds(found.topic_id, at.log_start_offset, at.high_watermark, at.leader_epoch)

    def end_offset(self, topic: str, partition: int) -> int | None:
        """The offset after the last record by the newest state read so far, without asking the storage."""
        bounds = self.bounds(topic, partition)
        return None if bounds is None else bounds.end

    def offset(self, topic: str, partition: int, where: int) -> int | None:
        """An offset by Kafka's special numbers (``types.EARLIEST``, ``types.LATEST``) or by time in milliseconds.

        By time: the first record at or after it, None where there is none. Raises UnknownTopicOrPartitionError.
        """
        found = self.state.partition(topic, partition)
        if where == EARLIEST:
            return found.log_start_offset
        if where == LATEST:
            return found.high_watermark
        timed = self.find_timestamp(topic, partition, where * 1000)
        return None if timed is None else timed.offset

    def find_timestamp(self, topic: str, partition: int, timestamp_us: int) -> TimedOffset | None:
        """The first record at or after a time in microseconds, None where there is none."""
        return self._search(topic, partition, lambda segments: timestamp_us)

    def max_timestamp(self, topic: str, partition: int) -> TimedOffset | None:
        """The first of the records with the largest timestamp, None in an empty partition."""
        return self._search(
            topic, partition, lambda segments: max((held.max_timestamp_us for held in segments), default=None)
        )

    def _search(
        self, topic: str, partition: int, timestamp_us: Callable[[PartitionSegments], int | None]
    ) -> TimedOffset | None:
        """The first record at or after a time that the list of segments tells."""
        while True:
            state = self.state
            at, segments = state.partition(topic, partition), self._segments(state, topic, partition)
            wanted = timestamp_us(segments)
            if wanted is None:
                return None
            try:
                return self._fetcher.find_timestamp(topic, segments, wanted, at.high_watermark, at.log_start_offset)
            except (DataLossError, StorageError):
                if self._has_not_changed(topic, partition, at):
                    raise

    def _has_not_changed(self, topic: str, partition: int, before: PartitionState) -> bool:
        """Whether the newest list of segments is the one that was read, so that what is missing is lost."""
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
    ) -> Iterator[Fetched]:
        """Records ``[start, end)`` that are there, as Arrow, a stored batch at a time.

        ``columns`` of key, value, timestamp, headers, in the order wanted; ``state`` reads an older snapshot. Raises
        UnknownTopicOrPartitionError, DataLossError, CorruptRecordError, CorruptIndexError, and OffsetOutOfRangeError
        where records of the range are deleted before they are read.
        """
        state = state or self.state
        start = max(start, state.partition(topic, partition).log_start_offset)
        end = min(end, state.partition(topic, partition).high_watermark)
        try:
            segments = self._segments(state, topic, partition).between(start, end)
        except OffsetOutOfRangeError as error:
            log_start = self.state.partition(topic, partition).log_start_offset
            raise deleted_meanwhile(topic, partition, start, log_start) from error
        newest = newest_segments(self._coordinator, topic, state.topic(topic).topic_id, partition)
        for segment, records in read_range(self._fetcher, topic, segments, start, end, columns, newest):
            yield Fetched(records, segment.leader_epoch)

    def positions(
        self, topic: str, partition: int, start: int, end: int, with_offsets: bool, state: State
    ) -> Iterator[Records]:
        """How many records of ``[start, end)`` there are and, if asked for, their offsets, without any column.

        ``start`` is no lower than where the log starts in this state. Errors as ``fetch``.
        """

        def read(segment: Segment, first: int, last: int) -> Iterator[Records]:
            return (fetched.records for fetched in self.fetch(topic, partition, first, last, [], state))

        segments = self._segments(state, topic, partition).between(start, end)
        return positions_of(segments, start, end, with_offsets, read)

    def records(
        self, topic: str, partition: int, start: int, end: int, state: State | None = None
    ) -> Iterator[ConsumerRecord]:
        """The same as Python objects. Errors as ``fetch``."""
        for fetched in self.fetch(topic, partition, start, end, state=state):
            yield from to_records(topic, partition, fetched)

    def _segments(self, state: State, topic: str, partition: int) -> PartitionSegments:
        return self._coordinator.segments(topic, state).partition(partition)

    def _replicas_of(self, topic: str, partition: int) -> Sequence[int]:
        found = self.state.topics.get(topic)
        return () if found is None else replicas_in_sync(found.partitions[partition])

    def _store_of(self, broker: int) -> Store:
        return self._coordinator.brokers.store_of(self.state, broker)


def to_records(topic: str, partition: int, fetched: Fetched) -> Iterator[ConsumerRecord]:
    """Arrow records as Python objects; columns that were not fetched are as if null, and such a timestamp as 0."""
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
