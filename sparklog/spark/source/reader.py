"""Implement the batch reader that Spark plans with and runs in its tasks.

Spark creates a reader in a planner process, asks it for partitions once per DataFrame (see ``docs/spark.md``), and
sends both to the executors, which need only the storage: a partition carries the segments it reads.

Rules: the classes here only carry state between processes; ``planning`` decides, ``log.records.batches`` builds rows.
Not for: streaming queries (``stream.reader``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sparklog.coordinator import shared_cluster
from sparklog.coordinator.reader_leases import ReaderLease
from sparklog.ids import RandomIds
from sparklog.log.records.batches import RowBuilder, join_small
from sparklog.log.records.records import Records
from sparklog.spark.broker_stores import readable_stores
from sparklog.spark.options import SourceOptions
from sparklog.spark.picklable import Picklable
from sparklog.spark.source.filters import Pruning, keeps_all, prune
from sparklog.spark.source.planning import PlannedRange, ReadPlan, lease_read, plan, tasks_of
from sparklog.spark.source.range_reader import RangeReader
from sparklog.spark.source.reused_plans import EXECUTION_ID, PlanIdentity, warn_of_reuse
from sparklog.spark.source.rows import STORED, read_columns
from sparklog.spark.versions.api import arrow_schema, base_push_filters
from sparklog.store.base import Store


class SparklogPartition(Picklable, InputPartition):
    """The work of one task: ranges of topic partitions, their segments, and the stores of their brokers.

    ``plan_id`` is empty if it does not matter that a later query reads by this plan (``reused_plans``).
    """

    def __init__(
        self,
        ranges: Sequence[PlannedRange],
        stores: Mapping[int, Store],
        lease: ReaderLease | None = None,
        plan_id: str = "",
    ) -> None:
        self.value = None
        self.ranges = tuple(ranges)
        self.plan_id = plan_id
        self.lease = lease
        brokers = {broker for planned in ranges for broker in planned.replicas}
        brokers.update(segment.broker for planned in ranges for segment in planned.segments)
        self.stores = {broker: stores[broker] for broker in brokers if broker in stores}

    def __repr__(self) -> str:
        ranges = (f"{each.topic}-{each.partition}, offsets {each.start} to {each.end}" for each in self.ranges)
        return f"SparklogPartition({'; '.join(ranges)})"


class SparklogReader(Picklable, DataSourceReader):
    """Reads topics as rows of the columns in the schema. Not thread-safe.

    ``names`` are the names in the log of a table's columns (``table_options``).
    ``bytes_read`` counts the bytes of ``.log`` and ``.index`` files that ``read`` of this object has read, for tests.
    """

    def __init__(self, options: SourceOptions, schema: StructType, names: Sequence[str] | None = None) -> None:
        self.options = options
        self.schema = schema
        self.columns = read_columns(schema, names)
        self.pruned = Pruning()
        self.bytes_read = 0

    @property
    def pushFilters(self) -> Callable[[list[Any]], Iterable[Any]]:
        """The method that Spark calls with a query's filters if ``spark.sql.python.filterPushdown.enabled`` is true."""
        return _PushFilters(self)

    def partitions(self) -> list[InputPartition]:
        """Return one partition per task, without empty ranges. Errors as ``planning.Plan.ranges``."""
        coordinator = shared_cluster(*self.options.address)
        ranges = plan(coordinator, lambda fetcher: ReadPlan(coordinator, fetcher, self.options, self.pruned).ranges())
        stores = readable_stores(coordinator)
        lease = lease_read(coordinator, ranges, self.options.reader_lease_ms)
        plan_id = "" if self.options.is_of_past else RandomIds().write_id()
        return [SparklogPartition(task, stores, lease, plan_id) for task in tasks_of(ranges, self.options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, of each partition in offset order. Raises DataLossError, CorruptRecordError,
        CorruptIndexError."""
        if isinstance(partition, SparklogPartition):  # Spark passes a partition of its own if there is none
            built = (batch for planned in partition.ranges for batch in self._rows(planned, partition))
            yield from join_small((batch, batch.nbytes) for batch in built)

    def _rows(self, planned: PlannedRange, partition: SparklogPartition) -> Iterator[pa.RecordBatch]:
        if partition.plan_id and not planned.derived:
            self._warn_of_reuse(PlanIdentity(partition.plan_id, planned.log_end), planned)
        builder = RowBuilder(arrow_schema(self.schema), self.columns, planned.topic, planned.partition)
        for records in self._records(planned, partition):
            yield builder.build(records)

    def _warn_of_reuse(self, identity: PlanIdentity, planned: PlannedRange) -> None:
        context, options = TaskContext.get(), self.options
        query = "" if context is None else context.getLocalProperty(EXECUTION_ID) or ""
        warn_of_reuse(
            identity, query, planned.topic, planned.partition, options, lambda: shared_cluster(*options.address).state
        )

    def _records(self, planned: PlannedRange, partition: SparklogPartition) -> Iterator[Records]:
        if planned.derived:
            yield from planned.derived
            return
        stored = [name for name in STORED if name in self.columns]
        reader = RangeReader(planned, partition.stores, self.options, partition.lease)
        try:
            yield from reader.records(stored) if stored else reader.positions("offset" in self.columns)
        finally:
            reader.close()
            self.bytes_read += reader.bytes_read


class _PushFilters:
    """The bound method ``pushFilters``, in a form that Spark accepts whether push-down is enabled or not.

    Spark refuses a reader that overrides ``pushFilters`` while push-down is disabled, and checks this by ``__func__``.
    This object has the ``__func__`` of the base class; with push-down disabled it is never called, and the read is
    only not pruned.
    """

    __func__ = staticmethod(base_push_filters)

    def __init__(self, reader: SparklogReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Any]) -> Iterable[Any]:
        """Prune by these filters if the options say so. Return all that may drop a row: Spark evaluates them on the
        rows."""
        if self._reader.options.push_down_predicate:
            self._reader.pruned = prune(filters)
        return [predicate for predicate in filters if not keeps_all(predicate)]
