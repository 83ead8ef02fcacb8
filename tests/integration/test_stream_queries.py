"""The streaming source and sink in a real Spark session: queries with availableNow, run to their end."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import sparklog
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from tests.integration.sparks import needs_limits

WAIT_SECONDS = 120


@pytest.fixture
def log(spark: SparkSession, tmp_path: Path) -> Coordinator:
    sparklog.register(spark)
    coordinator = create_cluster(str(tmp_path / "log"))
    coordinator.create_topic("orders", 3)
    coordinator.create_topic("copies", 3)
    return coordinator


def produce(spark: SparkSession, log: Coordinator, count: int, topic: str = "orders", first: int = 0) -> None:
    rows = spark.range(first, first + count, 1, 1).selectExpr(
        "CAST(id AS STRING) key", "CAST(id AS STRING) value", "CAST(id % 3 AS INT) partition"
    )
    sparklog.write(rows, log.store.root, topic)


def stream(spark: SparkSession, log: Coordinator, **options: str) -> DataFrame:
    chosen = {"kafka.bootstrap.servers": log.store.root, "subscribe": "orders", "startingOffsets": "earliest"}
    return spark.readStream.format("sparklog").options(**{**chosen, **options}).load()


def finished(query: StreamingQuery) -> StreamingQuery:
    assert query.awaitTermination(WAIT_SECONDS), "the query did not end"
    return query


def copy(df: DataFrame, log: Coordinator, checkpoint: Path, **options: str) -> StreamingQuery:
    writer = df.select("key", "value", "partition").writeStream.format("sparklog").trigger(availableNow=True)
    chosen = {"kafka.bootstrap.servers": log.store.root, "topic": "copies", "checkpointLocation": str(checkpoint)}
    return finished(writer.options(**{**chosen, **options}).start())


def values(spark: SparkSession, log: Coordinator, topic: str = "copies") -> list[int]:
    rows = sparklog.read(spark, log.store.root, topic).selectExpr("CAST(CAST(value AS STRING) AS INT) value")
    return sorted(row.value for row in rows.collect())


def batch_sizes(query: StreamingQuery) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def test_a_restarted_query_copies_only_new_records(spark: SparkSession, log: Coordinator, tmp_path: Path) -> None:
    produce(spark, log, 100)
    copy(stream(spark, log), log, tmp_path / "checkpoint")
    produce(spark, log, 50, first=100)
    query = copy(stream(spark, log), log, tmp_path / "checkpoint")
    assert batch_sizes(query) == [50]
    assert values(spark, log) == list(range(150))


@needs_limits
def test_each_micro_batch_is_one_commit_with_the_querys_id(
    spark: SparkSession, log: Coordinator, tmp_path: Path
) -> None:
    produce(spark, log, 15)
    before = log.refresh().version
    query = copy(stream(spark, log, maxOffsetsPerTrigger="6"), log, tmp_path / "checkpoint")
    assert batch_sizes(query) == [6, 6, 3]
    state = log.refresh()
    assert state.version == before + 3
    assert state.applications[f"query:{query.id}:copies"].version == 2


def test_a_rerun_batch_adds_nothing(spark: SparkSession, log: Coordinator, tmp_path: Path) -> None:
    produce(spark, log, 30)
    copy(stream(spark, log), log, tmp_path / "checkpoint")
    for name in ("0", ".0.crc"):  # as if the driver had died before it wrote them
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    copy(stream(spark, log), log, tmp_path / "checkpoint")
    assert values(spark, log) == list(range(30))


def test_offsets_in_the_checkpoint_have_the_connectors_form_plus_an_entry_for_ids(
    spark: SparkSession, log: Coordinator, tmp_path: Path
) -> None:
    produce(spark, log, 30)
    copy(stream(spark, log), log, tmp_path / "checkpoint")
    offsets = json.loads((tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()[2])
    names = list(offsets)
    ids = f"$ids:{log.state.cluster_id}:orders={log.state.topic('orders').topic_id}"
    assert offsets == {"orders": {"0": 10, "1": 10, "2": 10}, names[1]: {}}
    start = ",orders/0=0,orders/1=0,orders/2=0"  # of the first batch
    assert re.fullmatch(re.escape(ids + start) + r",\$\d+=[0-9a-f]{64}", names[1])


def test_a_checkpoint_of_an_earlier_version_is_continued(spark: SparkSession, log: Coordinator, tmp_path: Path) -> None:
    produce(spark, log, 30)
    copy(stream(spark, log), log, tmp_path / "checkpoint")
    offsets = tmp_path / "checkpoint" / "offsets" / "0"
    version, metadata, _ = offsets.read_text().splitlines()
    ids = {"cluster": log.state.cluster_id, "topics": {"orders": log.state.topic("orders").topic_id}}
    former = json.dumps({"orders": {"0": 10, "1": 10, "2": 10}, "$ids": ids})
    offsets.write_text("\n".join([version, metadata, former]))
    (offsets.parent / ".0.crc").unlink()
    produce(spark, log, 15, first=30)
    copy(stream(spark, log), log, tmp_path / "checkpoint")
    assert values(spark, log) == list(range(45))


def test_a_query_that_starts_at_latest_keeps_its_start_offsets(
    spark: SparkSession, log: Coordinator, tmp_path: Path
) -> None:
    produce(spark, log, 9)
    copy(stream(spark, log, startingOffsets="latest"), log, tmp_path / "checkpoint")
    produce(spark, log, 6, first=9)
    copy(stream(spark, log, startingOffsets="latest"), log, tmp_path / "checkpoint")
    assert values(spark, log) == list(range(9, 15))


@pytest.mark.filterwarnings("ignore:.*Trigger:DeprecationWarning")
def test_trigger_once_reads_everything_in_one_batch_and_ignores_limits(
    spark: SparkSession, log: Coordinator, tmp_path: Path
) -> None:
    limits = {"maxOffsetsPerTrigger": "600", "minOffsetsPerTrigger": "500"}

    def once(**options: str) -> list[int]:
        writer = stream(spark, log, **options).select("key", "value", "partition").writeStream.format("sparklog")
        chosen = {"kafka.bootstrap.servers": log.store.root, "topic": "copies"}
        writer = writer.options(**chosen).option("checkpointLocation", str(tmp_path / "checkpoint"))
        return batch_sizes(finished(writer.trigger(once=True).start()))

    produce(spark, log, 15)
    assert once(maxOffsetsPerTrigger="6") == [15]
    produce(spark, log, 3, first=15)
    assert once(**limits) == [3]
    assert once() == []
    assert values(spark, log) == list(range(18))


def recreate(log: Coordinator) -> None:
    delete_topic(log, "orders")
    log.create_topic("orders", 3)


def other_cluster(log: Coordinator) -> None:
    root = log.store.root
    shutil.rmtree(root)
    create_cluster(root).create_topic("orders", 3)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (recreate, "deleted and created again"),
        (lambda log: delete_topic(log, "orders"), "no longer exists"),
        (other_cluster, "the checkpoint is of cluster"),
    ],
)
def test_a_checkpoint_of_another_topic_or_cluster_is_refused(
    spark: SparkSession, log: Coordinator, tmp_path: Path, damage: Callable[[Coordinator], None], message: str
) -> None:
    produce(spark, log, 9)
    noop = stream(spark, log).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    finished(noop.trigger(availableNow=True).start())
    damage(log)
    with pytest.raises(StreamingQueryException, match=message):
        finished(noop.trigger(availableNow=True).start())
