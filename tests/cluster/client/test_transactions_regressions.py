"""Transactions that are interrupted, or whose topics are deleted, before the outcome of their commit is known."""

from __future__ import annotations

import uuid

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    IndeterminateCommitError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    SparklogError,
)
from sparklog.store.base import BytesLike
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import LOST_ANSWER, UNAVAILABLE, FaultyStore
from tests.cluster.client.flaky_store import FlakyStore


class InterruptedStore(FaultyStore):
    """Raises KeyboardInterrupt once, just after a commit has been stored."""

    armed = False

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        super().put_if_absent(key, data)
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt


def values(cluster: Coordinator, topic: str) -> list[bytes | None]:
    end = cluster.refresh().partition(topic, 0).high_watermark
    with LogReader(cluster) as reader:
        return [record.value for record in reader.records(topic, 0, 0, end)]


def interrupt_commit(producer: Producer, store: InterruptedStore) -> None:
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"once")
    store.armed = True
    with pytest.raises(KeyboardInterrupt):
        producer.commit_transaction()


def test_closing_keeps_the_files_of_an_interrupted_commit() -> None:
    store = InterruptedStore(MemoryStore(uuid.uuid4().hex))
    cluster = create_cluster(store)
    cluster.create_topic("orders")
    with Producer(cluster=cluster, transactional_id="tx") as producer:
        interrupt_commit(producer, store)
    assert values(cluster, "orders") == [b"once"]


@pytest.mark.parametrize("aborted_first", [False, True])
def test_an_interrupted_commit_takes_effect_once_and_cannot_be_aborted(
    aborted_first: bool,
) -> None:
    store = InterruptedStore(MemoryStore(uuid.uuid4().hex))
    cluster = create_cluster(store)
    cluster.create_topic("orders")
    with Producer(cluster=cluster, transactional_id="tx") as producer:
        interrupt_commit(producer, store)
        if aborted_first:
            with pytest.raises(InvalidTxnStateError, match="it is committed"):
                producer.abort_transaction()
        else:
            producer.commit_transaction()
        producer.begin_transaction()
        producer.abort_transaction()
    assert values(cluster, "orders") == [b"once"]


@pytest.mark.parametrize("again", [False, True])
def test_a_commit_with_unknown_outcome_succeeds_though_its_topic_was_deleted(
    again: bool,
) -> None:
    clock = ManualClock()
    store = FlakyStore(clock)
    cluster = create_cluster(store, clock=clock)
    for topic in ("orders", "audit"):
        cluster.create_topic(topic)

    def delete_orders() -> None:
        other = open_cluster(store, clock=clock)
        delete_topic(other, "orders")
        if again:
            other.create_topic("orders")

    with Producer(cluster=cluster, transactional_id="tx", retry_backoff_ms=0) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        lost, kept = producer.send("orders", b"a"), producer.send("audit", b"b")
        store.commits, store.silent, store.before_retry = [LOST_ANSWER], True, delete_orders
        producer.commit_transaction()
        assert (lost.get(1).offset, kept.get(1).offset) == (-1, 0)
        producer.begin_transaction()
        producer.send("audit", b"c")
        producer.commit_transaction()
    assert values(cluster, "audit") == [b"b", b"c"]


def test_resolving_an_unknown_outcome_does_not_fence_a_newer_instance() -> None:
    clock = ManualClock()
    store = FlakyStore(clock)
    cluster = create_cluster(store, clock=clock)
    cluster.create_topic("orders")
    newer: list[Producer] = []
    with Producer(cluster=cluster, transactional_id="tx", retry_backoff_ms=0) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"a")
        store.commits, store.silent = [UNAVAILABLE] * 100, True
        with pytest.raises((IndeterminateCommitError, KafkaTimeoutError)):
            producer.commit_transaction()
        store.commits, store.silent = [], False
        newer.append(Producer(cluster=open_cluster(store, clock=clock), transactional_id="tx"))
        newer[0].init_transactions()
        with pytest.raises(ProducerFencedError):
            producer.abort_transaction()
        with pytest.raises(SparklogError):
            producer.commit_transaction()
    with newer[0] as other:
        other.begin_transaction()
        other.send("orders", b"b")
        other.commit_transaction()
    assert values(cluster, "orders") == [b"b"]
