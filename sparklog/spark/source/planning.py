"""From options to what tasks read: which partitions, from which offset to which, and the segments that hold it.

Everything is looked up in one state of the cluster, so a query reads one consistent snapshot of all its topics. The
tasks get the segments they need and never open the commit log themselves.

Rules: offsets out of range are data loss: an error, or with ``failOnDataLoss=false`` a warning and what is left.
Not for: Spark's classes (``reader``) and checking options (``options``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from sparklog.coordinator import Coordinator
from sparklog.coordinator.reader_leases import ReaderLease, take_reader_lease
from sparklog.errors import DataLossError, InvalidOptionError, OffsetOutOfRangeError, StorageError
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.read_order import replicas_in_sync
from sparklog.log.records.records import Records
from sparklog.log.segments import PartitionSegments, TopicSegments
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State
from sparklog.spark.options import SourceOptions, Subscription
from sparklog.spark.source.filters import Pruning
from sparklog.spark.source.offsets import (
    EveryPartition,
    EveryTimestamp,
    OffsetLimit,
    PartitionOffsets,
    PartitionTimestamps,
    format_partitions,
)
from sparklog.spark.source.offsets_topic import ConsumerOffsets, partitions_of
from sparklog.spark.source.ranges import split_ranges
from sparklog.types import EARLIEST, LATEST, OffsetRange, TopicPartition

logger = logging.getLogger(__name__)

Found = TypeVar("Found")

INTERNAL_TOPICS = (CONSUMER_OFFSETS_TOPIC, "__transaction_state")
"""Topics that a pattern never finds, as in Kafka. By name a batch query reads the first, which is derived."""


@dataclass(frozen=True)
class PlannedRange:
    """Records ``[start, end)`` of a partition for one task, and the segments that hold them.

    ``replicas`` are the brokers in sync, the leader first; ``version`` is the state that all this is of. ``derived``
    are records that no segment holds (``offsets_topic``).
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    segments: tuple[Segment, ...]
    replicas: tuple[int, ...]
    version: int
    derived: tuple[Records, ...] = ()


def planned_range(state: State, one: OffsetRange, segments: Iterable[Segment]) -> PlannedRange:
    """A range with what a task has to know of its partition."""
    replicas = replicas_in_sync(state.partition(one.topic, one.partition))
    topic_id = state.topic(one.topic).topic_id
    return PlannedRange(
        one.topic, topic_id, one.partition, one.start, one.end, tuple(segments), replicas, state.version
    )


class Plan:
    """One look-up of a read. Lives for one call of ``partitions``; not thread-safe.

    ``store_of`` of the fetcher gives the stores of the brokers, for times that have to be looked up in segments.
    """

    def __init__(self, coordinator: Coordinator, fetcher: Fetcher, options: SourceOptions, pruned: Pruning) -> None:
        self._coordinator = coordinator
        self._fetcher = fetcher
        self._options = options
        self._pruned = pruned
        self._state: State = coordinator.state
        self._topics: dict[str, TopicSegments] = {}

    def ranges(self) -> list[PlannedRange]:
        """What each task reads. Raises DataLossError, OffsetOutOfRangeError, UnknownTopicOrPartitionError."""
        subscribed = select(self._state, self._options.subscription)
        check_covers("starting", self._options.starting, subscribed)
        check_covers("ending", self._options.ending, subscribed)
        admitted = [where for where in subscribed if self._pruned.admits(*where)]
        resolved = [self._pruned_range(self._resolve(where)) for where in admitted]
        pieces = split_ranges(resolved, self._options.min_partitions, self._options.max_records_per_partition)
        planned = [self._with_segments(piece) for piece in pieces]
        return [one for one in planned if one.segments or one.derived]

    def starts(self) -> dict[TopicPartition, int]:
        """Where a read of each partition starts, also of empty ones. Errors as ``ranges``."""
        subscribed = select(self._state, self._options.subscription)
        check_covers("starting", self._options.starting, subscribed)
        return {where: self._resolve(where).start for where in subscribed}

    def _resolve(self, where: TopicPartition) -> OffsetRange:
        start = self._offset(where, self._options.starting, "starting")
        end = self._offset(where, self._options.ending, "ending")
        first, last = self._bounds(where)
        if first <= end < start <= last:
            raise InvalidOptionError(
                f"{where} would start at offset {start}, after its end at {end}; start earlier, or end later"
            )
        return self._checked(OffsetRange(where.topic, where.partition, start, end))

    def _offset(self, where: TopicPartition, limit: OffsetLimit, side: str) -> int:
        if isinstance(limit, (EveryTimestamp, PartitionTimestamps)):
            time = limit.timestamp_ms if isinstance(limit, EveryTimestamp) else limit.partitions[where]
            return self._offset_at(where, time, side)
        offset = limit.offset if isinstance(limit, EveryPartition) else limit.get(where)
        assert offset is not None, "check_covers lets no partition without an offset pass"
        first, last = self._bounds(where)
        return {EARLIEST: first, LATEST: last}.get(offset, offset)

    def _bounds(self, where: TopicPartition) -> tuple[int, int]:
        """Where the log of a partition starts and ends."""
        if where.topic == CONSUMER_OFFSETS_TOPIC:
            return self._consumer_offsets.start_offset, self._consumer_offsets.end_offset
        partition = self._state.partition(*where)
        return partition.log_start_offset, partition.high_watermark

    @cached_property
    def _consumer_offsets(self) -> ConsumerOffsets:
        return ConsumerOffsets(self._coordinator, self._state)

    def _offset_at(self, where: TopicPartition, timestamp_ms: int, side: str) -> int:
        """The first offset with this time or a later one; without one the end, or an error where a read would start."""
        start, end = self._bounds(where)
        found = self._find_timestamp(where, timestamp_ms * 1000, end, start)
        if found is not None:
            return found
        if side == "ending" or self._options.latest_if_no_match:
            return end
        raise OffsetOutOfRangeError(
            f"no record of {where} has a timestamp of {timestamp_ms} or later; start earlier, or set "
            "startingOffsetsByTimestampStrategy=latest to start at the end",
            topic=where.topic,
            partition=where.partition,
        )

    def _find_timestamp(self, where: TopicPartition, timestamp_us: int, end: int, start: int) -> int | None:
        if where.topic == CONSUMER_OFFSETS_TOPIC:
            offset = self._consumer_offsets.offset_at(where.partition, -(-timestamp_us // 1000))
            return None if offset is None or offset >= end else max(offset, start)
        found = self._fetcher.find_timestamp(where.topic, self._segments(where), timestamp_us, end, start)
        return None if found is None else found.offset

    def _checked(self, one: OffsetRange) -> OffsetRange:
        """The part of the range that the log holds. Raises DataLossError where that is not all of it."""
        first, last = self._bounds(TopicPartition(one.topic, one.partition))
        if one.start >= first and max(one.start, one.end) <= last:
            return one
        lost = (
            f"offsets {one.start} to {one.end} of {one.topic}-{one.partition} were asked for, and the log goes from "
            f"{first} to {last}: records were deleted, the topic was created again, or the offsets are not its own"
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{lost}; correct the offsets, or set failOnDataLoss=false to read what there is",
                topic=one.topic,
                partition=one.partition,
                offset=one.start,
            )
        logger.warning("%s; reading what there is, since failOnDataLoss is false", lost)
        return OffsetRange(one.topic, one.partition, max(one.start, first), min(one.end, last))

    def _pruned_range(self, one: OffsetRange) -> OffsetRange:
        """Without what the filters on offset and timestamp rule out at either end."""
        start = max(one.start, self._pruned.offsets.first)
        end = min(one.end, self._pruned.offsets.last + 1)
        first = self._pruned.timestamps_us.first
        if start < end and first > 0:
            found = self._find_timestamp(TopicPartition(one.topic, one.partition), first, end, start)
            start = end if found is None else found
        return OffsetRange(one.topic, one.partition, start, end)

    def _with_segments(self, one: OffsetRange) -> PlannedRange:
        if one.topic == CONSUMER_OFFSETS_TOPIC:
            derived = self._consumer_offsets.records(one)
            return PlannedRange(one.topic, "", one.partition, one.start, one.end, (), (), self._state.version, derived)
        times = self._pruned.timestamps_us
        held = self._segments(TopicPartition(one.topic, one.partition)).between(one.start, one.end)
        kept = (piece for piece in held if times.overlaps(piece.min_timestamp_us, piece.max_timestamp_us))
        return planned_range(self._state, one, kept)

    def _segments(self, where: TopicPartition) -> PartitionSegments:
        if where.topic not in self._topics:
            self._topics[where.topic] = self._coordinator.segments(where.topic, self._state)
        return self._topics[where.topic].partition(where.partition)


def plan(coordinator: Coordinator, look_up: Callable[[Fetcher], Found]) -> Found:
    """What ``look_up`` finds in the newest state, which it looks up anew where a file it needs was rolled meanwhile."""

    def replicas_of(topic: str, partition: int) -> Sequence[int]:
        return replicas_in_sync(coordinator.state.partition(topic, partition))

    state = coordinator.state
    fetcher = Fetcher(lambda broker: coordinator.brokers.store_of(coordinator.state, broker), replicas_of)
    try:
        try:
            return look_up(fetcher)
        except (DataLossError, StorageError):
            if coordinator.refresh().version == state.version:
                raise
            return look_up(fetcher)
    finally:
        fetcher.close()


def announced_read(coordinator: Coordinator, planned: Sequence[PlannedRange], ttl_ms: int) -> ReaderLease | None:
    """The announcement that tasks keep alive while they read; None where there is nothing to read, or with 0 ms."""
    if not planned or not ttl_ms:
        return None
    return take_reader_lease(coordinator, min(one.version for one in planned), ttl_ms)


def select(state: State, subscription: Subscription) -> list[TopicPartition]:
    """The partitions subscribed to, sorted. Raises UnknownTopicOrPartitionError for a topic that is not there.

    Like Spark's Kafka source, ``assign`` passes over partitions that a topic does not have, and a pattern finds any
    part of a name.
    """
    if subscription.assign:
        for name in subscription.topic_names:
            partitions_of(state, name)
        return [where for where in subscription.assign if _exists(state, where)]
    if subscription.pattern:
        pattern = re.compile(subscription.pattern)
        names = [name for name in state.topics if name not in INTERNAL_TOPICS and pattern.search(name)]
    else:
        names = list(subscription.topics)
    return [TopicPartition(name, number) for name in sorted(set(names)) for number in range(partitions_of(state, name))]


def _exists(state: State, where: TopicPartition) -> bool:
    if where.partition < partitions_of(state, where.topic):
        return True
    logger.warning("%s does not exist at version %s and is passed over, as assign does", where, state.version)
    return False


def check_covers(side: str, limit: OffsetLimit, subscribed: Sequence[TopicPartition]) -> None:
    """Offsets or times per partition name the subscribed partitions, all and only. Raises InvalidOptionError."""
    if isinstance(limit, (EveryPartition, EveryTimestamp)):
        return
    words: Mapping[str, int] = limit.topics if isinstance(limit, PartitionOffsets) else {}
    missing = [where for where in subscribed if where not in limit.partitions and where.topic not in words]
    extra = set(limit.partitions) - set(subscribed)
    unknown = set(words) - {where.topic for where in subscribed}
    is_time = isinstance(limit, PartitionTimestamps)
    option = f"{side}Offsets" + "ByTimestamp" * is_time
    if missing:
        word, special = ("earliest", -2) if side == "starting" else ("latest", -1)
        how = f"with an offset ({special} for {word}), or give a topic the word {word}"
        if is_time:
            how = f"with a time in milliseconds, or set {side}Timestamp, one time for all partitions"
        raise InvalidOptionError(
            f"option {option} leaves out {format_partitions(missing)}; name every partition that is read, {how}",
            option=option,
        )
    if extra or unknown:
        named = [format_partitions(extra)] * bool(extra) + sorted(f"topic {topic!r}" for topic in unknown)
        raise InvalidOptionError(
            f"option {option} names {', '.join(named)}, which this query does not read; leave them out", option=option
        )
