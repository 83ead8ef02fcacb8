"""Consumer groups whose members are tasks of a Spark job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import sparklog
import sparklog.spark
from sparklog.clock import SystemClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.spark.group.task import ConsumeContext
from sparklog.testing.records import Record, append_records
from tests.integration.test_spark_executors import ROOT, log, run  # noqa: F401 - a fixture

RECORDS = 20_000


@pytest.fixture
def root(spark: SparkSession, tmp_path: Path) -> str:
    coordinator = create_cluster(str(tmp_path / "cluster"))
    coordinator.create_topic("orders", 4)
    coordinator.create_topic("totals", 1)
    rows = spark.range(RECORDS).selectExpr("CAST(id AS STRING) key", "CAST(id AS STRING) value")
    sparklog.write(rows, coordinator.store.root, "orders")
    return coordinator.store.root


def test_tasks_share_the_partitions_and_write_every_record_once(spark: SparkSession, root: str) -> None:
    def copy(records: pa.RecordBatch, context: ConsumeContext) -> None:
        context.send("totals", records.select(["key", "value"]))

    reports = sparklog.spark.consume(
        spark, root=root, group="g", topics=["orders"], process=copy, max_records=1000, members=3
    )
    assert sum(report.records for report in reports) == RECORDS
    owners = Counter(partition for report in reports for partition in report.partitions)
    assert set(owners) == {f"orders-{number}" for number in range(4)}
    copied = [row.value for row in sparklog.read(spark, root, "totals", columns=["value"]).collect()]
    assert sorted(map(int, copied)) == list(range(RECORDS))
    assert sparklog.spark.consume(spark, root=root, group="g", topics=["orders"], process=copy) == []


def test_a_function_can_take_and_send_pandas_frames(spark: SparkSession, root: str) -> None:
    def total(frame: Any, context: ConsumeContext) -> None:
        amount = sum(int(value) for value in frame["value"])
        row = frame.head(1).assign(value=str(amount).encode(), key=str(context.partition).encode())
        context.send("totals", row[["key", "value"]])

    sparklog.spark.consume(spark, root=root, group="g", topics="orders", process=total, records="pandas")
    totals = sparklog.read(spark, root, "totals").selectExpr("sum(CAST(CAST(value AS STRING) AS BIGINT)) total")
    assert totals.collect()[0].total == RECORDS * (RECORDS - 1) // 2


def test_an_exception_of_the_function_fails_the_job_with_its_message(spark: SparkSession, root: str) -> None:
    def fails(records: pa.RecordBatch, context: ConsumeContext) -> None:
        raise ValueError(f"no good record at {context.start_offset}")

    with pytest.raises(Exception, match="no good record at 0"):
        sparklog.spark.consume(spark, root=root, group="g", topics="orders", process=fails)


@pytest.mark.slow
def test_the_program_for_spark_submit_runs_until_sigterm(tmp_path: Path) -> None:
    coordinator = create_cluster(str(tmp_path / "cluster"))
    coordinator.create_topic("orders", 2)
    append_records(coordinator, "orders", [Record(value=str(number).encode()) for number in range(500)])
    functions = tmp_path / "functions.py"
    functions.write_text("def copy(records, context):\n    context.send('copy', records.select(['value']))\n")
    program = subprocess.Popen(
        [sys.executable, "jobs/consume_group.py", "--bootstrap-server", coordinator.store.root, "--group", "g",
         "--topic", "orders", "--process", f"{functions}:copy", "--master", "local[2]", "--forever"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        clock = SystemClock()
        until = clock.monotonic() + 120
        while end_of(coordinator, "copy") < 500 and clock.monotonic() < until and program.poll() is None:
            clock.sleep(0.1)
        program.send_signal(signal.SIGTERM)
        _, errors = program.communicate(timeout=60)
    finally:
        program.kill()
    assert program.returncode == 0, errors
    assert "stopped after 500 records" in errors
    assert end_of(coordinator, "copy") == 500
    assert coordinator.refresh().groups["g"].members == {}


def end_of(coordinator: Coordinator, topic: str) -> int:
    state = coordinator.refresh().topics.get(topic)
    return 0 if state is None else sum(partition.log_end_offset for partition in state.partitions)


@pytest.mark.stress
def test_every_record_is_copied_once_when_an_executor_of_the_group_is_killed(
    log: Any,  # noqa: F811
    tmp_path: Path,
) -> None:
    log.create_topic("copy", 2)
    marker = tmp_path / "killed"
    printed = run("consume_with_a_kill", log, tmp_path, SPARKLOG_TEST_MARKER=str(marker))
    assert marker.exists()
    assert printed.split() == ["records", "40000", "distinct", "40000"]
