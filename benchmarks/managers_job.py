"""The job of ``benchmarks/managers.py``: produce and scan, beside Parquet on the same storage; prints lines of JSON.

    spark-submit benchmarks/managers_job.py ROOT FOLDER ROWS ROUNDS EXECUTORS

    SAMPLES   seconds of each round by side; the first rounds are those of cold executors
    STAGES    of the last round by side: seconds in stages, of their tasks, added up, and of these on a core in the JVM
    PARTS     seconds of what a task needs besides its rows

The rows are in Spark's memory before, spread over all EXECUTORS (0: the driver alone). Sides alternate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import sparklog
from sparklog.coordinator import open_cluster

PARTITIONS = 4
EXECUTORS_WITHIN = 120.0
FEW = 4
"""rows of the sides that show what a job costs without rows."""
FILE_BYTES = 25_000_000
IMPORTS = "import pyarrow, pyspark.sql.types, sparklog.spark.data_source, sparklog.spark.sink.writer"


def main(root: str, folder: str, rows: int, rounds: int, executors: int) -> None:
    spark = SparkSession.Builder().getOrCreate()
    await_executors(spark, executors)
    sparklog.register(spark)
    frame = make_rows(spark, rows)
    sides = {**make_sides(frame, root, folder, rows), **make_sides(make_rows(spark, FEW), root, folder, FEW, " of few")}
    samples: dict[str, list[float]] = {name: [] for name in sides}
    stages: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for name, side in sides.items():
            before = latest_stage(spark)
            samples[name].append(timed(side))
            stages[name] = times_of_stages(spark, before)
    print(f"SAMPLES {json.dumps(samples)}", flush=True)
    print(f"STAGES {json.dumps(stages)}", flush=True)
    (parts,) = spark.sparkContext.parallelize([root], 1).map(probe).collect()
    print(f"PARTS {json.dumps(parts)}", flush=True)


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def make_rows(spark: SparkSession, rows: int) -> DataFrame:
    """As many rows of 100 bytes, in the memory of the executors."""
    value = (
        "CAST(substr(concat(sha2(CAST(id AS STRING), 256), sha2(CAST(-id AS STRING), 256)), 1, 92) AS BINARY) AS value"
    )
    frame = spark.range(0, rows, 1, PARTITIONS).selectExpr("CAST(lpad(id, 8, '0') AS BINARY) AS key", value).persist()
    assert frame.count() == rows
    return frame


def make_sides(
    frame: DataFrame, root: str, folder: str, rows: int, suffix: str = ""
) -> dict[str, Callable[[], object]]:
    """Return what is timed, by name: these rows written and read, by sparklog and as Parquet."""
    spark, log, scanned = frame.sparkSession, open_cluster(root), f"scanned-{rows}"

    def produce() -> None:
        topic = uuid.uuid4().hex
        log.create_topic(topic, PARTITIONS)
        sparklog.write(frame, root, topic)

    def write_parquet(name: str = "") -> None:
        frame.write.option("compression", "none").parquet(f"{folder}/{name or uuid.uuid4().hex}")

    log.create_topic(scanned, PARTITIONS)
    sparklog.write(frame, root, scanned)
    write_parquet(scanned)
    sides: dict[str, Callable[[], object]] = {
        "produce": produce,
        "write Parquet": write_parquet,
        "scan": lambda: total(sparklog.read(spark, root, scanned), rows),
        "scan Parquet": lambda: total(spark.read.parquet(f"{folder}/{scanned}"), rows),
    }
    return {f"{name}{suffix}": side for name, side in sides.items()}


def await_executors(spark: SparkSession, executors: int) -> None:
    """Wait until this number of executors has registered. Raises TimeoutError."""
    deadline = time.monotonic() + EXECUTORS_WITHIN
    while len(spark.sparkContext._jsc.sc().statusTracker().getExecutorInfos()) < 1 + executors:
        if time.monotonic() > deadline:
            raise TimeoutError(f"fewer than {executors} executors after {EXECUTORS_WITHIN:.0f} s")
        time.sleep(0.2)


def total(frame: DataFrame, rows: int) -> None:
    (row,) = frame.selectExpr("count(key)", "sum(length(value))").collect()
    assert tuple(row) == (rows, 92 * rows)


def latest_stage(spark: SparkSession) -> int:
    return max((stage.stageId() for stage in stages_of(spark)), default=-1)


def stages_of(spark: SparkSession) -> list[Any]:
    context: Any = spark.sparkContext
    gateway, jvm = context._gateway, context._jvm  # noqa: SLF001 - nothing public has the times of stages
    none: tuple[object, object] = gateway.new_array(jvm.double, 0), jvm.java.util.ArrayList()
    found = context._jsc.sc().statusStore().stageList(None, False, False, *none)
    return [found.apply(number) for number in range(found.size())]


def times_of_stages(spark: SparkSession, after: int) -> dict[str, float]:
    """Return seconds of the stages after one: from submission to completion, of their tasks, added up, and of these on
    a core in the JVM."""
    times = dict.fromkeys(("stages", "tasks", "jvm cpu"), 0.0)
    for stage in stages_of(spark):
        if stage.stageId() > after and stage.completionTime().isDefined():
            times["stages"] += (stage.completionTime().get().getTime() - stage.submissionTime().get().getTime()) / 1e3
            times["tasks"] += stage.executorRunTime() / 1e3
            times["jvm cpu"] += stage.executorCpuTime() / 1e9
    return times


def probe(root: str) -> dict[str, float]:
    """Return the seconds of what a task needs besides its rows, measured in a task: starting Python and loading the
    package in a new process, opening the cluster, one request, and a file of 25 MB made durable."""
    seconds = {
        "Python": timed(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)),
        "Python and imports": timed(lambda: subprocess.run([sys.executable, "-c", IMPORTS], check=True)),
    }
    opened = timed(lambda: open_cluster(root))
    cluster = open_cluster(root)
    store, name, data = cluster.store, f"probe-{uuid.uuid4().hex}", os.urandom(FILE_BYTES)

    def write() -> None:
        with store.open_output(name) as output:
            output.write(data)

    seconds |= {"open the cluster": opened, "look for commits": timed(cluster.refresh), "write 25 MB": timed(write)}
    small = f"{name}-small"
    seconds["create 200 bytes"] = timed(lambda: store.put_if_absent(small, data[:200]))
    for key in (name, small):
        store.delete(key)
    return seconds


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
