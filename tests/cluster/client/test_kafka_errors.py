"""Errors and results that programs for kafka-python catch and read: their classes and attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import NewPartitions
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import (
    InvalidReplicationAssignmentError,
    InvalidRequiredAcksError,
    KafkaConfigurationError,
    KafkaError,
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
)
from sparklog.store.memory import MemoryStore
from sparklog.types import OffsetAndMetadata, TopicPartition

PLACE = TopicPartition("t", 0)
UNKNOWN = [TopicPartition("unknown", 0), TopicPartition("t", 7)]


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Coordinator:
    cluster = create_cluster(MemoryStore(request.node.name))
    cluster.create_topic("t")
    return cluster


ASKS: list[Callable[[Consumer, TopicPartition], object]] = [
    lambda consumer, place: consumer.beginning_offsets([place]),
    lambda consumer, place: consumer.end_offsets([place]),
    lambda consumer, place: consumer.offsets_for_times({place: 0}),
    lambda consumer, place: consumer.commit({place: OffsetAndMetadata(1)}),
]


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("place", UNKNOWN)
def test_what_a_consumer_asks_of_an_unknown_partition_times_out(
    cluster: Coordinator, ask: Callable[[Consumer, TopicPartition], object], place: TopicPartition
) -> None:
    with Consumer(cluster=cluster, group_id="g") as consumer, pytest.raises(KafkaTimeoutError) as caught:
        ask(consumer, place)
    assert isinstance(caught.value, UnknownTopicOrPartitionError)
    assert caught.value.topic == place.topic


@pytest.mark.parametrize(
    "config",
    [{"batch_size": "1"}, {"linger_ms": None}, {"key_serializer": 5}, {"value_serializer": "utf-8"}],
)
def test_an_argument_of_the_wrong_type_is_a_type_error(cluster: Coordinator, config: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as caught:
        Producer(cluster=cluster, **config)
    assert isinstance(caught.value, KafkaConfigurationError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("config", [{"key_deserializer": 5}, {"default_offset_commit_callback": 5}])
def test_so_it_is_of_a_consumer(cluster: Coordinator, config: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as caught:
        Consumer(cluster=cluster, **config)
    assert isinstance(caught.value, KafkaConfigurationError)


def test_a_number_out_of_bounds_is_no_type_error(cluster: Coordinator) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        Producer(cluster=cluster, batch_size=-1)
    assert not isinstance(caught.value, TypeError)


def test_a_text_as_a_timestamp_is_a_type_error(cluster: Coordinator) -> None:
    with Producer(cluster=cluster) as producer:
        with pytest.raises(TypeError, match="timestamp_ms='now'"):
            producer.send("t", b"v", timestamp_ms="now")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="timestamp_ms=-1") as caught:
            producer.send("t", b"v", timestamp_ms=-1)
        assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize("acks", [2, "2", True, 1.0, None])
def test_acks_that_cannot_be_have_kafkas_number(cluster: Coordinator, acks: Any) -> None:
    with pytest.raises(InvalidRequiredAcksError) as caught:
        Producer(cluster=cluster, acks=acks)
    assert isinstance(caught.value, KafkaConfigurationError)
    assert caught.value.errno == 21


def test_a_group_is_named_by_text_or_its_bytes(cluster: Coordinator) -> None:
    group: Any = "gé".encode()
    with Consumer(cluster=cluster, group_id=group) as consumer:
        consumer.assign([PLACE])
        consumer.commit({PLACE: OffsetAndMetadata(0)})
        assert consumer.group_metadata().group_id == "gé"
    assert set(cluster.refresh().groups) == {"gé"}
    for wrong in (b"\xff", 5, ""):
        unusable: Any = wrong
        with pytest.raises(KafkaConfigurationError, match="group_id"):
            Consumer(cluster=cluster, group_id=unusable)


def test_results_of_partitions_are_read_as_attributes_and_as_a_dict(cluster: Coordinator) -> None:
    with AdminClient(cluster=cluster) as admin:
        found = admin.create_partitions({"t": 2, "unknown": 2}, raise_errors=False)
        assert [(one.name, one.error_code) for one in found.results] == [("t", 0), ("unknown", 3)]
        assert found["results"][0]["error_message"] is None
        assert (found.results[1][0], found.results[1][1]) == ("unknown", 3)
        with pytest.raises(KeyError):
            found["nothing"]
        assert found.to_dict()["results"][0] == {"name": "t", "error_code": 0, "error_message": None}
        assert type(found.to_dict()["results"][0]) is dict
        with pytest.raises(AttributeError):
            found.nothing  # noqa: B018


def test_results_of_elections_are_read_as_attributes(cluster: Coordinator) -> None:
    with AdminClient(cluster=cluster) as admin:
        (topic,) = admin.elect_leaders("preferred", {"t": [0]}).replica_election_results
    assert (topic.topic, topic.partition_result[0].partition_id, topic.partition_result[0].error_code) == ("t", 0, 84)


def test_partitions_on_unknown_brokers_are_an_invalid_assignment(cluster: Coordinator) -> None:
    with AdminClient(cluster=cluster) as admin, pytest.raises(InvalidReplicationAssignmentError):
        admin.create_partitions({"t": NewPartitions(2, [[77]])})


def test_an_error_of_a_wrong_type_survives_a_process(cluster: Coordinator) -> None:
    import pickle

    with pytest.raises(KafkaError) as caught:
        Producer(cluster=cluster, acks=2)  # type: ignore[arg-type]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.args, again.config) == (type(caught.value), caught.value.args, "acks")


def test_without_acknowledgements_a_producer_says_that_it_is_not_idempotent(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, acks=0) as producer:
        assert producer.config["enable_idempotence"] is False
    with pytest.raises(KafkaConfigurationError, match="acks"):
        Producer(cluster=cluster, acks=0, enable_idempotence=True)
    with pytest.raises(KafkaConfigurationError, match="acks"):
        Producer(cluster=cluster, acks=0, transactional_id="x")
