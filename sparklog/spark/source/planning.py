"""Plan a read: turn options into partitions, offset ranges, and the segments that hold them.

Everything is looked up in one state of the cluster, so a query reads one consistent snapshot of all its topics. The
tasks get the segments they need and do not open the commit log themselves.

Rules: offsets out of range are data loss: an error, or with ``failOnDataLoss=false`` a warning, and the remaining
records are read. Not for: Spark's classes (``reader``) and checking options (``options``).
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
from sparklog.coordinator.record_reader import RecordReader
from sparklog.errors import DataLossError, InvalidOptionError, OffsetOutOfRangeError, StorageError
from sparklog.log.past_offsets import find_past_ends, find_past_topics, find_past_version
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.read_order import replicas_in_sync
from sparklog.log.records.records import Records
from sparklog.log.segments import PartitionSegments, TopicSegments
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State
from sparklog.spark.options import SourceOptions, TopicSubscription
from sparklog.spark.source.filters import Pruning
from sparklog.spark.source.offsets import (
    EveryPartition,
    EveryTimestamp,
    OffsetLimit,
    PartitionTimestamps,
    format_partitions,
)
from sparklog.spark.source.offsets_topic import ConsumerOffsets, partitions_of
from sparklog.spark.source.ranges import group_ranges, split_ranges
from sparklog.types import EARLIEST, LATEST, OffsetRange, TopicPartition

logger = logging.getLogger(__name__)

Planned = TypeVar("Planned")

INTERNAL_TOPICS = (CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)
"""Topics that a pattern never matches, as in Kafka. A batch query can read the first, which is derived, by name."""


@dataclass(frozen=True)
class PlannedRange:
    """Records ``[start, end)`` of a partition for one task, and the segments that hold them.

    ``replicas`` are the brokers in sync, the leader first; ``version`` and ``digest`` are those of the state it was
    planned on, and ``log_end`` is the end of the partition's log in it.
    ``derived`` are records that no segment holds (``offsets_topic``).
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    segments: tuple[Segment, ...]
    replicas: tuple[int, ...]
    version: int
    digest: str
    log_end: int
    derived: tuple[Records, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of the segments, of the first and the last in proportion to their offsets."""
        return sum(_count_bytes(segment, self.start, self.end) for segment in self.segments)


def _count_bytes(segment: Segment, start: int, end: int) -> int:
    offsets = min(end, segment.end_offset) - max(start, segment.base_offset)
    return segment.size_bytes * offsets // (segment.end_offset - segment.base_offset)


def tasks_of(ranges: Sequence[PlannedRange], options: SourceOptions) -> list[list[PlannedRange]]:
    """Return the ranges of each task, by options ``maxPartitions`` and ``minPartitions``."""
    if options.max_partitions is None:  # a topic may have a million segments: no sizes are added up
        return [[planned] for planned in ranges]
    sizes = [planned.size_bytes for planned in ranges]
    groups = group_ranges(sizes, options.max_partitions, options.min_partitions)
    return [[ranges[number] for number in group] for group in groups]


def plan_range(state: State, span: OffsetRange, segments: Iterable[Segment]) -> PlannedRange:
    """Return a range with the facts about its partition that a task needs."""
    partition = state.partition(span.topic, span.partition)
    replicas, topic_id = replicas_in_sync(partition), state.topic(span.topic).topic_id
    bounds = (span.topic, topic_id, span.partition, span.start, span.end)
    return PlannedRange(
        *bounds, tuple(segments), replicas, state.version, state.digest, log_end=partition.high_watermark
    )


class ReadPlan:
    """Plans one read on one ``state``. Lives for one call of ``partitions``; not thread-safe.

    The fetcher reads segments to look up timestamps.
    """

    def __init__(self, coordinator: Coordinator, fetcher: Fetcher, options: SourceOptions, pruned: Pruning) -> None:
        self._coordinator = coordinator
        self._fetcher = fetcher
        self._options = options
        self._pruned = pruned
        self.state: State = coordinator.state
        self._topics: dict[str, TopicSegments] = {}

    def ranges(self) -> list[PlannedRange]:
        """Return the ranges that tasks read. Raises DataLossError, OffsetOutOfRangeError,
        UnknownTopicOrPartitionError."""
        subscribed = self._existed(select(self.state, self._options.subscription))
        check_covers("starting", self._options.starting, subscribed)
        check_covers("ending", self._options.ending, subscribed)
        admitted = [topic_partition for topic_partition in subscribed if self._pruned.admits(*topic_partition)]
        resolved = [self._prune(self._resolve(topic_partition)) for topic_partition in admitted]
        pieces = split_ranges(resolved, self._options.min_partitions, self._options.max_records_per_partition)
        ranges = [self._with_segments(piece) for piece in pieces]
        return [planned for planned in ranges if planned.segments or planned.derived]

    def _existed(self, subscribed: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions that existed at the version that is read. Raises UnknownTopicOrPartitionError for a
        topic that is named and did not."""
        past = self._past_ends
        if past is None:
            return list(subscribed)
        for topic in self._options.subscription.topic_names:
            if topic not in past:
                find_past_ends(self._coordinator.log, self.state, topic, self._past_version)  # raises, with the reason
        return [each for each in subscribed if each.partition in past.get(each.topic, {})]

    @cached_property
    def _past_version(self) -> int:
        past = find_past_version(self._coordinator.log, self.state, self._options.version, self._options.as_of_ms)
        return self.state.version if past is None else past

    @cached_property
    def _past_ends(self) -> Mapping[str, Mapping[int, int]] | None:
        """Where the partitions of each topic ended at the version that is read, None for the newest."""
        if not self._options.is_of_past:
            return None
        topics = {topic for topic, _ in select(self.state, self._options.subscription)}
        if CONSUMER_OFFSETS_TOPIC in topics:
            raise InvalidOptionError(
                f"{CONSUMER_OFFSETS_TOPIC} is derived from the commit log, and is only known as it is now; leave out "
                "versionAsOf and timestampAsOf"
            )
        return find_past_topics(self._coordinator.log, self.state, self._past_version, topics)

    def starts(self) -> dict[TopicPartition, int]:
        """Return the offset at which each partition starts, also of empty ones. Errors as ``ranges``."""
        subscribed = select(self.state, self._options.subscription)
        check_covers("starting", self._options.starting, subscribed)
        return {topic_partition: self._resolve(topic_partition).start for topic_partition in subscribed}

    def _resolve(self, topic_partition: TopicPartition) -> OffsetRange:
        start = self._find_offset(topic_partition, self._options.starting, "starting")
        end = self._find_offset(topic_partition, self._options.ending, "ending")
        first, last = self._bounds(topic_partition)
        if first <= end < start <= last:
            raise InvalidOptionError(
                f"{topic_partition} would start at offset {start}, after its end at {end}; start earlier, or end later"
            )
        return self._check_range(OffsetRange(*topic_partition, start, end))

    def _find_offset(self, topic_partition: TopicPartition, limit: OffsetLimit, side: str) -> int:
        if isinstance(limit, (EveryTimestamp, PartitionTimestamps)):
            time = limit.timestamp_ms if isinstance(limit, EveryTimestamp) else limit.partitions[topic_partition]
            return self._offset_at(topic_partition, time, side)
        offset = limit.offset if isinstance(limit, EveryPartition) else limit.get(topic_partition)
        assert offset is not None, "check_covers refuses partitions without an offset"
        first, last = self._bounds(topic_partition)
        return {EARLIEST: first, LATEST: last}.get(offset, offset)

    def _bounds(self, topic_partition: TopicPartition) -> tuple[int, int]:
        """Return the start and the end of a partition's log."""
        if topic_partition.topic == CONSUMER_OFFSETS_TOPIC:
            return self._consumer_offsets.start_offset, self._consumer_offsets.end_offset
        partition = self.state.partition(*topic_partition)
        end = partition.high_watermark
        if self._past_ends is not None:
            end = max(self._past_ends[topic_partition.topic][topic_partition.partition], partition.log_start_offset)
        return partition.log_start_offset, end

    @cached_property
    def _consumer_offsets(self) -> ConsumerOffsets:
        return ConsumerOffsets(self._coordinator, self.state)

    def _offset_at(self, topic_partition: TopicPartition, timestamp_ms: int, side: str) -> int:
        """Return the first offset with this time or a later one. If there is none, return the end; for a starting
        offset raise OffsetOutOfRangeError unless the options say latest."""
        start, end = self._bounds(topic_partition)
        offset = self._find_timestamp(topic_partition, timestamp_ms * 1000, end, start)
        if offset is not None:
            return offset
        if side == "ending" or self._options.latest_if_no_match:
            return end
        raise OffsetOutOfRangeError(
            f"no record of {topic_partition} has a timestamp of {timestamp_ms} or later; start earlier, or set "
            "startingOffsetsByTimestampStrategy=latest to start at the end",
            topic=topic_partition.topic,
            partition=topic_partition.partition,
        )

    def _find_timestamp(self, topic_partition: TopicPartition, timestamp_us: int, end: int, start: int) -> int | None:
        if topic_partition.topic == CONSUMER_OFFSETS_TOPIC:
            offset = self._consumer_offsets.offset_at(topic_partition.partition, -(-timestamp_us // 1000))
            return None if offset is None or offset >= end else max(offset, start)
        position = self._fetcher.find_timestamp(
            topic_partition.topic, self._segments(topic_partition), timestamp_us, end, start
        )
        return None if position is None else position.offset

    def _check_range(self, span: OffsetRange) -> OffsetRange:
        """Return the part of the range that the log holds. Raises DataLossError if that is not all of it."""
        first, last = self._bounds(TopicPartition(span.topic, span.partition))
        if span.start >= first and max(span.start, span.end) <= last:
            return span
        problem = (
            f"offsets {span.start} to {span.end} of {span.topic}-{span.partition} were requested, but the log has "
            f"{first} to {last}: records were deleted, the topic was created again, or the offsets are those of "
            "another topic"
        )
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"{problem}; correct the offsets, or set failOnDataLoss=false to read what there is",
                topic=span.topic,
                partition=span.partition,
                offset=span.start,
            )
        logger.warning("%s; reading what there is, since failOnDataLoss is false", problem)
        return OffsetRange(span.topic, span.partition, max(span.start, first), min(span.end, last))

    def _prune(self, span: OffsetRange) -> OffsetRange:
        """Return the range without the records at either end that the filters on offset and timestamp exclude."""
        start = max(span.start, self._pruned.offsets.first)
        end = min(span.end, self._pruned.offsets.last + 1)
        first_us = self._pruned.timestamps_us.first
        if start < end and first_us > 0:
            offset = self._find_timestamp(TopicPartition(span.topic, span.partition), first_us, end, start)
            start = end if offset is None else offset
        return OffsetRange(span.topic, span.partition, start, end)

    def _with_segments(self, span: OffsetRange) -> PlannedRange:
        if span.topic == CONSUMER_OFFSETS_TOPIC:
            records = self._consumer_offsets.records(span)
            bounds = (span.topic, "", span.partition, span.start, span.end)
            return PlannedRange(*bounds, (), (), self.state.version, self.state.digest, span.end, records)
        times = self._pruned.timestamps_us
        segments = self._segments(TopicPartition(span.topic, span.partition)).between(span.start, span.end)
        kept = (segment for segment in segments if times.overlaps(segment.min_timestamp_us, segment.max_timestamp_us))
        return plan_range(self.state, span, kept)

    def _segments(self, topic_partition: TopicPartition) -> PartitionSegments:
        if topic_partition.topic not in self._topics:
            self._topics[topic_partition.topic] = self._coordinator.segments(topic_partition.topic, self.state)
        return self._topics[topic_partition.topic].partition(topic_partition.partition)


def plan(coordinator: Coordinator, look_up: Callable[[Fetcher], Planned]) -> Planned:
    """Return the result of ``look_up`` on the newest state; retry it once if the state has changed, since a file that
    it needs may have been rolled."""
    state, reader = coordinator.state, RecordReader(lambda: coordinator)
    try:
        try:
            return look_up(reader.fetcher)
        except (DataLossError, StorageError):
            if coordinator.refresh().version == state.version:
                raise
            return look_up(reader.fetcher)
    finally:
        reader.close()


def lease_read(coordinator: Coordinator, ranges: Sequence[PlannedRange], ttl_ms: int) -> ReaderLease | None:
    """Take the reader lease that tasks renew while they read; None if there is nothing to read, or for 0 ms."""
    if not ranges or not ttl_ms:
        return None
    return take_reader_lease(coordinator, min(planned.version for planned in ranges), ttl_ms)


def select(state: State, subscription: TopicSubscription) -> list[TopicPartition]:
    """Return the subscribed partitions, sorted. Raises UnknownTopicOrPartitionError for a missing topic.

    As in Spark's Kafka source, ``assign`` skips partitions that a topic does not have, and a pattern matches any part
    of a name.
    """
    if subscription.assign:
        for name in subscription.topic_names:
            partitions_of(state, name)
        return [topic_partition for topic_partition in subscription.assign if _exists(state, topic_partition)]
    if subscription.pattern:
        pattern = re.compile(subscription.pattern)
        names = [name for name in state.topics if name not in INTERNAL_TOPICS and pattern.search(name)]
    else:
        names = list(subscription.topics)
    return [TopicPartition(name, number) for name in sorted(set(names)) for number in range(partitions_of(state, name))]


def _exists(state: State, topic_partition: TopicPartition) -> bool:
    if topic_partition.partition < partitions_of(state, topic_partition.topic):
        return True
    logger.warning("%s of option assign does not exist at version %s; skipping it", topic_partition, state.version)
    return False


def check_covers(side: str, limit: OffsetLimit, subscribed: Sequence[TopicPartition]) -> None:
    """Check that offsets or times per partition name exactly the subscribed partitions. Raises InvalidOptionError."""
    if isinstance(limit, (EveryPartition, EveryTimestamp)):
        return
    missing = [topic_partition for topic_partition in subscribed if limit.get(topic_partition) is None]
    extra = set(limit.partitions) - set(subscribed)
    unknown = set(limit.topics) - {topic_partition.topic for topic_partition in subscribed}
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
