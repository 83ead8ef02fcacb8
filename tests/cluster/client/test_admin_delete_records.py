"""``AdminClient.delete_records`` by Kafka's rules (``ReplicaManager.deleteRecordsOnLocalLog``), and topics whose files
are listed when they are deleted."""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import partial

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    InvalidTopicError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.commits.retired_files import REMOVED, read_removed
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import FaultyStore, SimulatedCrash, every_crash
from sparklog.types import TopicPartition

PARTITION = TopicPartition("orders", 0)


@pytest.fixture
def cluster() -> Coordinator:
    cluster = create_cluster(MemoryStore(uuid.uuid4().hex))
    cluster.create_topic("orders", 2)
    with Producer(cluster=cluster) as producer:
        for number in range(10):
            producer.send("orders", b"%d" % number, partition=0)
    cluster.refresh()
    return cluster


@pytest.fixture
def admin(cluster: Coordinator) -> AdminClient:
    return AdminClient(cluster=cluster)


def values(cluster: Coordinator) -> list[bytes]:
    """The values a consumer reads from the beginning to the end."""
    with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION])
        end = consumer.end_offsets([PARTITION])[PARTITION]
        read: list[bytes] = []
        while consumer.position(PARTITION) < end:
            read += [record.value or b"" for records in consumer.poll(1000).values() for record in records]
        return read


def test_records_before_the_offset_can_no_longer_be_read(cluster: Coordinator, admin: AdminClient) -> None:
    results = admin.delete_records({PARTITION: 4})
    assert results == {PARTITION: {"partition_index": 0, "low_watermark": 4, "error_code": 0}}
    assert values(cluster) == [b"%d" % n for n in range(4, 10)]
    assert cluster.refresh().partition("orders", 0).log_start_offset == 4


def test_errors_are_returned_if_raise_errors_is_false(cluster: Coordinator, admin: AdminClient) -> None:
    internal, nowhere = TopicPartition("__consumer_offsets", 0), TopicPartition("nope", 0)
    before = cluster.refresh().version
    results = admin.delete_records({internal: 0, PARTITION: 4, nowhere: 0}, raise_errors=False)
    assert results[PARTITION] == {"partition_index": 0, "low_watermark": 4, "error_code": 0}
    assert {partition: (result["low_watermark"], result["error_code"]) for partition, result in results.items()} == {
        internal: (-1, 17),
        PARTITION: (4, 0),
        nowhere: (-1, 3),
    }
    assert results[internal]["error_message"] == "cannot delete records of the internal topic __consumer_offsets"
    assert cluster.refresh().version == before + 1


def test_offset_minus_one_deletes_all_records(cluster: Coordinator, admin: AdminClient) -> None:
    assert admin.delete_records({PARTITION: -1})[PARTITION]["low_watermark"] == 10
    assert values(cluster) == []
    with Producer(cluster=cluster) as producer:
        producer.send("orders", b"next", partition=0)
    assert values(cluster) == [b"next"]


def test_an_offset_before_the_log_start_offset_changes_nothing(cluster: Coordinator, admin: AdminClient) -> None:
    admin.delete_records({PARTITION: 4})
    version = cluster.refresh().version
    assert admin.delete_records({PARTITION: 2})[PARTITION]["low_watermark"] == 4
    assert cluster.refresh().version == version


@pytest.mark.parametrize("offset", [11, -2])
def test_an_offset_outside_of_the_log_is_refused(cluster: Coordinator, admin: AdminClient, offset: int) -> None:
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({PARTITION: offset})
    assert len(values(cluster)) == 10


@pytest.mark.parametrize(("policy", "allowed"), [("compact", False), ("compact,delete", True), ("delete", True)])
def test_records_are_deleted_only_if_the_cleanup_policy_has_delete(
    cluster: Coordinator, admin: AdminClient, policy: str, allowed: bool
) -> None:
    cluster.submit(partial(alter_configs, topic="orders", changes={"cleanup.policy": policy}))
    if allowed:
        assert admin.delete_records({PARTITION: 1})[PARTITION]["low_watermark"] == 1
    else:
        with pytest.raises(PolicyViolationError, match=r"cleanup\.policy"):
            admin.delete_records({PARTITION: 1})


def test_an_invalid_partition_does_not_stop_deletion_in_the_others(cluster: Coordinator, admin: AdminClient) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_records({TopicPartition("orders", 7): 1, PARTITION: 3})
    assert cluster.refresh().partition("orders", 0).log_start_offset == 3


def test_records_of_internal_topics_are_not_deleted(admin: AdminClient) -> None:
    with pytest.raises(InvalidTopicError, match="internal"):
        admin.delete_records({TopicPartition("__consumer_offsets", 0): 1})


def test_files_of_a_deleted_topic_are_listed_for_deletion(cluster: Coordinator, admin: AdminClient) -> None:
    paths = {segment.path for segment in cluster.segments("orders").partition(0)}
    cluster.submit(partial(alter_configs, topic="orders", changes={"file.delete.delay.ms": "1234"}))
    admin.delete_topics(["orders"])
    state = cluster.refresh()
    ((key, waiting),) = state.removed_files.items()
    assert {file.path for file in read_removed(cluster.store, key)} == paths
    assert waiting.files == len(paths) > 0
    assert waiting.delete_at_ms == state.timestamp_ms + 1234


def test_a_topic_that_cannot_be_deleted_leaves_no_listing(cluster: Coordinator, admin: AdminClient) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"delete.topic.enable": "false"}))
    with pytest.raises(PolicyViolationError):
        admin.delete_topics(["orders"])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["nothing"])
    assert list(cluster.store.list(REMOVED)) == []


def test_a_deletion_repeated_after_a_crash_lists_every_file_once() -> None:
    def prepared() -> MemoryStore:
        store = MemoryStore(uuid.uuid4().hex)
        cluster = create_cluster(store)
        cluster.create_topic("orders")
        with Producer(cluster=cluster) as producer:
            producer.send("orders", b"x")
        return store

    counted = FaultyStore(prepared())
    coordinator = open_cluster(counted)
    counted.reset_counts()
    delete_topic(coordinator, "orders")
    faults = list(every_crash(counted.calls))
    assert len(faults) > 6
    for fault in faults:
        inner = prepared()
        store = FaultyStore(inner)
        coordinator = open_cluster(store)
        store.reset_counts()
        store.inject(fault)
        with suppress(SimulatedCrash, SparklogError):
            delete_topic(coordinator, "orders")
        store.reopen()
        with suppress(UnknownTopicOrPartitionError):
            delete_topic(open_cluster(inner), "orders")
        state = open_cluster(inner).state
        assert not state.topics, f"{fault}"
        assert len(state.removed_files) == 1, f"{fault}"
        assert all(len(list(read_removed(inner, key))) == 1 for key in state.removed_files), f"{fault}"
