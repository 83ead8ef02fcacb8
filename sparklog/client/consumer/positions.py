"""Where a consumer begins in each partition: a seek, the committed offset, or ``auto_offset_reset``; and offsets asked
for by name or time.

Rules: the consumer's thread owns it. A position is looked for when it is needed, in the newest state there is. What has
to read files for that is done by a thread of its own, so that whoever waits can give up in time; it alone uses the
reader for them. A position that is being looked for then is found by whoever asks next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from sparklog.client.consumer.config import (
    DURATION_RESET,
    EARLIEST_RESET,
    LATEST_RESET,
    NO_RESET,
    ConsumerConfig,
    OffsetReset,
)
from sparklog.client.consumer.fetcher import ReadAhead
from sparklog.client.consumer.offsets_topic import ConsumerReader
from sparklog.client.consumer.subscription_state import PartitionPosition, Subscription, as_partition, as_partitions
from sparklog.client.consumer.unknown_topics import unknown_as_timeout
from sparklog.client.deadlines import Call, InOrder, timed_out
from sparklog.client.reader import Bounds
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    InvalidArgumentError,
    InvalidArgumentTypeError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicTimeoutError,
)
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.state import GroupState, State
from sparklog.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

Result = TypeVar("Result")


class _Start(NamedTuple):
    """Where to begin in a partition: at an offset, which is the committed one where there is one."""

    offset: int
    committed: OffsetAndMetadata | None


class _Search(NamedTuple):
    """A call that looks for a position, of no use once the position's ``guard`` is another."""

    guard: object
    call: Call[_Start | None]


class Positions:
    """Finds positions and tells them to whoever reads ahead. Not thread-safe."""

    def __init__(
        self,
        coordinator: Coordinator,
        reader: ConsumerReader,
        read_ahead: ReadAhead,
        subscription: Subscription,
        config: ConsumerConfig,
        refresh: Callable[[float], State],
    ) -> None:
        """``refresh`` reads the newest state, and raises KafkaTimeoutError where that takes more than these seconds."""
        self._refresh = refresh
        self._coordinator = coordinator
        self._reader = reader
        self._read_ahead = read_ahead
        self._subscription = subscription
        self._config = config
        self._missing: list[PartitionPosition] = []
        self._seen: State | None = None
        self._files = InOrder("sparklog-consumer-lookup")
        self._searches: dict[TopicPartition, _Search] = {}
        self.stale = False

    def update(self, seconds: float) -> None:
        """Find the positions that are not known yet. Topics that do not exist are waited for.

        Raises NoOffsetForPartitionError where there is none and ``auto_offset_reset`` is none, and KafkaTimeoutError
        after so many seconds: the next call continues.
        """
        if not self.stale and (not self._missing or self._coordinator.state is self._seen):
            return
        until, late = self._reader.clock.monotonic() + seconds, None
        self._seen = self._refresh(seconds) if self.stale else self._coordinator.state
        self.stale = True  # until all of it is done
        self._missing = []
        self._forget_searches()
        for position in self._subscription.positions.values():
            if position.position is None:
                try:
                    self.find(position, until)
                except KafkaTimeoutError as error:
                    late = error
            if position.position is None:
                self._missing.append(position)
            elif not self._read_ahead.known(position.place):
                self._read_ahead.read_from(position.place, position.position, position.paused)
        if late is not None:
            raise late
        self.stale = False

    def find(self, position: PartitionPosition, until: float) -> None:
        """Find one position, as far as its partition exists. Raises KafkaTimeoutError where it is not known by then."""
        look = partial(self._start_of, position.place, position.reset)
        found = self._search(position, look, until) if self._needs_files(position.place) else look()
        if found is None:
            return
        self._go(position, found.offset)
        if found.committed is not None:
            position.committed = found.committed.offset
            position.epoch = -1 if found.committed.leader_epoch is None else found.committed.leader_epoch

    def _needs_files(self, place: TopicPartition) -> bool:
        """Whether it may take more than the state to find where to begin."""
        return self._config.reset.strategy == DURATION_RESET or place.topic == CONSUMER_OFFSETS_TOPIC

    def _search(self, position: PartitionPosition, look: Callable[[], _Start | None], until: float) -> _Start | None:
        """What ``look`` finds; it is asked once, also where this is called again since the time was over."""
        known = self._searches.get(position.place)
        if known is None or known.guard is not position.guard:
            if known is not None:
                known.call.cancel()
            known = self._searches[position.place] = _Search(position.guard, self._files.submit(look))
        left = max(until - self._reader.clock.monotonic(), 0)
        if not known.call.wait(left):
            raise timed_out(f"finding where to begin in {position.place}", left, "the next call continues with it")
        del self._searches[position.place]
        return known.call.result()

    def _forget_searches(self) -> None:
        """Of partitions that it has no more."""
        for place in self._searches.keys() - self._subscription.positions.keys():
            self._searches.pop(place).call.cancel()

    def _start_of(self, place: TopicPartition, how: str) -> _Start | None:
        """Where to begin, None where there is no such partition. Changes nothing, so any thread may ask."""
        bounds = self._reader.fresh_bounds(*place)
        if bounds is None:
            return None
        committed = None if how else self.committed(place)
        if committed is not None:
            return _Start(committed.offset, committed)
        reset = OffsetReset(how) if how and how != self._config.reset.strategy else self._config.reset
        return _Start(self._reset(place, bounds, reset, None), None)

    def _go(self, position: PartitionPosition, offset: int) -> None:
        position.move(offset)
        self._read_ahead.read_from(position.place, offset, position.paused)

    def seek(self, position: PartitionPosition, offset: int | None, reset: str = "") -> None:
        """Read from here on; or where ``reset`` says, found at the next ``update``."""
        if offset is not None:
            self._go(position, offset)
            return
        position.move(None, reset)
        self._read_ahead.forget(position.place)
        self.stale = True

    def reset_after(self, error: OffsetOutOfRangeError) -> None:
        """Go on where ``auto_offset_reset`` says, or raise the error where it says none."""
        place, reset = TopicPartition(str(error.topic), int(error.partition)), self._config.reset
        position = self._subscription.positions.get(place)
        if position is None:
            return
        if self._needs_files(place) and reset.strategy != NO_RESET:
            self.seek(position, None, reset.strategy)  # found at the next update
            return
        bounds = self._reader.bounds(*place)
        if bounds is not None:
            self._go(position, self._reset(place, bounds, reset, error))

    def _reset(
        self, place: TopicPartition, bounds: Bounds, reset: OffsetReset, error: OffsetOutOfRangeError | None
    ) -> int:
        if reset.strategy == EARLIEST_RESET:
            return bounds.start
        if reset.strategy == LATEST_RESET:
            return bounds.end
        if reset.strategy == DURATION_RESET:
            found = self._reader.find_timestamp(*place, (self._reader.clock.now_ms() - reset.age_ms) * 1000)
            return bounds.end if found is None else found.offset
        if error is not None:
            raise error
        group = f"group {self._config.group_id!r}" if self._config.group_id else "a consumer without a group"
        raise NoOffsetForPartitionError(
            f"{group} has no committed offset in {place}, and auto_offset_reset is none; seek, commit an offset, "
            "or set auto_offset_reset to earliest or latest",
            topic=place.topic,
            partition=place.partition,
        )

    def committed(self, place: TopicPartition) -> OffsetAndMetadata | None:
        """What the group has committed, in the newest state read so far."""
        state = self._coordinator.state
        topic = state.topics.get(place.topic)
        group = state.groups.get(self._config.group_id, GroupState())
        found = group.offsets.get(f"{topic.topic_id}:{place.partition}") if topic is not None else None
        return None if found is None else OffsetAndMetadata(found.offset, found.metadata, found.leader_epoch)

    def abandon(self) -> None:
        """End the thread soon, without a lock and without waiting."""
        self._files.end()

    def close(self, seconds: float) -> None:
        """Let go of the files; where one is being read, after that."""
        for search in self._searches.values():
            search.call.cancel()
        self._files.finish(seconds, self._reader.close)

    # -- asked for: each is known by the time ``until``, or raises KafkaTimeoutError

    def bounds_of(self, partition: object, until: float) -> Bounds:
        """What there is of a partition. Raises UnknownTopicTimeoutError."""
        place = as_partition(partition)
        if place.topic == CONSUMER_OFFSETS_TOPIC:
            found = self._read(partial(self._reader.fresh_bounds, *place), f"finding where {place} begins", until)
        else:
            found = self._reader.bounds(*place)
        if found is None:
            with unknown_as_timeout():
                self._coordinator.state.partition(*place)
            raise UnknownTopicTimeoutError(f"there is no partition {place}", **place._asdict())
        return found

    def _read(self, action: Callable[[], Result], what: str, until: float) -> Result:
        return self._files.call_within(max(until - self._reader.clock.monotonic(), 0), action, what)

    def ends(self, partitions: Iterable[TopicPartition], earliest: bool, until: float) -> dict[TopicPartition, int]:
        """The first offset of each, or the one after the last, in the newest state read."""
        found = {place: self.bounds_of(place, until) for place in as_partitions(partitions)}
        return {place: bounds.start if earliest else bounds.end for place, bounds in found.items()}

    def for_times(
        self, timestamps: Mapping[TopicPartition, int], until: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (milliseconds), None where there is none."""
        if not isinstance(timestamps, Mapping):
            raise InvalidArgumentTypeError("offsets_for_times() takes a dict of milliseconds by TopicPartition")
        return {as_partition(place): self._for_time(as_partition(place), at, until) for place, at in timestamps.items()}

    def _for_time(self, place: TopicPartition, timestamp_ms: object, until: float) -> OffsetAndTimestamp | None:
        if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int) or timestamp_ms < 0:
            raise InvalidArgumentError(
                f"the time {timestamp_ms!r} for {place}: give milliseconds since the epoch, from 0",
                topic=place.topic,
                partition=place.partition,
            )
        bounds = self.bounds_of(place, until)
        find = partial(self._reader.find_timestamp, *place, timestamp_ms * 1000)
        found = self._read(find, f"finding a time in {place}", until)
        return (
            None if found is None else OffsetAndTimestamp(found.offset, found.timestamp_us // 1000, bounds.leader_epoch)
        )
