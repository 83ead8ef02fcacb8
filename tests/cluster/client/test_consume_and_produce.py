"""Consume, transform, produce: records and their source offsets are committed together, exactly once."""

from __future__ import annotations

import uuid
from functools import partial

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import FencedError, ProducerFencedError
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from sparklog.types import OffsetAndMetadata, TopicPartition

RECORDS = 60
POLLS = 2000
"""Polls after which a test has failed; each waits at most 10 ms."""


@pytest.fixture
def cluster() -> Coordinator:
    coordinator = create_cluster(MemoryStore(uuid.uuid4().hex))
    coordinator.submit(partial(alter_configs, topic="", changes={"group.initial.rebalance.delay.ms": "0"}))
    coordinator.create_topic("in", 2)
    coordinator.create_topic("out")
    with Producer(cluster=coordinator) as producer:
        for number in range(RECORDS):
            producer.send("in", b"%d" % number, partition=number % 2)
    return coordinator


def consumer(cluster: Coordinator) -> Consumer:
    return Consumer(
        "in",
        cluster=cluster,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=7,
    )


def transform(source: Consumer, producer: Producer) -> int:
    """Poll once, and send the records in a transaction that is left open; return their number."""
    batches = source.poll(timeout_ms=10)
    if not batches:
        return 0
    producer.begin_transaction()
    for records in batches.values():
        for record in records:
            producer.send("out", record.value)
    offsets: dict[TopicPartition, OffsetAndMetadata] = {
        TopicPartition(*partition): OffsetAndMetadata(records[-1].offset + 1) for partition, records in batches.items()
    }
    producer.send_offsets_to_transaction(offsets, source.group_metadata())
    return sum(len(records) for records in batches.values())


def transactional(cluster: Coordinator) -> Producer:
    producer = Producer(cluster=cluster, transactional_id="tx")
    producer.init_transactions()
    return producer


def out(cluster: Coordinator) -> list[int]:
    end = cluster.refresh().partition("out", 0).high_watermark
    with LogReader(cluster) as reader:
        return [int(record.value or b"") for record in reader.records("out", 0, 0, end)]


def test_each_record_is_produced_once_by_successive_instances(cluster: Coordinator) -> None:
    for instance in range(3):
        with consumer(cluster) as source, transactional(cluster) as producer:
            committed = 0
            for _ in range(POLLS):
                if transform(source, producer):
                    committed += 1
                    if committed == 3 and instance < 2:
                        break  # it dies with an open transaction
                    producer.commit_transaction()
                if len(out(cluster)) == RECORDS:
                    break
    assert sorted(out(cluster)) == list(range(RECORDS))
    offsets = cluster.refresh().groups["g"].offsets.values()
    assert sorted(entry.offset for entry in offsets) == [RECORDS // 2, RECORDS // 2]


def test_a_member_that_left_its_group_cannot_commit(cluster: Coordinator) -> None:
    with transactional(cluster) as producer:
        with consumer(cluster) as source:
            assert any(transform(source, producer) for _ in range(POLLS))
        with pytest.raises(FencedError) as caught:
            producer.commit_transaction()
        assert not isinstance(caught.value, ProducerFencedError)
        producer.abort_transaction()
    assert out(cluster) == []
