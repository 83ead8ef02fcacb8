"""The cluster as a partitioner sees it: topics, partitions and who leads them, without asking the storage.

    cluster.partitions_for_topic("orders")      # {0, 1, 2}, or None for a topic that does not exist

Rules: the interface is that of kafka-python's ``ClusterMetadata`` as far as it is for callers. Every call answers from
the newest state that the client has read. Thread-safe. Not for: looking for topics (``topic_metadata``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sparklog.client.config import cluster_of
from sparklog.coordinator import Coordinator
from sparklog.protocol.names import is_internal_topic
from sparklog.protocol.state import BrokerState, PartitionState
from sparklog.types import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from sparklog.client.arguments import AdminArguments

NO_PORT = -1


class BrokerMetadata(NamedTuple):
    """A storage location: ``host`` is its address; it has no port."""

    nodeId: int
    host: str
    port: int = NO_PORT
    rack: str | None = None

    @property
    def node_id(self) -> int:
        """The broker's number."""
        return self.nodeId


class ClusterMetadata:
    """See the module."""

    def __init__(self, coordinator: Coordinator | None = None, **configs: Unpack[AdminArguments]) -> None:
        """A client's, or by itself with the arguments of ``AdminClient``. Raises as that does."""
        self._coordinator = coordinator or cluster_of("ClusterMetadata", configs)

    @property
    def controller(self) -> BrokerMetadata | None:
        """None: no storage location is the controller."""
        return None

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        return self._coordinator.state.cluster_id

    def topics(self, exclude_internal_topics: bool = True) -> set[str]:
        """The names of the topics that exist."""
        names = set(self._coordinator.state.topics)
        return {name for name in names if not is_internal_topic(name)} if exclude_internal_topics else names

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of a topic's partitions, None where it does not exist."""
        partitions = self._partitions(topic)
        return None if partitions is None else set(range(len(partitions)))

    def available_partitions_for_topic(self, topic: str) -> set[int] | None:
        """Those that have a leader, None where the topic does not exist."""
        partitions = self._partitions(topic)
        if partitions is None:
            return None
        return {number for number, partition in enumerate(partitions) if partition.leader >= 0}

    def leader_for_partition(self, partition: TopicPartition) -> int | None:
        """The number of the broker that leads it: -1 where none does, None where there is no such partition."""
        found = self._partition(partition)
        return None if found is None else found.leader

    def leader_epoch_for_partition(self, partition: TopicPartition) -> int | None:
        """Its leader epoch, None where there is no such partition."""
        found = self._partition(partition)
        return None if found is None else found.leader_epoch

    def partitions_for_broker(self, broker_id: int) -> set[TopicPartition]:
        """The partitions that a broker leads."""
        return {
            TopicPartition(name, number)
            for name, topic in self._coordinator.state.topics.items()
            for number, partition in enumerate(topic.partitions)
            if partition.leader == broker_id
        }

    def brokers(self) -> set[BrokerMetadata]:
        """The storage locations."""
        return {self._broker(broker) for broker in self._coordinator.state.brokers.values()}

    def broker_metadata(self, broker_id: int) -> BrokerMetadata | None:
        """The storage location with this number, None where there is none."""
        broker = self._coordinator.state.brokers.get(broker_id)
        return None if broker is None else self._broker(broker)

    def _broker(self, broker: BrokerState) -> BrokerMetadata:
        return BrokerMetadata(broker.broker, broker.url or self._coordinator.store.root)

    def _partitions(self, topic: str) -> tuple[PartitionState, ...] | None:
        found = self._coordinator.state.topics.get(topic)
        return None if found is None else found.partitions

    def _partition(self, partition: TopicPartition) -> PartitionState | None:
        partitions = self._partitions(partition[0])
        if partitions is None or not 0 <= partition[1] < len(partitions):
            return None
        return partitions[partition[1]]
