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
from sparklog.spark.source.planning import Plan, PlannedRange, lease_read, plan
from sparklog.spark.source.range_reader import RangeReader
from sparklog.spark.source.reused_plans import EXECUTION_ID, PlanIdentity, warn_of_reuse
from sparklog.spark.source.rows import STORED, read_columns
from sparklog.spark.versions.api import arrow_schema, base_push_filters
from sparklog.store.base import Store


class SparklogPartition(Picklable, InputPartition):
    """The work of one task: a range of a topic partition, its segments, and the stores of their brokers."""

    def __init__(
        self,
        planned: PlannedRange,
        stores: Mapping[int, Store],
        lease: ReaderLease | None = None,
        identity: PlanIdentity | None = None,
    ) -> None:
        self.value = None
        self.planned = planned
        self.identity = identity
        self.lease = lease
        brokers = {*planned.replicas, *(segment.broker for segment in planned.segments)}
        self.stores = {broker: stores[broker] for broker in brokers if broker in stores}

    def __repr__(self) -> str:
        planned = self.planned
        return f"SparklogPartition({planned.topic}-{planned.partition}, offsets {planned.start} to {planned.end})"


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
        ranges = plan(coordinator, lambda fetcher: Plan(coordinator, fetcher, self.options, self.pruned).ranges())
        stores = readable_stores(coordinator)
        lease = lease_read(coordinator, ranges, self.options.reader_lease_ms)
        plan_id = RandomIds().write_id()
        state = coordinator.state
        return [
            SparklogPartition(
                planned,
                stores,
                lease,
                None
                if planned.derived or self.options.is_of_past
                else PlanIdentity(plan_id, state.partition(planned.topic, planned.partition).high_watermark),
            )
            for planned in ranges
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one partition, in offset order. Raises DataLossError, CorruptRecordError,
        CorruptIndexError."""
        if isinstance(partition, SparklogPartition):  # Spark passes a partition of its own if there is none
            planned = partition.planned
            if partition.identity is not None:
                self._warn_of_reuse(partition.identity, planned)
            builder = RowBuilder(arrow_schema(self.schema), self.columns, planned.topic, planned.partition)
            built = (builder.build(records) for records in self._records(partition))
            yield from join_small((batch, batch.nbytes) for batch in built)

    def _warn_of_reuse(self, identity: PlanIdentity, planned: PlannedRange) -> None:
        context, options = TaskContext.get(), self.options
        query = "" if context is None else context.getLocalProperty(EXECUTION_ID) or ""
        warn_of_reuse(
            identity, query, planned.topic, planned.partition, options, lambda: shared_cluster(*options.address).state
        )

    def _records(self, partition: SparklogPartition) -> Iterator[Records]:
        if partition.planned.derived:
            yield from partition.planned.derived
            return
        stored = [name for name in STORED if name in self.columns]
        reader = RangeReader(partition.planned, partition.stores, self.options, partition.lease)
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
