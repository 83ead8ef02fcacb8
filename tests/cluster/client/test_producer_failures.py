"""A producer on storage that fails: transient errors are retried, others raised, and the order is kept."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from sparklog import limits
from sparklog.client.producer.futures import FutureRecordMetadata
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    IndeterminateCommitError,
    KafkaTimeoutError,
    OutOfOrderSequenceNumberError,
    SparklogError,
    StoragePermissionError,
    UnknownProducerIdError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.elapsed import Moment
from sparklog.protocol.commits import Append
from sparklog.protocol.decide import expiry as decide_expiry
from sparklog.protocol.decide.append import AppendRequest, AppendResult
from sparklog.protocol.decide.topics import alter_configs
from sparklog.testing.faulty_store import CRASH_BEFORE, ERROR, LOST_ANSWER, PERMISSION, UNAVAILABLE, Fault
from tests.cluster.client.flaky_store import FlakyStore

WAIT = 30
"""Seconds. Only a broken test waits this long."""


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> FlakyStore:
    return FlakyStore(clock)


@pytest.fixture
def cluster(store: FlakyStore, clock: ManualClock) -> Coordinator:
    coordinator = create_cluster(store, clock=clock)
    coordinator.create_topic("t", 2)
    return coordinator


def new_producer(cluster: Coordinator, **more: Any) -> Producer:
    """A producer whose records wait for a flush and whose retries are immediate."""
    return Producer(cluster=cluster, **{"linger_ms": 60_000, "retry_backoff_ms": 0, **more})


def values(cluster: Coordinator, topic: str = "t", partition: int = 0) -> list[bytes | None]:
    end = cluster.refresh().partition(topic, partition).high_watermark
    with LogReader(cluster) as reader:
        return [record.value for record in reader.records(topic, partition, 0, end)]


def send(producer: Producer, value: bytes, partition: int = 0) -> FutureRecordMetadata:
    future = producer.send("t", value, partition=partition)
    producer.flush(WAIT)
    return future


def producer_ids(cluster: Coordinator) -> list[int]:
    """The producer id of each append in the log, in order."""
    commits = cluster.log.commits(0, cluster.refresh().version)
    return [action.producer_id for commit in commits for action in commit.actions if isinstance(action, Append)]


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("kind", [ERROR, UNAVAILABLE, LOST_ANSWER])
def test_a_commit_that_failed_or_has_an_unknown_outcome_is_retried(
    cluster: Coordinator, store: FlakyStore, kind: str, silent: bool
) -> None:
    with new_producer(cluster) as producer:
        send(producer, b"0")
        store.commits, store.silent = [kind, kind], silent
        future = producer.send("t", b"1", partition=0)
        other = producer.send("t", b"x", partition=1)
        producer.flush(WAIT)
        assert (future.get().offset, other.get().offset) == (1, 0)
        send(producer, b"2")
        assert producer.metrics()["producer-metrics"]["record-error-total"] == 0
    assert values(cluster) == [b"0", b"1", b"2"]
    assert len(set(producer_ids(cluster))) == 1


def test_records_past_the_delivery_timeout_fail_and_later_ones_succeed(cluster: Coordinator, store: FlakyStore) -> None:
    with new_producer(cluster, delivery_timeout_ms=90_000) as producer:
        send(producer, b"0")
        store.down = True
        lost = send(producer, b"1")
        assert isinstance(lost.exception, KafkaTimeoutError)
        assert "they are not in the log" in str(lost.exception)
        assert lost.exception.topic == "t"
        assert lost.retriable()
        store.down = False
        assert send(producer, b"2").get().offset == 1
        assert producer.metrics()["producer-metrics"]["record-error-total"] == 1
    assert values(cluster) == [b"0", b"2"]
    assert len(set(producer_ids(cluster))) == 1


@pytest.mark.parametrize("stored", [False, True])
def test_after_an_unknown_outcome_the_producer_continues_with_a_new_id(
    cluster: Coordinator, store: FlakyStore, stored: bool
) -> None:
    with new_producer(cluster) as producer:
        send(producer, b"0")
        store.commits, store.silent = [LOST_ANSWER if stored else UNAVAILABLE], True
        store.before_retry = lambda: setattr(store, "down", True)
        lost = send(producer, b"1")
        assert isinstance(lost.exception, KafkaTimeoutError)
        assert "is not known" in str(lost.exception)
        store.down = False
        for value in (b"2", b"3"):
            assert send(producer, value).succeeded()
    records = values(cluster)
    assert records == ([b"0", b"1", b"2", b"3"] if stored else [b"0", b"2", b"3"])
    assert len(set(producer_ids(cluster))) == 2


def test_records_behind_a_hanging_commit_time_out_too(cluster: Coordinator, store: FlakyStore) -> None:
    with new_producer(cluster) as producer:
        send(producer, b"0")
        store.down = True
        waiting: list[FutureRecordMetadata] = []
        store.before_retry = lambda: waiting.append(producer.send("t", b"2", partition=1))
        first = producer.send("t", b"1", partition=0)
        producer.flush(WAIT)
        producer.flush(WAIT)
        assert first.failed()
        assert isinstance(waiting[0].exception, KafkaTimeoutError)
        store.down = False
        assert send(producer, b"3").get().offset == 1


def test_retries_may_be_limited(cluster: Coordinator, store: FlakyStore) -> None:
    with new_producer(cluster, retries=1) as producer:
        send(producer, b"0")
        store.commits = [ERROR, ERROR]
        assert isinstance(send(producer, b"1").exception, IndeterminateCommitError)
        store.commits = [ERROR]
        assert send(producer, b"2").get().offset == 1
    with new_producer(cluster, retries=0) as producer:
        send(producer, b"3")
        store.commits, store.silent = [LOST_ANSWER], True
        assert isinstance(send(producer, b"4").exception, IndeterminateCommitError)
        assert send(producer, b"5").succeeded()
    assert values(cluster) == [b"0", b"2", b"3", b"4", b"5"]


def test_a_permanent_error_is_raised_immediately(cluster: Coordinator, store: FlakyStore) -> None:
    with new_producer(cluster) as producer:
        send(producer, b"0")
        store.commits = ["none+permission!"]
        assert isinstance(send(producer, b"1").exception, StoragePermissionError)
        store.commits = [PERMISSION]
        assert isinstance(send(producer, b"2").exception, IndeterminateCommitError)
        assert send(producer, b"3").get().offset == 1


def test_a_producer_with_out_of_order_sequences_continues_with_a_new_id(
    cluster: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = cluster.append
    sequences: list[int] = []

    def append_with_wrong_sequences(request: AppendRequest, written: Moment | None = None) -> AppendResult:
        if sequences:
            sequence = sequences.pop()
            renumbered = [replace(item, base_sequence=sequence) for item in request.appends]
            request = replace(request, appends=renumbered)
        return append(request, written)

    monkeypatch.setattr(cluster, "append", append_with_wrong_sequences)
    with new_producer(cluster) as producer:
        send(producer, b"0")
        sequences.append(0)
        lost = send(producer, b"1")
        assert isinstance(lost.exception, OutOfOrderSequenceNumberError) or lost.get().offset == 0
        sequences.append(17)
        assert isinstance(send(producer, b"2").exception, OutOfOrderSequenceNumberError)
        assert send(producer, b"3").get().offset == 1
    assert values(cluster) == [b"0", b"3"]


def test_a_topic_that_cannot_be_written_does_not_delay_the_others(cluster: Coordinator) -> None:
    cluster.create_topic("gone")
    with new_producer(cluster) as producer:
        lost = producer.send("gone", b"x")
        kept = [producer.send("t", b"%d" % number, partition=number) for number in range(2)]
        delete_topic(open_cluster(cluster.store), "gone")
        producer.flush(WAIT)
        assert isinstance(lost.exception, UnknownTopicOrPartitionError)
        assert [future.get().offset for future in kept] == [0, 0]


def test_records_of_too_many_partitions_for_one_commit_use_several(
    cluster: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("wide", 50)
    monkeypatch.setattr(limits, "MAX_INLINE_ACTIONS_BYTES", 1_000)
    monkeypatch.setattr(limits, "MAX_SPILLED_ACTIONS_BYTES", 6_000)
    with new_producer(cluster) as producer:
        futures = [producer.send("wide", b"v", partition=partition) for partition in range(50)]
        producer.flush(WAIT)
        assert [future.get().offset for future in futures] == [0] * 50
        assert producer.metrics()["producer-metrics"]["commit-total"] > 2


def test_send_waits_for_memory_no_longer_than_max_block_ms(cluster: Coordinator, store: FlakyStore) -> None:
    with new_producer(cluster, buffer_memory=1_000, max_block_ms=20, delivery_timeout_ms=10**9) as producer:
        send(producer, b"0")
        store.down = True
        for _ in range(5):
            producer.send("t", bytes(100), partition=0)
        with pytest.raises(KafkaTimeoutError, match=r"max_block_ms.* of 1,000 bytes") as caught:
            producer.send("t", bytes(100), partition=0)
        assert (caught.value.topic, caught.value.partition) == ("t", 0)
        store.down = False


def test_closing_with_timeout_0_fails_uncommitted_records(cluster: Coordinator, store: FlakyStore) -> None:
    before = set(threading.enumerate())
    producer = new_producer(cluster, delivery_timeout_ms=10**9)
    send(producer, b"0")
    (thread,) = [one for one in set(threading.enumerate()) - before if one.name == "sparklog-producer"]
    store.down = True
    future = producer.send("t", b"1", partition=0)
    producer.close(timeout=0)
    assert isinstance(future.exception, KafkaTimeoutError)
    store.down = False
    thread.join(WAIT)
    assert values(cluster) in ([b"0"], [b"0", b"1"])


def test_records_fail_if_the_sender_thread_dies(cluster: Coordinator, store: FlakyStore) -> None:
    producer = new_producer(cluster)
    send(producer, b"0")
    store.inject(Fault(len(store.calls), CRASH_BEFORE))
    lost = send(producer, b"1")
    with pytest.raises(SparklogError, match="thread ended"):
        lost.get(0)
    with pytest.raises(SparklogError, match="thread ended"):
        producer.send("t", b"2")
    producer.close()
    store.reopen()


def test_a_failed_request_for_a_producer_id_is_retried(cluster: Coordinator, store: FlakyStore) -> None:
    with new_producer(cluster) as producer:
        store.commits = [ERROR, UNAVAILABLE]
        assert send(producer, b"0").get().offset == 0


def test_a_failed_write_of_a_file_is_retried(cluster: Coordinator, store: FlakyStore) -> None:
    with new_producer(cluster) as producer:
        send(producer, b"0")
        start = len(store.calls)
        for step in range(start, start + 3):
            store.inject(Fault(step, ERROR))
        assert send(producer, b"1").get().offset == 1
    assert values(cluster) == [b"0", b"1"]


def expire_producers(cluster: Coordinator) -> None:
    """Let time pass, commit from another client, and expire the producers of all partitions."""
    cluster.log.clock.sleep(60)
    other = open_cluster(cluster.store, clock=cluster.log.clock)
    other.create_topic("others")
    assert other.submit(lambda state: decide_expiry.expire_partition_producers(state, state.timestamp_ms)) == 1


@pytest.mark.parametrize("stored", [False, True])
def test_records_retried_after_their_producer_expired_are_not_stored_twice(
    cluster: Coordinator, store: FlakyStore, stored: bool
) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"producer.id.expiration.ms": "1"}))
    with new_producer(cluster, delivery_timeout_ms=2**31 - 1) as producer:
        send(producer, b"0")
        store.commits, store.silent = [LOST_ANSWER if stored else UNAVAILABLE], True
        store.before_retry = lambda: expire_producers(cluster)
        lost = send(producer, b"1")
        assert isinstance(lost.exception, IndeterminateCommitError)
        assert isinstance(lost.exception.__cause__, UnknownProducerIdError)
        assert send(producer, b"2").succeeded()
    assert values(cluster) == ([b"0", b"1", b"2"] if stored else [b"0", b"2"])
    assert len(set(producer_ids(cluster))) == 2


def test_an_idle_producer_that_expired_continues_with_a_new_id(
    cluster: Coordinator,
) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"producer.id.expiration.ms": "1"}))
    with new_producer(cluster) as producer:
        send(producer, b"0")
        expire_producers(cluster)
        assert [send(producer, value).get(WAIT).offset for value in (b"1", b"2")] == [1, 2]
    assert values(cluster) == [b"0", b"1", b"2"]
    assert len(set(producer_ids(cluster))) == 2
