"""Streams in a real Spark session: foreachBatch, consumer groups, lag, several sources, stateful queries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import sparklog
from sparklog.coordinator import Coordinator
from sparklog.errors import InvalidRequestError
from sparklog.spark.stream.lag_listener import LagListener, QueryLag
from tests.integration.sparks import needs_limits
from tests.integration.test_stream_queries import copy, finished, log, produce, stream, values  # noqa: F401


def committed(log: Coordinator, group: str) -> dict[int, int]:  # noqa: F811
    return {entry.partition: entry.offset for entry in log.refresh().groups[group].offsets.values()}


def test_foreach_batch_writes_each_batch_once_to_each_of_two_topics(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
) -> None:
    log.create_topic("odd")

    def handle(batch: DataFrame, batch_id: int) -> None:
        rows = batch.select("value")
        sparklog.write_batch(rows, batch_id, log.store.root, "copies")
        sparklog.write_batch(rows.where("CAST(CAST(value AS STRING) AS INT) % 2 = 1"), batch_id, log.store.root, "odd")

    def run() -> None:
        writer = stream(spark, log).writeStream.foreachBatch(handle).trigger(availableNow=True)
        finished(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())

    produce(spark, log, 10)
    run()
    for name in ("0", ".0.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    run()
    assert values(spark, log) == list(range(10))
    assert values(spark, log, "odd") == [1, 3, 5, 7, 9]


def test_a_second_write_of_a_batch_under_the_same_name_is_refused(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
) -> None:
    def handle(batch: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            sparklog.write_batch(batch.select("value"), batch_id, log.store.root, "copies")

    produce(spark, log, 3)
    writer = stream(spark, log).writeStream.foreachBatch(handle).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="is written twice as query:"):
        finished(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "1 second"}])
def test_an_option_of_batch_queries_is_refused_and_nothing_follows_the_reason(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
    trigger: dict[str, Any],
) -> None:
    noop = stream(spark, log, endingOffsets="latest").writeStream.format("noop")
    with pytest.raises(StreamingQueryException, match="option endingOffsets does not apply to a streaming") as caught:
        finished(noop.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(**trigger).start())
    assert "UnboundLocalError" not in str(caught.value)


def test_a_query_commits_the_offsets_of_finished_batches_to_its_group(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
) -> None:
    produce(spark, log, 9)
    source = stream(spark, log, maxOffsetsPerTrigger="3", **{"kafka.group.id": "billing"})
    noop = source.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    finished(noop.trigger(availableNow=True).start())
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(300_000)  # before Spark 4.2 a listener commits
    assert committed(log, "billing") == {0: 3, 1: 3, 2: 3}


def test_output_and_consumer_offsets_are_in_one_commit(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
) -> None:
    produce(spark, log, 9)
    before = log.refresh().version
    copy(stream(spark, log), log, tmp_path / "checkpoint", **{"kafka.group.id": "copier"})
    assert log.refresh().version == before + 1
    assert committed(log, "copier") == {0: 3, 1: 3, 2: 3}


@needs_limits
def test_a_listener_reports_lag_and_commits_to_the_group_of_the_querys_name(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
) -> None:
    produce(spark, log, 9)
    reports: list[QueryLag] = []
    listener = LagListener(reports.append, root=log.store.root)
    spark.streams.addListener(listener)
    try:
        noop = stream(spark, log, maxOffsetsPerTrigger="3").writeStream.format("noop").queryName("audit")
        noop = noop.option("checkpointLocation", str(tmp_path / "checkpoint"))
        finished(noop.trigger(availableNow=True).start())
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(300_000)
    finally:
        spark.streams.removeListener(listener)
    assert [lag.max_offsets_behind_latest for lag in reports if lag.query == "audit"][:3] == [2, 1, 0]
    assert listener.progress["audit"].avg_offsets_behind_latest == 0
    assert committed(log, "audit") == {0: 3, 1: 3, 2: 3}


def run_named(spark: SparkSession, source: DataFrame, name: str, checkpoint: Path) -> None:
    writer = source.writeStream.format("noop").queryName(name).option("checkpointLocation", str(checkpoint))
    finished(writer.trigger(availableNow=True).start())
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(300_000)


def test_a_named_query_commits_to_the_group_of_its_name_by_default(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
) -> None:
    produce(spark, log, 9)
    run_named(spark, stream(spark, log, maxOffsetsPerTrigger="3"), "named", tmp_path / "a")
    assert committed(log, "named") == {0: 3, 1: 3, 2: 3}
    run_named(spark, stream(spark, log, commitOffsets="false"), "quiet", tmp_path / "b")
    run_named(spark, stream(spark, log, **{"kafka.group.id": "chosen"}), "unused", tmp_path / "c")
    assert set(log.refresh().groups) == {"named", "chosen"}


def test_a_query_commits_only_new_offsets_and_none_if_its_name_is_an_invalid_group_id(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    produce(spark, log, 3)
    run_named(spark, stream(spark, log), "named", tmp_path / "a")
    before = log.refresh().version
    run_named(spark, stream(spark, log), "named", tmp_path / "a")
    assert log.refresh().version == before
    run_named(spark, stream(spark, log), "x" * 300, tmp_path / "b")
    assert set(log.refresh().groups) == {"named"}
    assert "commits no offsets to a group of its name" in caplog.text


def test_a_query_can_use_a_source_twice_and_another_one(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
) -> None:
    log.create_topic("clicks")
    produce(spark, log, 6)
    sparklog.write(spark.range(100, 103).selectExpr("CAST(id AS STRING) value"), log.store.root, "clicks")
    orders = stream(spark, log).select("key", "value", "partition")
    clicks = stream(spark, log, subscribe="clicks").select("key", "value", "partition")
    copy(orders.union(orders).union(clicks), log, tmp_path / "checkpoint")
    assert values(spark, log) == sorted([*range(6), *range(6), 100, 101, 102])


def test_complete_mode_appends_the_whole_result_in_each_batch(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
) -> None:
    produce(spark, log, 9)
    counts = stream(spark, log).groupBy("partition").count().selectExpr("CAST(count AS STRING) value")
    writer = counts.writeStream.format("sparklog").outputMode("complete").trigger(availableNow=True)
    options = {"bootstrap.servers": log.store.root, "topic": "copies", "checkpointLocation": str(tmp_path / "c")}
    finished(writer.options(**options).start())
    assert values(spark, log) == [3, 3, 3]


def test_update_mode_works_through_foreach_batch_only(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
    tmp_path: Path,
) -> None:
    produce(spark, log, 9)
    counts = stream(spark, log).groupBy("partition").count().selectExpr("CAST(count AS STRING) value")
    options = {"bootstrap.servers": log.store.root, "topic": "copies", "checkpointLocation": str(tmp_path / "a")}
    writer = counts.writeStream.outputMode("update").trigger(availableNow=True)
    with pytest.raises(StreamingQueryException, match="does not support Update mode"):
        finished(writer.format("sparklog").options(**options).start())
    each = writer.foreachBatch(lambda batch, number: sparklog.write_batch(batch, number, log.store.root, "copies"))
    finished(each.option("checkpointLocation", str(tmp_path / "b")).start())
    assert values(spark, log) == [3, 3, 3]


def test_write_batch_outside_of_a_query_needs_the_query_id(
    spark: SparkSession,
    log: Coordinator,  # noqa: F811
) -> None:
    """As in sessions of Spark Connect, which do not expose the query."""
    batch = spark.createDataFrame([("7",)], "value string")
    with pytest.raises(InvalidRequestError, match="pass query_id"):
        sparklog.write_batch(batch, 0, log.store.root, "copies")
    for _ in range(2):
        sparklog.write_batch(batch, 0, log.store.root, "copies", query_id="mine")
    assert values(spark, log) == [7]
