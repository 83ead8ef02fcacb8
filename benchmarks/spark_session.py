"""The Spark session of the benchmarks, the rows they write, and the data source and sink that do nothing but Arrow.

The identity sink writes the batches it is given to an Arrow file: the same bytes as a segment, with no index, no
checksum and no commit. The identity source yields the batches of such files. What sparklog costs beyond them is its
own.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

import sparklog
from benchmarks.measure import ROOT
from sparklog.spark.session import LOW_LATENCY, python_path

CORES = 2


@contextlib.contextmanager
def spark_session(scratch: Path, like: Mapping[str, str] = LOW_LATENCY) -> Iterator[SparkSession]:
    """``local[2]`` without a UI, with both data sources; its workers import this package.

    ``like`` are settings as those of sparklog's own sessions; a session without them is one that a user has made.
    """
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    builder = SparkSession.Builder()
    for name, value in like.items():
        builder = builder.config(name, value)
    builder = (
        builder.master(f"local[{CORES}]")
        .appName("sparklog benchmarks")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "8g")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.local.dir", str(scratch / "local"))
    )
    with python_path():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    sparklog.register(session)
    session.dataSource.register(IdentitySink)
    session.dataSource.register(IdentitySource)
    try:
        yield session
    finally:
        session.stop()


def rows(spark: SparkSession, count: int, partitions: int = CORES) -> DataFrame:
    """``count`` records of 108 bytes in memory: 8 of key, 92 of value (of which 64 do not compress), 8 of timestamp."""
    number = F.col("id")
    text = F.concat(F.sha2(number.cast("string"), 256), F.lpad(number.cast("string"), 28, "0"))
    frame = spark.range(0, count, 1, partitions).select(
        F.unhex(F.lpad(F.hex(number), 16, "0")).alias("key"),
        text.cast("binary").alias("value"),
        F.timestamp_millis(F.lit(1_700_000_000_000) + number).alias("timestamp"),
    )
    return frame


@contextlib.contextmanager
def held(frame: DataFrame) -> Iterator[DataFrame]:
    """The frame computed and held in memory, so that making rows is no part of what is measured."""
    frame = frame.persist()
    frame.count()
    try:
        yield frame
    finally:
        frame.unpersist(blocking=True)


def write(frame: DataFrame, root: Path, topic: str) -> None:
    frame.write.format("sparklog").option("bootstrap.servers", str(root)).option("topic", topic).mode("append").save()


def read(spark: SparkSession, root: Path, topic: str, schema: str = "", **options: str) -> DataFrame:
    reader = spark.read.format("sparklog").option("bootstrap.servers", str(root)).option("subscribe", topic)
    reader = reader.options(**options)
    return (reader.schema(schema) if schema else reader).load()


def drain(frame: DataFrame) -> None:
    """Read every row and do nothing with it."""
    frame.write.format("noop").mode("overwrite").save()


class IdentitySink(DataSource):
    """``format("identity_sink")``: a file of the option ``path`` for each task."""

    @classmethod
    def name(cls) -> str:
        return "identity_sink"

    def writer(self, schema: StructType, overwrite: bool) -> IdentityWriter:
        return IdentityWriter(self.options["path"])


class IdentityWriter(DataSourceArrowWriter):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        first = next(iterator, None)
        if first is not None:
            file, _ = tempfile.mkstemp(suffix=".arrow", dir=self.folder)
            with os.fdopen(file, "wb", buffering=0) as sink, pa.ipc.new_file(sink, first.schema) as writer:
                writer.write_batch(first)
                for batch in iterator:
                    writer.write_batch(batch)
        return WriterCommitMessage()


@dataclass
class FilePart(InputPartition):
    path: str


class IdentitySource(DataSource):
    """``format("identity_source")``: the batches of the Arrow files in the folder ``path``, one task for each file."""

    @classmethod
    def name(cls) -> str:
        return "identity_source"

    def schema(self) -> str:
        return (
            "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
        )

    def reader(self, schema: StructType) -> IdentityReader:
        return IdentityReader(self.options["path"])


class IdentityReader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def partitions(self) -> list[InputPartition]:
        return [FilePart(str(path)) for path in sorted(Path(self.folder).glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FilePart)
        with pa.memory_map(partition.path) as source, pa.ipc.open_file(source) as reader:
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
