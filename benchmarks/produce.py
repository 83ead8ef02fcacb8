"""Producing with Spark: against the identity sink, unkeyed and keyed to 8 partitions, and keyed against unkeyed.

Every run writes to a cluster of its own, or a folder, on a disk that has nothing left to write, and removes it after it
is timed: files of earlier runs would fill the page cache. sparklog's runs end with everything durable, the reference's
with the bytes handed to the system; a third side is the reference with its files made durable.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType, TimestampType

from benchmarks import clusters, spark_session
from benchmarks.measure import (
    Figure,
    Settings,
    interleaved,
    scratch,
    throughput,
    timed,
    where_time_goes,
)
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.spark.data_source import SparklogDataSource

PARTITIONS = 8


def run(settings: Settings) -> list[Figure]:
    with (
        scratch("produce") as folder,
        spark_session.spark_session(folder) as spark,
        spark_session.held(spark_session.rows(spark, settings.rows)) as keyed,
        spark_session.held(keyed.selectExpr("concat(key, value) AS value", "timestamp")) as unkeyed,
    ):
        sides: dict[str, Callable[[], object]] = {
            "identity": lambda: _identity(unkeyed, _new(folder), durable=False),
            "identity of keyed rows": lambda: _identity(keyed, _new(folder), durable=False),
            "unkeyed": lambda: _produce(unkeyed, _new(folder), settings.rows),
            "keyed": lambda: _produce(keyed, _new(folder), settings.rows),
            "identity, durable": lambda: _identity(unkeyed, _new(folder), durable=True),
        }
        samples = interleaved(settings.runs, sides, warm=2)
        unkeyed_task, keyed_task = (_task_alone(_new(folder), settings.rows, columns) for columns in (1, 0))
    count = settings.rows
    name = f"keyed produce to {PARTITIONS} partitions"
    return [
        throughput("unkeyed produce", count, samples, ("unkeyed", "identity"), 0.95, unkeyed_task),
        throughput("unkeyed produce", count, samples, ("unkeyed", "identity, durable")),
        throughput(name, count, samples, ("keyed", "identity of keyed rows"), 0.9, keyed_task),
        throughput(name, count, samples, ("keyed", "unkeyed"), 0.8),
    ]


_numbers = itertools.count()


def _new(folder: Path) -> Path:
    found = folder / f"run-{next(_numbers)}"
    found.mkdir()
    return found


def _produce(frame: DataFrame, folder: Path, expected: int) -> float:
    create_cluster(str(folder)).create_topic("bench", PARTITIONS)
    os.sync()
    seconds = timed(lambda: spark_session.write(frame, folder, "bench"))
    state = open_cluster(str(folder)).state
    assert sum(partition.log_end_offset for partition in state.topic("bench").partitions) == expected
    shutil.rmtree(folder)
    return seconds


def _identity(frame: DataFrame, folder: Path, durable: bool) -> float:
    os.sync()

    def write() -> None:
        frame.write.format("identity_sink").mode("append").save(str(folder))
        if durable:
            for path in folder.iterdir():
                with path.open("rb") as file:
                    os.fsync(file)

    seconds = timed(write)
    shutil.rmtree(folder)
    return seconds


def _task_alone(folder: Path, rows: int, first_column: int) -> str:
    """What one of the two tasks does in Python, run here without Spark: how long, and where the time goes."""
    create_cluster(str(folder)).create_topic("bench", PARTITIONS)
    fields = [StructField(name, BinaryType()) for name in ("key", "value")] + [
        StructField("timestamp", TimestampType())
    ]
    source = SparklogDataSource({"bootstrap.servers": str(folder), "topic": "bench"})
    batch = clusters.record_batch(10_000)
    sent = batch.select(batch.schema.names[first_column:]).serialize().to_pybytes()
    schema = pa.schema(list(batch.schema)[first_column:])

    def write() -> None:
        received = (pa.ipc.read_record_batch(pa.py_buffer(sent), schema) for _ in range(rows // 2 // batch.num_rows))
        source.writer(StructType(fields[first_column:]), False).write(received)

    write()
    return f"one task without Spark {timed(write):.2f} s: {where_time_goes(write)}"
