"""What there is in a cluster, as rows of system tables.

Rules: pure; a row says what the state says, at its version. Not for: what commits changed (``commit_rows``).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from sparklog.monitoring.lag import unread
from sparklog.protocol.file_names import topic_in
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import NO_TIMESTAMP_US, Partitions, PartitionState, State, TopicState

Row = tuple[Any, ...]


class TopicTotals(NamedTuple):
    """The number of partitions of a topic, its replication factor, and the sums of its partitions."""

    partitions: int
    replication_factor: int
    offsets: int
    segments: int
    bytes: int
    unfit: int


def topic_totals(topic: TopicState) -> TopicTotals:
    """Return the totals of a topic."""
    partitions = topic.partitions
    return TopicTotals(
        len(partitions),
        len(partitions[0].replicas) if partitions else 0,
        sum(each.log_end_offset - each.log_start_offset for each in partitions),
        sum(each.segments for each in partitions),
        sum(each.size_bytes for each in partitions),
        sum(each.unfit for each in partitions),
    )


def topics(state: State) -> Iterator[Row]:
    """Yield the rows of the system table ``topics``."""
    for topic in state.topics_in_order():
        yield topic.name, topic.topic_id, topic.created_ms, *topic_totals(topic), sorted(topic.configs.items())


def partitions(state: State) -> Iterator[Row]:
    """Yield the rows of the system table ``partitions``."""
    for topic, number, partition in _partitions(state):
        newest_us = partition.max_timestamp_us
        yield (
            topic,
            number,
            partition.leader if partition.leader >= 0 else None,
            partition.leader_epoch,
            list(partition.replicas),
            list(partition.isr),
            partition.log_start_offset,
            partition.log_end_offset,
            partition.segments,
            partition.size_bytes,
            None if newest_us == NO_TIMESTAMP_US else newest_us // 1000,
            partition.unfit,
        )


def segments(topic: str, live: Iterable[Segment]) -> Iterator[Row]:
    """Yield the rows of the system table ``segments`` for those of a topic."""
    for segment in live:
        yield (
            topic,
            segment.partition,
            segment.base_offset,
            segment.end_offset,
            segment.records,
            segment.size_bytes,
            segment.min_timestamp_us // 1000,
            segment.max_timestamp_us // 1000,
            segment.leader_epoch,
            segment.closed,
            segment.is_history,
            segment.unfit,
            segment.broker,
            segment.path,
            segment.version,
        )


def groups(state: State) -> Iterator[Row]:
    """Yield the rows of the system table ``groups``."""
    for name, group in sorted(state.groups.items()):
        offsets = state.committed_offsets(name)
        lag = sum(unread(state.partition(*at).high_watermark - one.offset) for at, one in offsets.items())
        subscribed = {topic for member in group.members.values() for topic in member.topics}
        yield (
            name,
            group.name_of_state,
            group.generation,
            group.assignor,
            len(group.members),
            sorted(subscribed | {partition.topic for partition in offsets}),
            len(offsets),
            lag,
            max((committed.timestamp_ms for committed in offsets.values()), default=None),
        )


def members(state: State) -> Iterator[Row]:
    """Yield the rows of the system table ``members``."""
    for name, group in sorted(state.groups.items()):
        for member_id, member in sorted(group.members.items()):
            yield (
                name,
                member_id,
                member.instance_id,
                member.client_id,
                member.host,
                list(member.topics),
                _names(member.assigned),
                _names(member.revoking),
                member.session_timeout_ms,
            )


def _names(held: Partitions) -> list[str]:
    return [f"{topic}-{number}" for topic, numbers in sorted(held.items()) for number in numbers]


def producers(state: State) -> Iterator[Row]:
    """Yield the rows of the system table ``producers``."""
    for producer_id, producer in sorted(state.producers.items()):
        committed = producer.committed_epoch if producer.committed_epoch >= 0 else None
        yield producer_id, producer.transactional_id, producer.epoch, committed, producer.timestamp_ms


def brokers(state: State) -> Iterator[Row]:
    """Yield the rows of the system table ``brokers``."""
    for number, broker in sorted(state.brokers.items()):
        of_broker = [each for _, _, each in _partitions(state) if number in each.replicas]
        in_sync = [each for each in of_broker if number in each.isr]
        yield (
            number,
            broker.url,
            broker.online,
            broker.cordoned,
            sum(each.leader == number for each in of_broker),
            len(of_broker),
            len(in_sync),
            sum(each.size_bytes for each in in_sync),
        )


def storage(
    state: State, retired: Iterable[tuple[str, int]] | None, orphaned: Iterable[tuple[str, int]] | None
) -> Iterator[Row]:
    """Yield the rows of the system table ``storage``. Of files the path and bytes are given, None if not known."""
    live = dict.fromkeys(sorted(state.topics), 0)
    for topic, _, partition in _partitions(state):
        live[topic] += partition.size_bytes * max(len(partition.isr), 1)
    found = [_by_topic(files, live) for files in (retired, orphaned)]
    for name, size in live.items():
        yield name, size, *(total for files in found for total in _totals(files, name))
    if any(files is not None and None in files for files in found):
        yield None, 0, *(total for files in found for total in _totals(files, None))


def _by_topic(files: Iterable[tuple[str, int]] | None, topics: Container[str]) -> dict[str | None, list[int]] | None:
    """Return the bytes of files by topic, under None those of topics that do not exist; None if they are not known."""
    if files is None:
        return None
    sizes: dict[str | None, list[int]] = {}
    for path, size in files:
        name = topic_in(path)
        sizes.setdefault(name if name in topics else None, []).append(size)
    return sizes


def _totals(files: Mapping[str | None, list[int]] | None, topic: str | None) -> tuple[int | None, int | None]:
    if files is None:
        return None, None
    sizes = files.get(topic, [])
    return sum(sizes), len(sizes)


def _partitions(state: State) -> Iterator[tuple[str, int, PartitionState]]:
    for topic in state.topics_in_order():
        for number, partition in enumerate(topic.partitions):
            yield topic.name, number, partition
