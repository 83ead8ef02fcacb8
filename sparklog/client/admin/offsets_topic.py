"""How tools list and describe ``__consumer_offsets``, beside the topics of the cluster. Its records are elsewhere:
``coordinator.offsets_topic`` and, to read them, ``client.consumer.offsets_topic``, which takes longer to import."""

from __future__ import annotations

from sparklog.client.admin.base import NO_TOPIC_ID
from sparklog.coordinator.offsets_topic import PARTITIONS
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.state import PartitionState, State, TopicState


def listed_topics(state: State, asked_for: str | None = None) -> list[str]:
    """Return the topics that tools list: those of the cluster, and this one once there are groups, as in Kafka.

    It can be read before there are groups, so that it is listed if it is ``asked_for`` by its name.
    """
    is_listed = state.groups or asked_for == CONSUMER_OFFSETS_TOPIC
    return sorted({*state.topics, CONSUMER_OFFSETS_TOPIC}) if is_listed else sorted(state.topics)


def described_topic(state: State, name: str) -> TopicState:
    """Return a topic as tools describe it. This one is on broker 0, the root. Raises UnknownTopicOrPartitionError."""
    if name != CONSUMER_OFFSETS_TOPIC:
        return state.topic(name)
    partition = PartitionState(replicas=(0,), isr=(0,), leader=0)
    return TopicState(name=name, topic_id=NO_TOPIC_ID, created_ms=0, partitions=(partition,) * PARTITIONS)
