"""Transactions of a producer: atomic, committed once, by one instance, and never hanging."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from sparklog.client.consumer.records import ConsumerGroupMetadata
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    FencedError,
    IllegalStateError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.commits import InitProducer
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.producers import MAX_PRODUCER_EPOCH
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.plan.partitioner import partition_for_key
from sparklog.testing.faulty_store import ERROR, LOST_ANSWER, UNAVAILABLE
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.cluster.client.flaky_store import FlakyStore

WAIT = 30
"""Seconds. Only a broken test waits this long."""


@pytest.fixture
def store(clock: ManualClock) -> FlakyStore:
    return FlakyStore(clock)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(store: FlakyStore, clock: ManualClock) -> Coordinator:
    coordinator = create_cluster(store, clock=clock)
    coordinator.create_topic("orders", 2)
    coordinator.create_topic("audit")
    return coordinator


@pytest.fixture
def producer(cluster: Coordinator) -> Iterator[Producer]:
    with new_producer(cluster) as producer:
        producer.init_transactions()
        yield producer


def new_producer(cluster: Coordinator, **more: Any) -> Producer:
    return Producer(cluster=cluster, transactional_id="tx", retry_backoff_ms=0, **more)


def values(cluster: Coordinator, topic: str, partition: int = 0) -> list[bytes | None]:
    end = cluster.refresh().partition(topic, partition).high_watermark
    with LogReader(cluster) as reader:
        return [record.value for record in reader.records(topic, partition, 0, end)]


def log_files(store: FlakyStore) -> list[str]:
    return [info.key for info in store.list("") if info.key.endswith((".log", ".index"))]


# -- committing


def test_records_of_many_topics_and_offsets_of_a_group_become_visible_with_one_commit(
    cluster: Coordinator, producer: Producer
) -> None:
    producer.begin_transaction()
    futures = [producer.send("orders", b"a", partition=1), producer.send("audit", b"b")]
    partition, position = TopicPartition("orders", 0), OffsetAndMetadata(0, "note", 0)
    producer.send_offsets_to_transaction({partition: position}, "group")
    before = cluster.refresh().version
    assert values(cluster, "orders", 1) == []
    producer.commit_transaction()
    assert cluster.refresh().version == before + 1
    assert (values(cluster, "orders", 1), values(cluster, "audit")) == ([b"a"], [b"b"])
    (offset,) = cluster.state.groups["group"].offsets.values()
    assert (offset.offset, offset.metadata, offset.leader_epoch) == (0, "note", 0)
    assert [future.get(WAIT).offset for future in futures] == [0, 0]


def test_transactions_follow_one_another(cluster: Coordinator, producer: Producer) -> None:
    for number in range(3):
        producer.begin_transaction()
        future = producer.send("audit", b"%d" % number)
        producer.commit_transaction()
        assert future.get(WAIT).offset == number
    assert values(cluster, "audit") == [b"0", b"1", b"2"]


def age(cluster: Coordinator) -> None:
    """Let the transactional id have one epoch left, as after 32,765 transactions."""
    actions = [
        InitProducer(producer_id=0, producer_epoch=0, transactional_id="tx"),
        InitProducer(producer_id=0, producer_epoch=MAX_PRODUCER_EPOCH - 2, transactional_id="tx"),
    ]
    cluster.submit(lambda state: Decision([*actions], None))


def transact(producer: Producer, value: bytes) -> None:
    producer.begin_transaction()
    producer.send("audit", value)
    producer.commit_transaction()


@pytest.mark.parametrize("closed", [False, True])
def test_a_transactional_id_goes_on_with_another_producer_id_when_its_epochs_are_used_up(
    cluster: Coordinator, closed: bool
) -> None:
    age(cluster)
    producer = new_producer(cluster)
    producer.init_transactions()
    transact(producer, b"last")
    if closed:
        producer.close()
        producer = new_producer(cluster)
        producer.init_transactions()
    transact(producer, b"next")
    producer.close()
    assert values(cluster, "audit") == [b"last", b"next"]


def test_a_producer_whose_epochs_are_used_up_is_fenced_by_a_newer_instance(cluster: Coordinator) -> None:
    age(cluster)
    with new_producer(cluster) as zombie, new_producer(cluster) as live:
        zombie.init_transactions()
        transact(zombie, b"last")
        live.init_transactions()
        for _ in range(2):
            with pytest.raises(ProducerFencedError, match="a newer instance has taken over"):
                transact(zombie, b"of the zombie")
            transact(live, b"live")
    assert values(cluster, "audit") == [b"last", b"live", b"live"]


def test_an_empty_transaction_commits_nothing(cluster: Coordinator, producer: Producer) -> None:
    before = cluster.refresh().version
    producer.begin_transaction()
    producer.commit_transaction()
    assert cluster.refresh().version == before


def test_offsets_of_several_calls_are_committed_together(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("in", 3)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({TopicPartition("in", 0): OffsetAndMetadata(0)}, "g")
    producer.send_offsets_to_transaction({("in", 1): 0, TopicPartition("in", 0): OffsetAndMetadata(0, "last")}, "g")
    producer.send_offsets_to_transaction({}, "other")
    producer.commit_transaction()
    offsets = cluster.refresh().groups["g"].offsets.values()
    assert {(committed.partition, committed.metadata) for committed in offsets} == {(0, "last"), (1, "")}
    assert "other" not in cluster.state.groups


class Metadata(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


def test_offsets_of_an_unknown_member_abort_the_transaction(cluster: Coordinator, producer: Producer) -> None:
    producer.begin_transaction()
    future = producer.send("audit", b"a")
    metadata = Metadata("g", 3, "gone", None)
    producer.send_offsets_to_transaction({TopicPartition("orders", 0): OffsetAndMetadata(0)}, metadata)
    with pytest.raises(FencedError):
        producer.commit_transaction()
    assert isinstance(future.exception, FencedError)
    producer.abort_transaction()
    assert values(cluster, "audit") == []
    producer.begin_transaction()
    producer.send("audit", b"b")
    producer.commit_transaction()
    assert values(cluster, "audit") == [b"b"]


@pytest.mark.parametrize("offsets", [[("orders", 0)], {"orders": 1}, {("orders", 0): "1"}, {("orders", 0): True}])
def test_invalid_offsets_are_refused(producer: Producer, offsets: object) -> None:
    producer.begin_transaction()
    with pytest.raises(InvalidRequestError, match="TopicPartition"):
        producer.send_offsets_to_transaction(offsets, "g")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="group_metadata"):
        producer.send_offsets_to_transaction({}, None)


# -- aborting


def test_an_aborted_transaction_leaves_nothing_visible_and_no_files(
    cluster: Coordinator, producer: Producer, store: FlakyStore
) -> None:
    before = cluster.refresh().version
    producer.begin_transaction()
    future = producer.send("audit", b"a")
    producer.flush()
    assert len(log_files(store)) == 2
    producer.send("audit", b"b")
    producer.abort_transaction()
    assert isinstance(future.exception, TransactionAbortedError)
    assert log_files(store) == []
    assert cluster.refresh().version == before
    assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == 32 * 1024 * 1024


def test_closing_a_producer_aborts_its_transaction(cluster: Coordinator, store: FlakyStore) -> None:
    producer = new_producer(cluster)
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("audit", b"a")
    producer.flush()
    producer.close()
    assert future.failed()
    assert log_files(store) == []
    with pytest.raises(IllegalStateError, match="closed"):
        producer.begin_transaction()


def test_a_commit_after_the_transaction_timeout_aborts_the_transaction(
    cluster: Coordinator, producer: Producer, clock: ManualClock
) -> None:
    producer.begin_transaction()
    future = producer.send("audit", b"a")
    clock.advance(60.5)
    with pytest.raises(TransactionAbortedError, match="transaction_timeout_ms is 60000"):
        producer.commit_transaction()
    assert isinstance(future.exception, TransactionAbortedError)
    with pytest.raises(InvalidTxnStateError, match="abort_transaction"):
        producer.send("audit", b"b")
    producer.abort_transaction()
    assert values(cluster, "audit") == []


def test_a_transaction_for_a_deleted_topic_is_aborted_and_the_next_one_succeeds(
    cluster: Coordinator, producer: Producer
) -> None:
    producer.begin_transaction()
    producer.send("audit", b"a")
    producer.send("orders", b"a", partition=0)
    producer.flush()
    delete_topic(cluster, "audit")
    with pytest.raises(UnknownTopicOrPartitionError):
        producer.commit_transaction()
    with pytest.raises(InvalidTxnStateError, match="abort_transaction"):
        producer.commit_transaction()
    producer.abort_transaction()
    assert values(cluster, "orders") == []
    producer.begin_transaction()
    producer.send("orders", b"b", partition=0)
    producer.commit_transaction()
    assert values(cluster, "orders") == [b"b"]


# -- memory


def test_a_transaction_may_be_larger_than_the_buffer(cluster: Coordinator) -> None:
    with new_producer(cluster, buffer_memory=4_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        futures = [producer.send("orders", b"%04d" % number, partition=number % 2) for number in range(400)]
        assert values(cluster, "orders") == []
        producer.commit_transaction()
    assert values(cluster, "orders", 1) == [b"%04d" % number for number in range(1, 400, 2)]
    assert [future.get(WAIT).offset for future in futures] == [number // 2 for number in range(400)]


def test_waiting_without_a_timeout_for_a_record_of_an_open_transaction_is_refused(producer: Producer) -> None:
    producer.begin_transaction()
    future = producer.send("audit", b"a")
    with pytest.raises(IllegalStateError, match="commit_transaction"):
        future.get()
    with pytest.raises(KafkaTimeoutError):
        future.get(timeout=0)
    producer.commit_transaction()
    assert future.get().offset == 0


# -- states


def test_calls_in_the_wrong_state_are_refused_and_the_required_call_is_named(cluster: Coordinator) -> None:
    with new_producer(cluster) as producer:
        with pytest.raises(InvalidTxnStateError, match=r"init_transactions\(\) first"):
            producer.begin_transaction()
        with pytest.raises(InvalidTxnStateError, match=r"init_transactions\(\) first"):
            producer.send("audit", b"a")
        producer.init_transactions()
        producer.init_transactions()
        for step in (producer.commit_transaction, producer.abort_transaction, lambda: producer.send("audit", b"a")):
            with pytest.raises(InvalidTxnStateError, match=r"begin_transaction\(\) first"):
                step()
        with pytest.raises(InvalidTxnStateError, match=r"begin_transaction\(\) first"):
            producer.send_offsets_to_transaction({}, "g")
        producer.begin_transaction()
        for step in (producer.begin_transaction, producer.init_transactions):
            with pytest.raises(InvalidTxnStateError, match=r"commit_transaction\(\) or abort_transaction\(\) first"):
                step()


def test_a_producer_without_a_transactional_id_has_no_transactions(cluster: Coordinator) -> None:
    with Producer(cluster=cluster) as producer, pytest.raises(IllegalStateError, match="transactional_id"):
        producer.init_transactions()


def test_a_transaction_with_a_refused_record_can_only_be_aborted(cluster: Coordinator, producer: Producer) -> None:
    cluster.submit(partial(alter_configs, topic="orders", changes={"max.message.bytes": "100"}))
    producer.begin_transaction()
    kept = producer.send("orders", b"a", partition=0)
    lost = producer.send("orders", bytes(200), partition=0)
    assert isinstance(lost.exception, MessageSizeTooLargeError)
    with pytest.raises(InvalidTxnStateError, match=r"max\.message\.bytes"):
        producer.commit_transaction()
    with pytest.raises(KafkaError):
        producer.send("orders", b"b", partition=0)
    producer.abort_transaction()
    assert kept.failed()
    producer.begin_transaction()
    producer.send("orders", b"c", partition=0)
    producer.commit_transaction()
    assert values(cluster, "orders") == [b"c"]


@pytest.mark.parametrize(
    ("offsets", "member", "kind"),
    [
        ({TopicPartition("orders", 0): 1}, 5, TypeError),
        ({TopicPartition("orders", 0): 1}, None, TypeError),
        ({TopicPartition("orders", 0): "x"}, "g", TypeError),
        ([], "g", TypeError),
        ({TopicPartition("orders", 0): 1}, ConsumerGroupMetadata("g", 3, ""), ValueError),
        ({TopicPartition("orders", 0): 1}, ConsumerGroupMetadata(None), TypeError),
    ],
)
def test_invalid_offsets_are_refused_with_kafka_pythons_errors(
    producer: Producer, offsets: Any, member: Any, kind: type[Exception]
) -> None:
    producer.begin_transaction()
    with pytest.raises(kind) as raised:
        producer.send_offsets_to_transaction(offsets, member)
    assert isinstance(raised.value, KafkaError)


def test_sending_outside_of_a_transaction_is_an_illegal_state(cluster: Coordinator) -> None:
    with new_producer(cluster) as producer:
        with pytest.raises(IllegalStateError):
            producer.send("orders", b"a")
        producer.init_transactions()
        with pytest.raises(IllegalStateError):
            producer.send("orders", b"a")


def test_a_timeout_over_the_clusters_limit_is_refused(cluster: Coordinator) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"transaction.max.timeout.ms": "1000"}))
    with (
        new_producer(cluster) as producer,
        pytest.raises(InvalidTransactionTimeoutError, match=r"transaction\.max\.timeout\.ms"),
    ):
        producer.init_transactions()


# -- instances


def test_a_newer_instance_fences_the_older_one(cluster: Coordinator, producer: Producer, store: FlakyStore) -> None:
    producer.begin_transaction()
    future = producer.send("audit", b"old")
    with new_producer(cluster) as newer:
        newer.init_transactions()
        newer.begin_transaction()
        newer.send("audit", b"new")
        newer.commit_transaction()
    with pytest.raises(ProducerFencedError):
        producer.commit_transaction()
    assert isinstance(future.exception, ProducerFencedError)
    for step in (
        producer.abort_transaction,
        producer.begin_transaction,
        producer.init_transactions,
        lambda: producer.send("audit", b"x"),
    ):
        with pytest.raises(ProducerFencedError):
            step()
    assert values(cluster, "audit") == [b"new"]


# -- storage that fails


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("kind", [ERROR, UNAVAILABLE, LOST_ANSWER])
def test_a_commit_that_failed_or_has_an_unknown_outcome_is_retried(
    cluster: Coordinator, producer: Producer, store: FlakyStore, kind: str, silent: bool
) -> None:
    producer.begin_transaction()
    futures = [producer.send("audit", b"a"), producer.send("orders", b"b", partition=1)]
    store.commits, store.silent = [kind, kind], silent
    producer.commit_transaction()
    assert values(cluster, "audit") == [b"a"]
    assert values(cluster, "orders", 1) == [b"b"]
    assert [future.get(WAIT).offset for future in futures] == [0, 0]
    producer.begin_transaction()
    producer.send("audit", b"c")
    producer.commit_transaction()
    assert values(cluster, "audit") == [b"a", b"c"]


@pytest.mark.parametrize("stored", [False, True])
def test_a_commit_with_unknown_outcome_can_be_repeated(
    cluster: Coordinator, producer: Producer, store: FlakyStore, stored: bool
) -> None:
    producer.begin_transaction()
    future = producer.send("audit", b"a")
    producer.flush()
    store.commits, store.silent = [LOST_ANSWER if stored else UNAVAILABLE], True
    store.before_retry = lambda: setattr(store, "down", True)
    with pytest.raises(KafkaTimeoutError, match="its outcome is unknown"):
        producer.commit_transaction()
    assert not future.is_done
    store.down = False
    with pytest.raises(InvalidTxnStateError, match=r"call commit_transaction\(\) again"):
        producer.send("audit", b"b")
    producer.commit_transaction()
    assert values(cluster, "audit") == [b"a"]
    assert future.get(WAIT).offset == 0


def test_closing_keeps_the_files_of_a_commit_with_unknown_outcome(cluster: Coordinator, store: FlakyStore) -> None:
    producer = new_producer(cluster)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("audit", b"a")
    store.commits, store.silent = [LOST_ANSWER], True
    store.before_retry = lambda: setattr(store, "down", True)
    with pytest.raises(KafkaTimeoutError):
        producer.commit_transaction()
    producer.close()
    store.down = False
    assert values(open_cluster(store), "audit") == [b"a"]


@pytest.mark.parametrize("stored", [False, True])
def test_an_unknown_outcome_is_resolved_if_the_retry_is_refused(
    cluster: Coordinator, producer: Producer, store: FlakyStore, stored: bool
) -> None:
    """The group's topic is deleted between the two attempts; the outcome of the first decides."""
    producer.begin_transaction()
    future = producer.send("audit", b"a")
    producer.send_offsets_to_transaction({("orders", 0): 0}, "g")
    store.commits, store.silent = [LOST_ANSWER if stored else UNAVAILABLE], True
    store.before_retry = lambda: delete_topic(open_cluster(store), "orders")
    if stored:
        producer.commit_transaction()
    else:
        with pytest.raises(UnknownTopicOrPartitionError):
            producer.commit_transaction()
        producer.abort_transaction()
    assert future.succeeded() == stored
    assert values(cluster, "audit") == ([b"a"] if stored else [])
    producer.begin_transaction()
    producer.send("audit", b"b")
    producer.commit_transaction()
    assert values(cluster, "audit")[-1] == b"b"


def test_a_transaction_that_cannot_be_written_is_aborted(
    cluster: Coordinator, producer: Producer, store: FlakyStore
) -> None:
    producer.begin_transaction()
    future = producer.send("audit", b"a")
    store.down = True
    with pytest.raises(KafkaTimeoutError, match="it had no effect"):
        producer.commit_transaction()
    assert future.failed()
    store.down = False
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("audit", b"b")
    producer.commit_transaction()
    assert values(cluster, "audit") == [b"b"]


def test_init_transactions_times_out_and_can_be_repeated(cluster: Coordinator, store: FlakyStore) -> None:
    with new_producer(cluster) as producer:
        store.down = True
        with pytest.raises(KafkaTimeoutError, match=r"init_transactions\(\)"):
            producer.init_transactions()
        store.down = False
        producer.init_transactions()


def test_several_threads_can_send_in_one_transaction(cluster: Coordinator, producer: Producer) -> None:
    producer.begin_transaction()
    threads = [
        threading.Thread(target=lambda: [producer.send("audit", b"%d" % number) for number in range(500)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    producer.commit_transaction()
    assert len(values(cluster, "audit")) == 2000


def test_keys_are_routed_by_the_partitions_that_the_transaction_before_has_read(
    cluster: Coordinator, store: FlakyStore, clock: ManualClock, producer: Producer
) -> None:
    keys = [b"k%d" % number for number in range(9)]

    def send() -> list[Any]:
        producer.begin_transaction()
        futures = [producer.send("orders", b"v", key=key) for key in keys]
        producer.commit_transaction()
        return [future.get(WAIT).partition for future in futures]

    send()
    other = open_cluster(store, clock=clock)
    delete_topic(other, "orders")
    other.create_topic("orders", 5)
    with pytest.raises(KafkaError):
        send()
    producer.abort_transaction()
    assert send() == [partition_for_key(key, 5) for key in keys]
