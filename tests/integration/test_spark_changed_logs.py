"""Spark reads logs while their segments are rolled, compacted and deleted."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

import sparklog
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.testing.records import Record, append_records
from tests.cluster.log.rewriting import delete_files, rewrite
from tests.integration.sparks import needs_push_down


def log_of(folder: Path, files: int = 6, records: int = 50) -> Coordinator:
    coordinator = create_cluster(str(folder / "log"))
    coordinator.create_topic("t", 1)
    for _ in range(files):
        append_records(coordinator, "t", [Record(b"k%d" % (n % 7), b"v") for n in range(records)])
    return coordinator


@needs_push_down
def test_a_cached_plan_returns_the_same_rows_after_its_files_were_rolled(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(tmp_path)
    options = {"subscribe": "t", "minPartitions": "4"}
    frame = spark.read.format("sparklog").options(**options).load(log.store.root)
    before = [row.offset for row in frame.select("offset").orderBy("offset").collect()]
    assert before == list(range(300))
    assert frame.count() == 300
    delete_files(log.store, rewrite(log, batch_rows=40))
    append_records(log, "t", [Record(value=b"later")])
    assert [row.offset for row in frame.select("offset").orderBy("offset").collect()] == before
    assert sparklog.read(spark, log.store.root, "t").count() == 301


def test_batches_and_streams_read_a_compacted_log(spark: SparkSession, tmp_path: Path) -> None:
    log = log_of(tmp_path)
    kept = {3, 77, 78, 150, 299}
    delete_files(log.store, rewrite(log, keep=kept.__contains__))
    frame = sparklog.read(spark, log.store.root, "t")
    assert frame.count() == 5
    assert {row.offset for row in frame.select("offset", "key").collect()} == kept
    assert frame.where("offset > 77").count() == 3
    query = (
        spark.readStream.format("sparklog")
        .option("subscribe", "t")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100)
        .load(log.store.root)
        .writeStream.format("memory")
        .queryName("compacted")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert {row.offset for row in spark.table("compacted").collect()} == kept
    assert query.lastProgress is not None
    end = json.loads(query.lastProgress.json)["sources"][0]["endOffset"]
    assert (json.loads(end) if isinstance(end, str) else end)["t"] == {"0": 300}
