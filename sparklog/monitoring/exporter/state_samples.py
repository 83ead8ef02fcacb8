"""The values of metrics that the state of a cluster has.

Rules: pure; the values are in the order of the families that they belong to. Not for: what commits changed
(``commit_counters``), and the text (``text``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from sparklog.monitoring.exporter.text import Labels, Row, Value
from sparklog.monitoring.facts.files import retired_files
from sparklog.monitoring.facts.groups import unread
from sparklog.monitoring.facts.topics import stored_bytes
from sparklog.protocol.state import BrokerState, GroupState, PartitionState, State, TopicState


class NameFilter(NamedTuple):
    """Which topics or groups are exported: those in whose name ``include`` is found, and ``exclude`` is not.

    As in kafka_exporter, an expression may match any part of the name; anchor it with ``^`` and ``$``.
    """

    include: re.Pattern[str] = re.compile("")
    exclude: re.Pattern[str] = re.compile("^$")

    def accepts(self, name: str) -> bool:
        return self.include.search(name) is not None and self.exclude.search(name) is None


SecondsBehind = Callable[[str, int, int], float | None]
"""Returns the seconds since the record at an offset was committed, by topic id and partition; None if not known."""


def partition_values(partition: PartitionState) -> tuple[Value, ...]:
    """Return the values of ``PARTITION_FAMILIES``."""
    leader, replicas, in_sync = partition.leader, partition.replicas, len(partition.isr)
    return (
        partition.log_end_offset,
        partition.log_start_offset,
        leader if leader >= 0 else None,
        int(leader >= 0 and leader == replicas[0]),
        len(replicas),
        in_sync,
        int(in_sync < len(replicas)),
    )


def partition_rows(topic: TopicState, labels: Labels) -> Iterator[Row]:
    """Yield the samples of ``PARTITION_FAMILIES`` for the partitions of a topic."""
    start = labels.of_partitions(("topic",), topic.name)
    for number, partition in enumerate(topic.partitions):
        yield f'{start}{number}"}}', partition_values(partition)


def topic_values(topic: TopicState, min_insync_replicas: int) -> tuple[Value, ...]:
    """Return the values of ``TOPIC_FAMILIES``."""
    partitions = topic.partitions
    return (
        len(partitions),
        stored_bytes(partitions),
        sum(each.segments for each in partitions),
        sum(each.unfit for each in partitions),
        min_insync_replicas,
    )


class TopicOffsets(NamedTuple):
    """A group's offsets in a topic: labels, partition and offset of each, and their sum."""

    topic: str
    topic_id: str
    labels: str
    partitions: list[tuple[str, int, int]]
    total: int


class GroupOffsets(NamedTuple):
    """A group: its samples of ``GROUP_FAMILIES``, and its offsets, which stay the same while others write."""

    row: Row
    topics: list[TopicOffsets]


def group_offsets(state: State, name: str, labels: Labels, accepts_topic: Callable[[str], bool]) -> GroupOffsets:
    """Return a group's offsets in the existing topics that are accepted."""
    group, committed = state.groups.get(name, GroupState()), state.committed_offsets(name)
    by_topic: dict[str, TopicOffsets] = {}
    for (topic, number), offset in committed.items():
        known = by_topic.get(topic)
        if known is None:
            if not accepts_topic(topic):
                continue
            known = TopicOffsets(topic, offset.topic_id, labels.of(("consumergroup", "topic"), name, topic), [], 0)
        partition_labels = f'{known.labels[:-1]},partition="{number}"}}'
        known.partitions.append((partition_labels, number, offset.offset))
        by_topic[topic] = known._replace(total=known.total + offset.offset)
    newest_ms = max((offset.timestamp_ms for offset in committed.values()), default=None)
    of_group = (len(group.members), group.generation, None if newest_ms is None else newest_ms / 1000)
    return GroupOffsets((labels.of(("consumergroup",), name), of_group), list(by_topic.values()))


class LagRows(NamedTuple):
    """The samples of ``GROUP_PARTITION_FAMILIES`` and ``GROUP_TOPIC_FAMILIES``."""

    partitions: list[Row]
    topics: list[Row]


def lag_rows(state: State, groups: Iterable[GroupOffsets], seconds_behind: SecondsBehind) -> LagRows:
    """Return how far groups are behind at a state that has the topics of their offsets."""
    rows: list[Row] = []
    totals: list[Row] = []
    for each in groups:
        for topic, topic_id, labels, offsets, total in each.topics:
            partitions, lag_sum = state.topics[topic].partitions, 0
            for partition_labels, number, offset in offsets:
                lag = partitions[number].log_end_offset - offset
                lag_sum += unread(lag)
                rows.append(
                    (partition_labels, (offset, lag, 0.0 if lag <= 0 else seconds_behind(topic_id, number, offset)))
                )
            totals.append((labels, (total, lag_sum)))
    return LagRows(rows, totals)


def broker_rows(brokers: Iterable[BrokerState], root: str, labels: Labels) -> Iterator[Row]:
    """Yield the samples of ``BROKER_FAMILIES``; ``root`` is the address of a broker that has none of its own."""
    for broker in sorted(brokers, key=lambda each: each.broker):
        yield labels.of(("id", "address"), str(broker.broker), broker.url or root), (1, int(broker.online))


def state_values(state: State, commit_bytes: int, now_ms: int) -> tuple[Value, ...]:
    """Return the values of ``CLUSTER_FAMILIES`` that the state has: all before those of the newest checkpoint."""
    offline = reassigning = 0
    for topic in state.topics.values():
        for partition in topic.partitions:
            offline += partition.leader < 0
            reassigning += bool(partition.adding or partition.removing)
    retired, due = retired_files(state), retired_files(state, now_ms)
    return (
        sum(broker.online for broker in state.brokers.values()),
        state.version + 1,
        commit_bytes,
        state.timestamp_ms / 1000,
        offline,
        reassigning,
        retired.files,
        retired.bytes,
        due.files,
        due.bytes,
        None if retired.first_due_ms is None else retired.first_due_ms / 1000,
    )
