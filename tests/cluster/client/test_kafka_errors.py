"""Classes and attributes of errors and results, as programs for kafka-python use them."""

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

PARTITION = TopicPartition("t", 0)
UNKNOWN = [TopicPartition("unknown", 0), TopicPartition("t", 7)]


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Coordinator:
    cluster = create_cluster(MemoryStore(request.node.name))
    cluster.create_topic("t")
    return cluster


QUERIES: list[Callable[[Consumer, TopicPartition], object]] = [
    lambda consumer, partition: consumer.beginning_offsets([partition]),
    lambda consumer, partition: consumer.end_offsets([partition]),
    lambda consumer, partition: consumer.offsets_for_times({partition: 0}),
    lambda consumer, partition: consumer.commit({partition: OffsetAndMetadata(1)}),
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("partition", UNKNOWN)
def test_a_consumers_query_of_an_unknown_partition_times_out(
    cluster: Coordinator, query: Callable[[Consumer, TopicPartition], object], partition: TopicPartition
) -> None:
    with Consumer(cluster=cluster, group_id="g") as consumer, pytest.raises(KafkaTimeoutError) as caught:
        query(consumer, partition)
    assert isinstance(caught.value, UnknownTopicOrPartitionError)
    assert caught.value.topic == partition.topic


@pytest.mark.parametrize(
    "config",
    [{"batch_size": "1"}, {"linger_ms": None}, {"key_serializer": 5}, {"value_serializer": "utf-8"}],
)
def test_a_producer_argument_of_the_wrong_type_is_a_type_error(cluster: Coordinator, config: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as caught:
        Producer(cluster=cluster, **config)
    assert isinstance(caught.value, KafkaConfigurationError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("config", [{"key_deserializer": 5}, {"default_offset_commit_callback": 5}])
def test_a_consumer_argument_of_the_wrong_type_is_a_type_error(cluster: Coordinator, config: dict[str, Any]) -> None:
    with pytest.raises(TypeError) as caught:
        Consumer(cluster=cluster, **config)
    assert isinstance(caught.value, KafkaConfigurationError)


def test_a_number_out_of_bounds_is_not_a_type_error(cluster: Coordinator) -> None:
    with pytest.raises(KafkaConfigurationError) as caught:
        Producer(cluster=cluster, batch_size=-1)
    assert not isinstance(caught.value, TypeError)


def test_a_string_as_a_timestamp_is_a_type_error(cluster: Coordinator) -> None:
    with Producer(cluster=cluster) as producer:
        with pytest.raises(TypeError, match="timestamp_ms='now'"):
            producer.send("t", b"v", timestamp_ms="now")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="timestamp_ms=-1") as caught:
            producer.send("t", b"v", timestamp_ms=-1)
        assert not isinstance(caught.value, TypeError)


@pytest.mark.parametrize("acks", [2, "2", True, 1.0, None])
def test_invalid_acks_have_kafkas_error_code(cluster: Coordinator, acks: Any) -> None:
    with pytest.raises(InvalidRequiredAcksError) as caught:
        Producer(cluster=cluster, acks=acks)
    assert isinstance(caught.value, KafkaConfigurationError)
    assert caught.value.errno == 21


def test_a_group_id_may_be_a_string_or_bytes(cluster: Coordinator) -> None:
    group: Any = "gé".encode()
    with Consumer(cluster=cluster, group_id=group) as consumer:
        consumer.assign([PARTITION])
        consumer.commit({PARTITION: OffsetAndMetadata(0)})
        assert consumer.group_metadata().group_id == "gé"
    assert set(cluster.refresh().groups) == {"gé"}
    for wrong in (b"\xff", 5, ""):
        unusable: Any = wrong
        with pytest.raises(KafkaConfigurationError, match="group_id"):
            Consumer(cluster=cluster, group_id=unusable)


def test_results_of_partitions_are_read_as_attributes_and_as_a_dict(cluster: Coordinator) -> None:
    with AdminClient(cluster=cluster) as admin:
        result = admin.create_partitions({"t": 2, "unknown": 2}, raise_errors=False)
        assert [(topic.name, topic.error_code) for topic in result.results] == [("t", 0), ("unknown", 3)]
        assert result["results"][0]["error_message"] is None
        assert (result.results[1][0], result.results[1][1]) == ("unknown", 3)
        with pytest.raises(KeyError):
            result["nothing"]
        assert result.to_dict()["results"][0] == {"name": "t", "error_code": 0, "error_message": None}
        assert type(result.to_dict()["results"][0]) is dict
        with pytest.raises(AttributeError):
            result.nothing  # noqa: B018


def test_results_of_elections_are_read_as_attributes(cluster: Coordinator) -> None:
    with AdminClient(cluster=cluster) as admin:
        (topic,) = admin.elect_leaders("preferred", {"t": [0]}).replica_election_results
    assert (topic.topic, topic.partition_result[0].partition_id, topic.partition_result[0].error_code) == ("t", 0, 84)


def test_partitions_on_unknown_brokers_are_an_invalid_assignment(cluster: Coordinator) -> None:
    with AdminClient(cluster=cluster) as admin, pytest.raises(InvalidReplicationAssignmentError):
        admin.create_partitions({"t": NewPartitions(2, [[77]])})


def test_a_configuration_error_can_be_pickled(cluster: Coordinator) -> None:
    import pickle

    with pytest.raises(KafkaError) as caught:
        Producer(cluster=cluster, acks=2)  # type: ignore[arg-type]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.args, again.config) == (type(caught.value), caught.value.args, "acks")


def test_acks_0_disables_idempotence(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, acks=0) as producer:
        assert producer.config["enable_idempotence"] is False
    with pytest.raises(KafkaConfigurationError, match="acks"):
        Producer(cluster=cluster, acks=0, enable_idempotence=True)
    with pytest.raises(KafkaConfigurationError, match="acks"):
        Producer(cluster=cluster, acks=0, transactional_id="x")
