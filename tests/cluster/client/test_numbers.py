"""Numbers of numpy and pandas are taken wherever Python's are, and are stored as Python's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import sparklog
from sparklog import (
    AdminClient,
    ConfigResource,
    Consumer,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from sparklog.client.consumer.subscription_state import as_offset, as_partition
from sparklog.errors import (
    InvalidAcksError,
    InvalidArgumentError,
    InvalidArgumentTypeError,
    InvalidRequestError,
    SerializationError,
)
from sparklog.types import as_python, number, whole

KINDS: list[Callable[[int], Any]] = [np.int64, np.int32, np.uint8, lambda value: pd.Series([value]).iloc[0], np.array]


@pytest.fixture
def root(tmp_path: Path) -> str:
    path = str(tmp_path / "log")
    sparklog.create_cluster(path)
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_consumers_take_partitions_offsets_and_times(root: str, kind: Callable[[int], Any]) -> None:
    if kind is np.array:
        pytest.skip("an array cannot be a key of a dict")
    partition = TopicPartition("t", kind(0))
    with Producer(bootstrap_servers=root, linger_ms=kind(0), max_request_size=np.int64(10**6)) as producer:
        for value in range(5):
            producer.send("t", b"%d" % value, partition=kind(0), timestamp_ms=kind(value + 1)).get()
    with Consumer(
        bootstrap_servers=root, group_id="g", max_poll_records=kind(2), consumer_timeout_ms=np.float32(100)
    ) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, kind(2))
        assert consumer.position(partition) == 2
        records = consumer.poll(timeout_ms=kind(100), max_records=kind(1))
        assert [record.offset for batch in records.values() for record in batch] == [2]
        times = consumer.offsets_for_times({partition: kind(4)})
        assert [found.offset for found in times.values() if found] == [3]
        consumer.commit({partition: OffsetAndMetadata(kind(3), "text", kind(0))})
        assert consumer.committed(TopicPartition("t", 0)) == 3
        assert consumer.committed(partition) == 3
        consumer.pause(partition)
        assert consumer.paused() == {TopicPartition("t", 0)}
        assert consumer.end_offsets([partition]) == {TopicPartition("t", 0): 5}


@pytest.mark.parametrize("kind", KINDS)
def test_admin_clients_transactions_and_scans_take_them(root: str, kind: Callable[[int], Any]) -> None:
    with AdminClient(bootstrap_servers=root) as admin:
        admin.create_topics([NewTopic("t", kind(1), kind(1), topic_configs={"retention.ms": kind(100)})])
        admin.create_topics([NewTopic("u", replica_assignments={0: [kind(0)]})])
        admin.create_partitions({"t": NewPartitions(kind(2))})
        admin.create_partitions({"u": kind(3)})
        with Producer(bootstrap_servers=root, transactional_id="x") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for _ in range(3):
                producer.send("u", b"v", partition=kind(0))
            if kind is not np.array:
                position = OffsetAndMetadata(kind(1), "", kind(0))
                producer.send_offsets_to_transaction({TopicPartition("u", kind(0)): position}, "g")
            producer.commit_transaction()
        if kind is not np.array:
            assert admin.list_group_offsets("g")["g"][TopicPartition("u", 0)].offset == 1
            admin.alter_group_offsets("g", {TopicPartition("u", kind(0)): OffsetAndMetadata(kind(2))})
            assert admin.list_group_offsets("g")["g"][TopicPartition("u", 0)].offset == 2
            admin.delete_records({TopicPartition("u", kind(0)): kind(1)})
    scan = sparklog.scan("u", root, partitions=[kind(0)], start={0: kind(1)}, end={0: kind(3)})
    assert scan.to_arrow().num_rows == 2


def test_booleans_texts_and_parts_are_no_whole_numbers() -> None:
    for value in (True, np.True_, "1", 1.0, np.float64(1.0), None, pd.NaT, pd.Timestamp(1)):
        assert whole(value) is None, value
    assert [number(value) for value in (np.float32(0.5), np.int8(-1), True, np.bool_(True), "1")] == [
        0.5,
        -1,
        None,
        None,
        None,
    ]
    for wrong in (np.True_, 1.5, np.float64(1), pd.Timestamp(0), "0"):
        with pytest.raises((InvalidArgumentError, InvalidArgumentTypeError)):
            as_partition(("t", wrong))
        with pytest.raises((InvalidArgumentError, InvalidArgumentTypeError)):
            as_offset(TopicPartition("t", 0), wrong)


class Word(str):
    """A text that shows itself otherwise, like a member of an enumeration."""

    def __str__(self) -> str:
        return "Word." + self


TEXTS: list[Callable[[str], Any]] = [np.str_, Word]
ZERO: Any = np.array([0])
FALSE: Any = np.False_


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_stored_as_pythons(root: str, text: Callable[[str], Any]) -> None:
    partition: Any = TopicPartition(text("t"), np.int64(0))
    with AdminClient(bootstrap_servers=text(root)) as admin:
        admin.create_topics([NewTopic(text("t"), 1, 1), NewTopic(text("u"), 1, 1)])
        with Producer(
            bootstrap_servers=root, acks=text("all"), transactional_id=text("x"), client_id=text("c")
        ) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(text("t"), b"v")
            position = OffsetAndMetadata(np.int64(1), text("sent"), np.int64(0))
            producer.send_offsets_to_transaction({partition: position}, text("g"))
            producer.commit_transaction()
        with Consumer(bootstrap_servers=root, group_id=text("h"), client_id=text("c")) as consumer:
            consumer.assign([partition])
            consumer.commit({partition: OffsetAndMetadata(1, text("read"), None)})
        with Consumer(text("t"), bootstrap_servers=root, group_id=text("i"), group_instance_id=text("m")) as consumer:
            consumer.poll(100)
            assert consumer.subscription() == {"t"}
        assert {name: group.metadata for name in "gh" for group in admin.list_group_offsets(name)[name].values()} == {
            "g": "sent",
            "h": "read",
        }
        assert admin.perform_leader_election("PREFERRED", [partition]) is not None
        assert admin.perform_leader_election("PREFERRED", {text("t"): ZERO}) is not None
        admin.alter_configs([ConfigResource("TOPIC", text("u"), {text("retention.ms"): text("5")})])
        assert admin.alter_partition_reassignments({TopicPartition(text("u"), np.int64(0)): ZERO})
        admin.create_partitions({text("u"): 2})
        admin.delete_records({TopicPartition(text("t"), 0): 1})
        admin.delete_topics(np.array(["t"]) if text is np.str_ else [text("t")])
        assert admin.list_topics() == ["u"]
    cluster = sparklog.open_cluster(root)
    cluster.coordinator.log.write_checkpoint()


@pytest.mark.parametrize("acks", [np.int64(1), np.int64(-1), np.int32(0)])
def test_arguments_that_are_one_of_some_values_take_those_of_numpy(root: str, acks: Any) -> None:
    with Producer(bootstrap_servers=np.array([root]), acks=acks, enable_idempotence=FALSE) as producer:
        producer.send("t", b"v")
    with Consumer(bootstrap_servers=root, enable_auto_commit=FALSE, isolation_level=np.str_("read_committed")):
        pass
    wrong: Any
    for wrong in (np.int64(2), np.float64(1), np.True_, np.array([1, 2])):
        with pytest.raises(InvalidAcksError):
            Producer(bootstrap_servers=root, acks=wrong)


@pytest.mark.parametrize("metadata", [float("nan"), 5, b"x", np.float64(1), pd.NaT, ["x"]])
def test_metadata_that_is_no_text_is_refused_before_anything_is_written(root: str, metadata: Any) -> None:
    partition = TopicPartition("t", 0)
    with AdminClient(bootstrap_servers=root) as admin, Consumer(bootstrap_servers=root, group_id="g") as consumer:
        admin.create_topics(["t"])
        consumer.assign([partition])
        version = sparklog.open_cluster(root).coordinator.refresh().version
        with pytest.raises((InvalidRequestError, InvalidArgumentError), match="metadata"):
            consumer.commit({partition: OffsetAndMetadata(0, metadata)})
        with pytest.raises((InvalidRequestError, InvalidArgumentError), match="metadata"):
            admin.alter_group_offsets("g", {partition: OffsetAndMetadata(0, metadata)})
        assert sparklog.open_cluster(root).coordinator.refresh().version == version


def test_a_text_or_a_truth_value_of_numpy_becomes_pythons() -> None:
    for given, expected in ((np.str_("x"), "x"), (Word("x"), "x"), (np.True_, True), (np.int8(1), 1), (1.5, 1.5)):
        made = as_python(given)
        assert (made, type(made)) == (expected, type(expected))


def test_a_timeout_is_a_number_of_seconds_and_headers_are_a_list(root: str) -> None:
    with Producer(bootstrap_servers=root) as producer:
        future = producer.send("t", b"v", headers=())
        producer.flush(np.float32(5))
        assert future.get(np.int64(5)).serialized_header_size == -1
        later = producer.send("t", b"v")
        for call in (producer.flush, producer.close, later.get):
            with pytest.raises(InvalidArgumentTypeError, match=r"timeout=Timedelta\('0 days 00:00:05'\): give seconds"):
                call(pd.Timedelta(seconds=5))
        with pytest.raises(SerializationError, match="give a list of"):
            producer.send("t", b"v", headers=np.array([("h", b"x"), ("i", b"y")], dtype=object))
