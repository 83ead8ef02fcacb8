"""The methods of ``Consumer`` that return and change its positions, and that find offsets by name or time.

Rules: a mixin of ``Consumer`` only; one thread at a time, as its other methods.
Not for: finding offsets (``positions``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from sparklog.client.consumer.config import ConsumerConfig
from sparklog.client.consumer.group_session import GroupSession
from sparklog.client.consumer.offsets_topic import ConsumerReader
from sparklog.client.consumer.one_thread import OneThread
from sparklog.client.consumer.positions import Positions
from sparklog.client.consumer.subscription_state import Subscription, as_offset, as_partition, as_seconds
from sparklog.client.deadlines import Repeatable
from sparklog.clock import Clock
from sparklog.errors import IllegalStateError
from sparklog.protocol.group.start_offset import EARLIEST, LATEST
from sparklog.protocol.state import State
from sparklog.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition


class PositionCalls(ABC):
    """The methods of ``Consumer`` for positions and offsets."""

    _thread_guard: OneThread
    _clock: Clock
    _config: ConsumerConfig
    _group: GroupSession | None
    _refresh_call: Repeatable[State]
    _positions: Positions
    _reader: ConsumerReader
    _subscription: Subscription

    @abstractmethod
    def _put_back(self) -> None:
        """Return unread records of the current iteration to the fetch buffer."""

    @abstractmethod
    def _undo_interrupted(self) -> None:
        """Return to the positions before a call that was interrupted."""

    def position(self, partition: TopicPartition, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record. Raises IllegalStateError, UnknownTopicTimeoutError,
        NoOffsetForPartitionError, RootReplacedError, KafkaTimeoutError."""
        with self._thread_guard.enter():
            self._undo_interrupted()
            self._positions.leave_timeline()
            at = self._subscription.at(partition)
            if at.position is None:
                until = self._refresh_until(timeout_ms)
                self._positions.bounds_of(partition, until)
                self._positions.find(at, until)
            assert at.position is not None
            return at.position

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue reading from this offset. Raises NotAssignedError, InvalidArgumentError for an invalid offset.

        >>> for value in (b"a", b"b"):
        ...     _ = producer.send("orders", value).get()
        >>> first = sparklog.TopicPartition("orders", 0)
        >>> consumer.assign([first])
        >>> consumer.seek(first, 1)
        >>> next(consumer).value
        b'b'
        """
        with self._thread_guard.enter():
            self._put_back()
            at = self._subscription.at(partition)
            self._positions.seek(at, as_offset(at.topic_partition, getattr(offset, "offset", offset)))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue from the first record of these partitions, or of all. Raises IllegalStateError."""
        self._seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record of these partitions, or of all. Raises IllegalStateError."""
        self._seek_to(partitions, LATEST)

    def _seek_to(self, partitions: Sequence[TopicPartition], reset: str) -> None:
        with self._thread_guard.enter():
            self._put_back()
            for position in self._subscription.at_all(partitions):
                self._positions.seek_by(position, reset)

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition. Raises UnknownTopicTimeoutError, KafkaTimeoutError."""
        with self._thread_guard.enter():
            return self._positions.first_or_end_offsets(partitions, True, self._refresh_until(timeout_ms))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each. Raises UnknownTopicTimeoutError, KafkaTimeoutError.

        >>> first = sparklog.TopicPartition("orders", 0)
        >>> consumer.end_offsets([first])[first]
        0
        """
        with self._thread_guard.enter():
            return self._positions.first_or_end_offsets(partitions, False, self._refresh_until(timeout_ms))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each time in milliseconds, None if there is none. Raises
        UnknownTopicTimeoutError, InvalidArgumentError, KafkaTimeoutError."""
        with self._thread_guard.enter():
            return self._positions.offsets_for_times(timestamps, self._refresh_until(timeout_ms))

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> int | OffsetAndMetadata | None:
        """Return the offset that the group has committed in a partition, None if there is none; with ``metadata``
        return all of it. Raises IllegalStateError without a group."""
        with self._thread_guard.enter():
            self._require_group("committed")
            topic_partition = as_partition(partition)
            self._refresh(timeout_ms)
            committed = self._positions.committed_now(topic_partition)
            return committed if metadata or committed is None else committed.offset

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last record, in the state that this consumer has read last; does not access the
        storage. Any thread may call this. Raises IllegalStateError."""
        self._thread_guard.check_process()
        topic_partition = self._subscription.at(partition).topic_partition
        return self._reader.end_offset(*topic_partition)

    def _require_group(self, method: str) -> GroupSession:
        if self._group is None:
            raise IllegalStateError(f"{method}() needs a group: create the Consumer with group_id=...")
        return self._group

    def _refresh(self, timeout_ms: float | None) -> State:
        """Read and return the newest state. Raises KafkaTimeoutError."""
        return self._refresh_call.call_within(self._timeout_seconds(timeout_ms), newer=True)

    def _refresh_until(self, timeout_ms: float | None) -> float:
        """Read the newest state; return the deadline of the whole call, by the monotonic clock."""
        until = self._clock.monotonic() + self._timeout_seconds(timeout_ms)
        self._refresh(timeout_ms)
        return until

    def _timeout_seconds(self, timeout_ms: float | None) -> float:
        return self._config.api_timeout if timeout_ms is None else as_seconds(timeout_ms)
