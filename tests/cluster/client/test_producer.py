"""The producer: each record is in the log once, in the partition Kafka would choose, and its future has its offset."""

from __future__ import annotations

import gc
import math
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparklog.client import condition
from sparklog.client.config import SOCKET_ARGUMENTS
from sparklog.client.producer.config import DEFAULTS
from sparklog.client.producer.futures import RecordMetadata
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import ConsumerRecord, LogReader
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.topics import alter_configs, create_partitions
from sparklog.protocol.plan.partitioner import partition_for_key
from sparklog.protocol.state import State
from sparklog.store.memory import MemoryStore
from sparklog.threads import Wakeup
from sparklog.types import TopicPartition

WAIT = 30
"""Seconds. Only a broken test waits this long."""

LONG_MS = 60_000
"""A linger longer than any test, so that records wait for a flush."""


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


def values(cluster: Coordinator, topic: str, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in read(cluster, topic, partition)]


def metric(producer: Producer, name: str) -> float:
    number: float = producer.metrics()["producer-metrics"][name]
    return number


# -- sending


def test_a_record_is_in_the_log_once_its_future_is_resolved(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("t")
    headers = [("a", b"1"), ("a", None)]
    future = producer.send("t", b"value", key=b"key", headers=headers, timestamp_ms=1_700_000_000_123)
    assert future.get(WAIT) == RecordMetadata("t", 0, TopicPartition("t", 0), 0, 1_700_000_000_123, None, 3, 5, 3)
    (record,) = read(cluster, "t")
    assert record == ConsumerRecord("t", 0, 0, 1_700_000_000_123_000, 0, b"key", b"value", headers, 0)


def test_records_with_and_without_key_value_and_headers_share_a_batch(cluster: Coordinator, producer: Producer) -> None:
    sent = [(None, b"a", None), (b"k", None, None), (None, b"c", [("h", b"1")]), (b"", b"", None)]
    futures = [producer.send("t", value, key=key, headers=headers) for key, value, headers in sent]
    producer.flush()
    assert [(r.key, r.value, list(r.headers) or None) for r in read(cluster, "t")] == sent
    sizes = [future.get()[-3:] for future in futures]
    assert sizes == [(-1, 1, -1), (1, -1, -1), (-1, 1, 2), (0, 0, -1)]


def test_each_record_of_a_large_batch_has_its_offset_timestamp_and_sizes(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, linger_ms=LONG_MS, batch_size=2**30) as producer:
        futures = [
            producer.send("t", bytes(number % 7) if number % 5 else None, key=b"k", timestamp_ms=number)
            for number in range(20_000)
        ]
        producer.flush()
    for number in (0, 1, 4_999, 19_999):
        metadata = futures[number].get(0)
        size = number % 7 if number % 5 else -1
        assert (metadata.offset, metadata.timestamp, metadata.serialized_value_size) == (number, number, size)
    assert [record.timestamp_us for record in read(cluster, "t")] == [number * 1000 for number in range(20_000)]


def test_a_log_append_time_topic_returns_the_time_of_the_commit(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    metadata = producer.send("t", b"v", timestamp_ms=5).get(WAIT)
    assert metadata.timestamp == cluster.refresh().timestamp_ms
    assert read(cluster, "t")[0].timestamp_us == metadata.timestamp * 1000


def alter(cluster: Coordinator, **changes: str) -> None:
    """Change a topic's config as another process does, which no producer has noticed."""
    other = open_cluster(cluster.store)
    changed = {name.replace("_", "."): value for name, value in changes.items()}
    other.submit(partial(alter_configs, topic="t", changes=changed))


def test_records_sent_before_a_change_to_log_append_time_was_noticed_have_the_commits_time(
    cluster: Coordinator, producer: Producer
) -> None:
    cluster.create_topic("t")
    producer.send("t", b"v", timestamp_ms=5).get(WAIT)
    alter(cluster, message_timestamp_type="LogAppendTime")
    metadata = producer.send("t", b"w", timestamp_ms=5).get(WAIT)
    assert metadata.timestamp == cluster.refresh().timestamp_ms
    assert [record.timestamp_us for record in read(cluster, "t")] == [5_000, metadata.timestamp * 1000]


def test_records_without_a_key_that_were_sent_before_a_topic_was_made_compacted_are_refused(
    cluster: Coordinator,
) -> None:
    cluster.create_topic("t", 2)
    with Producer(cluster=cluster, linger_ms=LONG_MS) as producer:
        refused = producer.send("t", b"v", partition=0)
        kept = producer.send("t", b"v", key=b"k", partition=1)
        alter(cluster, cleanup_policy="compact")
        producer.flush()
    assert isinstance(refused.exception, InvalidRecordError)
    assert kept.succeeded()
    assert [record.value for record in read(cluster, "t")] == []


def test_of_a_topic_that_was_created_again_with_fewer_partitions_only_records_for_the_others_fail(
    cluster: Coordinator,
) -> None:
    cluster.create_topic("t", 3)
    with Producer(cluster=cluster, linger_ms=LONG_MS) as producer:
        kept, *failed = [producer.send("t", b"v", partition=partition) for partition in range(3)]
        other = open_cluster(cluster.store)
        delete_topic(other, "t")
        other.create_topic("t", 1)
        cluster.refresh()
        producer.flush()
    assert [str(future.exception) for future in failed] == [
        f"topic 't' has partitions 0 to 0, not {partition}" for partition in (1, 2)
    ]
    assert kept.succeeded()


def test_a_transaction_with_records_without_a_key_is_refused_once_its_topic_is_compacted(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    with Producer(cluster=cluster, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"v")
        producer.flush()
        alter(cluster, cleanup_policy="compact")
        with pytest.raises(InvalidRecordError):
            producer.commit_transaction()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("t", b"v", key=b"k")
        producer.commit_transaction()
    assert [record.key for record in read(cluster, "t")] == [b"k"]


def test_buffered_records_share_one_commit_and_one_file_per_topic(cluster: Coordinator) -> None:
    cluster.create_topic("a", 3)
    cluster.create_topic("b", 2)
    with Producer(cluster=cluster, linger_ms=LONG_MS) as producer:
        for partition in range(3):
            producer.send("a", b"x", partition=partition)
        for partition in range(2):
            producer.send("b", b"y", partition=partition)
        before = cluster.refresh().version
        producer.flush()
        assert cluster.refresh().version == before + 2  # the producer id, then all records
    logs = [info.key for info in cluster.store.list("") if info.key.endswith(".log")]
    assert len(logs) == 2


def test_records_wait_for_linger_unless_a_batch_is_full(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, linger_ms=LONG_MS, batch_size=1000) as producer:
        first = producer.send("t", b"x")
        assert not first.is_done
        producer.send("t", bytes(1000))
        assert first.get(WAIT).offset == 0


def test_records_are_sent_without_a_flush_after_linger_ms(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, linger_ms=5) as producer:
        assert producer.send("t", b"x").get(WAIT).offset == 0


@pytest.mark.parametrize(
    ("codec", "more"),
    [
        (None, {}),
        ("gzip", {"compression_gzip_level": 1}),
        ("snappy", {}),
        ("lz4", {}),
        ("zstd", {"compression_zstd_level": 9}),
    ],
)
def test_records_are_compressed_with_the_configured_codec(
    cluster: Coordinator, codec: Any, more: dict[str, Any]
) -> None:
    with Producer(cluster=cluster, compression_type=codec, **more) as producer:
        producer.send("t", bytes(100_000))
    assert values(cluster, "t") == [bytes(100_000)]
    assert (cluster.refresh().partition("t", 0).size_bytes < 10_000) == (codec is not None)


def test_the_topics_codec_overrides_the_producers(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("t", configs={"compression.type": "zstd"})
    producer.send("t", bytes(100_000)).get(WAIT)
    assert cluster.refresh().partition("t", 0).size_bytes < 10_000


@pytest.mark.parametrize("acks", [1, -1, "all"])
def test_acks_1_and_all_wait_for_the_commit(cluster: Coordinator, acks: Any) -> None:
    with Producer(cluster=cluster, acks=acks) as producer:
        assert producer.send("t", b"x").get(WAIT).offset == 0


def test_a_producer_that_is_not_idempotent_has_no_producer_id(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, enable_idempotence=False) as producer:
        producer.send("t", b"x").get(WAIT)
    assert cluster.refresh().next_producer_id == 0


def test_records_of_several_threads_keep_the_order_of_each_thread(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, batch_size=500) as producer:

        def send(name: int) -> None:
            for number in range(2_000):
                producer.send("t", b"%d-%d" % (name, number))

        threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT)
    sent = [value.split(b"-") for value in values(cluster, "t") if value is not None]
    for name in range(4):
        assert [int(number) for thread_name, number in sent if int(thread_name) == name] == list(range(2_000))


# -- partitions


def test_the_partition_of_a_key_is_chosen_by_murmur2(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("t", 7)
    keys = [b"key-%d" % number for number in range(50)]
    futures = [producer.send("t", b"v", key=key) for key in keys]
    producer.flush()
    assert [future.get().partition for future in futures] == [partition_for_key(key, 7) for key in keys]


def test_records_without_a_key_stay_together_for_batch_size_bytes(cluster: Coordinator) -> None:
    cluster.create_topic("t", 100)
    with Producer(cluster=cluster, linger_ms=LONG_MS, batch_size=10_000) as producer:
        futures = [producer.send("t", bytes(900)) for _ in range(100)]
    partitions = [future.get(0).partition for future in futures]
    changes = [number for number in range(1, 100) if partitions[number] != partitions[number - 1]]
    assert all(number % 10 == 0 for number in changes)
    assert len(changes) >= 7


def test_an_explicit_partition_overrides_the_key(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("t", 7)
    for partition in range(7):
        assert producer.send("t", b"v", key=b"k", partition=partition).get(WAIT).partition == partition


def test_a_custom_partitioner_gets_the_key_and_the_partitions(cluster: Coordinator) -> None:
    cluster.create_topic("t", 3)
    calls: list[object] = []

    def last(key: bytes | None, partitions: list[int], available: list[int]) -> int:
        calls.append((key, partitions, available))
        return partitions[-1]

    with Producer(cluster=cluster, partitioner=last) as producer:
        assert producer.send("t", b"v", key=b"k").get(WAIT).partition == 2
    assert calls == [(b"k", [0, 1, 2], [0, 1, 2])]


def test_added_partitions_get_records(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("t", 1)
    producer.send("t", b"v").get(WAIT)
    cluster.submit(partial(create_partitions, topic="t", total=20))
    for number in range(40):
        producer.send("t", b"v", key=b"%d" % number).get(WAIT)
    assert len({p for p in range(20) if cluster.refresh().partition("t", p).log_end_offset}) > 10
    assert producer.partitions_for("t") == set(range(20))


# -- topics


def test_the_first_record_creates_a_topic_with_the_clusters_defaults(cluster: Coordinator, producer: Producer) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"num.partitions": "3"}))
    producer.send("new", b"v").get(WAIT)
    assert len(cluster.refresh().topic("new").partitions) == 3
    assert producer.partitions_for("other") == {0, 1, 2}


def test_the_error_for_a_missing_topic_names_the_setting_that_forbids_creating_it(cluster: Coordinator) -> None:
    with (
        Producer(cluster=cluster, allow_auto_create_topics=False, max_block_ms=1) as producer,
        pytest.raises(UnknownTopicOrPartitionError, match="allow_auto_create_topics"),
    ):
        producer.send("new", b"v")
    cluster.submit(partial(alter_configs, topic="", changes={"auto.create.topics.enable": "false"}))
    with (
        Producer(cluster=cluster, max_block_ms=1) as producer,
        pytest.raises(KafkaTimeoutError, match=r"auto\.create\.topics\.enable"),
    ):
        producer.send("new", b"v")
    assert "new" not in cluster.refresh().topics


def test_no_topic_is_created_once_the_cluster_forbids_it(cluster: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer is suspended since it read the setting."""
    forbid = partial(alter_configs, topic="", changes={"auto.create.topics.enable": "false"})
    submit = Coordinator.submit

    def submit_late(coordinator: Coordinator, decide: Callable[[State], Decision[Any]], **more: Any) -> Any:
        submit(coordinator, forbid)
        return submit(coordinator, decide, **more)

    with Producer(cluster=cluster, max_block_ms=1) as producer:
        monkeypatch.setattr(Coordinator, "submit", submit_late)
        with pytest.raises(KafkaTimeoutError, match=r"auto\.create\.topics\.enable"):
            producer.send("misspelt", b"v")
    assert "misspelt" not in cluster.refresh().topics


def test_only_the_records_of_a_deleted_topic_fail(cluster: Coordinator) -> None:
    cluster.create_topic("gone")
    cluster.create_topic("kept")
    with Producer(cluster=cluster, linger_ms=LONG_MS) as producer:
        lost, kept = producer.send("gone", b"v"), producer.send("kept", b"v")
        delete_topic(cluster, "gone")
        producer.flush()
        assert isinstance(lost.exception, UnknownTopicOrPartitionError)
        assert lost.exception.topic == "gone"
        assert kept.get().offset == 0
        producer.send("kept", b"w", partition=0)
        producer.flush()
    assert values(cluster, "kept") == [b"v", b"w"]


def test_records_for_a_topic_that_another_process_recreated_fail_once(tmp_path: Path) -> None:
    here, there = create_cluster(str(tmp_path)), None
    from sparklog.coordinator import open_cluster

    there = open_cluster(str(tmp_path))
    with Producer(cluster=here, linger_ms=LONG_MS) as producer:
        here.create_topic("t")
        producer.send("t", b"1")
        producer.flush()
        delete_topic(there, "t")
        there.create_topic("t")
        lost = producer.send("t", b"2")
        producer.flush()
        assert isinstance(lost.exception, UnknownTopicOrPartitionError)
        kept = producer.send("t", b"3")
        producer.flush()
        assert kept.get().offset == 0
    assert values(here, "t") == [b"3"]


# -- serializers


class Upper:
    """A serializer with the interface of kafka-python 3."""

    closed = False

    def serialize(self, topic: str, headers: list[tuple[str, bytes]], value: str | None) -> bytes | None:
        return None if value is None else f"{topic} {len(headers)} {value}".upper().encode()

    def close(self) -> None:
        self.closed = True


class Older:
    """A serializer with the interface of kafka-python 2."""

    def serialize(self, topic: str, value: str | None) -> bytes | None:
        return None if value is None else f"{topic} {value}".encode()


def test_serializers_are_functions_or_objects_of_kafka_python_2_or_3(cluster: Coordinator) -> None:
    upper: Any = Upper()
    with Producer(cluster=cluster, value_serializer=upper, key_serializer=str.encode) as producer:
        producer.send("t", "a", key="k", headers=[("h", b"1")])
    with Producer(cluster=cluster, value_serializer=Older()) as producer:
        producer.send("t", "b")
    assert [(r.key, r.value) for r in read(cluster, "t")] == [(b"k", b"T 1 A"), (None, b"t b")]
    assert upper.closed


def test_bytes_like_values_are_copied(cluster: Coordinator, producer: Producer) -> None:
    value = bytearray(b"ab")
    producer.send("t", value, key=memoryview(b"k"), headers=[("h", bytearray(b"1"))])
    value[0] = 0
    producer.flush()
    (record,) = read(cluster, "t")
    assert (record.key, record.value, list(record.headers)) == (b"k", b"ab", [("h", b"1")])


# -- refusals


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"value": "text"}, SerializationError, "value_serializer"),
        ({"value": 5}, TypeError, "value of a record for topic 't' is of type int"),
        ({"value": b"v", "key": "text"}, SerializationError, "key_serializer"),
        ({}, InvalidRecordError, "neither a key nor a value"),
        ({}, ValueError, "neither a key nor a value"),
        ({"value": b"v", "headers": "text"}, SerializationError, "headers"),
        ({"value": b"v", "headers": [("a", "text")]}, SerializationError, "header"),
        ({"value": b"v", "headers": [(b"a", b"b")]}, SerializationError, "headers"),
        ({"value": b"v", "headers": [("\ud800", b"b")]}, SerializationError, "headers"),
        ({"value": b"v", "headers": [("a",)]}, SerializationError, "headers"),
        ({"value": b"v", "partition": 1}, UnknownTopicOrPartitionError, "partitions 0 to 0, not 1"),
        ({"value": b"v", "partition": -1}, UnknownTopicOrPartitionError, "partitions 0 to 0, not -1"),
        ({"value": b"v", "partition": 1}, ValueError, "partitions 0 to 0, not 1"),
        ({"value": b"v", "partition": "0"}, InvalidRecordError, "whole number"),
        ({"value": b"v", "timestamp_ms": -1}, InvalidTimestampError, "timestamp_ms=-1"),
        ({"value": b"v", "timestamp_ms": 1.5}, InvalidTimestampError, "1.5"),
        ({"value": b"v", "timestamp_ms": 2**60}, InvalidTimestampError, "timestamp_ms"),
        ({"value": bytes(2**20 + 1)}, MessageSizeTooLargeError, "max_request_size"),
        ({"value": b"v", "key": bytes(2**20)}, MessageSizeTooLargeError, "max_request_size"),
    ],
)
def test_send_refuses_invalid_records(
    cluster: Coordinator, producer: Producer, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    cluster.create_topic("t")
    with pytest.raises(error, match=message.replace(".", r"\.")):
        producer.send("t", **arguments)
    producer.send("t", b"next").get(WAIT)
    assert values(cluster, "t") == [b"next"]


@pytest.mark.parametrize("topic", ["", "a/b", ".", "x" * 250, None, 5, b"t"])
def test_invalid_topic_names_are_refused(producer: Producer, topic: object) -> None:
    with pytest.raises(InvalidTopicError):
        producer.send(topic, b"v")  # type: ignore[arg-type]


def test_a_record_over_max_request_size_is_refused(cluster: Coordinator) -> None:
    with (
        Producer(cluster=cluster, max_request_size=100) as producer,
        pytest.raises(MessageSizeTooLargeError, match="max_request_size is 100"),
    ):
        producer.send("t", bytes(101))


def test_timestamps_out_of_the_topics_bounds_are_refused(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("t", configs={"message.timestamp.before.max.ms": "1000"})
    with pytest.raises(InvalidTimestampError, match=r"message\.timestamp\.before\.max\.ms is 1,000"):
        producer.send("t", b"v", timestamp_ms=cluster.log.clock.now_ms() - 60_000)


@pytest.mark.parametrize(
    "arguments",
    [
        {"acks": 2},
        {"acks": True},
        {"linger_ms": -1},
        {"batch_size": "16384"},
        {"buffer_memory": 0},
        {"compression_type": "brotli"},
        {"compression_zstd_level": 99, "compression_type": "zstd"},
        {"key_serializer": 5},
        {"partitioner": "murmur2"},
        {"transactional_id": ""},
        {"transactional_id": "tx", "enable_idempotence": False},
        {"delivery_timeout_ms": 5, "linger_ms": 10},
        {"no_such": 1},
    ],
)
def test_invalid_arguments_are_refused(cluster: Coordinator, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfigurationError, match=next(iter(arguments))):
        Producer(cluster=cluster, **arguments)


def test_every_argument_of_kafka_python_is_accepted(cluster: Coordinator) -> None:
    assert not DEFAULTS.keys() & SOCKET_ARGUMENTS
    arguments: dict[str, Any] = {name: value for name, value in DEFAULTS.items() if name != "cluster"}
    Producer(cluster=cluster, **arguments, **dict.fromkeys(SOCKET_ARGUMENTS)).close()  # type: ignore[arg-type]


# -- waiting, memory, closing


def test_a_full_buffer_waits_for_commits(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, buffer_memory=2_000) as producer:
        for number in range(1_000):
            producer.send("t", b"%d" % number)
        producer.flush()
        assert metric(producer, "buffer-available-bytes") == 2_000
    assert values(cluster, "t") == [b"%d" % number for number in range(1_000)]


def test_a_record_larger_than_the_buffer_is_refused(cluster: Coordinator) -> None:
    with (
        Producer(cluster=cluster, buffer_memory=200) as producer,
        pytest.raises(MessageSizeTooLargeError, match="buffer_memory, 200"),
    ):
        producer.send("t", bytes(200))


def test_metrics_have_kafkas_names(producer: Producer) -> None:
    for _ in range(5):
        producer.send("t", bytes(10))
    producer.flush()
    assert metric(producer, "record-send-total") == 5
    assert metric(producer, "record-error-total") == 0
    names = {(name.group, name.name) for name in producer.metrics(raw=True)}
    assert ("producer-metrics", "record-send-total") in names


def test_a_readable_cluster_counts_as_connected(producer: Producer) -> None:
    assert producer.bootstrap_connected()


def test_closing_sends_buffered_records_and_later_calls_are_refused(cluster: Coordinator) -> None:
    producer = Producer(cluster=cluster, linger_ms=LONG_MS)
    future = producer.send("t", b"v")
    producer.close()
    producer.close()
    assert future.get(0).offset == 0
    for action in (lambda: producer.send("t", b"v"), lambda: producer.send_batch("t", None)):
        with pytest.raises(IllegalStateError, match="closed"):
            action()


def test_a_callback_may_send_but_not_wait(cluster: Coordinator, producer: Producer) -> None:
    done = threading.Event()
    refused: list[BaseException] = []

    def again(metadata: RecordMetadata) -> None:
        producer.send("t", b"second")
        try:
            producer.flush()
        except IllegalStateError as error:
            refused.append(error)
        done.set()

    producer.send("t", b"first").add_callback(again)
    assert done.wait(WAIT)
    producer.flush()
    assert values(cluster, "t") == [b"first", b"second"]
    assert len(refused) == 1


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_no_callback_ends_the_producers_thread(cluster: Coordinator, raised: type[BaseException]) -> None:
    def fail(_: object) -> None:
        raise raised

    called = threading.Event()
    with Producer(cluster=cluster, linger_ms=LONG_MS) as producer:
        first = producer.send("t", b"first").add_callback(fail)
        second = producer.send("t", b"second").add_callback(lambda _: called.set())
        producer.flush(WAIT)
        assert called.wait(WAIT)
        third = producer.send("t", b"third")
        producer.flush(WAIT)
        assert [future.get(0).offset for future in (first, second, third)] == [0, 1, 2]


def test_no_errback_ends_the_producers_thread(cluster: Coordinator) -> None:
    cluster.create_topic("gone")
    called = threading.Event()
    with Producer(cluster=cluster, linger_ms=LONG_MS) as producer:
        lost = producer.send("gone", b"v").add_errback(lambda _: sys.exit(1)).add_errback(lambda _: called.set())
        delete_topic(cluster, "gone")
        producer.flush(WAIT)
        assert called.wait(WAIT)
        assert lost.failed()
        kept = producer.send("t", b"v")
        producer.flush(WAIT)
        assert kept.get(0).offset == 0


def test_a_callback_may_close_the_producer(cluster: Coordinator) -> None:
    producer = Producer(cluster=cluster)
    closed = threading.Event()
    producer.send("t", b"v").add_callback(lambda _: (producer.close(), closed.set()))
    assert closed.wait(WAIT)


def test_the_thread_of_an_unreferenced_producer_ends(cluster: Coordinator) -> None:
    before = set(threading.enumerate())
    producer = Producer(cluster=cluster)
    producer.send("t", b"v").get(WAIT)
    (thread,) = [one for one in set(threading.enumerate()) - before if one.name == "sparklog-producer"]
    del producer
    thread.join(WAIT)
    assert not thread.is_alive()


def test_a_producer_may_be_garbage_collected_in_a_thread_that_holds_its_lock(
    cluster: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def collect() -> Wakeup:  # called by ``future.get()`` with the lock
        gc.collect()
        return Wakeup()

    producer = Producer(cluster=cluster, linger_ms=LONG_MS)
    future = producer.send("t", b"v")
    lock = producer._accumulator.lock  # noqa: SLF001 - the program cannot hold it itself
    cycle: list[object] = [producer]
    cycle.append(cycle)
    del producer, cycle
    monkeypatch.setattr(condition, "Wakeup", collect)
    with lock:
        assert future.get(WAIT).offset == 0


def test_a_forked_child_may_not_use_the_producer(cluster: Coordinator) -> None:
    with Producer(cluster=cluster, linger_ms=LONG_MS) as producer:
        future = producer.send("t", b"v")
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            outcomes = []
            for action in (lambda: producer.send("t", b"v"), producer.flush, lambda: future.get()):
                try:
                    action()
                except IllegalStateError:
                    outcomes.append(b"refused")
                except BaseException as error:
                    outcomes.append(repr(error).encode())
            os.write(write_end, b" ".join(outcomes))
            os._exit(0)
        os.close(write_end)
        with os.fdopen(read_end, "rb") as file:
            assert file.read() == b"refused refused refused"
        os.waitpid(child, 0)
    assert values(cluster, "t") == [b"v"]


def test_timeouts_may_be_infinite(cluster: Coordinator) -> None:
    producer = Producer(cluster=cluster)
    assert producer.send("t", b"v").get(math.inf).offset == 0
    producer.flush(math.inf)
    producer.close(math.inf)


def test_a_flush_raises_after_its_timeout(cluster: Coordinator) -> None:
    release = threading.Event()
    with Producer(cluster=cluster, value_serializer=None) as producer:
        producer.send("t", b"first").add_callback(lambda _: release.wait(WAIT))  # the thread is busy with a callback
        second = producer.send("t", b"second", partition=0)
        try:
            if not second.is_done:
                with pytest.raises(KafkaTimeoutError, match="not committed"):
                    producer.flush(timeout=0)
                with pytest.raises(KafkaTimeoutError):
                    second.get(timeout=0)
        finally:
            release.set()
