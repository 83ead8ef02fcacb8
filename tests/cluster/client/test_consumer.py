"""A single consumer: what it reads, where it starts, and which calls it refuses."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    IllegalStateError,
    InvalidConfigurationError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.decide.topics import create_partitions
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.cluster.client.consumers import WAIT_SECONDS, Cluster, at, flat, read, until, values


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(request.node.name)


def test_records_have_kafka_pythons_fields(cluster: Cluster) -> None:
    cluster.write(0, b"value", key=b"k", headers=[("h", b"xy")], timestamp_us=1_700_000_000_123_456)
    with cluster.consumer("orders") as consumer:
        (record,) = read(consumer, 1)
    assert record._asdict() == {
        "topic": "orders",
        "partition": 0,
        "leader_epoch": 0,
        "offset": 0,
        "timestamp": 1_700_000_000_123,
        "timestamp_type": 0,
        "key": b"k",
        "value": b"value",
        "headers": [("h", b"xy")],
        "checksum": None,
        "serialized_key_size": 1,
        "serialized_value_size": 5,
        "serialized_header_size": 3,
    }


def test_missing_fields_of_a_record_are_none(cluster: Cluster) -> None:
    cluster.write(0, None)
    with cluster.consumer("orders") as consumer:
        (record,) = read(consumer, 1)
    assert (record.key, record.value, record.headers) == (None, None, [])
    assert (record.serialized_key_size, record.serialized_value_size, record.serialized_header_size) == (-1, -1, -1)


def test_iteration_ends_after_consumer_timeout_ms(cluster: Cluster) -> None:
    cluster.write(0, b"a", b"b")
    with cluster.consumer("orders", consumer_timeout_ms=1000) as consumer:
        assert values(list(consumer)) == [b"a", b"b"]
        cluster.write(1, b"c")
        assert next(consumer).value == b"c"
        with pytest.raises(StopIteration):
            next(consumer)


def test_iteration_moves_the_position_past_each_record_it_returns(cluster: Cluster) -> None:
    cluster.write(0, b"a", b"b", b"c", b"d")
    with cluster.consumer("orders") as consumer:
        for record in consumer:
            assert consumer.position(at(0)) == record.offset + 1
            if record.offset == 1:
                break
        assert values(read(consumer, 2)) == [b"c", b"d"]
        assert consumer.position(at(0)) == 4


@pytest.mark.parametrize("move", ["seek", "pause", "unsubscribe", "poll"])
def test_iteration_drops_buffered_records_that_another_call_made_stale(cluster: Cluster, move: str) -> None:
    cluster.write(0, *[b"%d" % number for number in range(10)])
    expected = [0, 1, 2, 8, 9] if move == "seek" else [0, 1, 2]
    with cluster.consumer("orders", consumer_timeout_ms=WAIT_SECONDS * 1000) as consumer:
        seen = []
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 2 and move == "seek":
                consumer.seek(at(0), 8)
            elif record.offset == 2 and move == "pause":
                consumer.pause(at(0))
            elif record.offset == 2 and move == "poll":
                assert [r.offset for r in read(consumer, 7)] == list(range(3, 10))
            elif record.offset == 2:
                consumer.unsubscribe()
                consumer.assign([at(1)])
            if len(seen) == len(expected):
                break
        assert seen == expected
        assert flat(consumer.poll(300)) == []


def test_poll_returns_at_most_max_poll_records(cluster: Cluster) -> None:
    cluster.write(0, *[b"x"] * 10)
    cluster.write(1, *[b"y"] * 10)
    with cluster.consumer("orders", max_poll_records=3) as consumer:
        _poll_at_most(consumer, 3)
        until(lambda: consumer.position(at(0)) + consumer.position(at(1)) >= 12, lambda: _poll_at_most(consumer, 3))
        assert len(flat(consumer.poll(5000, max_records=1))) == 1


def _poll_at_most(consumer: Consumer, count: int) -> None:
    assert len(flat(consumer.poll(50))) <= count


def test_partitions_take_turns(cluster: Cluster) -> None:
    for partition in (0, 1):
        cluster.write(partition, *[b"x"] * 1000)

    def poll_near_the_beginning() -> None:
        consumer.poll(50)
        for partition in filter(lambda partition: (consumer.position(partition) or 0) > 500, (at(0), at(1))):
            consumer.seek(partition, 0)  # the other partition has not arrived yet

    with cluster.consumer("orders", max_poll_records=10) as consumer:
        until(consumer.assignment, lambda: consumer.poll(0))
        until(lambda: consumer.position(at(0)) and consumer.position(at(1)), poll_near_the_beginning)
        before = consumer.position(at(0)), consumer.position(at(1))
        assert len(read(consumer, 20)) == 20
        assert (consumer.position(at(0)), consumer.position(at(1))) == (before[0] + 10, before[1] + 10)


def test_poll_without_update_offsets_returns_the_same_records_again(cluster: Cluster) -> None:
    cluster.write(0, b"a", b"b")
    with cluster.consumer("orders") as consumer:
        until(lambda: values(flat(consumer.poll(50, update_offsets=False))) == [b"a", b"b"])
        assert consumer.position(at(0)) == 0
        assert values(read(consumer, 2)) == [b"a", b"b"]


def test_poll_batches_returns_arrow_and_moves_the_position(cluster: Cluster) -> None:
    cluster.write(1, b"a", b"b", key=b"k")
    with cluster.consumer("orders") as consumer:
        (polled,) = consumer.poll_batches(10_000)
        assert (polled.topic_partition, polled.base_offset, polled.end_offset) == (at(1), 0, 2)
        assert isinstance(polled.batch, pa.RecordBatch)
        assert polled.batch.column("value").to_pylist() == [b"a", b"b"]
        assert consumer.position(at(1)) == 2
        assert consumer.poll_batches() == []


# -- start positions


def test_auto_offset_reset_applies_without_a_committed_offset(cluster: Cluster) -> None:
    cluster.write(0, b"old")
    with cluster.consumer("orders", auto_offset_reset="latest") as consumer:
        assert consumer.poll() == {}
        cluster.write(0, b"new")
        assert values(read(consumer, 1)) == [b"new"]
    with cluster.consumer("orders", auto_offset_reset="none") as consumer, pytest.raises(NoOffsetForPartitionError):
        consumer.poll()
    cluster.write(0, b"ancient", timestamp_us=1)
    with cluster.consumer("orders", auto_offset_reset="by_duration:PT1H") as consumer:
        assert values(read(consumer, 3)) == [b"old", b"new", b"ancient"]


def test_a_consumer_can_seek_to_any_offset(cluster: Cluster) -> None:
    cluster.write(0, b"a", b"b", b"c")
    with cluster.consumer() as consumer:
        consumer.assign([at(0)])
        consumer.seek(at(0), 1)
        assert values(read(consumer, 2)) == [b"b", b"c"]
        consumer.seek_to_beginning()
        assert consumer.position(at(0)) == 0
        consumer.seek_to_end(at(0))
        assert consumer.position(at(0)) == 3
        cluster.write(0, b"d")
        assert values(read(consumer, 1)) == [b"d"]


@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_an_offset_out_of_range_is_reset_or_raised(cluster: Cluster, reset: str) -> None:
    cluster.write(0, b"a")
    with cluster.consumer(auto_offset_reset=reset) as consumer:
        consumer.assign([at(0)])
        consumer.seek(at(0), 99)
        if reset == "none":
            with pytest.raises(OffsetOutOfRangeError) as caught:
                until(lambda: False, lambda: consumer.poll(50))
            assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 0, 99)
        else:
            until(lambda: consumer.position(at(0)) == 1, lambda: consumer.poll(50))


def test_a_recreated_topic_is_read_from_its_beginning(cluster: Cluster) -> None:
    cluster.write(0, b"a", b"b")
    with cluster.consumer("orders") as consumer:
        read(consumer, 2)
        delete_topic(cluster.admin, "orders")
        cluster.admin.create_topic("orders", 1)
        cluster.write(0, b"c", b"d", b"e")
        assert values(read(consumer, 3)) == [b"c", b"d", b"e"]


def test_offsets_and_topics_can_be_queried(cluster: Cluster) -> None:
    cluster.write(0, b"a", timestamp_us=1_000_000)
    cluster.write(0, b"b", timestamp_us=5_000_000)
    with cluster.consumer("orders") as consumer:
        assert consumer.beginning_offsets([at(0), at(1)]) == {at(0): 0, at(1): 0}
        assert consumer.end_offsets([at(0)]) == {at(0): 2}
        offsets = consumer.offsets_for_times({at(0): 2000, at(1): 0})
        assert offsets == {at(0): (1, 5000, 0), at(1): None}
        assert consumer.topics() == {"orders"}
        assert consumer.partitions_for_topic("orders") == {0, 1}
        assert consumer.partitions_for_topic("none") == set()
        read(consumer, 2)
        assert consumer.highwater(at(0)) == 2
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] == 2
        with pytest.raises(UnknownTopicOrPartitionError):
            consumer.end_offsets([at(9)])
        with pytest.raises(InvalidRequestError):
            consumer.offsets_for_times({at(0): -1})


# -- subscriptions


def test_topics_and_partitions_that_appear_later_are_read(cluster: Cluster) -> None:
    with cluster.consumer("later") as consumer:
        assert consumer.poll() == {}
        cluster.admin.create_topic("later", 1)
        cluster.write(0, b"a", topic="later")
        assert values(read(consumer, 1)) == [b"a"]
        cluster.admin.submit(partial(create_partitions, topic="later", total=2))
        cluster.write(1, b"b", topic="later")
        assert values(read(consumer, 1)) == [b"b"]


def test_a_pattern_matches_existing_and_new_topics(cluster: Cluster) -> None:
    cluster.write(0, b"a")
    with cluster.consumer() as consumer:
        consumer.subscribe(pattern="ord|aud")
        assert consumer.subscription() == {"orders"}
        cluster.admin.create_topic("audit", 1)
        cluster.write(0, b"b", topic="audit")
        assert sorted(values(read(consumer, 2))) == [b"a", b"b"]
        assert consumer.subscription() == {"audit", "orders"}


def test_paused_partitions_keep_their_position(cluster: Cluster) -> None:
    cluster.write(0, b"a")
    cluster.write(1, b"b")
    with cluster.consumer() as consumer:
        consumer.assign([at(0), at(1)])
        consumer.pause(at(0))
        assert values(read(consumer, 1)) == [b"b"]
        assert consumer.poll(50) == {}
        assert consumer.paused() == {at(0)}
        consumer.resume(at(0))
        assert values(read(consumer, 1)) == [b"a"]


def test_ways_to_subscribe_exclude_each_other(cluster: Cluster) -> None:
    with cluster.consumer("orders") as consumer:
        with pytest.raises(IllegalStateError):
            consumer.assign([at(0)])
        consumer.unsubscribe()
        assert consumer.subscription() is None
        consumer.assign([at(0)])
        with pytest.raises(IllegalStateError):
            consumer.subscribe(["orders"])
        consumer.unsubscribe()
        with pytest.raises(IllegalStateError):
            consumer.subscribe(topics=["orders"], pattern="x")
        with pytest.raises(ValueError):
            consumer.subscribe()


def test_a_consumer_without_partitions_returns_nothing_and_warns_once(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.write(0, b"a")
    with cluster.consumer(consumer_timeout_ms=10) as consumer:
        assert consumer.poll() == {}
        assert consumer.poll(10) == {}
        assert list(consumer) == []
        assert sum("reads nothing" in record.message for record in caplog.records) == 1


def test_one_poll_returns_records_of_several_small_writes(cluster: Cluster) -> None:
    with cluster.consumer("orders", fetch_max_wait_ms=WAIT_SECONDS * 1000) as consumer:
        consumer.poll(10)
        for number in range(40):
            for value in range(4):
                cluster.write(value % 2, b"%d-%d" % (number, value))
            assert len(flat(consumer.poll(5000, max_records=4))) == 4
        for _ in range(6):
            cluster.write(0, b"x")
        assert len(flat(consumer.poll(5000, max_records=5))) == 5
        assert len(flat(consumer.poll(5000, max_records=5))) == 1


def test_a_poll_with_timeout_zero_returns_buffered_records(cluster: Cluster) -> None:
    cluster.write(0, b"a")
    cluster.write(1, b"b")
    with cluster.consumer("orders") as consumer:
        records: list[object] = []
        until(lambda: len(records) == 2, lambda: records.extend(flat(consumer.poll(0))))


@pytest.mark.parametrize("group", [None, "g"])
def test_assigning_no_partition_unsubscribes(cluster: Cluster, group: str | None) -> None:
    cluster.write(0, b"a")
    with cluster.consumer(group_id=group) as consumer:
        consumer.assign([at(0)])
        read(consumer, 1)
        consumer.assign([])
        assert consumer.assignment() == set()
        assert consumer.poll() == {}
        consumer.subscribe(["orders"])
        until(lambda: consumer.assignment() == {at(0), at(1)}, lambda: consumer.poll(5))
        consumer.assign([])
        assert (consumer.subscription(), consumer.assignment()) == (None, set())
        if group:
            assert consumer.committed(at(0)) == 1


def test_none_means_no_metadata_and_no_leader_epoch(cluster: Cluster) -> None:
    with cluster.consumer(group_id="g") as consumer:
        consumer.assign([at(0)])
        for number, given in enumerate([(1, None, None), (2, "x", None), (3, None), (4, None, 0)]):
            consumer.commit({at(0): OffsetAndMetadata(*given)})  # type: ignore[arg-type]
            committed = consumer.committed(at(0), metadata=True)
            assert committed == (number + 1, given[1] or "", 0 if given[-1] == 0 else -1)


def test_group_metadata_without_a_group_is_empty(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        assert consumer.group_metadata() == (None, -1, "", None, "<unjoined>")


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda c: c.poll(-1), ValueError),
        (lambda c: c.poll("1"), TypeError),
        (lambda c: c.poll(max_records=0), ValueError),
        (lambda c: c.poll(max_records="1"), TypeError),
        (lambda c: c.poll(max_records=1.5), TypeError),
        (lambda c: c.seek("orders", 0), TypeError),
        (lambda c: c.seek(at(0), -1), ValueError),
        (lambda c: c.seek(at(0), "0"), ValueError),
        (lambda c: c.seek(at(1), 0), ValueError),
        (lambda c: c.seek_to_beginning(at(1)), ValueError),
        (lambda c: c.seek_to_end(at(1)), ValueError),
        (lambda c: c.seek_to_end("orders"), TypeError),
        (lambda c: c.position("orders"), TypeError),
        (lambda c: c.highwater("orders"), TypeError),
        (lambda c: c.pause("orders"), TypeError),
        (lambda c: c.resume("orders"), TypeError),
        (lambda c: c.committed("orders"), TypeError),
        (lambda c: c.commit([at(0)]), TypeError),
        (lambda c: c.commit({at(0): "5"}), TypeError),
        (lambda c: c.commit({"orders": OffsetAndMetadata(1)}), TypeError),
        (lambda c: c.offsets_for_times({at(0): -1}), ValueError),
        (lambda c: c.end_offsets("orders"), TypeError),
        (lambda c: c.assign(["orders"]), TypeError),
        (lambda c: (c.unsubscribe(), c.subscribe()), ValueError),
        (lambda c: (c.unsubscribe(), c.subscribe([5])), TypeError),
        (lambda c: (c.unsubscribe(), c.subscribe([None])), TypeError),
        (lambda c: (c.unsubscribe(), c.subscribe(["a b"])), ValueError),
        (lambda c: (c.unsubscribe(), c.subscribe([""])), ValueError),
        (lambda c: (c.unsubscribe(), c.subscribe(5)), TypeError),
        (lambda c: (c.unsubscribe(), c.subscribe(["orders"], listener=5)), TypeError),
    ],
)
def test_invalid_arguments_raise_kafka_pythons_class_and_a_kafka_error(
    cluster: Cluster, call: Callable[[Any], object], kind: type[Exception]
) -> None:
    with cluster.consumer(group_id="g") as consumer:
        consumer.assign([at(0)])
        with pytest.raises(kind) as raised:
            call(consumer)
        assert isinstance(raised.value, KafkaError)


def test_seeking_without_an_assignment_is_refused(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        for seek in (consumer.seek_to_beginning, consumer.seek_to_end):
            with pytest.raises(ValueError):
                seek()


def test_partitions_that_stay_assigned_keep_their_position(cluster: Cluster) -> None:
    cluster.write(0, b"a", b"b")
    with cluster.consumer() as consumer:
        consumer.assign([at(0)])
        read(consumer, 2)
        consumer.assign([at(0), at(1)])
        assert consumer.position(at(0)) == 2
        assert consumer.assignment() == {at(0), at(1)}


# -- refusals


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("auto_offset_reset", "sometimes"),
        ("group_idd", "g"),
        ("max_poll_records", 0),
        ("partition_assignment_strategy", ["fair"]),
        ("heartbeat_interval_ms", 45_000),
        ("group_instance_id", "i"),
        ("isolation_level", "serializable"),
        ("value_deserializer", 5),
        ("consumer_timeout_ms", "x"),
    ],
)
def test_invalid_configs_are_refused(cluster: Cluster, name: str, value: object) -> None:
    with pytest.raises(InvalidConfigurationError, match=name):
        Consumer(cluster=cluster.admin, **{name: value})  # type: ignore[arg-type]


def test_arguments_of_kafka_python_are_accepted(cluster: Cluster) -> None:
    class RangePartitionAssignor:
        name = "range"

    with cluster.consumer(
        "orders",
        group_id="g",
        partition_assignment_strategy=[
            RangePartitionAssignor,
            "org.apache.kafka.clients.consumer.StickyAssignor",
        ],
        ssl_cafile="/ca.pem",
        consumer_timeout_ms=math.inf,
        isolation_level="read_committed",
    ) as consumer:
        assert consumer.config["group_id"] == "g"


def test_invalid_calls_are_refused(cluster: Cluster) -> None:
    with cluster.consumer() as consumer:
        consumer.assign([at(0)])
        for call in (
            lambda: consumer.seek(at(0), -1),
            lambda: consumer.seek("orders", 0),  # type: ignore[arg-type]
            lambda: consumer.poll(-1),
            lambda: consumer.poll(max_records=0),
            lambda: consumer.assign("orders"),  # type: ignore[arg-type]
        ):
            with pytest.raises(InvalidRequestError):
                call()
        refused: list[Callable[[], object]] = [
            lambda: consumer.seek(at(1), 0),
            lambda: consumer.position(at(1)),
            lambda: consumer.pause(at(1)),
            lambda: consumer.commit(),
            lambda: consumer.committed(at(0)),
        ]
        for refused_call in refused:
            with pytest.raises(IllegalStateError):
                refused_call()
        with pytest.raises(InvalidTopicError):
            consumer.assign([TopicPartition("or/ders", 0)])


def test_a_closed_consumer_refuses_polls(cluster: Cluster) -> None:
    with cluster.consumer("orders") as consumer:
        consumer.close()
        consumer.close()
        with pytest.raises(IllegalStateError, match="closed"):
            consumer.poll()
        assert list(consumer) == []


def test_close_from_another_thread_ends_a_poll(cluster: Cluster) -> None:
    with cluster.consumer("orders") as consumer:
        polling = threading.Event()
        answers = []

        def poll() -> None:
            polling.set()
            answers.append(consumer.poll(60_000))

        thread = threading.Thread(target=poll)
        thread.start()
        polling.wait()
        consumer.close()
        thread.join(20)
        assert not thread.is_alive()


def test_concurrent_use_by_two_threads_is_refused(cluster: Cluster) -> None:
    with cluster.consumer("orders") as consumer:
        thread = threading.Thread(target=lambda: consumer.poll(20_000))
        thread.start()
        with pytest.raises(IllegalStateError, match="another thread"):
            until(lambda: False, consumer.topics)
        consumer.wakeup()
        cluster.write(0, b"end")
        thread.join(20)
        assert not thread.is_alive()


def test_a_child_process_cannot_use_its_parents_consumer(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster.consumer("orders") as consumer:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(IllegalStateError, match="fork"):
            consumer.poll()
        monkeypatch.undo()


# -- deserializers


class _Upper:
    def deserialize(self, topic: str, data: bytes) -> str:
        return f"{topic}:{data.decode().upper()}"


def test_deserializers_are_functions_or_objects(cluster: Cluster) -> None:
    cluster.write(0, b"v", key=b"k")
    with cluster.consumer("orders", key_deserializer=bytes.decode, value_deserializer=_Upper()) as consumer:
        (record,) = read(consumer, 1)
    assert (record.key, record.value, record.serialized_value_size) == ("k", "orders:V", 1)


def test_a_deserialization_error_is_raised_after_the_records_before_it(cluster: Cluster) -> None:
    cluster.write(0, b"1", b"2", b"x", b"4")
    with cluster.consumer("orders", value_deserializer=int) as consumer:
        assert values(read(consumer, 2)) == [1, 2]
        for _ in range(2):
            with pytest.raises(ValueError, match="invalid literal") as caught:
                read(consumer, 1)
            assert type(caught.value) is ValueError
            assert consumer.position(at(0)) == 2
        with pytest.raises(ValueError, match="invalid literal"):
            next(consumer)
        consumer.seek(at(0), 3)
        assert next(consumer).value == 4


# -- commits without membership


def test_consumers_resume_from_committed_offsets(cluster: Cluster) -> None:
    cluster.write(0, b"a", b"b", b"c")
    with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([at(0)])
        assert consumer.committed(at(0)) is None
        read(consumer, 3)
        consumer.commit({at(0): OffsetAndMetadata(2, "so far", 0)})
        assert consumer.committed(at(0), metadata=True) == (2, "so far", 0)
    with cluster.consumer(group_id="g") as consumer:
        consumer.assign([at(0)])
        assert consumer.position(at(0)) == 2
        assert values(read(consumer, 1)) == [b"c"]
    with cluster.consumer(group_id="g") as consumer:
        consumer.assign([at(0)])
        assert consumer.committed(at(0)) == 3


def test_asynchronous_commits_call_back_in_a_later_call(cluster: Cluster) -> None:
    cluster.write(0, b"a")
    with cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([at(0)])
        read(consumer, 1)
        calls: list[tuple[object, object]] = []
        future = consumer.commit_async(callback=lambda offsets, answer: calls.append((offsets, answer)))
        assert future.get(20)[at(0)].offset == 1
        until(lambda: calls, consumer.poll)
        assert calls == [({at(0): OffsetAndMetadata(1, "", 0)}, True)]
        failed = consumer.commit_async({at(9): OffsetAndMetadata(1)}, lambda _, answer: calls.append((None, answer)))
        consumer.commit()
        assert failed.failed()
        assert isinstance(calls[1][1], UnknownTopicOrPartitionError)


def test_iterations_that_end_early_lose_no_records(cluster: Cluster) -> None:
    """Small batches of two partitions, so that iteration always buffers several."""
    for number in range(30):
        cluster.write(number % 2, b"%d" % number, b"%d again" % number)
    with cluster.consumer("orders", max_poll_records=7) as consumer:
        consumer.poll(max_records=1, update_offsets=False)
        seen: list[bytes] = []
        for step in range(60):
            if step % 4 == 3:
                seen += values(read(consumer, 1))
            elif step % 4 == 2:
                seen += [
                    value
                    for polled in consumer.poll_batches(5000, 3)
                    for value in polled.batch.column("value").to_pylist()
                ]
            elif step % 4 == 1:
                seen.append(next(consumer).value)
            else:
                for record in consumer:
                    seen.append(record.value)
                    if len(seen) % 3 == 0 or len(seen) == 60:
                        break
            if len(seen) == 60:
                break
        assert sorted(seen) == sorted(b"%d%s" % (n, again) for n in range(30) for again in (b"", b" again"))
        for partition in (0, 1):
            mine = [value for value in seen if int(value.split()[0]) % 2 == partition]
            assert mine == sorted(mine, key=lambda value: (int(value.split()[0]), len(value)))
