"""A producer treats records as kafka-python's does: when send waits, which records fail, and their partitions."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sparklog.client.producer.futures import RecordMetadata
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import (
    IllegalStateError,
    KafkaConfigurationError,
    KafkaError,
    MessageSizeTooLargeError,
    UnknownTopicTimeoutError,
)
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore

WAIT = 30
"""Seconds. Only a broken test waits this long."""

LONG_MS = 60_000
"""A linger longer than any test, so that records wait for a flush."""


@pytest.fixture
def cluster() -> Coordinator:
    return create_cluster(MemoryStore(uuid.uuid4().hex))


def values(cluster: Coordinator, topic: str, partition: int = 0) -> list[bytes | None]:
    end = cluster.refresh().partition(topic, partition).high_watermark
    with LogReader(cluster) as reader:
        return [record.value for record in reader.records(topic, partition, 0, end)]


def test_send_waits_until_the_topic_is_created(cluster: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"auto.create.topics.enable": "false"}))
    sent: list[RecordMetadata] = []
    with Producer(cluster=cluster, max_block_ms=WAIT * 1000, retry_backoff_ms=5) as producer:
        sender = threading.Thread(target=lambda: sent.append(producer.send("new", b"v").get(WAIT)))
        sender.start()
        while not any(
            "waiting for at most 30 s: topic 'new' does not exist" in record.message for record in caplog.records
        ):
            assert sender.is_alive()
        assert not sent
        cluster.create_topic("new")
        sender.join(WAIT)
        assert [record.offset for record in sent] == [0]


def test_closing_a_producer_ends_its_wait_for_a_topic(cluster: Coordinator, caplog: pytest.LogCaptureFixture) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"auto.create.topics.enable": "false"}))
    raised: list[Exception] = []

    def send() -> None:
        try:
            producer.send("new", b"v")
        except IllegalStateError as error:
            raised.append(error)

    with Producer(cluster=cluster, max_block_ms=WAIT * 1000, retry_backoff_ms=5) as producer:
        sender = threading.Thread(target=send)
        sender.start()
        while not any("waiting for at most" in record.message for record in caplog.records):
            assert sender.is_alive()
    sender.join(WAIT)
    assert len(raised) == 1


def test_a_record_over_the_topics_limit_fails_its_future_and_the_others_are_written(cluster: Coordinator) -> None:
    cluster.create_topic("t", 2, configs={"max.message.bytes": "1000"})
    errors: list[object] = []
    with Producer(cluster=cluster) as producer:
        lost = producer.send("t", bytes(989), partition=1).add_errback(errors.append)
        kept = producer.send("t", bytes(988), partition=1)
        assert lost.failed()
        assert errors == [lost.exception]
        with pytest.raises(
            MessageSizeTooLargeError, match=r"1,001 bytes, and the topic's max\.message\.bytes is 1,000"
        ):
            lost.get()
        assert kept.get(WAIT).offset == 0
    assert values(cluster, "t", 1) == [bytes(988)]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda p: p.send(None, b"v"), TypeError),
        (lambda p: p.send(5, b"v"), TypeError),
        (lambda p: p.send("", b"v"), ValueError),
        (lambda p: p.send("a b", b"v"), ValueError),
        (lambda p: p.send("t"), ValueError),
        (lambda p: p.send("t", "text"), TypeError),
        (lambda p: p.send("t", b"v", key=5), TypeError),
        (lambda p: p.send("t", b"v", headers="h"), TypeError),
        (lambda p: p.send("t", b"v", headers=[("h", "text")]), TypeError),
        (lambda p: p.send("t", b"v", partition=-1), ValueError),
        (lambda p: p.send("t", b"v", partition=9), ValueError),
        (lambda p: p.send("t", b"v", partition="0"), TypeError),
        (lambda p: p.close(-1), ValueError),
    ],
)
def test_invalid_arguments_raise_kafka_pythons_class_and_a_kafka_error(
    cluster: Coordinator, call: Callable[[Any], object], kind: type[Exception]
) -> None:
    cluster.create_topic("t")
    with Producer(cluster=cluster) as producer:
        with pytest.raises(kind) as raised:
            call(producer)
        assert isinstance(raised.value, KafkaError)
        assert producer.send("t", b"v").get(WAIT).offset == 0


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"no_such": 1}, ValueError),
        ({"compression_type": "brotli"}, ValueError),
        ({"transactional_id": "x", "enable_idempotence": False}, KafkaConfigurationError),
        ({"delivery_timeout_ms": 5, "linger_ms": 10}, KafkaConfigurationError),
    ],
)
def test_arguments_of_the_constructor_are_refused_with_kafka_pythons_errors(
    cluster: Coordinator, arguments: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        Producer(cluster=cluster, **arguments)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("of_topic", [True, False])
def test_the_topics_limit_applies_to_compressed_bytes(cluster: Coordinator, codec: str, of_topic: bool) -> None:
    configs = {"max.message.bytes": "1000"} | ({"compression.type": codec} if of_topic else {})
    cluster.create_topic("t", configs=configs)
    random = os.urandom(2000)
    given: dict[str, Any] = {} if of_topic else {"compression_type": codec}
    with Producer(cluster=cluster, **given) as producer:
        small = producer.send("t", bytes(5000), key=b"k", headers=[("h", bytes(500))])
        large = [producer.send("t", random), producer.send("t", b"", key=random)]
        large.append(producer.send("t", b"", headers=[("h", random)]))
        assert all(isinstance(future.exception, MessageSizeTooLargeError) for future in large)
        assert small.get(WAIT).offset == 0
    assert values(cluster, "t") == [bytes(5000)]


def test_records_without_a_key_that_are_sent_one_by_one_reach_every_partition(cluster: Coordinator) -> None:
    cluster.create_topic("t", 4)
    with Producer(cluster=cluster) as producer:
        reached = set()
        for _ in range(200):
            reached.add(producer.send("t", b"v").get(WAIT).partition)
            if len(reached) == 4:
                break
    assert reached == {0, 1, 2, 3}


def test_records_without_a_key_that_are_sent_together_share_a_batch(cluster: Coordinator) -> None:
    cluster.create_topic("t", 4)
    with Producer(cluster=cluster, linger_ms=LONG_MS) as producer:
        futures = [producer.send("t", b"v") for _ in range(50)]
        producer.flush()
        assert len({future.get(WAIT).partition for future in futures}) == 1


@pytest.mark.parametrize("part", ["key", "value"])
def test_an_error_of_a_serializer_is_raised_unchanged_and_nothing_is_sent(cluster: Coordinator, part: str) -> None:
    def refuse(value: object) -> bytes:
        raise ZeroDivisionError(value)

    given: dict[str, Any] = {f"{part}_serializer": refuse}
    with Producer(cluster=cluster, **given) as producer:
        with pytest.raises(ZeroDivisionError) as caught:
            producer.send("t", 5, key=6)
        if sys.version_info >= (3, 11):
            assert f"the {part}_serializer failed for a record of topic 't'" in caught.value.__notes__[0]
    assert not cluster.refresh().topics


def test_an_error_of_a_partitioner_is_raised_unchanged_and_nothing_is_sent(cluster: Coordinator) -> None:
    def refuse(*_: object) -> int:
        raise LookupError("no partition for this")

    with Producer(cluster=cluster, partitioner=refuse) as producer, pytest.raises(LookupError, match="no partition"):
        producer.send("t", b"1", key=b"k")
    assert values(cluster, "t") == []


def test_send_waits_for_a_missing_topic_for_max_block_ms() -> None:
    clock = ManualClock()
    cluster = create_cluster(MemoryStore(uuid.uuid4().hex), clock=clock)
    cluster.submit(partial(alter_configs, topic="", changes={"auto.create.topics.enable": "false"}))
    with Producer(cluster=cluster, max_block_ms=300) as producer:
        before = clock.monotonic()
        with pytest.raises(UnknownTopicTimeoutError):
            producer.send("new", b"v")
        assert clock.monotonic() - before == pytest.approx(0.3)
