"""``sparklog.table``: history by Spark's own Parquet reader and the records after it, as one DataFrame."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import sparklog
from sparklog import TopicPartition
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import InvalidOptionError, InvalidRequestError, UnknownTopicOrPartitionError
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.topics import alter_configs
from sparklog.spark.history import table as implementation
from tests.cluster.maintenance.logs import Written, append, live

MINUTES = 14
SPARK_ERRORS = (PySparkException, Py4JJavaError)


@pytest.fixture
def log(tmp_path: Path) -> Coordinator:
    """A topic of two partitions: three closed segments of history in each, and an active one."""
    coordinator = create_cluster(str(tmp_path / "log"))
    configs = {"history.format": "delta", "segment.ms": "180000", "min.cleanable.dirty.ratio": "0"}
    coordinator.create_topic("orders", 2, configs=configs)
    for minute in range(MINUTES):
        rows = [
            Written(b"k%d" % (minute % 3), b"v%d" % minute, minute),
            Written(None, b"", minute),
            Written(b"", None, minute),
        ]
        append(coordinator, "orders", rows)
        append(coordinator, "orders", rows[:2], partition=1)
    roll(coordinator, InProcess())
    return coordinator


def table(spark: SparkSession, log: Coordinator, topic: str = "orders") -> DataFrame:
    return sparklog.table(spark, log.store.root, topic)


def read(spark: SparkSession, log: Coordinator, topic: str = "orders") -> DataFrame:
    columns = ["partition", "offset", "timestamp", "key", "value", "headers"]
    return sparklog.read(spark, log.store.root, topic, include_headers=True, columns=columns)


def assert_same_rows(rows: DataFrame, expected: DataFrame) -> None:
    assert sorted(rows.collect(), key=repr) == sorted(expected.collect(), key=repr)


def history_files(log: Coordinator, partition: int = 0) -> list[Path]:
    paths = [segment.path for segment in live(log, "orders", partition) if segment.is_history]
    return [Path(log.store.root) / path for path in paths]


def test_a_table_has_the_rows_of_the_log_each_once(spark: SparkSession, log: Coordinator) -> None:
    assert len(history_files(log)) == 3
    rows = table(spark, log)
    assert rows.columns == ["partition", "offset", "timestamp", "key", "value", "headers"]
    assert_same_rows(rows, read(spark, log))
    assert rows.count() == 5 * MINUTES
    assert rows.where("offset % 2 = 0").groupBy("partition").count().orderBy("partition").collect() == [
        (0, 21),
        (1, 14),
    ]


def test_few_records_after_the_history_need_no_python_process(
    spark: SparkSession, log: Coordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    log.create_topic("empty", 1, configs={"value.format": "json", "value.schema": "a array<struct<b: int>>, c string"})
    for topic in ("orders", "empty"):
        table(spark, log, topic).groupBy("partition").count().explain()
        plan = capsys.readouterr().out
        assert "LocalTableScan" in plan
        assert "Arrow" not in plan
        assert "ExistingRDD" not in plan
    assert table(spark, log, "empty").collect() == []


def test_many_records_after_the_history_are_read_by_tasks(
    spark: SparkSession, log: Coordinator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(implementation, "MAX_LOCAL_BYTES", 0)
    rows = table(spark, log)
    rows.explain()
    assert "MapInArrow" in capsys.readouterr().out
    assert_same_rows(rows, read(spark, log))


def test_a_table_stays_at_its_version_while_the_log_grows_and_is_rewritten(
    spark: SparkSession, log: Coordinator
) -> None:
    rows = table(spark, log)
    before = sorted(rows.collect(), key=repr)
    append(log, "orders", [Written(b"later", b"record", 60)])
    roll(log, InProcess())
    assert sorted(rows.collect(), key=repr) == before
    assert_same_rows(table(spark, log), read(spark, log))


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ("partition = 1 AND offset BETWEEN 2 AND 4", 3),
        ("partition IN (1, 7) AND offset IN (0, 5)", 2),
        ("timestamp < timestamp_seconds(180)", 15),
        ("timestamp_seconds(60) >= timestamp", 10),
        ("partition = 1 AND 3 > offset", 3),
        ("partition = 1 AND (offset = 0 OR value = 'v1')", 2),
        ("partition = 5", 0),
        ("partition != 1", 42),
        ("partition % 2 = 1 OR partition = 7", 28),
        ("NOT (partition = 0)", 28),
        ("partition IS NULL", 0),
        ("partition NOT IN (0, 5)", 28),
        ("partition IN (0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)", 42),
        ("partition <=> 1 AND CAST(partition AS STRING) = '1'", 28),
    ],
)
def test_a_query_opens_only_the_files_that_can_have_its_rows(
    spark: SparkSession, log: Coordinator, condition: str, count: int
) -> None:
    expected = read(spark, log).where(condition)
    rows = table(spark, log).where(condition)
    assert rows.count() == expected.count() == count
    assert_same_rows(rows, expected)


def test_a_time_that_python_does_not_know_is_compared_by_spark(spark: SparkSession, log: Coordinator) -> None:
    late = "timestamp < TIMESTAMP '9999-12-31 23:59:59 America/Los_Angeles'"
    assert table(spark, log).where(late).count() == 5 * MINUTES


@pytest.mark.parametrize("condition", ["partition = 0 AND offset < 9", "timestamp < timestamp_seconds(180)"])
def test_files_outside_of_the_filters_are_not_opened(spark: SparkSession, log: Coordinator, condition: str) -> None:
    history_files(log)[2].unlink()
    assert table(spark, log).where(condition).count() >= 9
    with pytest.raises(SPARK_ERRORS, match=history_files(log)[2].name):
        table(spark, log).count()


def test_deleted_and_compacted_records_are_not_in_a_table(spark: SparkSession, log: Coordinator) -> None:
    with sparklog.AdminClient(bootstrap_servers=log.store.root) as admin:
        admin.delete_records({TopicPartition("orders", 0): 4})
    log.refresh()
    assert_same_rows(table(spark, log), read(spark, log))
    assert table(spark, log).where("partition = 0").agg({"offset": "min"}).collect() == [(4,)]
    roll(log, InProcess())
    log.submit(partial(alter_configs, topic="orders", changes={"cleanup.policy": "compact,delete"}))
    assert compact(log, InProcess()).records_removed
    assert_same_rows(table(spark, log), read(spark, log))


def pages(path: Path) -> dict[str, range]:
    """Return where the pages of each column lie in a file of one row group."""
    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    starts = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    return {
        column.path_in_schema.partition(".")[0]: range(start, start + column.total_compressed_size)
        for column, start in zip(columns, starts, strict=True)
    }


def damage(path: Path, position: int) -> bytes:
    """Flip a bit of a file; return what it was."""
    data = path.read_bytes()
    damaged = bytearray(data)
    damaged[position] ^= 0x10
    path.chmod(0o644)
    path.write_bytes(damaged)
    return data


def test_a_flipped_bit_in_a_page_is_an_error_that_names_the_file_if_a_query_reads_it(
    spark: SparkSession, log: Coordinator
) -> None:
    log.create_topic("typed", 1, configs={"history.format": "delta", "segment.ms": "180000", **TYPED})
    for minute in (0, 60):
        append(log, "typed", [Written(b"k%d" % row, ORDER, minute, [("h", b"x")]) for row in range(20)])
    roll(log, InProcess())
    path = Path(log.store.root) / live(log, "typed")[0].path
    columns = pages(path)
    assert {"customer", "price", "lines", "_unfit", "key", "value", "timestamp", "headers", "offset"} < {*columns}
    for name, where in columns.items():
        intact = damage(path, where[-1])
        with pytest.raises(SPARK_ERRORS, match=path.name):
            table(spark, log, "typed").select(name).collect()
        other = "amount" if name != "amount" else "customer"
        assert table(spark, log, "typed").select(other).count() == 40
        path.write_bytes(intact)


def test_a_damaged_record_is_an_error_that_names_the_file_in_the_plain_source(
    spark: SparkSession, log: Coordinator
) -> None:
    path = history_files(log)[0]
    damage(path, pages(path)["value"][-1])
    with pytest.raises(SPARK_ERRORS, match=rf"CorruptRecordError: .*{path.name}"):
        read(spark, log).collect()


@pytest.mark.parametrize("kept", [0, 3, 0.3, -3])
def test_a_file_that_is_cut_short_is_an_error_that_names_it(spark: SparkSession, log: Coordinator, kept: float) -> None:
    path = history_files(log)[0]
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data[: int(kept * len(data)) if kept == 0.3 else int(kept)])
    with pytest.raises(SPARK_ERRORS, match=path.name):
        table(spark, log).collect()
    with pytest.raises(SPARK_ERRORS, match=path.name):
        table(spark, log).count()


def test_the_end_of_a_footer_is_checked_and_its_contents_only_by_fsck(spark: SparkSession, log: Coordinator) -> None:
    path = history_files(log)[0]
    intact = damage(path, -5)
    with pytest.raises(SPARK_ERRORS, match=path.name):
        table(spark, log).collect()
    path.write_bytes(intact)
    damage(path, intact.rindex(b"parquet-cpp-arrow"))
    assert_same_rows(table(spark, log), read(spark, log))
    (finding,) = check_cluster(log.store).report.findings
    assert (finding.kind, path.name in str(finding)) == ("damaged-file", True)


def test_topics_without_history_and_empty_topics_are_tables_too(spark: SparkSession, log: Coordinator) -> None:
    log.create_topic("plain", 1)
    assert table(spark, log, "plain").count() == 0
    append(log, "plain", [Written(b"k", b"v", 1)])
    assert_same_rows(table(spark, log, "plain"), read(spark, log, "plain"))


def test_wrong_arguments_are_refused(spark: SparkSession, log: Coordinator) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="nothing"):
        table(spark, log, "nothing")
    with pytest.raises(InvalidOptionError, match="memory of one process"):
        sparklog.table(spark, "memory://table", "t").count()


TYPED = {
    "value.format": "json",
    "value.schema": "customer string, amount double, placed timestamp, tiny tinyint, small smallint, day date, "
    "price decimal(9,2), rate float, lines array<struct<item: bigint>>",
}
ORDER = (
    b'{"customer":"a","amount":2,"placed":"2026-11-01T10:00:00Z","tiny":-128,"small":-32768,"day":"0001-01-01",'
    b'"price":-1234567.89,"rate":0.5,"lines":[{"item":9223372036854775807},{}]}'
)


@pytest.mark.parametrize("local_bytes", [0, 4 * 1024 * 1024])
def test_typed_columns_are_the_same_in_history_and_after_it(
    spark: SparkSession, log: Coordinator, monkeypatch: pytest.MonkeyPatch, local_bytes: int
) -> None:
    monkeypatch.setattr(implementation, "MAX_LOCAL_BYTES", local_bytes)
    log.create_topic("typed", 1, configs={"history.format": "delta", "segment.ms": "180000", **TYPED})
    values = [ORDER, b"{}", None, b"no", b'{"amount":"2"}']
    for minute in (0, 60):
        append(log, "typed", [Written(b"k", value, minute) for value in values])
    roll(log, InProcess())
    assert [segment.is_history for segment in live(log, "typed")] == [True, False]
    rows = table(spark, log, "typed").orderBy("offset").drop("partition", "offset", "timestamp", "headers").collect()
    assert rows[:5] == rows[5:]
    assert [row["_unfit"] for row in rows[:5]] == [False, False, False, True, True]
    assert table(spark, log, "typed").where("customer = 'a' AND amount > 1").count() == 2
    assert table(spark, log, "typed").agg({"amount": "sum"}).collect() == [(4.0,)]


AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "customer", "type": ["null", "string"]},
        {"name": "amounts", "type": {"type": "array", "items": "int"}},
    ],
}


@pytest.mark.parametrize("local_bytes", [0, 4 * 1024 * 1024])
def test_keys_and_values_in_avro_are_the_same_in_history_and_after_it(
    spark: SparkSession, log: Coordinator, monkeypatch: pytest.MonkeyPatch, local_bytes: int
) -> None:
    monkeypatch.setattr(implementation, "MAX_LOCAL_BYTES", local_bytes)
    formats = {"value.format": "avro", "value.schema": json.dumps(AVRO), "key.format": "string"}
    log.create_topic("avro", 1, configs={"history.format": "delta", "segment.ms": "180000", **formats})
    values = [b"\x02\x02a\x04\x02\x04\x00", b"\0\0\0\0\x07\x00\x00", None, b"\xff"]
    for minute in (0, 60):
        append(log, "avro", [Written(b"\xff" if value is None else b"k", value, minute) for value in values])
    roll(log, InProcess())
    assert [segment.is_history for segment in live(log, "avro")] == [True, False]
    columns = ["customer", "amounts", "_unfit", "key_string", "_key_unfit"]
    rows = table(spark, log, "avro").orderBy("offset").select(*columns).collect()
    assert rows[:4] == rows[4:]
    assert [tuple(row) for row in rows[:4]] == [
        ("a", [1, 2], False, "k", False),
        (None, [], False, "k", False),
        (None, None, False, None, True),
        (None, None, True, "k", False),
    ]


def test_types_that_were_widened_are_read_from_older_files_and_filtered_right(
    spark: SparkSession, log: Coordinator
) -> None:
    narrow = "whole int, small tinyint, real float, money decimal(7,2), item struct<a: int>"
    wide = "whole bigint, small int, real double, money decimal(9,2), item struct<b: string, a: bigint>"
    configs = {"history.format": "delta", "segment.ms": "180000", "value.format": "json", "value.schema": narrow}
    log.create_topic("wider", 1, configs=configs)
    old = b'{"whole":5,"small":-128,"real":0.5,"money":12345.67,"item":{"a":1}}'
    new = b'{"whole":5000000000,"small":70000,"real":1e300,"money":1234567.89,"item":{"a":5000000000,"b":"x"}}'
    append(log, "wider", [Written(b"k", value) for value in (old, b"{}")])
    append(log, "wider", [Written(b"k", b"{}", 60)])
    roll(log, InProcess())
    log.submit(partial(alter_configs, topic="wider", changes={"value.schema": wide}))
    append(log, "wider", [Written(b"k", new, 120)])
    roll(log, InProcess())
    append(log, "wider", [Written(b"k", old, 180)])
    rows = table(spark, log, "wider")
    assert rows.where("whole IS NOT NULL").orderBy("offset").selectExpr(
        "whole", "small", "real", "money", "item.*"
    ).collect() == [
        (5, -128, 0.5, Decimal("12345.67"), None, 1),
        (5000000000, 70000, 1e300, Decimal("1234567.89"), "x", 5000000000),
        (5, -128, 0.5, Decimal("12345.67"), None, 1),
    ]
    for condition, count in {
        "whole = 5000000000": 1,
        "whole < 5000000000": 2,
        "whole > -5000000000 AND whole IN (5, 5000000000)": 3,
        "small <= 70000 AND small != 200": 3,
        "real < 1e300": 2,
        "money < 1234567.89": 2,
        "money >= CAST(12345.67 AS DECIMAL(9,2))": 3,
        "item.a >= 5000000000": 1,
        "item.b IS NULL AND item.a = 1": 2,
        "whole IS NULL": 2,
    }.items():
        assert rows.where(condition).count() == count, condition


EVERY_TYPE = (
    "yes boolean, tiny tinyint, whole int, large bigint, single float, number double, price decimal(12,2), "
    "name string, day date, at timestamp, list array<int>"
)


def typed_value(number: int) -> bytes:
    """A value whose fields all rise with the number; every third lacks them, and every seventh does not fit."""
    if number % 7 == 6:
        return b"no"
    fields = {
        "yes": number >= 30,
        "tiny": number,
        "whole": number - 10,
        "large": number * 2**40,
        "single": number / 10,
        "number": number / 10,
        "price": f"{number}.50",
        "name": "x" * 40 + f"{number:03}" if number >= 40 else f"n{number:03}",
        "day": f"2026-11-{number // 2 + 1:02}",
        "at": f"2026-11-01T10:{number:02}:00.000001Z",
        "list": [number],
    }
    return json.dumps(fields if number % 3 else {}).encode()


@pytest.fixture
def typed_log(log: Coordinator) -> Coordinator:
    """A typed topic of four files of ten records, the first of before ``value.schema``, and ten records after them."""
    configs = {"history.format": "delta", "segment.ms": "60000"}
    log.create_topic("typed", 1, configs=configs)
    for number in range(50):
        append(log, "typed", [Written(b"k", typed_value(number), 10 * (number // 10))])
        if number == 10:
            roll(log, InProcess())
            changes = {"value.format": "json", "value.schema": EVERY_TYPE}
            log.submit(partial(alter_configs, topic="typed", changes=changes))
    roll(log, InProcess())
    assert [segment.is_history for segment in live(log, "typed")][:4] == [True] * 4
    return log


TYPED_CONDITIONS = {  # with the numbers of the files that they need, besides the records after them
    "whole = 15": {2},
    "whole > 25": {3},
    "15 >= whole AND whole IS NOT NULL": {1, 2},
    "whole IN (12, 14, 99)": {2},
    "whole IN (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)": {1, 2},
    "yes": {3},
    "yes = true AND tiny < 32": {3},
    "NOT yes": {1, 2},
    "large BETWEEN 1 AND 5": set(),
    "large = 22 * 1099511627776L": {2},
    "single = 2.2F": {2},
    "single < CAST(1.11 AS FLOAT)": {1},
    "number >= 3.5D": {3},
    "number = CAST('NaN' AS DOUBLE)": {1, 2, 3},
    "price < 14.5": {1},
    "price = 22.50": {2},
    "name > 'n037'": {3},
    "name <=> 'n011'": {1},
    "day = DATE'2026-11-12'": {2},
    "at >= TIMESTAMP'2026-11-01 10:35:00.000001'": {3},
    "name IS NULL": {0, 1, 2, 3},
    "NOT _unfit": {1, 2, 3},
    "whole = 15 OR whole = 35": {0, 1, 2, 3},
    "whole % 2 = 1 AND name LIKE 'n02%'": {1, 2, 3},
}


def test_filters_on_typed_columns_skip_files(spark: SparkSession, typed_log: Coordinator) -> None:
    """By the statistics of files: those that are not needed are gone here."""
    everything = spark.createDataFrame(table(spark, typed_log, "typed").toArrow())
    rows = table(spark, typed_log, "typed")
    assert everything.count() == 50
    files = [Path(typed_log.store.root) / segment.path for segment in live(typed_log, "typed") if segment.is_history]
    for condition, needed in TYPED_CONDITIONS.items():
        gone = [file for number, file in enumerate(files) if number not in needed]
        for file in gone:
            file.rename(file.with_suffix(".gone"))
        found, expected = rows.where(condition), everything.where(condition)
        assert sorted(found.collect(), key=repr) == sorted(expected.collect(), key=repr), condition
        for file in gone:
            file.with_suffix(".gone").rename(file)


@pytest.mark.parametrize("local_bytes", [0, 4 * 1024 * 1024])
def test_an_older_version_ends_where_the_topic_ended_then(
    spark: SparkSession, log: Coordinator, monkeypatch: pytest.MonkeyPatch, local_bytes: int
) -> None:
    monkeypatch.setattr(implementation, "MAX_LOCAL_BYTES", local_bytes)
    log.create_topic("grows", 2, configs={"history.format": "delta", "segment.ms": "180000"})
    states = [log.refresh()]
    for minute in range(0, 12, 2):
        append(log, "grows", [Written(b"k", b"%d" % minute, minute)])
        append(log, "grows", [Written(b"k", b"%d" % minute, minute)] * 2, partition=minute % 4 // 2)
        states.append(log.refresh())
    roll(log, InProcess())
    everything = read(spark, log, "grows").collect()
    for number, state in enumerate(states):
        rows = sparklog.table(spark, log.store.root, "grows", version=state.version).collect()
        assert sorted(map(repr, rows)) == sorted(
            repr(row) for row in everything if int(row["value"] or b"0") < 2 * number
        )
        then = sparklog.table(spark, log.store.root, "grows", as_of=state.timestamp_ms)
        assert then.count() == 3 * number


def test_views_reads_and_snapshots_are_of_one_version(spark: SparkSession, log: Coordinator) -> None:
    root = log.store.root
    log.create_topic("new.customers-1", 1)
    append(log, "new.customers-1", [Written(b"k0", b"anna", 1)])
    then = sparklog.snapshot(root)
    sparklog.create_view(spark, root, "orders")
    sparklog.create_view(spark, root, "new.customers-1")
    joined = "SELECT count(*) FROM orders JOIN `new.customers-1` USING (key)"
    assert spark.sql(joined).collect() == [(10,)]
    append(log, "new.customers-1", [Written(b"k0", b"bert", 2)])
    append(log, "orders", [Written(b"k0", b"later", 60)])
    assert spark.sql(joined).collect() == [(10,)]
    joins = [
        then.table(spark, "orders").join(then.table(spark, "new.customers-1"), "key"),
        then.read(spark, "orders").join(then.read(spark, "new.customers-1", columns=["key"]), "key"),
    ]
    assert [join.count() for join in joins] == [10, 10]
    for name in ("orders", "new.customers-1"):
        sparklog.create_view(spark, root, name)
    assert spark.sql(joined).collect() == [(22,)]
    assert sparklog.create_view(spark, root, "orders", "before", version=then.version).count() == 5 * MINUTES
    assert spark.sql("SELECT count(*) FROM before").collect() == [(5 * MINUTES,)]
    for name in ("orders", "new.customers-1"):
        then.create_view(spark, name)
    assert spark.sql(joined).collect() == [(10,)]
    assert sparklog.read(spark, root, "orders", version=then.version).count() == 5 * MINUTES
    assert sparklog.read(spark, root, "orders", as_of=then.timestamp).count() >= 5 * MINUTES
    reader = spark.read.format("sparklog").option("subscribe", "orders")
    assert reader.option("versionAsOf", then.version).load(root).count() == 5 * MINUTES
    with pytest.raises(PySparkException, match="version 9999 does not exist"):
        sparklog.read(spark, root, "orders", version=9999).count()


def test_versions_that_are_not_known_are_refused(spark: SparkSession, log: Coordinator) -> None:
    newest = log.refresh().version
    with pytest.raises(InvalidRequestError, match=f"version {newest + 1} does not exist"):
        sparklog.table(spark, log.store.root, "orders", version=newest + 1)
    with pytest.raises(UnknownTopicOrPartitionError, match="did not exist at version 0"):
        sparklog.table(spark, log.store.root, "orders", version=0)
    with pytest.raises(InvalidRequestError, match="not both"):
        sparklog.table(spark, log.store.root, "orders", version=1, as_of=0)
    with pytest.raises(InvalidRequestError, match="before the first commit"):
        sparklog.table(spark, log.store.root, "orders", as_of=0)
    with pytest.raises(InvalidOptionError, match="time zone"):
        sparklog.table(spark, log.store.root, "orders", as_of=datetime(2026, 1, 1))


def test_a_root_is_a_text_a_path_or_that_of_the_environment(
    spark: SparkSession, log: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    sparklog.write(spark.sql("SELECT 'v' AS value"), Path(log.store.root), topic="orders")
    for root in (log.store.root, Path(log.store.root)):
        assert sparklog.table(spark, root, "orders").count() == 5 * MINUTES + 1
        assert sparklog.read(spark, root, "orders").count() == 5 * MINUTES + 1
    with pytest.raises(InvalidOptionError, match="no cluster given: set its root"):
        sparklog.table(spark, None, "orders")
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP_SERVER", log.store.root)
    assert sparklog.table(spark, None, "orders").count() == 5 * MINUTES + 1
    assert sparklog.read(spark, None, "orders", columns=["key"]).count() == 5 * MINUTES + 1


def test_a_topic_and_a_name_of_a_view_that_are_none_are_refused(spark: SparkSession, log: Coordinator) -> None:
    with pytest.raises(InvalidOptionError, match=r"invalid topic \['orders'\]: give the name of one topic"):
        sparklog.table(spark, log.store.root, ["orders"])  # type: ignore[arg-type]
    with pytest.raises(InvalidOptionError, match="invalid name '' of a view: it is empty"):
        sparklog.create_view(spark, log.store.root, "orders", name="")


def test_a_large_tail_stays_as_it_was_when_the_topic_is_compacted_or_created_again(
    spark: SparkSession, log: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(implementation, "MAX_LOCAL_BYTES", 0)
    log.create_topic("changing", 1, configs={"segment.ms": "180000", "min.cleanable.dirty.ratio": "0"})
    for minute in range(6):
        append(log, "changing", [Written(b"k%d" % (minute % 2), b"%d" % minute, minute)])
    rows = table(spark, log, "changing")
    before = sorted(map(repr, rows.collect()))
    assert len(before) == 6
    log.submit(partial(alter_configs, topic="changing", changes={"cleanup.policy": "compact"}))
    append(log, "changing", [Written(b"k0", b"6", 60)])
    roll(log, InProcess())
    assert compact(log, InProcess()).records_removed
    assert sorted(map(repr, rows.collect())) == before
    delete_topic(log, "changing")
    log.create_topic("changing", 1)
    append(log, "changing", [Written(b"new", b"new", 1)] * 6)
    assert sorted(map(repr, rows.collect())) == before


def test_records_are_deleted_in_the_middle_of_a_batch(spark: SparkSession, log: Coordinator) -> None:
    log.create_topic("cut", 1)
    append(log, "cut", [Written(b"k", b"%d" % number, 0, [("h", b"x")] if number % 3 else None) for number in range(9)])
    with sparklog.AdminClient(bootstrap_servers=log.store.root) as admin:
        admin.delete_records({TopicPartition("cut", 0): 4})
    log.refresh()
    assert_same_rows(table(spark, log, "cut"), read(spark, log, "cut"))


def test_records_that_are_few_bytes_in_storage_and_many_in_memory_are_read_by_tasks(
    spark: SparkSession, log: Coordinator, capsys: pytest.CaptureFixture[str]
) -> None:
    log.create_topic("dense", 1)
    for _ in range(3):
        append(log, "dense", [Written(None, b"x" * 2_000_000, 0)], codec="zstd")
    rows = table(spark, log, "dense")
    rows.explain()
    assert "MapInArrow" in capsys.readouterr().out
    assert rows.count() == 3


def test_settings_of_the_session_hide_no_loss(spark: SparkSession, log: Coordinator) -> None:
    history_files(log)[0].unlink()
    for name in ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"):
        spark.conf.set(name, "true")
    try:
        with pytest.raises(SPARK_ERRORS, match="parquet"):
            table(spark, log).collect()
    finally:
        for name in ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"):
            spark.conf.unset(name)
