"""Whole tables through the producer: the same records, partitions and errors as one by one."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.client.producer.producer import Producer
from sparklog.client.reader import ConsumerRecord, LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    IllegalStateError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    SerializationError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.plan.partitioner import partition_for_key
from sparklog.store.memory import MemoryStore
from sparklog.types import OffsetRange
from tests.sample import examples

WAIT = 30
NOW_MS = 1_700_000_000_000


@pytest.fixture
def cluster() -> Coordinator:
    return new_cluster()


def new_cluster() -> Coordinator:
    return create_cluster(MemoryStore(uuid.uuid4().hex), clock=ManualClock(NOW_MS))


@pytest.fixture
def producer(cluster: Coordinator) -> Iterator[Producer]:
    with Producer(cluster=cluster) as producer:
        yield producer


def read(cluster: Coordinator, topic: str, partition: int = 0) -> list[ConsumerRecord]:
    end = cluster.refresh().partition(topic, partition).high_watermark
    with LogReader(cluster) as reader:
        return list(reader.records(topic, partition, 0, end))


def read_all(cluster: Coordinator, topic: str) -> list[list[ConsumerRecord]]:
    return [read(cluster, topic, number) for number in range(len(cluster.refresh().topic(topic).partitions))]


def test_all_columns_are_read_back_unchanged(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("t", 3)
    headers = [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], None]
    table = pa.table(
        {
            "partition": [2, 2],
            "headers": headers,
            "value": ["text", None],
            "key": pa.array([b"k", b""], pa.large_binary()),
            "timestamp": pa.array([5, None], pa.timestamp("ms")),
        }
    )
    assert producer.send_batch("t", table).get(WAIT) == [OffsetRange("t", 2, 0, 2)]
    first, second = read(cluster, "t", 2)
    assert first == ConsumerRecord("t", 2, 0, 5_000, 0, b"k", b"text", [("a", b"1"), ("a", None)], 0)
    assert (second.key, second.value, second.timestamp_us) == (b"", None, NOW_MS * 1000)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=6), st.none() | st.integers(0, 2)), max_size=60),
    st.integers(1, 20),
)
def test_rows_have_the_partitions_and_order_of_single_records(
    rows: list[tuple[bytes | None, int | None]], chunk: int
) -> None:
    cluster = new_cluster()
    cluster.create_topic("t", 3)
    values = [b"%02d" % number for number in range(len(rows))]
    columns = [[key for key, _ in rows], values, [partition for _, partition in rows]]
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int64())])
    table = pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    with Producer(cluster=cluster) as producer:
        ranges = producer.send_batch("t", pa.Table.from_batches(table.to_batches(chunk), schema)).get(WAIT)
    stored = [[record.value for record in part] for part in read_all(cluster, "t")]
    assert sorted(value for part in stored for value in part if value) == values
    assert {(offsets.partition, offsets.start, offsets.end) for offsets in ranges} == {
        (number, 0, len(part)) for number, part in enumerate(stored) if part
    }
    expected: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
    for (key, partition), value in zip(rows, values, strict=True):
        if partition is not None or key is not None:
            expected[partition_for_key(key or b"", 3) if partition is None else partition].append(value)
    keyless = {value for (key, partition), value in zip(rows, values, strict=True) if key is None and partition is None}
    assert [[value for value in part if value not in keyless] for part in stored] == list(expected.values())


def test_one_partition_may_be_given_for_all_rows(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("t", 3)
    assert producer.send_batch("t", pa.table({"value": [b"a", b"b"]}), partition=1).get(WAIT) == [
        OffsetRange("t", 1, 0, 2)
    ]


def test_a_record_batch_a_table_of_keys_and_an_empty_table_are_accepted(
    cluster: Coordinator, producer: Producer
) -> None:
    cluster.create_topic("t")
    producer.send_batch("t", pa.record_batch({"key": [b"k"]}))
    empty = producer.send_batch("t", pa.table({"value": pa.array([], pa.binary())}))
    assert empty.get(0) == []
    producer.flush()
    assert [(record.key, record.value) for record in read(cluster, "t")] == [(b"k", None)]


def test_tables_and_single_records_keep_the_order_in_which_they_were_sent(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    with Producer(cluster=cluster, linger_ms=60_000) as producer:
        first = producer.send("t", b"1")
        table = producer.send_batch("t", pa.table({"value": [b"2", b"3"]}))
        last = producer.send("t", b"4")
        before = cluster.refresh().version
        producer.flush()
        assert cluster.refresh().version == before + 2  # the producer id, then all records
    assert [record.value for record in read(cluster, "t")] == [b"1", b"2", b"3", b"4"]
    assert (first.get(0).offset, table.get(0), last.get(0).offset) == (0, [OffsetRange("t", 0, 1, 3)], 3)


def test_a_table_larger_than_the_buffer_is_sent_in_parts(cluster: Coordinator) -> None:
    cluster.create_topic("t", 2)
    values = [b"%06d" % number for number in range(50_000)]
    with Producer(cluster=cluster, buffer_memory=100_000) as producer:
        ranges = producer.send_batch("t", pa.table({"value": values, "key": values})).get(WAIT)
        assert producer.metrics()["producer-metrics"]["commit-total"] > 2
    assert [(offsets.partition, offsets.start) for offsets in ranges] == [(0, 0), (1, 0)]
    for part in read_all(cluster, "t"):
        stored = [record.value for record in part]
        assert stored == [value for value in values if partition_for_key(value, 2) == part[0].partition]


def test_a_few_large_rows_among_many_small_ones_fit_the_buffer(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    values = [b""] * 10_000 + [bytes(100_000)] * 30 + [b""] * 10_000
    with Producer(cluster=cluster, buffer_memory=500_000) as producer:
        assert producer.send_batch("t", pa.table({"value": values})).get(WAIT) == [OffsetRange("t", 0, 0, 20_030)]


@pytest.mark.parametrize("column", ["key", "value", "headers"])
def test_a_row_larger_than_the_buffer_is_refused_before_any_is_sent(cluster: Coordinator, column: str) -> None:
    cluster.create_topic("t", 2, configs={"max.message.bytes": str(2**30)})
    rows: dict[str, list[object]] = {"value": [b"v"] * 101, "key": [b"k"] * 101, "headers": [None] * 101}
    rows[column][100] = [{"key": "h", "value": bytes(200_001)}] if column == "headers" else bytes(200_001)
    with (
        Producer(cluster=cluster, buffer_memory=200_000, max_request_size=2**30) as small,
        pytest.raises(MessageSizeTooLargeError, match=r"'t' needs 200,\d+ bytes of memory.*buffer_memory, 200,000"),
    ):
        small.send_batch("t", pa.table(rows))
    assert read_all(cluster, "t") == [[], []]


def test_columns_of_related_types_are_accepted(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("t")
    kinds = [pa.string(), pa.large_string(), pa.binary_view(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())]
    for kind in kinds:
        producer.send_batch("t", pa.table({"value": pa.array(["a", None], pa.string()).cast(kind), "key": ["k", "k"]}))
    headers = pa.array([[("h", b"1")], None], pa.map_(pa.string(), pa.binary()))
    producer.send_batch("t", pa.table({"value": ["m", "n"], "headers": headers}))
    producer.flush()
    records = read(cluster, "t")
    assert [record.value for record in records] == [b"a", None] * len(kinds) + [b"m", b"n"]
    assert [list(record.headers) for record in records[-2:]] == [[("h", b"1")], []]


def test_rows_without_a_key_are_spread_over_the_partitions(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("t", 4)
    producer.send_batch("t", pa.table({"value": [bytes(1000)] * 20_000})).get(WAIT)
    lengths = [len(part) for part in read_all(cluster, "t")]
    assert max(lengths) - min(lengths) <= 1100


def test_small_tables_without_keys_from_many_producers_reach_every_partition(cluster: Coordinator) -> None:
    cluster.create_topic("t", 3)
    for _ in range(40):
        with Producer(cluster=cluster, acks=1, enable_idempotence=False) as producer:
            producer.send_batch("t", pa.table({"value": [b"v"]}))
    assert all(read_all(cluster, "t"))


def test_a_table_is_part_of_a_transaction(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    with Producer(cluster=cluster, transactional_id="tx", buffer_memory=10_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        dropped = producer.send_batch("t", pa.table({"value": [bytes(100)] * 1000}))
        producer.abort_transaction()
        assert isinstance(dropped.exception, TransactionAbortedError)
        producer.begin_transaction()
        kept = producer.send_batch("t", pa.table({"value": [bytes(100)] * 1000}))
        with pytest.raises(IllegalStateError, match="commit_transaction"):
            kept.get()
        assert read(cluster, "t") == []
        producer.commit_transaction()
        assert kept.get(0) == [OffsetRange("t", 0, 0, 1000)]
    assert len(read(cluster, "t")) == 1000


def test_one_failed_part_fails_the_future_of_the_table(cluster: Coordinator) -> None:
    cluster.create_topic("t", 2)
    with Producer(cluster=cluster, linger_ms=60_000) as producer:
        future = producer.send_batch("t", pa.table({"value": [b"a", b"b"], "partition": [0, 1]}))
        failures: list[object] = []
        future.add_both(failures.append)
        delete_topic(cluster, "t")
        producer.flush()
        assert future.failed()
        assert isinstance(failures[0], UnknownTopicOrPartitionError)


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        ({"value": [b"a"], "valeu": [1]}, SerializationError, "did you mean value"),
        ({"timestamp": pa.array([1], pa.timestamp("us"))}, SerializationError, "needs key or value"),
        ({"value": [1]}, SerializationError, "column value .* int64"),
        ({"value": [[b"a"]]}, SerializationError, "column value"),
        ({"value": [b"a"], "timestamp": [1]}, SerializationError, "unit"),
        ({"value": [b"a"], "partition": ["x"]}, SerializationError, "column partition"),
        ({"value": [b"a"], "headers": ["x"]}, SerializationError, "column headers"),
        ({"value": [b"a"], "headers": [[{"key": None, "value": b"a"}]]}, SerializationError, "has no key"),
        ({"value": [b"a", None]}, InvalidRecordError, "neither a key nor a value"),
        ({"value": [b"a", None], "key": [None, None]}, InvalidRecordError, "neither a key nor a value"),
        ({"value": [b"a"], "partition": [2]}, UnknownTopicOrPartitionError, "partitions 0 to 1, not 2"),
        ({"value": [b"a"], "partition": [-1]}, UnknownTopicOrPartitionError, "partitions 0 to 1, not -1"),
        ({"value": [bytes(2**20 + 1), b"a"]}, MessageSizeTooLargeError, "max_request_size|max.message.bytes"),
        ({"value": [b"a"], "headers": [[{"key": "h", "value": bytes(2**20)}]]}, MessageSizeTooLargeError, "send less"),
        ({"value": [b"a"], "timestamp": pa.array([-1], pa.timestamp("us"))}, InvalidTimestampError, "since 1970"),
    ],
)
def test_a_refused_table_stores_nothing(
    cluster: Coordinator, producer: Producer, table: dict[str, object], error: type[Exception], message: str
) -> None:
    cluster.create_topic("t", 2)
    with pytest.raises(error, match=message):
        producer.send_batch("t", pa.table(table))
    producer.flush()
    assert read_all(cluster, "t") == [[], []]


def test_invalid_tables_and_arguments_are_refused(producer: Producer) -> None:
    with pytest.raises(SerializationError, match="Table or RecordBatch, not dict"):
        producer.send_batch("t", {"value": [b"a"]})
    with pytest.raises(InvalidRecordError, match="omit one of them"):
        producer.send_batch("t", pa.table({"value": [b"a"], "partition": [0]}), partition=0)


def test_large_headers_are_counted_row_by_row(cluster: Coordinator, producer: Producer) -> None:
    cluster.create_topic("t")
    headers = [None, [{"key": "h", "value": bytes(600_000)}], [{"key": "h", "value": bytes(600_000)}]]
    table = pa.table({"value": [bytes(600_000), b"b", b"c"], "headers": headers})
    producer.send_batch("t", table).get(WAIT)
    assert len(read(cluster, "t")) == 3
