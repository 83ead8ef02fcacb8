"""The values of metrics that the state of a cluster has.

Rules: pure; the values are in the order of the families that they belong to. Not for: what commits changed
(``commit_counters``), and the text (``text``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from sparklog.monitoring.exporter.text import Labels, Row, Value
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
        sum(each.size_bytes * max(len(each.isr), 1) for each in partitions),
        sum(each.segments for each in partitions),
        sum(each.unfit for each in partitions),
        min_insync_replicas,
    )


class GroupRows(NamedTuple):
    """The samples of a group: of its partitions, its topics and itself."""

    partitions: list[Row]
    topics: list[Row]
    group: Row


def group_rows(
    state: State, name: str, labels: Labels, accepts_topic: Callable[[str], bool], seconds_behind: SecondsBehind
) -> GroupRows:
    """Return the samples of a group in the existing topics that are accepted."""
    group = state.groups.get(name, GroupState())
    rows: list[Row] = []
    starts: dict[str, str] = {}
    sums: dict[str, tuple[int, int]] = {}
    newest_ms = -1
    for (topic, number), committed in state.committed_offsets(name).items():
        newest_ms = max(newest_ms, committed.timestamp_ms)
        if topic not in starts:
            if not accepts_topic(topic):
                continue
            starts[topic] = labels.of_partitions(("consumergroup", "topic"), name, topic)
        offset = committed.offset
        lag = state.partition(topic, number).high_watermark - offset
        seconds = 0.0 if lag <= 0 else seconds_behind(committed.topic_id, number, offset)
        rows.append((f'{starts[topic]}{number}"}}', (offset, lag, seconds)))
        offsets, lags = sums.get(topic, (0, 0))
        sums[topic] = (offsets + offset, lags + lag)
    of_group = (len(group.members), group.generation, newest_ms / 1000 if newest_ms >= 0 else None)
    topics: list[Row] = [(labels.of(("consumergroup", "topic"), name, topic), total) for topic, total in sums.items()]
    return GroupRows(rows, topics, (labels.of(("consumergroup",), name), of_group))


def broker_rows(brokers: Iterable[BrokerState], root: str, labels: Labels) -> Iterator[Row]:
    """Yield the samples of ``BROKER_FAMILIES``; ``root`` is the address of a broker that has none of its own."""
    for broker in sorted(brokers, key=lambda each: each.broker):
        yield labels.of(("id", "address"), str(broker.broker), broker.url or root), (1, int(broker.online))


class Retired(NamedTuple):
    """Files that were replaced and not deleted yet: their number and bytes, those due, and since when the first is."""

    files: int
    size_bytes: int
    files_due: int
    bytes_due: int
    first_due_ms: int | None


def retired(state: State, now_ms: int) -> Retired:
    """Return the retired files of a cluster."""
    listings = list(state.removed_files.values())
    due = [each for each in listings if each.delete_at_ms <= now_ms]
    return Retired(
        sum(each.files for each in listings),
        sum(each.size_bytes for each in listings),
        sum(each.files for each in due),
        sum(each.size_bytes for each in due),
        min((each.delete_at_ms for each in listings), default=None),
    )


def state_values(state: State, commit_bytes: int, now_ms: int) -> tuple[Value, ...]:
    """Return the values of ``CLUSTER_FAMILIES`` that the state has: all before those of the newest checkpoint."""
    offline = reassigning = 0
    for topic in state.topics.values():
        for partition in topic.partitions:
            offline += partition.leader < 0
            reassigning += bool(partition.adding or partition.removing)
    files = retired(state, now_ms)
    return (
        sum(broker.online for broker in state.brokers.values()),
        state.version + 1,
        commit_bytes,
        state.timestamp_ms / 1000,
        offline,
        reassigning,
        *files[:4],
        None if files.first_due_ms is None else files.first_due_ms / 1000,
    )
