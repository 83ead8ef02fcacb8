"""Programs with their own Spark session and separate executors, run as processes by test_spark_executors.py."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

import sparklog
import sparklog.spark
from sparklog.spark.group.task import ConsumeContext
from sparklog.spark.session import sparklog_session
from tests import quick_jvm

CLUSTER = "local-cluster[2,1,1024]"
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.driver.memory": "1g",
    **quick_jvm.EXECUTORS,
}


def killing_partitioner(keys: Sequence[bytes | None], partitions: int) -> list[int | None]:
    """Kill its own executor, once: a marker file records that."""
    marker = Path(os.environ["SPARKLOG_TEST_MARKER"])
    if b"k77" in keys and not marker.exists():
        marker.touch()
        os.kill(executor_of_this_worker(), 9)
        os._exit(1)
    return [None if key is None else len(key) % partitions for key in keys]


def executor_of_this_worker() -> int:
    """Return the process id of the JVM above this Python worker: worker, daemon, executor."""
    process = os.getpid()
    while "java" not in Path(f"/proc/{process}/exe").resolve().name:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        process = int(fields[1])
    return process


def produce_with_a_kill(root: str, scratch: str) -> None:
    """100,000 records in 8 tasks; an executor is killed while it writes. Prints the number of records read and of
    distinct ones."""
    environment = {
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.executorEnv.SPARKLOG_TEST_MARKER": os.environ["SPARKLOG_TEST_MARKER"],
    }
    spark = sparklog_session(CLUSTER, config={**QUIET, **environment, "spark.local.dir": scratch})
    try:
        rows = spark.range(0, 100_000, 1, 8).selectExpr("concat('k', id) key", "CAST(id AS STRING) value")
        sparklog.write(rows, root, "orders", partitioner="tests.integration.spark_programs:killing_partitioner")
        records = sparklog.read(spark, root, "orders").selectExpr("CAST(value AS STRING) value")
        print("records", records.count(), "distinct", records.distinct().count())
    finally:
        spark.stop()


def dying_partitioner(keys: Sequence[bytes | None], partitions: int) -> list[int | None]:
    """Partition by the number that a key begins with. The first worker that reaches ``3-15999`` exits; a marker file
    records that and the number of finished files at that time."""
    marker = Path(os.environ["SPARKLOG_TEST_MARKER"])
    if b"3-15999" in keys and not marker.exists():
        marker.write_text(str(len(list(Path(os.environ["SPARKLOG_TEST_ROOT"]).glob("orders-3/*.log")))))
        os._exit(1)
    return [None if key is None else int(key[:1]) % partitions for key in keys]


def produce_with_a_retry(root: str, scratch: str) -> None:
    """64,000 records in 4 tasks, one of which dies at its end. Prints the number of records read and of distinct
    ones."""
    environment = {
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.executorEnv.SPARKLOG_TEST_MARKER": os.environ["SPARKLOG_TEST_MARKER"],
        "spark.executorEnv.SPARKLOG_TEST_ROOT": root,
    }
    spark = sparklog_session(CLUSTER, config={**QUIET, **environment, "spark.local.dir": scratch})
    try:
        rows = spark.range(0, 64_000, 1, 4).selectExpr(
            "concat(id div 16000, '-', id % 16000) key", "concat(id, repeat('x', 1000)) value"
        )
        sparklog.write(rows, root, "orders", partitioner="tests.integration.spark_programs:dying_partitioner")
        records = sparklog.read(spark, root, "orders", columns=["key"])
        print("records", records.count(), "distinct", records.distinct().count())
    finally:
        spark.stop()


def produce_without_the_package(root: str, scratch: str) -> None:
    """Executors that cannot import sparklog. Prints the errors of a write and of a read."""
    hidden = {"spark.executorEnv.PYTHONPATH": str(Path(scratch) / "hidden"), "spark.local.dir": scratch}
    spark = sparklog_session(CLUSTER, config={**QUIET, **hidden})
    try:
        for operation in ("write", "read"):
            try:
                if operation == "write":
                    sparklog.write(spark.range(10).selectExpr("CAST(id AS STRING) value"), root, "orders")
                else:
                    sparklog.read(spark, root, "orders").collect()
                print(operation, "worked")
            except Exception as error:
                print(operation, "failed:", str(error).replace("\n", " "))
    finally:
        spark.stop()


def produce_with_the_zip(root: str, scratch: str, zip_file: str) -> None:
    """Executors that get sparklog from a zip. Prints the number of records read."""
    hidden = {"spark.executorEnv.PYTHONPATH": str(Path(scratch) / "hidden"), "spark.local.dir": scratch}
    spark = sparklog_session(CLUSTER, py_files=[zip_file], config={**QUIET, **hidden})
    try:
        sparklog.write(spark.range(10).selectExpr("CAST(id AS STRING) value"), root, "orders")
        print("records", sparklog.read(spark, root, "orders").count())
    finally:
        spark.stop()


def consume_with_a_kill(root: str, scratch: str) -> None:
    """A group of two executors copies 40,000 records; one executor is killed halfway. Prints the number
    of copies and of distinct ones."""
    marker = Path(os.environ["SPARKLOG_TEST_MARKER"])
    environment = {"spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"], "spark.local.dir": scratch}
    spark = sparklog_session(CLUSTER, config={**QUIET, **environment})

    def copy(records: pa.RecordBatch, context: ConsumeContext) -> None:
        context.send("copy", records.select(["key", "value"]))
        if context.start_offset >= 2000 and not marker.exists():
            marker.touch()
            os.kill(executor_of_this_worker(), 9)
            os._exit(1)

    try:
        rows = spark.range(0, 40_000, 1, 2).selectExpr("CAST(id AS STRING) key", "CAST(id AS STRING) value")
        sparklog.write(rows, root, "orders")
        sparklog.spark.consume(
            spark, root=root, group="g", topics="orders", process=copy, members=2, max_records=1000,
            session_timeout_ms=6_000, heartbeat_interval_ms=500,
        )  # fmt: skip
        records = sparklog.read(spark, root, "copy").selectExpr("CAST(value AS STRING) value")
        print("records", records.count(), "distinct", records.distinct().count())
    finally:
        spark.stop()


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
