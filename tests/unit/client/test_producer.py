"""The producer: what is sent is in the log once, where Kafka would put it, and its future says where."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from sparklog.client.futures import RecordMetadata
from sparklog.client.producer import Producer
from sparklog.client.reader import ConsumerRecord, LogReader
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.store.memory import MemoryStore
from sparklog.types import TopicPartition

WAIT = 30
"""seconds. No test waits that long unless something is broken."""


@pytest.fixture
def cluster() -> Coordinator:
    return create_cluster(MemoryStore(uuid.uuid4().hex))


@pytest.fixture
def producer(cluster: Coordinator) -> Iterator[Producer]:
    with Producer(cluster=cluster) as producer:
        yield producer


def read(cluster: Coordinator, topic: str, partition: int = 0) -> list[ConsumerRecord]:
    end = cluster.refresh().partition(topic, partition).high_watermark
    with LogReader(cluster) as reader:
        return list(reader.records(topic, partition, 0, end))


def test_a_record_is_in_the_log_once_its_future_is_resolved(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("t")
    headers = [("a", b"1"), ("a", None)]
    future = producer.send("t", b"value", key=b"key", headers=headers, timestamp_ms=1_700_000_000_123)
    assert future.get(WAIT) == RecordMetadata("t", 0, TopicPartition("t", 0), 0, 1_700_000_000_123, None, 3, 5, 3)
    (record,) = read(cluster, "t")
    assert record == ConsumerRecord("t", 0, 0, 1_700_000_000_123_000, 0, b"key", b"value", headers, 0)
