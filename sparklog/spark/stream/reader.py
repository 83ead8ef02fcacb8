"""Implement the streaming reader that Spark plans with and runs in its tasks.

Spark keeps one reader in a process beside the driver as long as a query runs, and asks it for offsets and partitions.
A second reader is sent to the executors and reads.

A Spark without limits asks for the newest offset alone, and does not say where the batch starts: a batch then takes all
the records there are, which is also what ends a query with Trigger.AvailableNow. Of a new query it asks for the end of
the first batch before its start.

Rules: thin; ``stream.planner`` decides, ``source.reader`` reads. Only limits are translated here: Spark's Python API
has no combined limit, so the planner applies ``minOffsetsPerTrigger`` if there is also a ``maxOffsetsPerTrigger``.
Not for: batch queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.clock import Clock
from sparklog.errors import InvalidOptionError
from sparklog.spark.picklable import Picklable
from sparklog.spark.source.planning import tasks_of
from sparklog.spark.source.reader import SparklogPartition, SparklogReader
from sparklog.spark.source.rows import read_columns
from sparklog.spark.stream.options import StreamOptions
from sparklog.spark.stream.planner import StreamPlanner
from sparklog.spark.versions.api import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
    warn_of_limits,
)


class SparklogStreamReader(Picklable, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics as a stream of rows of the columns in the schema. Not thread-safe."""

    left_out = ("_planner", "_planned_to")

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
        self._planned_to: dict[str, Any] | None = None

    @property
    def planner(self) -> StreamPlanner:
        """The planner of this process, which opens the cluster; created when first needed."""
        if self._planner is None:
            self._planner = StreamPlanner(self.options, self._clock)
        return self._planner

    # -- beside the driver

    def initialOffset(self) -> dict[str, Any]:
        """Return the offsets at which a new query starts. Errors as ``StreamPlanner.initial``."""
        self._planned_to = self.planner.initial()
        return self._planned_to

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limits of the options, as far as Spark's API can express them."""
        if self.options.max_offsets is not None:
            return ReadMaxRows(self.options.max_offsets)
        if self.options.min_offsets is not None:
            return ReadMinRows(self.options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the end of the next batch; without a limit, where this Spark passes none, the ends of the logs. Errors
        as ``StreamPlanner.latest``."""
        if start is None:
            limits = {
                "maxOffsetsPerTrigger": self.options.max_offsets,
                "minOffsetsPerTrigger": self.options.min_offsets,
            }
            if any(limits.values()):
                warn_of_limits(tuple(name for name, value in limits.items() if value))
            if self._planned_to is None:
                return self.planner.first_end()
            start, limit = self._planned_to, ReadAllAvailable()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self.planner.latest(start, most, read_all=isinstance(limit, ReadAllAvailable))

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query at the current ends of the logs."""
        self.planner.fix_end()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the last known ends of the logs, for the query's progress."""
        return self.planner.report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return one partition per task, without empty ranges. Errors as ``StreamPlanner.ranges``."""
        ranges = self.planner.ranges(start, end)
        self._planned_to = end
        lease = self.planner.take_lease(ranges)
        tasks = tasks_of(ranges, self.options.source)
        return [SparklogPartition(task, self.planner.stores, lease) for task in tasks]

    def commit(self, end: dict[str, Any]) -> None:
        """Commit ``end``, up to which the query has finished, to its consumer group, if it has one."""
        self.planner.commit(end)

    def stop(self) -> None:
        """End the planner's thread, once the query has ended."""
        if self._planner is not None:
            self._planner.close()

    # -- in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, of each partition in offset order. Errors as ``SparklogReader.read``."""
        return SparklogReader(self.options.source, self.schema, self.names).read(partition)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises why a query was refused when Spark first calls it: after an error while a reader is made, Spark 4.2 raises
    an UnboundLocalError of its own. Immutable."""

    def __init__(self, error: InvalidOptionError) -> None:
        self.error = error

    def initialOffset(self) -> dict[str, Any]:
        raise self.error

    def prepareForTriggerAvailableNow(self) -> None:
        raise self.error

    def getDefaultReadLimit(self) -> ReadLimit:
        raise self.error

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        raise self.error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self.error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self.error
