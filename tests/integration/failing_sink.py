"""Sinks whose tasks fail or stall after writing.

A separate module, since Spark's workers import it by name.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from sparklog.spark.data_source import SparklogDataSource
from sparklog.spark.stream.writer import SparklogStreamCommitMessage, SparklogStreamWriter


class FailingWriter(SparklogStreamWriter):
    """The first attempt of every task fails: alternately with an error and by killing its process."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SparklogStreamCommitMessage:
        message = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            if context.partitionId() % 2:
                os._exit(1)
            raise RuntimeError("failed after writing everything")
        return message


class StallingWriter(SparklogStreamWriter):
    """The first attempt of a batch's first task never ends, so that Spark starts a second attempt."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SparklogStreamCommitMessage:
        message = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        while context.partitionId() == 0 and context.attemptNumber() == 0:
            signal.pause()
        return message


class FailingDataSource(SparklogDataSource):
    @classmethod
    def name(cls) -> str:
        return "failing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> FailingWriter:
        writer = super().streamWriter(schema, overwrite)
        return FailingWriter(writer.options, schema)


class StallingDataSource(SparklogDataSource):
    @classmethod
    def name(cls) -> str:
        return "stalling"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StallingWriter:
        writer = super().streamWriter(schema, overwrite)
        return StallingWriter(writer.options, schema)
