"""The streaming reader that Spark plans with and runs in its tasks.

Spark keeps one reader in a process beside the driver for as long as a query runs, and asks it for offsets and
partitions. Another one, made beside it, goes to the executors and reads.

Rules: thin; ``stream_planner`` decides, ``reader`` reads. Only Spark's limits are translated here: its Python API knows
no limit of two parts, so ``minOffsetsPerTrigger`` is applied by the planner where there is a ``maxOffsetsPerTrigger``.
Not for: batch queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from sparklog.clock import Clock
from sparklog.spark.picklable import Picklable
from sparklog.spark.source.reader import SparklogPartition, SparklogReader
from sparklog.spark.source.rows import read_columns
from sparklog.spark.stream.options import StreamOptions
from sparklog.spark.stream.planner import StreamPlanner
from sparklog.spark.stream.process import set_aside_loaded_objects


class SparklogStreamReader(Picklable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream of rows of the columns that the schema names. Not thread-safe."""

    def __init__(
        self,
        options: StreamOptions,
        schema: StructType,
        clock: Clock | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        read_columns(schema, names)
        self.options = options
        self.schema = schema
        self.names = names
        self._clock = clock
        self._planner: StreamPlanner | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """What goes to the executors: all but the planner, which stays in its process."""
        sent = object.__new__(type(self))
        sent.__dict__ = {**self.__dict__, "_planner": None}
        return super(SparklogStreamReader, sent).__reduce__()

    @property
    def planner(self) -> StreamPlanner:
        """The cluster as this process knows it, opened when it is first needed."""
        if self._planner is None:
            self._planner = StreamPlanner(self.options, self._clock)
        return self._planner

    # -- beside the driver

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query starts. Errors as ``StreamPlanner.initial``."""
        return self.planner.initial()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The options' limits, as far as Spark's API can say them."""
        if self.options.max_offsets is not None:
            return ReadMaxRows(self.options.max_offsets)
        if self.options.min_offsets is not None:
            return ReadMinRows(self.options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends. Errors as ``StreamPlanner.latest``."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.planner.latest(start, most, read_all=isinstance(limit, ReadAllAvailable))

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at what there is now."""
        self.planner.fix_end()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the logs as last seen, for the query's progress."""
        return self.planner.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One partition per task, empty ranges left out. Errors as ``StreamPlanner.ranges``."""
        planned = self.planner.ranges(start, end)
        announcement = self.planner.announced(planned)
        return [SparklogPartition(one, self.planner.stores, announcement) for one in planned]

    def commit(self, end: dict[str, Any]) -> None:
        """The query has finished everything before ``end``: its consumer group, if it has one, is told."""
        self.planner.commit(end)

    # -- in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in offset order. Errors as ``SparklogReader.read``."""
        set_aside_loaded_objects()
        return SparklogReader(self.options.source, self.schema, self.names).read(partition)
