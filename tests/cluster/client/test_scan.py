"""Scanning a topic into Arrow without Spark: only committed records, each once; ranges, columns and memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sparklog
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    ClusterNotFoundError,
    InvalidConfigurationError,
    OffsetOutOfRangeError,
    SparklogError,
    UnknownTopicOrPartitionError,
)
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.file_names import index_path
from sparklog.testing.clusters import Cluster, cluster
from sparklog.testing.records import Record, append_records
from tests.cluster.log.rewriting import delete_files, drop_segments, rewrite


@pytest.fixture
def orders() -> Iterator[Cluster]:
    with cluster(topics={"orders": 2}) as c:
        yield c


def append(c: Cluster, *values: bytes | None, partition: int = 0, topic: str = "orders", **more: Any) -> None:
    append_records(c.coordinator, topic, [Record(value=value, partition=partition, **more) for value in values])


def scan(c: Cluster, topic: str = "orders", **more: Any) -> sparklog.Scan:
    return sparklog.scan(topic, c.bootstrap_servers, **more)


def values(scanned: sparklog.Scan) -> list[bytes | None]:
    return scanned.to_arrow()["value"].to_pylist()


# -- live records


def test_every_appended_record_is_scanned_once(orders: Cluster) -> None:
    for number in range(12):
        append(orders, *[b"%d-%d" % (number, row) for row in range(100)], partition=number % 2)
    table = scan(orders).to_arrow()
    assert table.num_rows == len(set(table["value"].to_pylist())) == 1_200
    assert table["partition"].to_pylist() == [0] * 600 + [1] * 600
    assert table["offset"].to_pylist() == [*range(600), *range(600)]


def test_only_committed_transactions_are_scanned(orders: Cluster) -> None:
    append(orders, b"before")
    with sparklog.Producer(bootstrap_servers=orders.bootstrap_servers, transactional_id="t") as producer:
        producer.init_transactions()
        for ends in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for _ in range(50):
                producer.send("orders", b"within", partition=0)
            producer.flush()
            assert values(scan(orders)) == [b"before"]
            ends()
    assert values(scan(orders)) == [b"before"] + [b"within"] * 50


def test_rolled_files_still_in_the_folder_are_not_scanned(tmp_path: Path) -> None:
    with cluster(folder=tmp_path / "log") as c:
        c.create_topic("orders", configs={"file.delete.delay.ms": "3600000"})
        for number in range(12):
            append(c, b"%d" % number)
        assert roll(c.coordinator, InProcess()).files_in == 12
        assert len(list((tmp_path / "log" / "orders-0").glob("*.log"))) == 13
        assert values(scan(c)) == [b"%d" % number for number in range(12)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_and_plain_appends_are_read_together(orders: Cluster, codec: Any) -> None:
    append(orders, b"plain")
    with sparklog.Producer(bootstrap_servers=orders.bootstrap_servers, compression_type=codec) as producer:
        for number in range(100):
            producer.send("orders", b"%d" % number, partition=0)
    assert values(scan(orders)) == [b"plain", *[b"%d" % number for number in range(100)]]


def test_rolling_files_during_a_scan_neither_loses_nor_duplicates_records(orders: Cluster) -> None:
    for number in range(20):
        append(orders, b"%d" % number * 100_000)
    reading = scan(orders).batches()
    read = next(reading).num_rows
    old = [segment.path for segment in orders.coordinator.segments("orders").partition(0)]
    assert roll(orders.coordinator, InProcess()).files_in == 20
    delete_files(orders.coordinator.store, old)
    assert read + sum(batch.num_rows for batch in reading) == 20


def test_a_scan_is_repeatable_despite_later_appends(orders: Cluster) -> None:
    append(orders, b"a")
    scanned = scan(orders)
    append(orders, b"b")
    assert (values(scanned), values(scanned), values(scan(orders))) == ([b"a"], [b"a"], [b"a", b"b"])


def test_a_scan_stores_nothing(orders: Cluster) -> None:
    append(orders, b"a")
    before = sorted(info.key for info in orders.coordinator.store.list(""))
    values(scan(orders, start=datetime(2020, 1, 1, tzinfo=timezone.utc)))
    assert sorted(info.key for info in orders.coordinator.store.list("")) == before


@pytest.mark.parametrize("columns", [["offset"], ["offset", "value"], ["partition"]])
def test_compacted_records_are_skipped_and_the_rest_keep_their_offsets(columns: list[str]) -> None:
    with cluster(topics={"t": 1}) as c:
        for number in range(10):
            append(c, b"%d" % number, topic="t")
        rewrite(c.coordinator, keep=lambda offset: offset % 3 == 0)
        append(c, b"10", topic="t")
        table = scan(c, "t", columns=columns).to_arrow()
        assert table.num_rows == 5
        if "offset" in columns:
            assert table["offset"].to_pylist() == [0, 3, 6, 9, 10]
        within = scan(c, "t", columns=columns, start={0: 1}, end={0: 9}).to_arrow()
        assert within.num_rows == 2


def test_a_scan_continues_in_the_new_files_after_a_compaction() -> None:
    with cluster(topics={"t": 1}) as c:
        for number in range(30):
            append(c, b"%d" % number * 100_000, topic="t")
        reading = scan(c, "t", columns=["offset", "value"]).batches()
        first = next(reading)["offset"].to_pylist()
        delete_files(c.coordinator.store, rewrite(c.coordinator, keep=lambda offset: offset % 2 == 0))
        rest = [offset for batch in reading for offset in batch["offset"].to_pylist()]
        assert first == list(range(len(first)))
        assert rest == sorted(set(rest))
        assert set(rest) >= {offset for offset in range(len(first), 30) if offset % 2 == 0}


def test_a_scan_continues_in_the_new_files_if_an_old_one_is_damaged_since() -> None:
    with cluster(topics={"t": 1}) as c:
        for number in range(30):
            append(c, b"%d" % number * 100_000, topic="t")
        reading = scan(c, "t", columns=["offset", "value"]).batches()
        offsets = next(reading)["offset"].to_pylist()
        assert len(offsets) < 30
        for path in rewrite(c.coordinator, keep=lambda offset: True):
            for name in (path, index_path(path)):
                c.coordinator.store.put(name, b"damaged")
        offsets += [offset for batch in reading for offset in batch["offset"].to_pylist()]
        assert offsets == list(range(30))


def test_deleting_records_during_a_scan_raises_an_error() -> None:
    with cluster(topics={"t": 1}) as c:
        for number in range(30):
            append(c, b"%d" % number * 100_000, topic="t")
        reading = scan(c, "t").batches()
        next(reading)
        delete_files(c.coordinator.store, drop_segments(c.coordinator, 29))
        with pytest.raises(OffsetOutOfRangeError, match="deleted while they were about to be read"):
            list(reading)


def test_a_scan_of_a_deleted_topic_does_not_read_its_successor(orders: Cluster) -> None:
    append(orders, b"old")
    old_scan = scan(orders)
    delete_topic(orders.coordinator, "orders")
    orders.create_topic("orders", 2)
    append(orders, b"new")
    for key in [info.key for info in orders.coordinator.store.list("orders-0/") if "-v1-" in info.key]:
        orders.coordinator.store.delete(key)
    with pytest.raises(SparklogError):
        values(old_scan)
    assert values(scan(orders)) == [b"new"]


# -- columns


def test_a_log_append_time_topic_has_that_timestamp_type(orders: Cluster) -> None:
    orders.create_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    append(orders, b"a", topic="stamped", timestamp_us=1_000)
    for columns in (["timestampType", "timestamp"], ["timestampType"]):
        (row,) = scan(orders, "stamped", columns=columns).to_arrow().to_pylist()
        assert row["timestampType"] == 1
        assert row.get("timestamp", datetime.now(timezone.utc)).year > 2000


def test_columns_match_the_spark_source() -> None:
    rows = pytest.importorskip("sparklog.spark.source.rows", reason="Spark is not installed")
    api = pytest.importorskip("sparklog.spark.versions.api", reason="Spark is not installed")
    with cluster(topics={"orders": 1}) as c:
        schema = scan(c).schema
        expected = api.arrow_schema(rows.read_schema(include_headers=True))
        assert schema.names == expected.names
        for field in expected:
            if field.name != "headers":  # Spark's list of structs has its own field names and nullability
                assert schema.field(field.name).type == field.type, field.name


def test_a_row_has_every_field_of_a_record(orders: Cluster) -> None:
    append(orders, None, partition=1, key=b"k", timestamp_us=1_700_000_000_000_001, headers=[("h", b"1"), ("h", None)])
    (row,) = scan(orders).to_arrow().to_pylist()
    assert row == {
        "key": b"k",
        "value": None,
        "topic": "orders",
        "partition": 1,
        "offset": 0,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 1, tzinfo=timezone.utc),
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }


@pytest.mark.parametrize("columns", [["offset"], ["value", "offset"], ["topic", "partition"], ["timestamp", "key"]])
def test_columns_are_in_the_requested_order(orders: Cluster, columns: list[str]) -> None:
    append(orders, b"a", b"b")
    table = scan(orders, columns=columns).to_arrow()
    assert (table.column_names, table.num_rows) == (columns, 2)


def test_an_empty_topic_is_an_empty_table_with_all_columns(orders: Cluster) -> None:
    scanned = scan(orders)
    assert (scanned.to_arrow().num_rows, scanned.to_reader().read_all().schema) == (0, scanned.schema)


# -- ranges


def test_end_offsets_of_a_scan_can_start_the_next(orders: Cluster) -> None:
    append(orders, b"a", b"b")
    append(orders, b"c", partition=1)
    first = scan(orders)
    assert (first.start_offsets, first.end_offsets) == ({0: 0, 1: 0}, {0: 2, 1: 1})
    append(orders, b"d", partition=1)
    second = scan(orders, start=first.end_offsets)
    assert (values(second), second.end_offsets) == ([b"d"], {0: 2, 1: 2})
    assert values(scan(orders, start=second.end_offsets)) == []


def test_partitions_missing_from_a_dict_are_read_in_full(orders: Cluster) -> None:
    append(orders, b"a", b"b")
    append(orders, b"c", b"d", partition=1)
    assert values(scan(orders, start={0: 1})) == [b"b", b"c", b"d"]
    assert values(scan(orders, end={0: 1, 1: "earliest"})) == [b"a"]
    assert values(scan(orders, partitions=[1], start={1: "latest"})) == []
    assert values(scan(orders, partitions=[1])) == [b"c", b"d"]


def test_times_start_and_end_a_scan_at_the_first_record_at_or_after_them(orders: Cluster) -> None:
    for second in (10, 20, 30):
        append(orders, b"%d" % second, timestamp_us=(1_700_000_000 + second) * 1_000_000)

    def at(second: int) -> datetime:
        return datetime.fromtimestamp(1_700_000_000 + second, timezone.utc)

    assert values(scan(orders, start=at(20))) == [b"20", b"30"]
    assert values(scan(orders, end=at(20))) == [b"10"]
    assert values(scan(orders, start=at(11), end={0: at(30)})) == [b"20"]
    assert values(scan(orders, start=at(31))) == []


def test_a_range_may_begin_and_end_within_a_file(orders: Cluster) -> None:
    append(orders, *[b"%d" % number for number in range(100)])
    assert values(scan(orders, start={0: 10}, end={0: 13})) == [b"10", b"11", b"12"]


def test_a_start_in_deleted_records_raises_an_error(orders: Cluster) -> None:
    append(orders, b"a", b"b")
    earlier = scan(orders)
    with sparklog.AdminClient(bootstrap_servers=orders.bootstrap_servers) as admin:
        admin.delete_records({sparklog.TopicPartition("orders", 0): 1})
    with pytest.raises(OffsetOutOfRangeError, match="the log has offsets from 1"):
        scan(orders, start=earlier.start_offsets)
    assert values(scan(orders)) == [b"b"]


# -- errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"columns": ["valeu"]}, "unknown column 'valeu'; choose from key, value, topic.*; did you mean value"),
        ({"columns": ["customer"]}, "unknown column 'customer'; choose from .*; the topic has no value.schema"),
        ({"topic": ["orders"]}, r"scan\(topic=\['orders'\]\): give the name of one topic"),
        ({"partitions": 0}, r"scan\(partitions=0\): give a list of numbers"),
        ({"partitions": "0"}, "give a list of numbers"),
        ({"partitions": [0.0]}, "give a list of numbers"),
        ({"columns": ["key", "key"]}, "each once"),
        ({"columns": []}, "each once"),
        ({"columns": "value"}, "a list of names"),
        ({"start": 5}, r"give \{0: 5\}"),
        ({"start": "ealiest"}, "'earliest', 'latest'"),
        ({"end": datetime(2024, 1, 1)}, "no time zone"),
        ({"start": {7: 0}}, "partition 7 is not read"),
        ({"start": {0: -1}}, "'earliest', 'latest'"),
    ],
)
def test_an_invalid_argument_is_named_in_the_error(orders: Cluster, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=words):
        scan(orders, **arguments)


def test_missing_topics_partitions_and_offsets_are_named_in_the_error(orders: Cluster, tmp_path: Path) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="nope"):
        scan(orders, "nope")
    with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 1, not 2"):
        scan(orders, partitions=[2])
    with pytest.raises(OffsetOutOfRangeError, match="offset 1 of orders-0 is out of range"):
        scan(orders, start={0: 1})
    with pytest.raises(ClusterNotFoundError):
        sparklog.scan("orders", tmp_path)


# -- memory and Arrow consumers


def test_batches_stay_small_for_appends_of_any_size(orders: Cluster) -> None:
    for _ in range(60):
        append(orders, b"x" * 100_000)
    sizes = [batch.nbytes for batch in scan(orders, columns=["value"]).batches()]
    assert len(sizes) < 20
    assert max(sizes) < 4 * 1024 * 1024


def test_a_scan_is_an_arrow_stream(orders: Cluster) -> None:
    append(orders, b"a", b"b")
    assert pa.RecordBatchReader.from_stream(scan(orders)).read_all()["value"].to_pylist() == [b"a", b"b"]
    assert pa.table(scan(orders)).num_rows == 2


def test_to_pandas_returns_the_rows(orders: Cluster) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    append(orders, b"a", b"b")
    assert list(scan(orders, columns=["offset", "value"]).to_pandas()["value"]) == [b"a", b"b"]


def test_polars_reads_a_scan(orders: Cluster) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    append(orders, b"a", b"b")
    assert polars.DataFrame(scan(orders))["value"].to_list() == [b"a", b"b"]
    assert scan(orders).to_polars()["value"].to_list() == [b"a", b"b"]


def test_duckdb_reads_a_scan(orders: Cluster) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    append(orders, b"a", b"b")
    log = scan(orders)
    assert duckdb.sql("select decode(value) from log order by 1").fetchall() == [("a",), ("b",)], log
    assert scan(orders).to_duckdb().aggregate("count(*)").fetchall() == [(2,)]


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas", "numpy"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import sparklog
print(sparklog.scan("orders", sys.argv[1]).to_arrow().num_rows)
"""

NO_PANDAS = """
import sys

sys.modules["pandas"] = None
import sparklog

scan = sparklog.scan("orders", sys.argv[1])
scan.to_arrow = lambda: print("read")
try:
    scan.to_pandas()
except ModuleNotFoundError as error:
    print(error)
"""


def test_to_pandas_without_pandas_fails_before_reading(tmp_path: Path) -> None:
    with cluster(folder=tmp_path / "log", topics={"orders": 1}) as c:
        append(c, b"a")
    done = subprocess.run([sys.executable, "-c", NO_PANDAS, str(tmp_path / "log")], capture_output=True, text=True)
    assert done.stdout.strip() == "to_pandas() needs pandas: pip install pandas", done.stderr


def test_a_scan_needs_neither_spark_nor_pandas(tmp_path: Path) -> None:
    with cluster(folder=tmp_path / "log", topics={"orders": 1}) as c:
        append(c, b"a")
    done = subprocess.run([sys.executable, "-c", WITHOUT, str(tmp_path / "log")], capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr


def test_consumer_offsets_can_be_scanned(orders: Cluster) -> None:
    append(orders, b"a")
    with sparklog.Consumer(bootstrap_servers=orders.bootstrap_servers, group_id="g") as consumer:
        consumer.assign([sparklog.TopicPartition("orders", 0)])
        consumer.commit({sparklog.TopicPartition("orders", 0): sparklog.OffsetAndMetadata(1)})
    assert scan(orders, "__consumer_offsets").to_arrow().num_rows == 1


@pytest.mark.parametrize("package", ["pandas", "polars", "duckdb"])
def test_a_package_that_is_not_installed_is_named(
    orders: Cluster, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"to_{package}\(\) needs {package}: pip install {package}"):
        getattr(scan(orders), f"to_{package}")()
