"""Facts of topics, partitions and segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sparklog.monitoring.facts.columns import (
    Count,
    Flag,
    NullableNumber,
    NullableTime,
    Number,
    Numbers,
    Text,
    TextPairs,
    Time,
)
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import NO_TIMESTAMP_US, PartitionState, State, TopicState


class TopicFacts(NamedTuple):
    """A topic with the sums of its partitions. ``offsets`` are those between start and end, which compaction may have
    left without records; ``bytes`` are those of one replica; ``configs`` are those that the topic sets itself."""

    topic: Text
    topic_id: Text
    created: Time
    partitions: Number
    replication_factor: Number
    offsets: Count
    segments: Count
    bytes: Count
    unfit: Count
    configs: TextPairs


def topic_facts(topic: TopicState) -> TopicFacts:
    """Return the facts of a topic."""
    partitions = topic.partitions
    return TopicFacts(
        topic=topic.name,
        topic_id=topic.topic_id,
        created=topic.created_ms,
        partitions=len(partitions),
        replication_factor=len(partitions[0].replicas) if partitions else 0,
        offsets=sum(offsets_in(each) for each in partitions),
        segments=sum(each.segments for each in partitions),
        bytes=sum(each.size_bytes for each in partitions),
        unfit=sum(each.unfit for each in partitions),
        configs=sorted(topic.configs.items()),
    )


def topics(state: State) -> Iterator[TopicFacts]:
    """Yield the facts of all topics, in the order of their names."""
    return map(topic_facts, state.topics_in_order())


def offsets_in(partition: PartitionState) -> int:
    """Return how many offsets there are between the start of a partition and its end."""
    return partition.log_end_offset - partition.log_start_offset


def stored_bytes(partitions: Iterable[PartitionState]) -> int:
    """Return the bytes of partitions at all their in-sync replicas; without one, those of the one that has them."""
    return sum(each.size_bytes * max(len(each.isr), 1) for each in partitions)


class PartitionFacts(NamedTuple):
    """A partition. Without a leader ``leader`` is None; ``bytes`` are those of one replica."""

    topic: Text
    partition: Number
    leader: NullableNumber
    leader_epoch: Number
    replicas: Numbers
    isr: Numbers
    log_start_offset: Count
    log_end_offset: Count
    segments: Count
    bytes: Count
    max_timestamp: NullableTime
    unfit: Count


def partitions(state: State) -> Iterator[PartitionFacts]:
    """Yield the facts of all partitions, in the order of topics and numbers."""
    for topic in state.topics_in_order():
        for number, partition in enumerate(topic.partitions):
            newest_us = partition.max_timestamp_us
            yield PartitionFacts(
                topic=topic.name,
                partition=number,
                leader=partition.leader if partition.leader >= 0 else None,
                leader_epoch=partition.leader_epoch,
                replicas=list(partition.replicas),
                isr=list(partition.isr),
                log_start_offset=partition.log_start_offset,
                log_end_offset=partition.log_end_offset,
                segments=partition.segments,
                bytes=partition.size_bytes,
                max_timestamp=None if newest_us == NO_TIMESTAMP_US else newest_us // 1000,
                unfit=partition.unfit,
            )


class SegmentFacts(NamedTuple):
    """A live segment. ``broker`` is one that holds its file; ``version`` is that of the commit that made it."""

    topic: Text
    partition: Number
    base_offset: Count
    end_offset: Count
    records: Count
    bytes: Count
    min_timestamp: Time
    max_timestamp: Time
    leader_epoch: Number
    closed: Flag
    history: Flag
    unfit: Count
    broker: Number
    path: Text
    version: Count


def segment_facts(topic: str, segment: Segment) -> SegmentFacts:
    """Return the facts of a live segment of a topic."""
    return SegmentFacts(
        topic=topic,
        partition=segment.partition,
        base_offset=segment.base_offset,
        end_offset=segment.end_offset,
        records=segment.records,
        bytes=segment.size_bytes,
        min_timestamp=segment.min_timestamp_us // 1000,
        max_timestamp=segment.max_timestamp_us // 1000,
        leader_epoch=segment.leader_epoch,
        closed=segment.closed,
        history=segment.is_history,
        unfit=segment.unfit,
        broker=segment.broker,
        path=segment.path,
        version=segment.version,
    )
