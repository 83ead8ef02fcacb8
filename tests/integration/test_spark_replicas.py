"""Spark jobs and streams that write to several locations, one of which is lost in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import sparklog
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.log.records.fetch import Fetcher
from sparklog.store.local import LocalStore
from tests.replicated import prepare


@pytest.fixture
def log(tmp_path: Path) -> Coordinator:
    """Three locations; each of the topics' four partitions has replicas on two of them."""
    roots = prepare(tmp_path, 3)
    coordinator = open_cluster(roots[0])
    assignment = [[number % 3, (number + 1) % 3] for number in range(4)]
    for topic in ("t", "copies"):
        coordinator.create_topic(topic, assignment=assignment)
    coordinator.create_topic("needy", assignment=[[0, 1]], configs={"min.insync.replicas": "2"})
    return coordinator


def location(log: Coordinator, broker: int) -> str:
    return log.state.brokers[broker].url or log.store.root


def lose(log: Coordinator, broker: int) -> None:
    Path(location(log, broker)).rename(location(log, broker) + "-away")


def values_in_sync(log: Coordinator, topic: str) -> list[str]:
    """Check that the in-sync replicas of each partition are equal; return all values of the topic."""
    state = log.refresh()
    values: list[str] = []
    for number, partition in enumerate(state.topic(topic).partitions):
        segments = log.segments(topic, state).partition(number).between(0, partition.log_end_offset)
        copies: list[list[bytes]] = []
        for broker in partition.isr:
            store = LocalStore(location(log, broker))
            fetcher = Fetcher(lambda _, store=store: store)  # type: ignore[misc]
            read = fetcher.read(topic, segments, 0, partition.log_end_offset, ["value"])
            copies.append([value for records in read for value in records.batch.column(0).to_pylist()])
        assert all(copy == copies[0] for copy in copies)
        values += [value.decode() for value in copies[0]]
    return sorted(values)


def write(spark: SparkSession, log: Coordinator, first: int, count: int, topic: str = "t", **options: Any) -> list[str]:
    rows = spark.range(first, first + count, 1, 4).selectExpr("concat('k', id) key", "concat('v', id) value")
    sparklog.write(rows, log.store.root, topic, **options)
    return [f"v{number}" for number in range(first, first + count)]


def test_a_job_writes_to_every_replica_and_the_next_one_works_without_a_lost_location(
    spark: SparkSession, log: Coordinator
) -> None:
    expected = write(spark, log, 0, 200)
    assert values_in_sync(log, "t") == sorted(expected)
    assert all(len(partition.isr) == 2 for partition in log.state.topic("t").partitions)
    lose(log, 1)
    expected += write(spark, log, 200, 200)
    assert values_in_sync(log, "t") == sorted(expected)
    partitions = log.state.topic("t").partitions
    assert [(partition.leader, partition.isr) for partition in partitions] == [
        (0, (0,)),
        (2, (2,)),
        (2, (2, 0)),
        (0, (0,)),
    ]
    rows = sparklog.read(spark, log.store.root, "t").selectExpr("CAST(value AS STRING) value").collect()
    assert sorted(row.value for row in rows) == sorted(expected)


def test_a_stream_continues_without_a_lost_location(spark: SparkSession, log: Coordinator, tmp_path: Path) -> None:
    expected = write(spark, log, 0, 100)
    for _ in range(2):
        source = spark.readStream.format("sparklog").option("subscribe", "t").option("startingOffsets", "earliest")
        sink = source.load(log.store.root).writeStream.format("sparklog").option("path", log.store.root)
        sink = sink.option("topic", "copies").option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink.trigger(availableNow=True).start().awaitTermination(120)
        assert values_in_sync(log, "copies") == sorted(expected)
        if len(expected) == 100:
            lose(log, 2)
            expected += write(spark, log, 100, 100)


def test_a_job_without_enough_in_sync_replicas_writes_nothing(spark: SparkSession, log: Coordinator) -> None:
    lose(log, 1)
    with pytest.raises(PySparkException, match="NotEnoughReplicasError"):
        write(spark, log, 0, 10, "needy")
    assert log.refresh().partition("needy", 0).log_end_offset == 0
    assert not list(Path(log.store.root).rglob("needy-*/*"))
    write(spark, log, 0, 10, "needy", acks="1")
    with pytest.raises(PySparkException, match=r"min\.insync\.replicas"):
        write(spark, log, 10, 10, "needy")
    assert log.refresh().partition("needy", 0).log_end_offset == 10
