"""The batch reader that Spark plans with and runs in its tasks.

Spark makes a reader in a planner process, asks it for partitions once per DataFrame (see ``docs/spark.md``), and sends
both to the executors, which need nothing but the storage: a partition carries the segments it reads.

Rules: the classes here only carry state between processes; ``planning`` decides and ``batches`` builds.
Not for: streaming queries (``stream_reader``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from sparklog.coordinator import shared_cluster
from sparklog.errors import DataLossError
from sparklog.log.fetch import Fetcher, Records
from sparklog.protocol.segments import Segment
from sparklog.spark.batches import RowBuilder, join_small, positions
from sparklog.spark.filters import Pruning, pruning
from sparklog.spark.options import SourceOptions
from sparklog.spark.planning import Plan, PlannedRange
from sparklog.spark.portable import Portable
from sparklog.spark.rows import STORED, arrow_schema, read_columns
from sparklog.spark.stores import broker_stores
from sparklog.store.base import Store

logger = logging.getLogger(__name__)


class SparklogPartition(Portable, InputPartition):
    """What one task reads: a range of a topic partition, its segments, and the stores of their brokers."""

    def __init__(self, planned: PlannedRange, stores: Mapping[int, Store]) -> None:
        self.value = None
        self.planned = planned
        self.stores = dict(stores)

    def __repr__(self) -> str:
        planned = self.planned
        return f"SparklogPartition({planned.topic}-{planned.partition}, offsets {planned.start} to {planned.end})"


class SparklogReader(Portable, DataSourceReader):
    """Reads topics as rows of the columns that the schema names. Not thread-safe.

    ``bytes_read`` counts bytes of ``.log`` and ``.index`` files that this object's ``read`` has read, for tests.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.columns = read_columns(schema)
        self.pruned = Pruning()
        self.bytes_read = 0

    @property
    def pushFilters(self) -> Callable[[list[Filter]], Iterable[Filter]]:
        """What Spark calls with a query's filters, if ``spark.sql.python.filterPushdown.enabled`` is true."""
        return _PushFilters(self)

    def partitions(self) -> list[InputPartition]:
        """One partition per task, empty ranges left out. Raises what ``planning.Plan.ranges`` does."""
        address = self.options.address
        coordinator = shared_cluster(address.root, address.storage_options)
        stores = broker_stores(coordinator, address.storage_options)
        fetcher = Fetcher(stores.__getitem__)
        try:
            planned = Plan(coordinator, fetcher, self.options, self.pruned).ranges()
        finally:
            fetcher.close()
        return [
            SparklogPartition(one, {number: stores[number] for number in {held.broker for held in one.segments}})
            for one in planned
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition, in offset order. Raises DataLossError, CorruptRecordError, CorruptIndexError."""
        if isinstance(partition, SparklogPartition):  # Spark makes up a partition of its own where there is none
            planned = partition.planned
            builder = RowBuilder(arrow_schema(self.schema), self.columns, planned.topic, planned.partition)
            built = (builder.build(records) for records in self._records(partition))
            yield from join_small((batch, batch.nbytes) for batch in built)

    def _records(self, partition: SparklogPartition) -> Iterator[Records]:
        planned = partition.planned
        stored = [name for name in STORED if name in self.columns]
        if not stored:
            yield from positions(planned.segments, planned.start, planned.end)
            return
        fetcher = Fetcher(partition.stores.__getitem__)
        try:
            for segment in planned.segments:
                yield from self._segment_records(fetcher, planned, segment, stored)
        finally:
            fetcher.close()
            self.bytes_read += fetcher.bytes_read

    def _segment_records(
        self, fetcher: Fetcher, planned: PlannedRange, segment: Segment, stored: list[str]
    ) -> Iterator[Records]:
        try:
            yield from fetcher.read(planned.topic, [segment], planned.start, planned.end, stored)
        except DataLossError as error:
            if self.options.fail_on_data_loss:
                raise DataLossError(
                    f"{error.message}; or set failOnDataLoss=false to read what there is", **error.context
                ) from error
            logger.warning("%s; passing over it, since failOnDataLoss is false", error.message)


class _PushFilters:
    """The bound method ``pushFilters``, in a form that Spark accepts whether push-down is switched on or not.

    Spark refuses a reader that overrides ``pushFilters`` while push-down is off, and tells by ``__func__``. This one
    claims to be the base's; where push-down is off it is never called, and the read is merely not pruned.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: SparklogReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Prune by these filters if the read asked for it. All are given back: Spark evaluates them on the rows."""
        if self._reader.options.push_down_predicate:
            self._reader.pruned = pruning(filters)
        return filters
