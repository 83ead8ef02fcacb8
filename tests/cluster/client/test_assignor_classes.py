"""Assignor classes: a consumer accepts them by class, object or name, and they assign as its group does."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.client.consumer.assignors import (
    AbstractPartitionAssignor,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    CooperativeStickyAssignor,
    RangePartitionAssignor,
    RebalanceProtocol,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
)
from sparklog.client.consumer.config import consumer_config
from sparklog.client.producer.cluster_metadata import ClusterMetadata
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import InvalidConfigurationError
from sparklog.store.memory import MemoryStore
from sparklog.types import TopicPartition


@pytest.fixture
def cluster() -> Coordinator:
    coordinator = create_cluster(MemoryStore(uuid.uuid4().hex))
    coordinator.create_topic("orders", 5)
    return coordinator


def names(cluster: Coordinator, strategy: object) -> tuple[str, ...]:
    config, _ = consumer_config({"cluster": cluster, "partition_assignment_strategy": strategy})
    return config.assignors


def member(name: str, owned: tuple[Any, ...] = (), generation: int = -1) -> Any:
    metadata = ConsumerProtocolSubscription(0, ["orders"], owned_partitions=owned, generation_id=generation)
    return SimpleNamespace(member_id=name, group_instance_id=None, metadata=metadata)


@pytest.mark.parametrize(
    "assignor",
    [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor, CooperativeStickyAssignor],
)
def test_an_assignor_is_accepted_as_class_object_or_name(
    cluster: Coordinator, assignor: type[AbstractPartitionAssignor]
) -> None:
    assert (
        names(cluster, [assignor])
        == names(cluster, [assignor()])
        == names(cluster, str(assignor.name))
        == (str(assignor.name),)
    )


def test_the_default_is_kafka_pythons(cluster: Coordinator) -> None:
    assert consumer_config({"cluster": cluster})[0].assignors == ("range", "roundrobin")


@pytest.mark.parametrize(
    "strategy", [["range", "cooperative-sticky"], [CooperativeStickyAssignor, StickyPartitionAssignor]]
)
def test_assignors_of_two_protocols_in_one_list_are_refused(cluster: Coordinator, strategy: list[Any]) -> None:
    with pytest.raises(InvalidConfigurationError, match="another protocol"):
        names(cluster, strategy)


def test_a_custom_assignor_is_refused_and_not_mistaken_for_its_base_class(cluster: Coordinator) -> None:
    class Mine(RangePartitionAssignor):
        @classmethod
        def assign(cls, cluster: Any, members: Any) -> dict[str, ConsumerProtocolAssignment]:
            return {}

    class Renamed(RangePartitionAssignor):
        pass

    for strategy in ([Mine], [Mine()]):
        with pytest.raises(InvalidConfigurationError, match="assignor of your own"):
            names(cluster, strategy)
    assert names(cluster, [Renamed]) == ("range",)


@pytest.mark.parametrize(
    ("assignor", "first", "second"),
    [
        (RangePartitionAssignor, [0, 1, 2], [3, 4]),
        (RoundRobinPartitionAssignor, [0, 2, 4], [1, 3]),
        (StickyPartitionAssignor, [0, 2, 4], [1, 3]),
    ],
)
def test_an_assignor_assigns_the_partitions_of_the_cluster(
    cluster: Coordinator, assignor: type[Any], first: list[int], second: list[int]
) -> None:
    assigned = assignor.assign(ClusterMetadata(cluster), [member("a"), member("b")])
    assert {name: assignment.assignment for name, assignment in assigned.items()} == {
        "a": [("orders", first)],
        "b": [("orders", second)],
    }
    assert assigned["b"].partitions() == [TopicPartition("orders", number) for number in second]
    assert assignor().supported_protocols() == [RebalanceProtocol.EAGER]


def test_the_cooperative_assignor_does_not_assign_partitions_that_another_member_owns(cluster: Coordinator) -> None:
    owner = member("a", owned=(("orders", [0, 1, 2, 3, 4]),), generation=1)
    assigned = CooperativeStickyAssignor.assign(ClusterMetadata(cluster), [owner, member("b")])
    assert len(assigned["a"].partitions()) == 3
    assert assigned["b"].partitions() == []
    assert CooperativeStickyAssignor().supported_protocols() == [RebalanceProtocol.COOPERATIVE]


def test_a_subscription_names_the_topics_in_order() -> None:
    assert RangePartitionAssignor().metadata({"b", "a"}).topics == ["a", "b"]
