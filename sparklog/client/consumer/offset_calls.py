"""Where a consumer is in its partitions: the calls that tell it, change it, and ask for offsets by name or time.

Rules: one part of ``Consumer``, and for its use alone; each call is guarded as its other calls are.
Not for: finding offsets (``consumer_positions``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from sparklog.client.consumer.config import EARLIEST_RESET, LATEST_RESET, ConsumerConfig
from sparklog.client.consumer.group_session import GroupSession
from sparklog.client.consumer.offsets_topic import ConsumerReader
from sparklog.client.consumer.one_thread import OneThread
from sparklog.client.consumer.positions import Positions
from sparklog.client.consumer.subscription_state import Subscription, as_offset, as_partition, as_seconds
from sparklog.client.deadlines import Repeatable
from sparklog.clock import Clock
from sparklog.errors import IllegalStateError
from sparklog.protocol.state import State
from sparklog.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition


class PositionCalls(ABC):
    """The methods of ``Consumer`` for positions and offsets."""

    _alone: OneThread
    _clock: Clock
    _config: ConsumerConfig
    _group: GroupSession | None
    _newest: Repeatable[State]
    _positions: Positions
    _reader: ConsumerReader
    _subscription: Subscription

    @abstractmethod
    def _put_back(self) -> None:
        """Give back the records that iteration has in hand."""

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """The offset of the next record. Raises IllegalStateError, UnknownTopicTimeoutError, NoOffsetForPartitionError
        and KafkaTimeoutError."""
        with self._alone:
            at = self._subscription.at(partition)
            if at.position is None:
                until = self._refresh_until(timeout_ms)
                self._positions.bounds_of(partition, until)
                self._positions.find(at, until)
            assert at.position is not None
            return at.position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on from this offset. Raises NotAssignedError, InvalidArgumentError for one that none can be.

        >>> for value in (b"a", b"b"):
        ...     _ = producer.send("orders", value).get()
        >>> first = sparklog.TopicPartition("orders", 0)
        >>> consumer.assign([first])
        >>> consumer.seek(first, 1)
        >>> next(consumer).value
        b'b'
        """
        with self._alone:
            self._put_back()
            at = self._subscription.at(partition)
            self._positions.seek(at, as_offset(at.place, getattr(offset, "offset", offset)))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Read on from the first record there is, in these partitions or all. Raises IllegalStateError."""
        self._seek_to(partitions, EARLIEST_RESET)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Read on after the last record there is, in these partitions or all. Raises IllegalStateError."""
        self._seek_to(partitions, LATEST_RESET)

    def _seek_to(self, partitions: Sequence[TopicPartition], reset: str) -> None:
        with self._alone:
            self._put_back()
            for position in self._subscription.chosen(partitions):
                self._positions.seek(position, None, reset)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each. Raises UnknownTopicTimeoutError, KafkaTimeoutError."""
        with self._alone:
            return self._positions.ends(partitions, True, self._refresh_until(timeout_ms))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record of each. Raises UnknownTopicTimeoutError, KafkaTimeoutError.

        >>> first = sparklog.TopicPartition("orders", 0)
        >>> consumer.end_offsets([first])[first]
        0
        """
        with self._alone:
            return self._positions.ends(partitions, False, self._refresh_until(timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time in milliseconds, None where there is none. Raises
        UnknownTopicTimeoutError, InvalidArgumentError, KafkaTimeoutError."""
        with self._alone:
            return self._positions.for_times(timestamps, self._refresh_until(timeout_ms))

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> int | OffsetAndMetadata | None:
        """What the group has committed in a partition, None if nothing; with its metadata if asked for.
        Raises IllegalStateError without a group."""
        with self._alone:
            self._grouped("committed")
            place = as_partition(partition)
            self._refresh(timeout_ms)
            found = self._positions.committed(place)
            return found if metadata or found is None else found.offset

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset after the last record as far as this consumer has read the log, without asking the storage. Any
        thread may ask. Raises IllegalStateError."""
        self._alone.check_process()
        place = self._subscription.at(partition).place
        return self._reader.end_offset(*place)

    def _grouped(self, method: str) -> GroupSession:
        if self._group is None:
            raise IllegalStateError(f"{method}() needs a group: make the Consumer with group_id=...")
        return self._group

    def _refresh(self, timeout_ms: float | None) -> State:
        """The newest state there is. Raises KafkaTimeoutError."""
        return self._newest.call_within(self._seconds(timeout_ms), newer=True)

    def _refresh_until(self, timeout_ms: float | None) -> float:
        """The same; until when, by the clock, what follows may take."""
        until = self._clock.monotonic() + self._seconds(timeout_ms)
        self._refresh(timeout_ms)
        return until

    def _seconds(self, timeout_ms: float | None) -> float:
        return self._config.api_timeout if timeout_ms is None else as_seconds(timeout_ms)
