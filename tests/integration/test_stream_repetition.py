"""Checkpoints that lost files, were restored, copied or reset: no row is dropped without an error.

Spark's own handling of checkpoints is part of the test, so each test runs a real query.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import sparklog
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.spark.stream.lag_listener import LagListener, QueryLag
from tests.integration.sparks import needs_limits

WAIT_SECONDS = 120
REFUSED = "micro-batch {} of query:.* {}"


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Coordinator:
    sparklog.register(spark)
    coordinator = create_cluster(str(tmp_path / "log"))
    for topic in ("orders", "copies", "others"):
        coordinator.create_topic(topic, 2)
    return coordinator


def produce(spark: SparkSession, log: Coordinator, first: int, end: int) -> None:
    rows = spark.range(first, end, 1, 1).selectExpr("CAST(id AS STRING) value", "CAST(id % 2 AS INT) partition")
    sparklog.write(rows, log.store.root, "orders")


def stream(spark: SparkSession, log: Coordinator) -> DataFrame:
    options = {"subscribe": "orders", "startingOffsets": "earliest"}
    return spark.readStream.format("sparklog").options(**options).load(log.store.root).select("value")


def copy(spark: SparkSession, log: Coordinator, checkpoint: Path, topic: str = "copies", **more: Any) -> StreamingQuery:
    """Run the copy query to its end, without the partition column: the partition that the sink chooses is not fixed."""
    options = {"kafka.bootstrap.servers": log.store.root, "topic": topic, "checkpointLocation": str(checkpoint), **more}
    query = stream(spark, log).writeStream.format("sparklog").options(**options).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_SECONDS), "the query did not end"
    return query


def values(spark: SparkSession, log: Coordinator, topic: str = "copies") -> list[int]:
    rows = sparklog.read(spark, log.store.root, topic).selectExpr("CAST(CAST(value AS STRING) AS INT) value")
    return sorted(row.value for row in rows.collect())


def delete_entry(checkpoint: Path, folder: str, batch: int) -> None:
    for name in (str(batch), f".{batch}.crc"):
        (checkpoint / folder / name).unlink()


def test_a_batch_replanned_with_more_rows_after_losing_its_offsets_is_refused_or_appended(
    spark: SparkSession, log: Coordinator, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    for part in (0, 10):
        produce(spark, log, part, part + 10)
        copy(spark, log, checkpoint)
    delete_entry(checkpoint, "offsets", 1)
    delete_entry(checkpoint, "commits", 1)
    produce(spark, log, 20, 30)
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=REFUSED.format(1, "was written before")) as caught:
            copy(spark, log, checkpoint)
    assert "topic copies got 10 records then, and 20 now" in str(caught.value)
    assert values(spark, log) == list(range(20))
    copy(spark, log, checkpoint, onBatchMismatch="append")
    produce(spark, log, 30, 40)
    copy(spark, log, checkpoint)
    assert sorted({*values(spark, log)}) == list(range(40))


def test_a_query_with_a_copied_checkpoint_can_write_to_another_topic(
    spark: SparkSession, log: Coordinator, tmp_path: Path
) -> None:
    produce(spark, log, 0, 10)
    copy(spark, log, tmp_path / "checkpoint")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "fork")
    produce(spark, log, 10, 20)
    copy(spark, log, tmp_path / "checkpoint")
    copy(spark, log, tmp_path / "fork", "others")
    assert values(spark, log) == list(range(20))
    assert values(spark, log, "others") == list(range(10, 20))


def test_a_query_that_restarts_from_batch_0_with_the_same_id_is_refused_or_appends(
    spark: SparkSession, log: Coordinator, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    for part in (0, 10):
        produce(spark, log, part, part + 10)
        copy(spark, log, checkpoint)
    for folder in ("offsets", "commits"):
        shutil.rmtree(checkpoint / folder)
    produce(spark, log, 20, 30)
    with pytest.raises(StreamingQueryException, match=REFUSED.format(0, "comes after number 1")):
        copy(spark, log, checkpoint)
    copy(spark, log, checkpoint, onBatchMismatch="append")
    assert values(spark, log) == sorted([*range(20), *range(30)])


def test_a_rerun_batch_is_written_to_a_changed_topic(spark: SparkSession, log: Coordinator, tmp_path: Path) -> None:
    produce(spark, log, 0, 10)
    copy(spark, log, tmp_path / "checkpoint")
    delete_entry(tmp_path / "checkpoint", "commits", 0)
    copy(spark, log, tmp_path / "checkpoint", "others")
    assert values(spark, log, "others") == list(range(10))


def test_a_checkpoint_restored_from_an_older_copy_is_refused_or_its_batch_skipped(
    spark: SparkSession, log: Coordinator, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    produce(spark, log, 0, 10)
    copy(spark, log, checkpoint)
    shutil.copytree(checkpoint, tmp_path / "older")
    produce(spark, log, 10, 20)
    copy(spark, log, checkpoint)
    shutil.rmtree(checkpoint)
    shutil.copytree(tmp_path / "older", checkpoint)
    produce(spark, log, 20, 30)
    with pytest.raises(StreamingQueryException, match=REFUSED.format(1, "was written before")):
        copy(spark, log, checkpoint)
    copy(spark, log, checkpoint, onBatchMismatch="skip")
    produce(spark, log, 30, 40)
    copy(spark, log, checkpoint)
    assert values(spark, log) == [*range(20), *range(30, 40)], "20 to 29 are skipped, as configured"


@needs_limits
def test_a_listener_reports_a_rerun_batch_that_added_nothing(
    spark: SparkSession, log: Coordinator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = tmp_path / "checkpoint"
    produce(spark, log, 0, 10)
    copy(spark, log, checkpoint)
    delete_entry(checkpoint, "commits", 0)
    produce(spark, log, 10, 20)
    reports: Queue[QueryLag] = Queue()
    listener = LagListener(reports.put)
    spark.streams.addListener(listener)
    try:
        copy(spark, log, checkpoint)
        lags = [reports.get(timeout=WAIT_SECONDS) for _ in range(2)]
    finally:
        spark.streams.removeListener(listener)
    assert [(lag.batch_id, lag.is_repetition) for lag in lags] == [(0, True), (1, False)]
    assert "micro-batch 0 of run" in caplog.text
    assert "it added nothing" in caplog.text
    assert values(spark, log) == list(range(20))


def test_write_batch_follows_the_same_rules(spark: SparkSession, log: Coordinator, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"

    def run(topic: str, **more: Any) -> None:
        def handle(batch: DataFrame, number: int) -> None:
            sparklog.write_batch(batch, number, log.store.root, topic, name="rows", **more)

        query = stream(spark, log).writeStream.foreachBatch(handle).option("checkpointLocation", str(checkpoint))
        assert query.trigger(availableNow=True).start().awaitTermination(WAIT_SECONDS)

    produce(spark, log, 0, 10)
    run("copies")
    delete_entry(checkpoint, "commits", 0)
    run("copies")
    assert values(spark, log) == list(range(10))
    delete_entry(checkpoint, "commits", 0)
    run("others")
    assert values(spark, log, "others") == list(range(10))
    delete_entry(checkpoint, "commits", 0)
    delete_entry(checkpoint, "offsets", 0)
    produce(spark, log, 10, 20)
    with pytest.raises(StreamingQueryException, match=r"micro-batch 0 of query:.*:rows:copies was written before"):
        run("copies")
    run("copies", on_batch_mismatch="append")
    assert values(spark, log) == sorted([*range(10), *range(20)])
