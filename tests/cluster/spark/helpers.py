"""A cluster in a folder, and write and read jobs as Spark would run them, but without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.cloudpickle import dumps
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.spark.options import sink_options, source_options
from sparklog.spark.sink.writer import SparklogCommitMessage, SparklogWriter
from sparklog.spark.source.filters import prune
from sparklog.spark.source.reader import SparklogReader
from sparklog.spark.source.rows import read_schema
from sparklog.spark.versions.api import arrow_schema

Row = Mapping[str, Any]


def cluster(folder: Path, **topics: int) -> Coordinator:
    """A new cluster with topics of these numbers of partitions."""
    coordinator = create_cluster(str(folder))
    for name, partitions in topics.items():
        coordinator.create_topic(name, partitions)
    return coordinator


def _headers(value: DataType) -> DataType:
    return ArrayType(StructType([StructField("key", StringType()), StructField("value", value)]))


TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
    "headers": _headers(BinaryType()),
    "texts": _headers(StringType()),
    "map": MapType(StringType(), BinaryType()),
}


def schema_of(ddl: str) -> StructType:
    """``key string, value binary not null``: Spark's own parser needs a session. ``headers`` stands for its whole
    type."""
    fields = []
    for column in ddl.split(","):
        name, kind, *rest = column.split()
        fields.append(StructField(name, TYPES[kind], rest != ["not", "null"]))
    return StructType(fields)


def across(sent: Any) -> Any:
    """An object as it arrives in another process of Spark."""
    return pickle.loads(dumps(sent))


def batches(ddl: str, rows: Sequence[Row], size: int = 10_000) -> list[pa.RecordBatch]:
    """Rows as Spark passes them to a writer."""
    schema = arrow_schema(schema_of(ddl))
    return [
        pa.RecordBatch.from_pylist([dict(row) for row in rows[start : start + size]], schema=schema)
        for start in range(0, len(rows), size)
    ]


def writer(folder: Path, ddl: str, clock: ManualClock | None = None, **options: str) -> SparklogWriter:
    return SparklogWriter(sink_options({"path": str(folder), **options}), schema_of(ddl), clock)


def write_job(
    folder: Path, ddl: str, tasks: Sequence[Sequence[pa.RecordBatch]], **options: Any
) -> list[SparklogCommitMessage]:
    """Write and commit the batches of each task."""
    job = writer(folder, ddl, **options)
    messages = [across(across(job).write(iter(task))) for task in tasks]
    across(job).commit(messages)
    return messages


def write_rows(folder: Path, ddl: str, rows: Sequence[Row], **options: str) -> list[SparklogCommitMessage]:
    return write_job(folder, ddl, [batches(ddl, rows)], **options)


def reader(folder: Path, ddl: str = "", filters: Sequence[Any] = (), **options: str) -> SparklogReader:
    checked = source_options({"path": str(folder), **options})
    created = SparklogReader(checked, schema_of(ddl) if ddl else read_schema(checked.include_headers))
    if filters:
        created.pruned = prune(filters)
    return created


def read_rows(folder: Path, ddl: str = "", **options: str) -> list[dict[str, Any]]:
    """All rows of a read, in the order of its tasks."""
    job = reader(folder, ddl, **options)
    return [row for part in job.partitions() for batch in across(job).read(across(part)) for row in batch.to_pylist()]


def values(folder: Path, **options: str) -> list[Any]:
    return [row["value"] for row in read_rows(folder, "value binary", **options)]
