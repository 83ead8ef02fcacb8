"""The job of ``benchmarks/managers.py``: produce and scan, beside Parquet on the same storage; prints one line of JSON.

    spark-submit benchmarks/managers_job.py ROOT FOLDER ROWS RUNS EXECUTORS

Everything is timed after a round that is not. The rows are in Spark's memory before, spread over all EXECUTORS (0: the
driver alone). Runs alternate.
"""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

import sparklog
from sparklog.coordinator import open_cluster

PARTITIONS = 4
EXECUTORS_WITHIN = 120.0


def main(root: str, folder: str, rows: int, runs: int, executors: int) -> None:
    spark = SparkSession.Builder().getOrCreate()
    await_executors(spark, executors)
    sparklog.register(spark)
    log = open_cluster(root)
    value = (
        "CAST(substr(concat(sha2(CAST(id AS STRING), 256), sha2(CAST(-id AS STRING), 256)), 1, 92) AS BINARY) AS value"
    )
    frame = spark.range(0, rows, 1, PARTITIONS).selectExpr("CAST(lpad(id, 8, '0') AS BINARY) AS key", value).persist()
    assert frame.count() == rows

    def produce() -> float:
        topic = uuid.uuid4().hex
        log.create_topic(topic, PARTITIONS)
        return timed(lambda: sparklog.write(frame, root, topic))

    def write_parquet() -> float:
        path = f"{folder}/{uuid.uuid4().hex}"
        return timed(lambda: frame.write.option("compression", "none").parquet(path))

    log.create_topic("scanned", PARTITIONS)
    sparklog.write(frame, root, "scanned")
    frame.write.option("compression", "none").parquet(f"{folder}/scanned")
    sides: dict[str, Callable[[], float]] = {
        "produce": produce,
        "write Parquet": write_parquet,
        "scan": lambda: timed(lambda: total(sparklog.read(spark, root, "scanned"), rows)),
        "scan Parquet": lambda: timed(lambda: total(spark.read.parquet(f"{folder}/scanned"), rows)),
    }
    samples: dict[str, list[float]] = {name: [] for name in sides}
    for run in range(runs + 1):
        for name, side in sides.items():
            seconds = side()
            if run:
                samples[name].append(seconds)
    print(f"SAMPLES {json.dumps(samples)}", flush=True)


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


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
