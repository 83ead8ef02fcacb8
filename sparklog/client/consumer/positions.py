"""Finds where a consumer starts in each partition (a seek, the committed offset or ``auto_offset_reset``), and finds
offsets by name or time.

Rules: the consumer's thread owns it. A position is looked up when it is needed, in the newest state, and used only in
the timeline of the log in which it was found. Lookups that read files run in a thread of their own, the only one that
uses the reader for them, so that a caller can stop waiting at its deadline; the next call gets the result of that
lookup.
Not for: reading records (``fetcher``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sparklog.client.consumer.config import DURATION_RESET, ConsumerConfig, OffsetReset
from sparklog.client.consumer.fetcher import ReadAhead
from sparklog.client.consumer.offsets_topic import ConsumerReader
from sparklog.client.consumer.subscription_state import (
    OffsetOrigin,
    PartitionPosition,
    StartOffset,
    Subscription,
    as_partition,
    as_partitions,
)
from sparklog.client.consumer.unknown_topics import unknown_as_timeout
from sparklog.client.deadlines import InOrder, timed_out
from sparklog.client.reader import Bounds
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    InvalidArgumentError,
    InvalidArgumentTypeError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RootReplacedError,
    UnknownTopicTimeoutError,
)
from sparklog.protocol.group.start_offset import NONE, find_start
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.state import State
from sparklog.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition, whole

logger = logging.getLogger(__name__)

_LEFT_TIMELINE = "left timeline"
"""The ``reset`` of a position that is lost, without a committed offset to continue from: finding it is an error."""

_MOST_SHOWN = 10
"""partitions in one message."""

Result = TypeVar("Result")


@dataclass(eq=False, repr=False)
class Positions:
    """Finds positions and starts reading from them. Not thread-safe.

    ``refresh`` reads the newest state; it raises KafkaTimeoutError after the given seconds.
    """

    _coordinator: Coordinator
    _reader: ConsumerReader
    _read_ahead: ReadAhead
    _subscription: Subscription
    _config: ConsumerConfig
    _refresh: Callable[[float], State]

    def __post_init__(self) -> None:
        self._unresolved: list[PartitionPosition] = []
        self._checked_state: State | None = None
        self._lookup_calls = InOrder("sparklog-consumer-lookup", self._read_ahead.lock)
        self.stale = False
        self._left = list[str]()
        """Positions that were dropped, which an error has to tell."""

    @property
    def _timeline(self) -> int:
        """The timeline of the log, to be read before the state in which a position is found."""
        return self._coordinator.log.unlinked_jumps

    @property
    def needs_seek(self) -> bool:
        """Whether a position was dropped from which no offset of a group leads on: finding it is an error."""
        return any(at.reset == _LEFT_TIMELINE for at in self._subscription.positions.values())

    def leave_timeline(self) -> None:
        """Drop the positions that were found in a timeline that the log has left: other records may have those offsets
        in a root that was restored from a copy meanwhile. They are read from the group's offset again; without one,
        ``update`` raises RootReplacedError until the caller seeks.

        No position goes back in silence: a member of a group reads again as another one, from the next ``poll`` on, and
        who is none, or has to seek in a partition, gets RootReplacedError from it once (``note_told``). Until then
        nothing is committed: what the caller has is of the timeline that was left (``Subscription.left_timeline``).
        """
        timeline, state = self._timeline, self._coordinator.state
        left = {
            at: self.committed(at.topic_partition, state) is not None
            for at in self._subscription.positions.values()
            if at.position is not None and at.timeline not in (None, timeline)
        }
        if not left and not self._left:
            return
        again = [f"{at.topic_partition} (was at {at.position})" for at, has_committed in left.items() if has_committed]
        if left:  # noted first, for an interrupt
            noted = self._subscription.left_timeline
            found_in = {at.timeline for at in left if at.timeline is not None} | (
                {noted} if noted is not None else set()
            )
            self._subscription.left_timeline = min(found_in)
        if again and not (len(again) == len(left) and self._subscription.automatic):
            self._left += again
        for at, has_committed in left.items():
            self.stale = True
            at.move(None, "" if has_committed else _LEFT_TIMELINE)
            at.committed = None
            self._read_ahead.forget(at.topic_partition)
        what = (
            f"commits of {self._coordinator.store.root} were removed before this consumer had read them: it may have "
            "been restored from a copy, with other records at these offsets"
        )
        if again:
            positions = ", ".join(again[:_MOST_SHOWN])
            logger.warning("%s; reading from the group's committed offsets again: %s", what, positions)
        if self._left:
            positions = ", ".join(self._left[:_MOST_SHOWN])
            raise RootReplacedError(
                f"{what}. The next poll reads from the group's committed offsets again: {positions}; drop what was "
                "read since"
            )

    def note_told(self) -> None:
        """Note that the caller knows what ``leave_timeline`` has dropped."""
        self._left, self._subscription.left_timeline = [], None

    def update(self, seconds: float) -> None:
        """Find the positions that are not known yet. Those of topics that do not exist stay unknown.

        Raises NoOffsetForPartitionError if no offset is committed and ``auto_offset_reset`` is none, RootReplacedError
        (see ``leave_timeline``), and KafkaTimeoutError after ``seconds``; the next call continues.
        """
        if not self.stale and (not self._unresolved or self._coordinator.state is self._checked_state):
            return
        until, timeout = self._reader.clock.monotonic() + seconds, None
        self._checked_state = self._refresh(seconds) if self.stale else self._coordinator.state
        self.stale = True  # until all of it is done
        self._unresolved = []
        for position in self._subscription.positions.values():
            if position.position is None:
                try:
                    self.find(position, until)
                except KafkaTimeoutError as error:
                    timeout = error
            if position.position is None:
                self._unresolved.append(position)
            elif not self._read_ahead.is_reading(position.topic_partition):
                self.read(position)
            else:  # what an interrupt may have left half done
                self._read_ahead.pause(position.topic_partition, position.paused)
        if timeout is not None:
            raise timeout
        self.stale = False

    def find(self, position: PartitionPosition, until: float) -> None:
        """Find one position, unless its partition does not exist. Raises KafkaTimeoutError if it is not found by
        ``until``."""
        lookup = partial(self._find_start, position.topic_partition, position.reset)
        needs_files = self._needs_files(position.topic_partition)
        start = self._search(position, lookup, until) if needs_files else lookup()
        if start is None:
            return
        position.start(start)
        self.read(position)

    def _needs_files(self, partition: TopicPartition) -> bool:
        """Return whether finding the start offset may take more than the state."""
        return self._config.reset.strategy == DURATION_RESET or partition.topic == CONSUMER_OFFSETS_TOPIC

    def _search(
        self, position: PartitionPosition, lookup: Callable[[], StartOffset | None], until: float
    ) -> StartOffset | None:
        """Return the result of ``lookup``. It runs once, even if this is called again after a timeout."""
        search = position.search
        if search is None:
            search = position.search = self._lookup_calls.submit(lookup)
        left = max(until - self._reader.clock.monotonic(), 0)
        if not search.wait(left):
            what = f"finding the start offset of {position.topic_partition}"
            raise timed_out(what, left, "the next call continues with it")
        position.search = None
        return search.result()

    def _find_start(self, partition: TopicPartition, strategy: str) -> StartOffset | None:
        """Return the start offset, None for an unknown partition. Moves no position, so any thread may call it."""
        timeline = self._timeline
        bounds = self._reader.fresh_bounds(*partition)
        if bounds is None:
            return None
        origin = OffsetOrigin(bounds.topic_id, timeline)
        if strategy == _LEFT_TIMELINE:
            self._note_lookup(partition, origin)
            raise self._left_timeline(partition, bounds)
        state = self._coordinator.state
        if bounds.is_log and _topic_id(state, partition) != bounds.topic_id:
            return None  # the topic was created again meanwhile
        committed = None if strategy else self.committed(partition, state)
        if committed is not None:
            return StartOffset(committed.offset, committed, origin)
        own_reset = strategy and strategy != self._config.reset.strategy
        reset = OffsetReset(strategy) if own_reset else self._config.reset
        return StartOffset(self._reset_offset(partition, bounds, reset, None), None, origin)

    def _left_timeline(self, partition: TopicPartition, bounds: Bounds) -> RootReplacedError:
        return RootReplacedError(
            f"commits of {self._coordinator.store.root} were removed before this consumer had read them, as they are "
            f"after a long pause, but also in a root that was restored from a copy: other records may be before its "
            f"position in {partition} there, and no offset of a group says where to continue. The log has offsets "
            f"{bounds.start} to {bounds.end}; seek to one of them, or to the beginning or the end",
            **partition._asdict(),
        )

    def read(self, position: PartitionPosition) -> None:
        """Fetch records from a position on."""
        self._read_ahead.read_from(
            position.topic_partition, position.position or 0, position.paused, position.topic_id, position.timeline
        )

    def seek(self, position: PartitionPosition, offset: int) -> None:
        """Read from an offset on that the caller has found: of the topic that it has read, or one that it has looked
        up. The newest state may be of a topic that was created again since, whose first records would be skipped, or of
        another timeline."""
        timeline = self._timeline
        if position.position is not None and position.timeline is not None:
            timeline = position.timeline
        newest = _topic_id(self._coordinator.state, position.topic_partition)
        found, looked_up = position.find_origin(offset), position.looked_up
        if found is None and looked_up is not None and looked_up.origin.topic_id != position.topic_id:
            logger.warning(
                "%s was created again since its records were read: offset %d is taken for that of one of them, and not "
                "for one of the new topic; seek to an offset that end_offsets() or the like returns",
                position.topic_partition,
                offset,
            )
        origin = found or OffsetOrigin(position.topic_id or newest, timeline)
        self._move(position, offset, origin)

    def _move(self, position: PartitionPosition, offset: int, origin: OffsetOrigin) -> None:
        was_stale, self.stale = self.stale, True  # as the forgetting, for an interrupt before it is being read
        self._read_ahead.forget(position.topic_partition)
        position.start(StartOffset(offset, None, origin))
        self.read(position)
        self.stale = was_stale

    def pause(self, position: PartitionPosition, paused: bool) -> None:
        """Return no records of this partition until it is resumed, or resume it."""
        was_stale, self.stale = self.stale, True  # for an interrupt in between
        position.paused = paused
        self._read_ahead.pause(position.topic_partition, paused)
        self.stale = was_stale

    def seek_by(self, position: PartitionPosition, reset: str) -> None:
        """Read from the offset that the policy ``reset`` finds at the next ``update``."""
        self.stale = True  # first, for an interrupt in between
        position.move(None, reset)
        self._read_ahead.forget(position.topic_partition)

    def _note_lookup(self, partition: TopicPartition, origin: OffsetOrigin, *offsets: int) -> None:
        """Note the offsets that the caller is about to be told, to which it may seek; without any, that an error tells
        it to seek to one of this topic and timeline."""
        position = self._subscription.positions.get(partition)
        if position is not None:
            position.note_lookup(origin, offsets or None)

    def reset_out_of_range(self, error: OffsetOutOfRangeError) -> None:
        """Continue where ``auto_offset_reset`` says; raise the error if it is none."""
        partition, reset = TopicPartition(str(error.topic), int(error.partition)), self._config.reset
        position, timeline = self._subscription.positions.get(partition), self._timeline
        if position is None or position.timeline not in (None, timeline):  # the next update drops it
            return
        if self._needs_files(partition) and reset.strategy != NONE:
            self.seek_by(position, reset.strategy)  # found at the next update
            return
        bounds = self._reader.bounds(*partition)
        if bounds is not None:
            origin = OffsetOrigin(bounds.topic_id, timeline)
            self._note_lookup(partition, origin)  # if this raises, the caller seeks to one of them
            self._move(position, self._reset_offset(partition, bounds, reset, error), origin)

    def _reset_offset(
        self, partition: TopicPartition, bounds: Bounds, reset: OffsetReset, error: OffsetOutOfRangeError | None
    ) -> int:
        if reset.strategy == DURATION_RESET:
            timed = self._reader.find_timestamp(*partition, (self._reader.clock.now_ms() - reset.age_ms) * 1000)
            return bounds.end if timed is None else timed.offset
        start = find_start(reset.strategy, bounds.start, bounds.end)
        if start is not None:
            return start
        if error is not None:
            raise error
        group = f"group {self._config.group_id!r}" if self._config.group_id else "a consumer without a group"
        raise NoOffsetForPartitionError(
            f"{group} has no committed offset in {partition}, and auto_offset_reset is none; seek, commit an offset, "
            "or set auto_offset_reset to earliest or latest",
            **partition._asdict(),
        )

    def committed_now(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the offset that the group has committed in the newest state read so far, to the consumer's caller."""
        timeline, state = self._timeline, self._coordinator.state
        found = self.committed(partition, state)
        if found is not None:
            self._note_lookup(partition, OffsetOrigin(_topic_id(state, partition), timeline), found.offset)
        return found

    def committed(self, partition: TopicPartition, state: State) -> OffsetAndMetadata | None:
        """Return the offset that the group has committed in this state."""
        offset = state.committed(self._config.group_id, *partition)
        return None if offset is None else OffsetAndMetadata(offset.offset, offset.metadata, offset.leader_epoch)

    def abandon(self) -> None:
        """Let the thread end soon, without a lock and without waiting."""
        self._lookup_calls.end()

    def close(self, seconds: float) -> None:
        """Close the files, once a running lookup is over, waiting up to ``seconds``."""
        for position in self._subscription.positions.values():
            if position.search is not None:
                position.search.cancel()
        self._lookup_calls.finish(seconds, self._reader.close)

    # -- offsets on request: each is found by the time ``until``, or raises KafkaTimeoutError

    def bounds_of(self, partition: object, until: float) -> tuple[Bounds, OffsetOrigin]:
        """Return the readable offsets of a partition, and whose they are. Raises UnknownTopicTimeoutError."""
        topic_partition, timeline = as_partition(partition), self._timeline
        if topic_partition.topic == CONSUMER_OFFSETS_TOPIC:
            find = partial(self._reader.fresh_bounds, *topic_partition)
            bounds = self._call_within(find, f"finding the log start offset of {topic_partition}", until)
        else:
            bounds = self._reader.bounds(*topic_partition)
        if bounds is None:
            with unknown_as_timeout():
                self._coordinator.state.partition(*topic_partition)
            raise UnknownTopicTimeoutError(f"partition {topic_partition} does not exist", **topic_partition._asdict())
        return bounds, OffsetOrigin(bounds.topic_id, timeline)

    def _call_within(self, action: Callable[[], Result], what: str, until: float) -> Result:
        return self._lookup_calls.call_within(max(until - self._reader.clock.monotonic(), 0), action, what)

    def first_or_end_offsets(
        self, partitions: Iterable[TopicPartition], earliest: bool, until: float
    ) -> dict[TopicPartition, int]:
        """Return the log start offset of each, or the log end offset, in the newest state read."""
        found: dict[TopicPartition, int] = {}
        for partition in as_partitions(partitions):
            bounds, origin = self.bounds_of(partition, until)
            found[partition] = bounds.start if earliest else bounds.end
            self._note_lookup(partition, origin, found[partition])
        return found

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], until: float
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each time in milliseconds, or None if there is none."""
        if not isinstance(timestamps, Mapping):
            raise InvalidArgumentTypeError("offsets_for_times() takes a dict of milliseconds by TopicPartition")
        wanted = ((as_partition(partition), timestamp_ms) for partition, timestamp_ms in timestamps.items())
        return {partition: self._find_offset_for_time(partition, at, until) for partition, at in wanted}

    def _find_offset_for_time(
        self, partition: TopicPartition, timestamp_ms: object, until: float
    ) -> OffsetAndTimestamp | None:
        time_ms = whole(timestamp_ms)
        if time_ms is None or time_ms < 0:
            raise InvalidArgumentError(
                f"invalid time {timestamp_ms!r} for {partition}: give milliseconds since the epoch, from 0",
                **partition._asdict(),
            )
        bounds, origin = self.bounds_of(partition, until)
        find = partial(self._reader.find_timestamp, *partition, time_ms * 1000)
        timed = self._call_within(find, f"finding the offset for a time in {partition}", until)
        if timed is None:
            return None
        self._note_lookup(partition, origin, timed.offset)
        return OffsetAndTimestamp(timed.offset, timed.timestamp_us // 1000, bounds.leader_epoch)


def _topic_id(state: State, partition: TopicPartition) -> str:
    topic = state.topics.get(partition.topic)
    return "" if topic is None else topic.topic_id
