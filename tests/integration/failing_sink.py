"""Sinks whose tasks fail, or stall, after they have written.

A module of its own, since Spark's workers import it by its name.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.types import StructType

from sparklog.spark.source.source import SparklogDataSource
from sparklog.spark.stream.writer import SparklogStreamCommitMessage, SparklogStreamWriter


class FailingWriter(SparklogStreamWriter):
    """The first attempt of every task fails: every other one with an error, the rest with its whole process."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SparklogStreamCommitMessage:
        message = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        if context.attemptNumber() == 0:
            if context.partitionId() % 2:
                os._exit(1)
            raise RuntimeError("failed after all was written")
        return message


class StallingWriter(SparklogStreamWriter):
    """The first attempt of a batch's first task never ends, so that Spark starts another beside it."""

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
        made = super().streamWriter(schema, overwrite)
        return FailingWriter(made.options, schema)


class StallingDataSource(SparklogDataSource):
    @classmethod
    def name(cls) -> str:
        return "stalling"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StallingWriter:
        made = super().streamWriter(schema, overwrite)
        return StallingWriter(made.options, schema)
