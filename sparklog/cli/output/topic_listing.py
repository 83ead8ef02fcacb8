"""Builds the documents of ``topics --list`` and ``--describe``, and Kafka's lines from them.

Not for: selecting topics by options (``topics``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import join
from sparklog.cli.output.documents import PartitionDetails, TopicDescriptions, TopicDetails, TopicName, TopicNames
from sparklog.config.topic_configs import TopicConfig
from sparklog.protocol.schema_versions import count_unfit
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.protocol.state import PartitionState, State, TopicState


def listing(state: State, names: Iterable[str]) -> TopicNames:
    from sparklog.client.admin.offsets_topic import described_topic
    from sparklog.protocol.names import is_internal_topic

    return TopicNames(
        topics=[
            TopicName(topic=name, topic_id=described_topic(state, name).topic_id, internal=is_internal_topic(name))
            for name in names
        ]
    )


def descriptions(
    state: State, topics: Iterable[TopicState], reports: Sequence[str], only_with_overrides: bool
) -> TopicDescriptions:
    """Describe these topics; with ``reports`` only partitions that any of them includes, and topics that have some."""
    described: list[TopicDetails] = []
    for topic in topics:
        config = TopicConfig.resolve(topic.configs, state.configs)
        changed = {entry.name: str(entry.value) for entry in config.changed()}
        partitions = [
            _partition(number, partition)
            for number, partition in enumerate(topic.partitions)
            if not only_with_overrides and (not reports or _is_reported(partition, config, state, reports))
        ]
        if (partitions or not reports) and (changed or not only_with_overrides):
            described.append(
                TopicDetails.of(
                    topic,
                    topic=topic.name,
                    partition_count=len(topic.partitions),
                    replication_factor=replication_factor(topic.partitions[0]),
                    configs=changed,
                    unfit_records=count_unfit(topic, config),
                    partitions=partitions,
                )
            )
    return TopicDescriptions(topics=described)


def _partition(number: int, partition: PartitionState) -> PartitionDetails:
    return PartitionDetails.of(
        partition,
        partition=number,
        leader=partition.leader if partition.leader >= 0 else None,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )


def _is_reported(partition: PartitionState, config: TopicConfig, state: State, reports: Sequence[str]) -> bool:
    """Whether any of the reports, as Kafka defines them, includes the partition."""
    in_sync, min_isr = len(partition.isr), config.min_insync_replicas
    leader = state.brokers.get(partition.leader)
    is_included = {
        "under-replicated-partitions": in_sync < replication_factor(partition),
        "under-min-isr-partitions": partition.leader < 0 or in_sync < min_isr,
        "at-min-isr-partitions": in_sync == min_isr,
        "unavailable-partitions": leader is None or not leader.online,
    }
    return any(is_included[report] for report in reports)


def replication_factor(partition: PartitionState) -> int:
    """Return the intended number of replicas; those being added by a reassignment do not count until it completes."""
    return len(partition.replicas) - len(partition.adding)


def lines(described: TopicDescriptions, heads: bool) -> Iterator[str]:
    """Format Kafka's lines: with ``heads`` one per topic, then one for each of its partitions."""
    for topic in described.topics:
        if heads:
            configs = ",".join(printable(f"{name}={value}") for name, value in topic.configs.items())
            unfit = "" if topic.unfit_records is None else f"\tUnfitRecords: {topic.unfit_records}"
            yield (
                f"Topic: {printable(topic.topic)}\tTopicId: {topic.topic_id}\tPartitionCount: {topic.partition_count}"
                f"\tReplicationFactor: {topic.replication_factor}\tConfigs: {configs}{unfit}"
            )
        yield from (_partition_line(topic.topic, partition) for partition in topic.partitions)


def _partition_line(topic: str, partition: PartitionDetails) -> str:
    leader = "none" if partition.leader is None else partition.leader
    moving = ""
    if partition.adding_replicas or partition.removing_replicas:
        adding, removing = join(partition.adding_replicas), join(partition.removing_replicas)
        moving = f"\tAdding Replicas: {adding}\tRemoving Replicas: {removing}"
    return (
        f"\tTopic: {printable(topic)}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {join(partition.replicas)}\tIsr: {join(partition.isr)}{moving}\tElr: N/A\tLastKnownElr: N/A"
    )
