"""Rows appended in the caller's thread: refusals, partitions, and one file and one commit per call."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.client.reader import ConsumerRecord, LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import (
    InvalidTimestampError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.ids import RandomIds, SeededIds
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.plan.partitioner import partition_for_key
from sparklog.store.memory import MemoryStore
from sparklog.testing.records import Record, append_records
from tests.sample import examples

NOW_MS = 1_700_000_000_000


@pytest.fixture
def cluster(tmp_path: Path) -> Coordinator:
    return create_cluster(str(tmp_path / "cluster"), clock=ManualClock(NOW_MS), ids=SeededIds(1))


def read(cluster: Coordinator, topic: str, partition: int = 0) -> list[ConsumerRecord]:
    end = cluster.refresh().partition(topic, partition).high_watermark
    with LogReader(cluster) as reader:
        return list(reader.records(topic, partition, 0, end))


def files(cluster: Coordinator, suffix: str) -> list[str]:
    return [info.key for info in cluster.store.list("") if info.key.endswith(suffix)]


def test_record_is_read_back_unchanged(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    headers = [("a", b"1"), ("a", None), ("", b"")]
    append_records(cluster, "t", [Record(b"k", b"v", headers, timestamp_us=NOW_MS * 1000 - 7)])
    (record,) = read(cluster, "t")
    assert record == ConsumerRecord("t", 0, 0, NOW_MS * 1000 - 7, 0, b"k", b"v", headers, 0)


def test_null_and_empty_keys_and_values_stay_distinct(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    pairs = [(None, None), (b"", b""), (None, b""), (b"", None)]
    append_records(cluster, "t", [Record(key, value) for key, value in pairs])
    assert [(record.key, record.value) for record in read(cluster, "t")] == pairs


def test_record_without_timestamp_gets_the_time_of_the_call(cluster: Coordinator) -> None:
    append_records(cluster, "t", [Record(value=b"v")])
    assert read(cluster, "t")[0].timestamp_us == NOW_MS * 1000


def test_call_that_writes_to_many_partitions_is_one_file_and_one_commit(cluster: Coordinator) -> None:
    cluster.create_topic("t", partitions=8)
    before = cluster.refresh().version
    append_records(cluster, "t", [Record(value=b"%d" % n, partition=n % 8) for n in range(80)])
    assert cluster.refresh().version == before + 1
    assert len(files(cluster, ".log")) == len(files(cluster, ".index")) == 1
    assert [record.value for record in read(cluster, "t", 3)] == [b"%d" % n for n in range(3, 80, 8)]


def test_explicit_partition_overrides_the_key(cluster: Coordinator) -> None:
    cluster.create_topic("t", partitions=8)
    key = b"customer-7"
    other = (partition_for_key(key, 8) + 1) % 8
    append_records(cluster, "t", [Record(key, b"named", partition=other), Record(key, b"hashed")])
    assert [record.value for record in read(cluster, "t", other)] == [b"named"]
    assert [record.value for record in read(cluster, "t", partition_for_key(key, 8))] == [b"hashed"]


def test_calls_without_keys_reach_every_partition(cluster: Coordinator) -> None:
    cluster.create_topic("t", partitions=3)
    for _ in range(40):
        append_records(cluster, "t", [Record(value=b"v")])
    assert all(read(cluster, "t", number) for number in range(3))


def test_missing_topic_is_created(cluster: Coordinator) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"num.partitions": "3"}))
    append_records(cluster, "new", [Record(value=b"v")])
    assert len(cluster.refresh().topic("new").partitions) == 3


def test_missing_topic_is_refused_if_automatic_creation_is_disabled(cluster: Coordinator) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"auto.create.topics.enable": "false"}))
    with pytest.raises(UnknownTopicOrPartitionError, match=r"auto\.create\.topics\.enable is false"):
        append_records(cluster, "new", [Record(value=b"v")])
    assert not cluster.refresh().topics


@pytest.mark.parametrize("name", ["", "../x", "a/b", "x" * 250, "тема", ".", "a\nb"])
def test_hostile_topic_name_writes_nothing(cluster: Coordinator, name: str) -> None:
    with pytest.raises(InvalidTopicError):
        append_records(cluster, name, [Record(value=b"v")])
    assert not cluster.refresh().topics
    assert not files(cluster, ".log")


def test_longest_topic_name_can_be_written_to(cluster: Coordinator) -> None:
    name = "x" * 249
    append_records(cluster, name, [Record(value=b"v")])
    assert read(cluster, name)[0].value == b"v"


def test_record_over_max_message_bytes_refuses_the_whole_call_and_names_it(cluster: Coordinator) -> None:
    cluster.create_topic("t", configs={"max.message.bytes": "100"})
    with pytest.raises(MessageSizeTooLargeError, match=r"'t' has 112 bytes.*max\.message\.bytes is 100") as caught:
        append_records(cluster, "t", [Record(value=b"ok"), Record(value=b"x" * 100)])
    assert caught.value.index == 1
    assert not files(cluster, ".log")


def test_record_of_exactly_max_message_bytes_is_accepted(cluster: Coordinator) -> None:
    cluster.create_topic("t", configs={"max.message.bytes": "100"})
    record = Record(b"key", b"v" * 80, [("h", b"hhhh")])
    append_records(cluster, "t", [record])


@pytest.mark.parametrize(
    ("config", "age_ms", "bound"),
    [
        ({"message.timestamp.before.max.ms": "1000"}, 1001, "before"),
        ({"message.timestamp.after.max.ms": "1000"}, -1001, "after"),
        ({}, -3_600_001, "after"),
    ],
)
def test_timestamp_out_of_bounds_is_refused(
    cluster: Coordinator, config: dict[str, str], age_ms: int, bound: str
) -> None:
    cluster.create_topic("t", configs=config)
    late = Record(value=b"v", timestamp_us=(NOW_MS - age_ms) * 1000)
    with pytest.raises(InvalidTimestampError, match=rf"message\.timestamp\.{bound}\.max\.ms"):
        append_records(cluster, "t", [late])
    inside = (NOW_MS - age_ms + (1 if age_ms > 0 else -1) * 1) * 1000
    append_records(cluster, "t", [Record(value=b"v", timestamp_us=inside)])


def test_log_append_time_replaces_any_timestamp_of_the_producer(cluster: Coordinator) -> None:
    cluster.create_topic("t", configs={"message.timestamp.type": "LogAppendTime"})
    append_records(cluster, "t", [Record(value=b"v", timestamp_us=1), Record(value=b"w", timestamp_us=2**60)])
    committed = cluster.refresh().timestamp_ms
    assert [(r.timestamp_us, r.timestamp_type) for r in read(cluster, "t")] == [(committed * 1000, 1)] * 2


@pytest.mark.parametrize("partition", [-1, 2, 10**9])
def test_partition_that_does_not_exist_is_refused(cluster: Coordinator, partition: int) -> None:
    cluster.create_topic("t", partitions=2)
    with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 1"):
        append_records(cluster, "t", [Record(value=b"v", partition=partition)])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_can_be_chosen_by_the_caller(cluster: Coordinator, codec: str) -> None:
    append_records(cluster, "t", [Record(b"k", b"v" * 1000)], compression=codec)
    assert read(cluster, "t")[0].value == b"v" * 1000
    assert codec.encode() in cluster.store.get(files(cluster, ".log")[0])


@pytest.mark.parametrize(("setting", "stored"), [("zstd", b"zstd"), ("uncompressed", b"none"), ("producer", b"gzip")])
def test_compression_type_of_the_topic_applies_unless_it_is_producer(
    cluster: Coordinator, setting: str, stored: bytes
) -> None:
    cluster.create_topic("t", configs={"compression.type": setting})
    append_records(cluster, "t", [Record(b"k", b"v" * 1000)], compression="gzip")
    assert b"sparklog.codec\x00\x00" in (data := cluster.store.get(files(cluster, ".log")[0]))
    assert stored in data


def test_large_call_becomes_batches_of_about_a_mebibyte(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    append_records(cluster, "t", [Record(value=b"x" * 100_000)] * 30)
    (segment,) = cluster.segments("t").partition(0)
    assert segment.batches == 3
    assert segment.records == 30


def test_refused_write_leaves_no_file(cluster: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("t")
    too_large = 1_000_000
    monkeypatch.setattr("sparklog.format.segment_writer.MAX_BATCH_BYTES", too_large)
    with pytest.raises(SparklogError, match="over the limit"):
        append_records(cluster, "t", [Record(value=b"x" * 1_048_000)] * 2)
    assert not files(cluster, ".log")
    append_records(cluster, "t", [Record(value=b"next")])
    assert [record.value for record in read(cluster, "t")] == [b"next"]


Bytes = st.one_of(st.none(), st.binary(max_size=40))
AnyRecord = st.builds(
    Record,
    key=Bytes,
    value=Bytes,
    headers=st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), Bytes), max_size=3),
    timestamp_us=st.one_of(st.none(), st.integers(0, NOW_MS * 1000)),
    partition=st.one_of(st.none(), st.integers(0, 2)),
)


@settings(max_examples=examples(40))
@given(calls=st.lists(st.lists(AnyRecord, max_size=20), max_size=4), codec=st.sampled_from(["none", "lz4", "snappy"]))
def test_appended_records_are_read_from_their_partitions_in_order(calls: list[list[Record]], codec: str) -> None:
    store = MemoryStore(f"records-{RandomIds().write_id()}")
    cluster = create_cluster(store, clock=ManualClock(NOW_MS), ids=SeededIds(3))
    cluster.create_topic("t", partitions=3)
    for records in calls:
        append_records(cluster, "t", records, compression=codec)
    sent = [record for records in calls for record in records]
    stored = {number: read(cluster, "t", number) for number in range(3)}
    assert sorted(map(comparable, (record for part in stored.values() for record in part))) == sorted(
        map(comparable, sent)
    )
    for number, part in stored.items():
        expected = [comparable(record) for record in sent if partition_of(record) == number]
        in_order = iter([comparable(record) for record in part])
        assert all(record in in_order for record in expected)  # a subsequence


def comparable(record: Record | ConsumerRecord) -> str:
    """The stored fields of a record, in a form that can be sorted."""
    at = NOW_MS * 1000 if record.timestamp_us is None else record.timestamp_us
    return repr((record.key, record.value, list(record.headers), at))


def partition_of(record: Record) -> int | None:
    """The partition that the record names or its key determines; otherwise None."""
    if record.partition is not None or record.key is None:
        return record.partition
    return partition_for_key(record.key, 3)
