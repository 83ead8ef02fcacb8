"""The assignors as classes, for the lists of ``partition_assignment_strategy`` and for programs that call them.

    Consumer("orders", bootstrap_servers="/data/log", group_id="billing",
             partition_assignment_strategy=[CooperativeStickyAssignor])

A group's members name assignors, and whoever completes a rebalance computes the assignment from the log; so assignors
of a program's own are refused (``consumer_config``).

Rules: names and interface are kafka-python's (version 3); the results are those of Kafka's Java clients. Not for: the
algorithms (``protocol.assignors``).
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
    """Whether members give up all of their partitions in a rebalance, or only those that move."""

    EAGER = 0
    COOPERATIVE = 1


@dataclass
class ConsumerProtocolSubscription:
    """What a member asks for: topics, and (topic, partitions) of what it owns."""

    version: int = 0
    topics: Sequence[str] = ()
    user_data: bytes | None = b""
    owned_partitions: Sequence[Any] = ()
    generation_id: int = -1
    rack_id: str | None = None


@dataclass
class ConsumerProtocolAssignment:
    """What a member gets: a list of (topic, partitions)."""

    version: int = 0
    assigned_partitions: Sequence[tuple[str, Sequence[int]]] = field(default_factory=list)
    user_data: bytes | None = b""

    @property
    def assignment(self) -> Sequence[tuple[str, Sequence[int]]]:
        """``assigned_partitions`` under its older name."""
        return self.assigned_partitions

    def partitions(self) -> list[TopicPartition]:
        """The same one by one."""
        return [TopicPartition(topic, number) for topic, numbers in self.assigned_partitions for number in numbers]


class AbstractPartitionAssignor(ABC):
    """What the assignors have in common."""

    version = 0

    @property
    @abstractmethod
    def name(self) -> str:
        """What members call it."""

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Eager by default."""
        return [RebalanceProtocol.EAGER]

    @abstractmethod
    def assign(self, cluster: ClusterMetadata, members: Iterable[Any]) -> dict[str, ConsumerProtocolAssignment]:
        """The assignment of each member, by its id. A member has ``member_id``, ``metadata`` (a
        ConsumerProtocolSubscription) and, if it is static, ``group_instance_id``."""

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolSubscription:
        """The subscription of a member with these topics."""
        return ConsumerProtocolSubscription(self.version, sorted(topics))

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:  # noqa: B027 # optional
        """Called with each assignment; does nothing."""


class _BuiltIn(AbstractPartitionAssignor):
    name: ClassVar[str]

    @classmethod
    def assign(cls, cluster: ClusterMetadata, members: Iterable[Any]) -> dict[str, ConsumerProtocolAssignment]:
        """See AbstractPartitionAssignor."""
        subscriptions = {member.member_id: _subscription(member) for member in members}
        topics = sorted({topic for subscription in subscriptions.values() for topic in subscription.topics})
        counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
        target = assignors.assign(cls.name, {topic: count for topic, count in counts.items() if count}, subscriptions)
        if cls.name == CooperativeStickyAssignor.name:
            target = assignors.withhold_owned(target, subscriptions)
        return {member: _assignment(cls.version, given) for member, given in target.items()}


class RangePartitionAssignor(_BuiltIn):
    """Each topic is cut into runs, one for each member in the order of their ids."""

    name = "range"


class RoundRobinPartitionAssignor(_BuiltIn):
    """All partitions are dealt to the members in turn."""

    name = "roundrobin"


class StickyPartitionAssignor(_BuiltIn):
    """Evenly, with as few partitions as possible changing their member."""

    name = "sticky"


class CooperativeStickyAssignor(_BuiltIn):
    """As sticky; and members keep reading what does not move while the group rebalances."""

    name = "cooperative-sticky"
    version = 1

    def supported_protocols(self) -> list[RebalanceProtocol]:
        """Cooperative only."""
        return [RebalanceProtocol.COOPERATIVE]


BUILT_IN: tuple[type[_BuiltIn], ...] = (
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
)


class JavaAssignors(tuple[str, ...]):
    """Names and class names as Kafka's Java clients list them (default: range, cooperative-sticky).

    There assignors of both protocols may stand in one list: all members move to another assignor by way of such lists.
    kafka-python refuses them. The group assigns by what all of its members have in common.
    """

    __slots__ = ()


def overrides_assign(item: object) -> bool:
    """Whether a class or an object derived from these has an ``assign`` of its own."""
    kind = item if isinstance(item, type) else type(item)
    if not issubclass(kind, AbstractPartitionAssignor):
        return False
    return getattr(kind.assign, "__func__", kind.assign) is not _BuiltIn.assign.__func__  # type: ignore[attr-defined]


def _subscription(member: Any) -> assignors.Subscription:
    metadata = member.metadata
    return assignors.Subscription(
        tuple(metadata.topics),
        tuple(TopicPartition(topic, n) for topic, numbers in metadata.owned_partitions or () for n in numbers),
        metadata.generation_id,
        getattr(member, "group_instance_id", None) or "",
    )


def _assignment(version: int, given: Sequence[TopicPartition]) -> ConsumerProtocolAssignment:
    by_topic: dict[str, list[int]] = {}
    for topic, number in given:
        by_topic.setdefault(topic, []).append(number)
    return ConsumerProtocolAssignment(version, sorted(by_topic.items()))
