"""The cluster as a partitioner sees it: topics, partitions and their leaders, without reading the storage.

    cluster.partitions_for_topic("orders")      # {0, 1, 2}, or None for a topic that does not exist

Rules: the interface is the part of kafka-python's ``ClusterMetadata`` that is meant for callers. Every call answers
from the newest state that the client has read. Thread-safe. Not for: looking up topics (``topic_routing``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparklog.client.config import cluster_of
from sparklog.coordinator import Coordinator
from sparklog.protocol.names import is_internal_topic
from sparklog.protocol.state import BrokerState
from sparklog.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sparklog.client.arguments import AdminArguments

NO_PORT = -1


class BrokerMetadata(NamedTuple):
    """A broker, which is a storage location: ``host`` is its folder or URL; it has no port."""

    nodeId: int
    host: str
    port: int = NO_PORT
    rack: str | None = None

    @property
    def node_id(self) -> int:
        """The broker's id."""
        return self.nodeId


class ClusterMetadata:
    """See the module."""

    def __init__(self, coordinator: Coordinator | None = None, **configs: Unpack[AdminArguments]) -> None:
        """Use a client's coordinator, or open the cluster with the arguments of ``AdminClient``, and its errors."""
        self._coordinator = coordinator or cluster_of("ClusterMetadata", configs)

    @property
    def controller(self) -> BrokerMetadata | None:
        """None: no broker is the controller."""
        return None

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._coordinator.state.cluster_id

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """Return the names of the existing topics."""
        names = set(self._coordinator.state.topics)
        return {name for name in names if not is_internal_topic(name)} if exclude_internal_topics else names

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of a topic's partitions, None if it does not exist."""
        state = self._coordinator.state.topics.get(topic)
        return None if state is None else set(range(len(state.partitions)))

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partitions that have a leader, None if the topic does not exist."""
        state = self._coordinator.state.topics.get(topic)
        if state is None:
            return None
        return {number for number, partition in enumerate(state.partitions) if partition.leader >= 0}

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """Return the id of the partition's leader: -1 without a leader, None if there is no such partition."""
        state = self._coordinator.state.find_partition(*partition)
        return None if state is None else state.leader

    def leader_epoch_for_partition(self, partition: TopicPartition) -> int | None:
        """Return the partition's leader epoch, None if there is no such partition."""
        state = self._coordinator.state.find_partition(*partition)
        return None if state is None else state.leader_epoch

    def partitions_for_broker(self, broker_id: int) -> set[TopicPartition]:
        """Return the partitions that a broker leads."""
        return {
            TopicPartition(name, number)
            for name, topic in self._coordinator.state.topics.items()
            for number, partition in enumerate(topic.partitions)
            if partition.leader == broker_id
        }

    def brokers(self) -> set[BrokerMetadata]:
        """Return the brokers."""
        return {self._broker(broker) for broker in self._coordinator.state.brokers.values()}

    def broker_metadata(self, broker_id: int) -> BrokerMetadata | None:
        """Return the broker with this id, None if there is none."""
        broker = self._coordinator.state.brokers.get(broker_id)
        return None if broker is None else self._broker(broker)

    def _broker(self, broker: BrokerState) -> BrokerMetadata:
        return BrokerMetadata(broker.broker, broker.url or self._coordinator.store.root)
