"""Partitioners as objects: their arguments, the use of their result, and the two built-in ones."""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import Any

import pytest

from sparklog.client.producer.cluster_metadata import BrokerMetadata, ClusterMetadata
from sparklog.client.producer.custom_partitioners import DefaultPartitioner, Partitioner, StickyPartitioner, murmur2
from sparklog.client.producer.producer import Producer
from sparklog.client.serializers import JsonSerializer
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import UnknownTopicOrPartitionError
from sparklog.ids import SeededIds
from sparklog.protocol.plan.partitioner import partition_for_key
from sparklog.store.memory import MemoryStore
from sparklog.types import TopicPartition

WAIT = 30


@pytest.fixture
def cluster() -> Coordinator:
    coordinator = create_cluster(MemoryStore(uuid.uuid4().hex))
    coordinator.create_topic("orders", 4)
    return coordinator


class RecordingPartitioner(Partitioner):
    """Returns a fixed partition and records its calls."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.calls: list[tuple[Any, ...]] = []

    def partition(self, *given: Any) -> int:
        self.calls.append(given)
        return self.answer


def test_a_partitioner_gets_key_and_value_before_and_after_serialization(cluster: Coordinator) -> None:
    partitioner = RecordingPartitioner(2)
    with Producer(cluster=cluster, partitioner=partitioner, value_serializer=JsonSerializer()) as producer:
        assert producer.send("orders", {"country": 2}, key=b"k").get(WAIT).partition == 2
    [(topic, key, key_bytes, value, value_bytes, metadata)] = partitioner.calls
    assert (topic, key, key_bytes, value, value_bytes) == ("orders", b"k", b"k", {"country": 2}, b'{"country": 2}')
    assert metadata.partitions_for_topic("orders") == {0, 1, 2, 3}


def test_an_explicit_partition_bypasses_the_partitioner(cluster: Coordinator) -> None:
    partitioner = RecordingPartitioner(2)
    with Producer(cluster=cluster, partitioner=partitioner) as producer:
        assert producer.send("orders", b"v", partition=1).get(WAIT).partition == 1
    assert partitioner.calls == []


def test_a_partitioner_with_the_older_interface_gets_the_key_and_the_cluster(cluster: Coordinator) -> None:
    class Older:
        def partition(self, topic: str, key: bytes | None, metadata: ClusterMetadata) -> int:
            return max(metadata.available_partitions_for_topic(topic) or ())

    with Producer(cluster=cluster, partitioner=Older()) as producer:  # type: ignore[arg-type]
        assert producer.send("orders", b"v").get(WAIT).partition == 3


def test_a_partition_that_does_not_exist_is_refused(cluster: Coordinator) -> None:
    with (
        Producer(cluster=cluster, partitioner=RecordingPartitioner(4)) as producer,
        pytest.raises(UnknownTopicOrPartitionError),
    ):
        producer.send("orders", b"v")


def test_an_error_of_a_partitioner_is_raised_by_send(cluster: Coordinator) -> None:
    class Broken(Partitioner):
        def partition(self, *given: Any) -> int:
            raise ZeroDivisionError

    with Producer(cluster=cluster, partitioner=Broken()) as producer, pytest.raises(ZeroDivisionError):
        producer.send("orders", b"v")


def test_both_partitioners_place_keys_as_kafka_does(cluster: Coordinator) -> None:
    keys = [b"a", b"key", b"other", b"\x00\xff"]
    for partitioner in (DefaultPartitioner(), StickyPartitioner()):
        with Producer(cluster=cluster, partitioner=partitioner) as producer:
            chosen = [producer.send("orders", b"v", key=key).get(WAIT).partition for key in keys]
        assert chosen == [partition_for_key(key, 4) for key in keys]
        assert chosen == [partitioner(key, [0, 1, 2, 3], [0]) for key in keys]


def test_the_hash_is_unsigned() -> None:
    assert murmur2(b"key") & 0x7FFFFFFF == murmur2(b"key") % 2**31
    assert {murmur2(bytes([number])) >= 2**31 for number in range(20)} == {True, False}


def test_the_default_partitioner_spreads_records_without_a_key(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, partitioner=DefaultPartitioner(SeededIds(1)), linger_ms=60_000) as producer:
        futures = [producer.send("orders", b"v") for _ in range(40)]
        producer.flush()
    assert {future.get(WAIT).partition for future in futures} == {0, 1, 2, 3}
    assert DefaultPartitioner(SeededIds(1))(None, [0, 1], [1]) == 1


def test_the_sticky_partitioner_keeps_its_partition_until_a_batch_begins(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, partitioner=StickyPartitioner(SeededIds(1)), linger_ms=60_000) as producer:
        batches = []
        for _ in range(4):
            futures = [producer.send("orders", b"v") for _ in range(5)]
            producer.flush()
            batches.append({future.get(WAIT).partition for future in futures})
    assert [len(batch) for batch in batches] == [1, 1, 1, 1]
    assert all(batch != following for batch, following in pairwise(batches))


def test_on_new_batch_is_called_once_per_batch_for_records_without_a_key(cluster: Coordinator) -> None:
    class Rotating(RecordingPartitioner):
        rotations = 0

        def on_new_batch(self, topic: str, metadata: ClusterMetadata, previous: int) -> None:
            self.rotations += 1
            self.answer = previous + 1

    rotating = Rotating(0)
    with Producer(cluster=cluster, partitioner=rotating, linger_ms=60_000) as producer:
        futures = [
            producer.send("orders", b"v"),
            producer.send("orders", b"v"),
            producer.send("orders", b"v", key=b"k"),
        ]
        producer.flush()
    assert [future.get(WAIT).partition for future in futures] == [1, 1, 1]
    assert rotating.rotations == 1


@pytest.mark.parametrize("partitioner", [DefaultPartitioner(), StickyPartitioner()])
@pytest.mark.parametrize("key", [b"k", None])
def test_a_topic_that_does_not_exist_is_a_value_error(
    cluster: Coordinator, partitioner: Partitioner, key: bytes | None
) -> None:
    with pytest.raises(ValueError, match="'nowhere' does not exist"):
        partitioner.partition("nowhere", key, key, b"v", b"v", ClusterMetadata(cluster))


# -- cluster metadata


def test_cluster_metadata_has_kafka_pythons_interface(cluster: Coordinator) -> None:
    metadata = ClusterMetadata(cluster)
    root = cluster.store.root
    assert metadata.topics() == {"orders"}
    assert metadata.partitions_for_topic("orders") == metadata.available_partitions_for_topic("orders") == {0, 1, 2, 3}
    assert metadata.partitions_for_topic("nowhere") is metadata.available_partitions_for_topic("nowhere") is None
    assert metadata.leader_for_partition(TopicPartition("orders", 1)) == 0
    assert metadata.leader_epoch_for_partition(TopicPartition("orders", 1)) == 0
    assert metadata.leader_for_partition(TopicPartition("orders", 9)) is None
    assert metadata.leader_epoch_for_partition(TopicPartition("nowhere", 0)) is None
    assert metadata.brokers() == {BrokerMetadata(0, root)} == {metadata.broker_metadata(0)}
    assert metadata.broker_metadata(7) is None
    assert metadata.partitions_for_broker(0) == {TopicPartition("orders", number) for number in range(4)}
    assert metadata.controller is None
    assert ClusterMetadata(cluster=cluster, client_id="mine").topics() == {"orders"}
    assert metadata.cluster_id == cluster.state.cluster_id
