"""The batch source and sink in a real Spark session."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, Row, SparkSession

import sparklog
from sparklog.coordinator import Coordinator, create_cluster
from tests.integration.sparks import needs_column_defaults, needs_push_down

KAFKA_SCHEMA = (
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)


@pytest.fixture
def log(tmp_path: Path) -> Coordinator:
    coordinator = create_cluster(str(tmp_path / "log"))
    coordinator.create_topic("orders", 4)
    coordinator.create_topic("clicks", 1)
    return coordinator


def orders(spark: SparkSession, count: int = 100) -> DataFrame:
    return spark.range(count).selectExpr("concat('k', id % 10) key", "concat('v', id) value")


def read_values(spark: SparkSession, log: Coordinator, topics: str) -> list[str]:
    rows = sparklog.read(spark, log.store.root, topics).selectExpr("CAST(value AS STRING) value").collect()
    return sorted(row.value for row in rows)


def test_a_kafka_job_works_with_the_format_and_address_changed(spark: SparkSession, log: Coordinator) -> None:
    written = orders(spark)
    written.write.format("sparklog").option("kafka.bootstrap.servers", log.store.root).option("topic", "orders").mode(
        "append"
    ).save()
    frame = (
        spark.read.format("sparklog")
        .option("kafka.bootstrap.servers", log.store.root)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    assert frame.schema.simpleString() == KAFKA_SCHEMA
    records = frame.selectExpr("CAST(key AS STRING) key", "CAST(value AS STRING) value")
    assert_df_equality(records, written, ignore_row_order=True, ignore_nullable=True)
    assert frame.groupBy("key").agg({"partition": "approx_count_distinct"}).distinct().count() <= 10
    per_partition = frame.groupBy("partition").agg({"offset": "max", "*": "count"}).collect()
    assert all(row["max(offset)"] + 1 == row["count(1)"] for row in per_partition)


def test_every_topic_of_a_job_becomes_visible_in_one_commit(spark: SparkSession, log: Coordinator) -> None:
    before = log.refresh().version
    rows = spark.range(0, 100, 1, 4).selectExpr("IF(id % 2 = 0, 'orders', 'clicks') topic", "CAST(id AS STRING) value")
    sparklog.write(rows, log.store.root)
    assert log.refresh().version == before + 1
    counts = sparklog.read(spark, log.store.root, ["orders", "clicks"]).groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in counts} == {"orders": 50, "clicks": 50}


def test_an_invalid_row_fails_the_job_and_commits_nothing(spark: SparkSession, log: Coordinator) -> None:
    before = log.refresh().version
    rows = spark.range(0, 10, 1, 2).selectExpr("IF(id = 7, repeat('x', 2000000), 'fine') value")
    expected = "MessageSizeTooLargeError: a record for topic 'orders' has 2,000,012 bytes"
    with pytest.raises(Exception, match=expected) as caught:
        sparklog.write(rows, log.store.root, "orders")
    assert type(caught.value).__name__ == "PythonException"
    assert log.refresh().version == before
    assert sparklog.read(spark, log.store.root, "orders").count() == 0


def test_a_job_with_a_write_number_writes_once(spark: SparkSession, log: Coordinator) -> None:
    for _ in range(2):
        sparklog.write(orders(spark), log.store.root, "orders", txn_app_id="nightly", txn_version=3)
    assert sparklog.read(spark, log.store.root, "orders").count() == 100


@pytest.mark.parametrize("wide", ["true", "false"])
def test_headers_and_timestamps_survive_with_either_arrow_type(
    spark: SparkSession, log: Coordinator, wide: str
) -> None:
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", wide)
    try:
        row = spark.sql(
            "SELECT 'v' value, TIMESTAMP'2024-05-06 07:08:09.123456' timestamp, 2 partition, CAST(NULL AS STRING) key, "
            "array(named_struct('key', 'h', 'value', X'01'), named_struct('key', 'h', 'value', NULL)) headers"
        )
        sparklog.write(row, log.store.root, "orders")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    (record,) = sparklog.read(spark, log.store.root, "orders", include_headers=True).collect()
    assert record == Row(
        key=None,
        value=b"v",
        topic="orders",
        partition=2,
        offset=0,
        timestamp=record.timestamp,
        timestampType=0,
        headers=[Row(key="h", value=b"\x01"), Row(key="h", value=None)],
    )
    (text,) = sparklog.read(spark, log.store.root, "orders").selectExpr("CAST(timestamp AS STRING) text").collect()
    assert text.text == "2024-05-06 07:08:09.123456"


def test_a_job_without_rows_commits_nothing(spark: SparkSession, log: Coordinator) -> None:
    before = log.refresh().version
    sparklog.write(orders(spark, 0), log.store.root, "orders")
    sparklog.write(spark.createDataFrame([], "value string"), log.store.root, "orders")
    assert log.refresh().version == before


def test_save_modes_other_than_append_are_refused(spark: SparkSession, log: Coordinator) -> None:
    writer = orders(spark, 1).write.format("sparklog").option("topic", "orders")
    with pytest.raises(Exception, match="a log cannot be overwritten"):
        writer.mode("overwrite").save(log.store.root)
    with pytest.raises(Exception, match="ErrorIfExists"):
        writer.mode("errorifexists").save(log.store.root)


def test_a_write_without_a_mode_appends_in_a_registered_session(spark: SparkSession, log: Coordinator) -> None:
    sparklog.register(spark)
    for count in (3, 6):
        orders(spark, 3).write.format("sparklog").option("topic", "orders").save(log.store.root)
        assert sparklog.read(spark, log.store.root, "orders").count() == count
    orders(spark, 3).write.option("topic", "orders").save(log.store.root, format="sparklog")
    assert sparklog.read(spark, log.store.root, "orders").count() == 9


def test_a_mode_set_before_the_format_is_kept(spark: SparkSession, log: Coordinator) -> None:
    sparklog.register(spark)
    with pytest.raises(Exception, match="a log cannot be overwritten"):
        orders(spark, 3).write.mode("overwrite").format("sparklog").option("topic", "orders").save(log.store.root)


# -- when offsets are looked up


@pytest.mark.parametrize("columns", [None, ["key", "value"], ["offset"]])
def test_every_query_looks_up_the_offsets(spark: SparkSession, log: Coordinator, columns: list[str] | None) -> None:
    frame = sparklog.read(spark, log.store.root, "orders", columns=columns)
    frame.createOrReplaceTempView("sparklog_read")
    assert frame.columns == (columns or ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"])
    for count in (0, 100, 200):
        assert frame.count() == count
        assert frame.union(frame).count() == 2 * count, "one query reads one snapshot"
        assert spark.sql("SELECT count(*) FROM sparklog_read").first() == (count,)
        sparklog.write(orders(spark), log.store.root, "orders")


def test_a_static_side_of_a_stream_join_and_a_lookup_in_foreach_batch_see_new_records(
    spark: SparkSession, log: Coordinator, tmp_path: Path
) -> None:
    table = sparklog.read(spark, log.store.root, "orders", columns=["key"])
    options = {"subscribe": "clicks", "startingOffsets": "earliest"}
    clicks = spark.readStream.format("sparklog").options(**options).load(log.store.root).select("value")
    counts: list[tuple[list[int], int]] = []

    def handle(batch: DataFrame, batch_id: int) -> None:
        counts.append(([row["count"] for row in batch.collect()], table.count()))

    joined = clicks.crossJoin(table.groupBy().count())
    query = joined.writeStream.foreachBatch(handle).option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        for _ in range(2):
            sparklog.write(orders(spark, 5), log.store.root, "orders")
            sparklog.write(spark.createDataFrame([("click",)], "value string"), log.store.root, "clicks")
            query.processAllAvailable()
    finally:
        query.stop()
    assert counts[-2:] == [([5], 5), ([10], 10)]


@needs_push_down
def test_a_source_without_a_filter_reuses_the_plan_of_its_first_query(spark: SparkSession, log: Coordinator) -> None:
    frame = spark.read.format("sparklog").option("subscribe", "orders").load(log.store.root)
    sparklog.write(orders(spark), log.store.root, "orders")
    assert frame.count() == 100
    sparklog.write(orders(spark), log.store.root, "orders")
    assert frame.count() == 100
    assert frame.where("partition IS NOT NULL").count() == 200


@needs_column_defaults
def test_every_query_of_a_table_looks_up_the_offsets(spark: SparkSession, log: Coordinator) -> None:
    spark.sql(
        f"CREATE TABLE sparklog_table USING sparklog OPTIONS "
        f"(`kafka.bootstrap.servers` '{log.store.root}', subscribe 'clicks', topic 'clicks')"
    )
    assert spark.table("sparklog_table").count() == 0
    spark.sql("INSERT INTO sparklog_table (key, value) VALUES (X'01', X'02'), (NULL, X'03')")
    assert spark.table("sparklog_table").count() == 2
    spark.sql("INSERT INTO sparklog_table SELECT * FROM sparklog_table WHERE key IS NULL")
    rows = spark.sql("SELECT key, value, offset FROM sparklog_table ORDER BY offset").collect()
    assert [tuple(row) for row in rows] == [(b"\x01", b"\x02", 0), (None, b"\x03", 1), (None, b"\x03", 2)]
    assert spark.sql('SELECT * FROM sparklog_table WITH (endingOffsets=\'{"clicks":{"0":1}}\')').count() == 1


@needs_column_defaults
def test_a_table_is_read_and_written_after_alter_table(spark: SparkSession, log: Coordinator) -> None:
    spark.sql(
        f"CREATE TABLE sparklog_table USING sparklog OPTIONS (`kafka.bootstrap.servers` '{log.store.root}', "
        "subscribe 'clicks', topic 'clicks', columns 'key,value,offset')"
    )
    spark.sql("ALTER TABLE sparklog_table ADD COLUMN price INT")
    spark.sql("ALTER TABLE sparklog_table RENAME COLUMN value TO body")
    spark.sql("ALTER TABLE sparklog_table DROP COLUMN key")
    spark.sql("INSERT INTO sparklog_table (body) VALUES (X'01')")
    with pytest.raises(Exception, match="column price was added to the table and is not in the log"):
        spark.sql("INSERT INTO sparklog_table (body, price) VALUES (X'02', 7)")
    assert spark.table("sparklog_table").columns == ["body", "offset", "price"]
    assert [tuple(row) for row in spark.table("sparklog_table").collect()] == [(b"\x01", 0, None)]
    assert [row.value for row in sparklog.read(spark, log.store.root, "clicks").collect()] == [b"\x01"]


def test_a_table_and_a_view_with_a_path_read_the_same_log(spark: SparkSession, log: Coordinator) -> None:
    sparklog.write(orders(spark, 5), log.store.root, "clicks")
    for what in ("TABLE sparklog_elsewhere", "TEMPORARY VIEW sparklog_view"):
        spark.sql(f"CREATE {what} USING sparklog OPTIONS (path '{log.store.root}', subscribe 'clicks')")
        assert spark.table(what.split()[-1]).count() == 5


def test_credentials_in_the_options_of_a_table_are_refused(spark: SparkSession, log: Coordinator) -> None:
    with pytest.raises(Exception, match="put the credentials into the environment"):
        spark.sql(
            "CREATE TABLE sparklog_table USING sparklog OPTIONS "
            f"(path '{log.store.root}', subscribe 'clicks', `storage.secret` 'x')"
        )


# -- filters, columns and offsets


def test_filters_do_not_affect_other_queries_of_the_same_dataframe(spark: SparkSession, log: Coordinator) -> None:
    """Spark 4.2 lets a pruned plan leak into other queries of the same DataFrame, so pruning is opt-in."""
    sparklog.write(orders(spark), log.store.root, "orders")
    frame = sparklog.read(spark, log.store.root, "orders")
    sizes = {row.partition: row["count"] for row in frame.groupBy("partition").count().collect()}
    assert len(sizes) > 1
    first, second = sorted(sizes)[:2]
    assert frame.filter(f"partition = {first}").count() == sizes[first]
    assert frame.count() == 100
    both = frame.filter(f"partition = {first}").unionAll(frame.filter(f"partition = {second}"))
    assert {row.partition for row in both.collect()} == {first, second}


@needs_push_down
def test_filters_prune_tasks_with_push_down_predicate(spark: SparkSession, log: Coordinator) -> None:
    sparklog.write(orders(spark), log.store.root, "orders")
    query = "partition = 1 AND offset BETWEEN 2 AND 4 AND timestamp > TIMESTAMP'2020-01-01' AND topic = 'orders'"
    plain = sparklog.read(spark, log.store.root, "orders").filter(query)
    pruned = sparklog.read(spark, log.store.root, "orders", push_down_predicate=True).filter(query)
    assert plain.rdd.getNumPartitions() > pruned.rdd.getNumPartitions() == 1
    assert_df_equality(plain, pruned)


def test_push_down_predicate_works_if_spark_has_push_down_disabled(spark: SparkSession, log: Coordinator) -> None:
    sparklog.write(orders(spark), log.store.root, "orders")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        frame = sparklog.read(spark, log.store.root, "orders", push_down_predicate=True).filter("partition = 1")
        assert {row.partition for row in frame.collect()} <= {1}
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_columns_select_the_projection(spark: SparkSession, log: Coordinator) -> None:
    sparklog.write(orders(spark, 3), log.store.root, "clicks")
    frame = sparklog.read(spark, log.store.root, "clicks", columns=["offset", "value"])
    assert frame.columns == ["offset", "value"]
    assert sorted(tuple(row) for row in frame.collect()) == [(0, b"v0"), (1, b"v1"), (2, b"v2")]
    counted = spark.read.format("sparklog").schema("partition INT").option("subscribe", "clicks").load(log.store.root)
    assert counted.collect() == [Row(partition=0)] * 3


def test_typed_arguments_set_start_and_end_offsets(spark: SparkSession, log: Coordinator) -> None:
    rows = spark.range(0, 10, 1, 1).selectExpr("CAST(id AS STRING) value", "timestamp_millis(1000 + id) timestamp")
    sparklog.write(rows, log.store.root, "clicks")

    def offsets(**where: Any) -> list[int]:
        frame = sparklog.read(spark, log.store.root, "clicks", **where)
        return [row.offset for row in frame.select("offset").collect()]

    assert offsets(starting_offsets={"clicks": {0: 3}}, ending_offsets={"clicks": {0: 5}}) == [3, 4]
    assert offsets(starting_offsets={"clicks": "earliest"}, ending_timestamp=1003) == [0, 1, 2]
    assert offsets(starting_timestamp=datetime.fromtimestamp(1.008, timezone.utc)) == [8, 9]
    assert offsets(starting_offsets_by_timestamp={"clicks": {0: 99_999}}, latest_if_no_match=True) == []
    assert offsets(max_records_per_partition=3) == list(range(10))
    with pytest.raises(Exception, match="no record of clicks-0 has a timestamp"):
        offsets(starting_timestamp=99_999)


def test_assign_and_subscribe_pattern_select_partitions(spark: SparkSession, log: Coordinator) -> None:
    sparklog.write(orders(spark), log.store.root, "orders")
    assigned = sparklog.read(spark, log.store.root, assign={"orders": [1, 9]})
    assert {row.partition for row in assigned.collect()} <= {1}
    assert sparklog.read(spark, log.store.root, subscribe_pattern="^ord").count() == 100


def test_tasks_follow_partitions_and_min_partitions(spark: SparkSession, log: Coordinator) -> None:
    rows = spark.range(1000).selectExpr("CAST(id AS STRING) value", "CAST(id % 4 AS INT) partition")
    sparklog.write(rows, log.store.root, "orders")
    assert sparklog.read(spark, log.store.root, "orders").rdd.getNumPartitions() == 4
    assert sparklog.read(spark, log.store.root, "orders", min_partitions=9).rdd.getNumPartitions() == 8
    split = sparklog.read(spark, log.store.root, "orders", min_partitions=9)
    assert split.select("partition", "offset").distinct().count() == 1000
    joined = sparklog.read(spark, log.store.root, "orders", max_partitions="auto")
    assert joined.rdd.getNumPartitions() == 1
    assert joined.select("partition", "offset").distinct().count() == 1000


def test_a_dataframe_can_be_joined_with_itself(spark: SparkSession, log: Coordinator) -> None:
    sparklog.write(orders(spark), log.store.root, "orders")
    frame = sparklog.read(spark, log.store.root, "orders", columns=["partition", "offset"])
    assert frame.alias("a").join(frame.alias("b"), ["partition", "offset"]).count() == 100
    assert frame.unionAll(frame).count() == 200


# -- errors


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"subscrib": "orders"}, "did you mean subscribe"),
        ({}, "exactly one of the options assign, subscribe, subscribePattern"),
        ({"subscribe": "orders", "endingOffsets": "{"}, "for option endingOffsets: "),
    ],
)
def test_invalid_options_fail_when_the_dataframe_is_created(
    spark: SparkSession, log: Coordinator, options: dict[str, str], problem: str
) -> None:
    with pytest.raises(Exception, match=problem):
        spark.read.format("sparklog").options(**options).load(log.store.root)


def test_a_batch_that_starts_at_latest_fails_when_it_is_evaluated(spark: SparkSession, log: Coordinator) -> None:
    frame = sparklog.read(spark, log.store.root, "orders", starting_offsets="latest")
    with pytest.raises(Exception, match="startingOffsets cannot be latest"):
        frame.count()


def test_a_root_without_a_cluster_fails_with_its_name(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"ClusterNotFoundError: .*nothing is not a sparklog cluster"):
        sparklog.read(spark, str(tmp_path / "nothing"), "orders").count()
    with pytest.raises(Exception, match="ClusterNotFoundError"):
        sparklog.write(orders(spark, 1), str(tmp_path / "nothing"), "orders")


def test_a_damaged_file_fails_with_its_name(spark: SparkSession, log: Coordinator) -> None:
    sparklog.write(orders(spark).coalesce(1), log.store.root, "clicks")
    (path,) = Path(log.store.root).glob("clicks-0/*.log")
    data = bytearray(path.read_bytes())
    data[data.index(b"v42")] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=rf"CorruptRecordError: .*{path.name}.*record batch 0 .*checksum"):
        sparklog.read(spark, log.store.root, "clicks").count()


def test_end_offsets_can_be_given_as_json(spark: SparkSession, log: Coordinator) -> None:
    sparklog.write(orders(spark), log.store.root, "orders")
    ends = {str(number): part.log_end_offset for number, part in enumerate(log.refresh().topics["orders"].partitions)}
    frame = (
        spark.read.format("sparklog")
        .options(subscribe="orders", endingOffsets=json.dumps({"orders": ends}))
        .load(log.store.root)
    )
    sparklog.write(orders(spark), log.store.root, "orders")
    assert frame.count() == 100
