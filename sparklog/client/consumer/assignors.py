"""The assignors as classes, for the lists of ``partition_assignment_strategy`` and for programs that call them.

    Consumer("orders", bootstrap_servers="/data/log", group_id="billing",
             partition_assignment_strategy=[CooperativeStickyAssignor])

Members name assignors, and the process that completes a rebalance computes the assignment from the log. Custom
assignors are therefore refused (``config``).

Rules: names and interface are kafka-python's (version 3); the results are those of Kafka's Java clients. Not for: the
algorithms (``protocol.group.assignors``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar

from sparklog.client.producer.cluster_metadata import ClusterMetadata
from sparklog.protocol.group import assignors
from sparklog.types import TopicPartition


class RebalanceProtocol(IntEnum):
    """Whether a rebalance revokes all partitions of the members, or only those that move."""

    EAGER = 0
    COOPERATIVE = 1


@dataclass
class ConsumerProtocolSubscription:
    """The subscription of a member: topics, and the partitions it owns as (topic, partitions)."""

    version: int = 0
    topics: Sequence[str] = ()
    user_data: bytes | None = b""
    owned_partitions: Sequence[Any] = ()
    generation_id: int = -1
    rack_id: str | None = None


@dataclass
class ConsumerProtocolAssignment:
    """The assignment of a member: a list of (topic, partitions)."""

    version: int = 0
    assigned_partitions: Sequence[tuple[str, Sequence[int]]] = field(default_factory=list)
    user_data: bytes | None = b""

    @property
    def assignment(self) -> Sequence[tuple[str, Sequence[int]]]:
        """Return ``assigned_partitions``; the older name of kafka-python."""
        return self.assigned_partitions

    def partitions(self) -> list[TopicPartition]:
        """Return the assigned partitions one by one."""
        return [TopicPartition(topic, number) for topic, numbers in self.assigned_partitions for number in numbers]


class AbstractPartitionAssignor(ABC):
    """Base class of the assignors."""

    version = 0

    @property
    @abstractmethod
    def name(self) -> str:
        """Return the name by which members refer to it."""

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Return the supported protocols; eager by default."""
        return [RebalanceProtocol.EAGER]

    @abstractmethod
    def assign(self, cluster: ClusterMetadata, members: Iterable[Any]) -> dict[str, ConsumerProtocolAssignment]:
        """Return the assignment of each member by member id. A member has ``member_id``, ``metadata`` (a
        ConsumerProtocolSubscription) and, if it is static, ``group_instance_id``."""

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """Return the subscription of a member with these topics."""
        return ConsumerProtocolSubscription(self.version, sorted(topics))

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:  # noqa: B027 # optional
        """Called with each assignment; does nothing."""


class _BuiltIn(AbstractPartitionAssignor):
    name: ClassVar[str]

    @classmethod
    def assign(cls, cluster: ClusterMetadata, members: Iterable[Any]) -> dict[str, ConsumerProtocolAssignment]:
        """See AbstractPartitionAssignor."""
        subscriptions = {member.member_id: _to_subscription(member) for member in members}
        topics = sorted({topic for subscription in subscriptions.values() for topic in subscription.topics})
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        target = assignors.assign(cls.name, {topic: count for topic, count in counts.items() if count}, subscriptions)
        if cls.name == CooperativeStickyAssignor.name:
            target = assignors.withhold_owned(target, subscriptions)
        return {member: _to_assignment(cls.version, partitions) for member, partitions in target.items()}


class RangePartitionAssignor(_BuiltIn):
    """Divides each topic into ranges of partitions, one per member in the order of their ids."""

    name = "range"


class RoundRobinPartitionAssignor(_BuiltIn):
    """Assigns all partitions to the members in turn."""

    name = "roundrobin"


class StickyPartitionAssignor(_BuiltIn):
    """Assigns evenly, moving as few partitions as possible."""

    name = "sticky"


class CooperativeStickyAssignor(_BuiltIn):
    """Assigns as sticky does; members keep reading the partitions that do not move during a rebalance."""

    name = "cooperative-sticky"
    version = 1

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Return the supported protocols: cooperative only."""
        return [RebalanceProtocol.COOPERATIVE]


class JavaAssignors(tuple[str, ...]):
    """Names and class names as Kafka's Java clients list them (default: range, cooperative-sticky).

    Java clients allow assignors of both protocols in one list, as a path to migrate a group to another assignor;
    kafka-python refuses such lists. The group uses an assignor that all of its members support.
    """

    __slots__ = ()


def overrides_assign(item: object) -> bool:
    """Return whether a subclass of these assignors, or an instance of one, overrides ``assign``."""
    kind = item if isinstance(item, type) else type(item)
    if not issubclass(kind, AbstractPartitionAssignor):
        return False
    return getattr(kind.assign, "__func__", kind.assign) is not _BuiltIn.assign.__func__  # type: ignore[attr-defined]


def _to_subscription(member: Any) -> assignors.MemberSubscription:
    metadata = member.metadata
    return assignors.MemberSubscription(
        tuple(metadata.topics),
        tuple(TopicPartition(topic, n) for topic, numbers in metadata.owned_partitions or () for n in numbers),
        metadata.generation_id,
        getattr(member, "group_instance_id", None) or "",
    )


def _to_assignment(version: int, partitions: Sequence[TopicPartition]) -> ConsumerProtocolAssignment:
    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    return ConsumerProtocolAssignment(version, sorted(by_topic.items()))
