"""Writes from plain threads of the driver, for which Spark has no active session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark import InheritableThread
from pyspark.sql import SparkSession

import sparklog
from sparklog.coordinator import Coordinator, create_cluster


@pytest.fixture
def log(tmp_path: Path) -> Coordinator:
    coordinator = create_cluster(str(tmp_path / "log"))
    coordinator.create_topic("orders", 2)
    return coordinator


def in_threads(*jobs: Callable[[], object]) -> None:
    """Run all concurrently, each in a plain thread, and raise the first error."""
    errors: list[BaseException] = []

    def run(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def counts(spark: SparkSession, log: Coordinator) -> tuple[int, int]:
    values = sparklog.read(spark, log.store.root, "orders").select("value")
    return values.count(), values.distinct().count()


def test_a_plain_thread_can_write_a_dataframe(spark: SparkSession, log: Coordinator) -> None:
    rows = spark.range(50).selectExpr("CAST(id AS STRING) value")
    in_threads(lambda: sparklog.write(rows, log.store.root, "orders"))
    assert counts(spark, log) == (50, 50)


def test_a_plain_thread_can_write_a_dataframe_of_a_second_session(spark: SparkSession, log: Coordinator) -> None:
    other = spark.newSession()
    rows = other.range(50).selectExpr("CAST(id AS STRING) value")
    in_threads(lambda: sparklog.write(rows, log.store.root, "orders"))
    assert counts(spark, log) == (50, 50)


def test_threads_that_write_concurrently_write_every_record_once(spark: SparkSession, log: Coordinator) -> None:
    before = log.refresh().version
    jobs = [spark.range(n * 50, n * 50 + 50).selectExpr("CAST(id AS STRING) value") for n in range(4)]
    in_threads(*[lambda rows=rows: sparklog.write(rows, log.store.root, "orders") for rows in jobs])
    assert counts(spark, log) == (200, 200)
    assert log.refresh().version == before + 4


def test_the_dataframe_writer_works_in_a_thread_pool_and_in_an_inheritable_thread(
    spark: SparkSession, log: Coordinator
) -> None:
    sparklog.register(spark)

    def write(first: int) -> None:
        rows = spark.range(first, first + 50).selectExpr("CAST(id AS STRING) value")
        rows.write.format("sparklog").mode("append").option("topic", "orders").save(log.store.root)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, [0, 50]))
    thread = InheritableThread(target=lambda: write(100))
    thread.start()
    thread.join()
    assert counts(spark, log) == (150, 150)
