"""What a task reads: the records of one planned range, from whichever replica has them.

A task gets the segments and the stores that it needs when the read is planned, and normally never opens the commit log.
Only where a file cannot be read from any of them, since it was merged into another one meanwhile or the replicas are
others by now, does it open the cluster and look for the rest of its range in the newest list.

Rules: what is lost is a DataLossError, or with ``failOnDataLoss=false`` a warning, and the task goes on after it.
Not for: rows and columns of Spark (``batches``), planning (``planning``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from sparklog.clock import Clock, SystemClock
from sparklog.coordinator import Coordinator, shared_cluster
from sparklog.coordinator.newest import newest_segments
from sparklog.coordinator.reader_leases import ReaderLease
from sparklog.errors import DataLossError, OffsetOutOfRangeError, SparklogError, StorageError
from sparklog.log.records.batches import positions_of
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.ranges import read_range
from sparklog.log.records.read_order import replicas_in_sync
from sparklog.log.records.records import Records
from sparklog.protocol.segments import Segment
from sparklog.spark.options import SourceOptions
from sparklog.spark.source.planning import PlannedRange
from sparklog.store.base import Store
from sparklog.store.open import open_store

logger = logging.getLogger(__name__)


class RangeReader:
    """Reads one range. Not thread-safe; ``close`` it. ``stores`` are by broker.

    The ``announcement`` of the read is renewed while it goes on.
    """

    def __init__(
        self,
        planned: PlannedRange,
        stores: Mapping[int, Store],
        options: SourceOptions,
        announcement: ReaderLease | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._planned = planned
        self._announcement = announcement
        self._clock = clock or SystemClock()
        self._stores = stores
        self._options = options
        self._replicas = planned.replicas
        self._segments: Sequence[Segment] = planned.segments
        self._coordinator: Coordinator | None = None
        self._fetcher = Fetcher(self._store_of, lambda topic, partition: self._replicas, self._clock)

    @property
    def bytes_read(self) -> int:
        """Bytes of ``.log`` and ``.index`` read so far."""
        return self._fetcher.bytes_read

    def close(self) -> None:
        """Let go of open files."""
        self._fetcher.close()

    def records(self, columns: Sequence[str]) -> Iterator[Records]:
        """The records with these stored columns. Raises DataLossError, CorruptRecordError, CorruptIndexError."""
        return self._read(self._planned.segments, self._planned.start, self._planned.end, columns)

    def positions(self, with_offsets: bool) -> Iterator[Records]:
        """The records without any stored column. Files are read only for offsets that leave gaps.

        Unless asked for, offsets are not told, only how many records there are.
        """
        planned = self._planned
        return positions_of(
            planned.segments,
            planned.start,
            planned.end,
            with_offsets,
            lambda segment, start, end: self._read([segment], start, end, []),
        )

    def _read(self, segments: Sequence[Segment], start: int, end: int, columns: Sequence[str]) -> Iterator[Records]:
        planned = self._planned
        self._segments = segments
        while True:
            try:
                reading = read_range(self._fetcher, planned.topic, self._segments, start, end, columns, self._newest)
                for _, records in reading:
                    start = records.end_offset
                    self._renew()
                    yield records
                return
            except (DataLossError, OffsetOutOfRangeError) as error:
                start = max(start, self._after(error))
                self._segments = [held for held in self._segments if held.end_offset > start]

    def _renew(self) -> None:
        """Go on saying that these files are needed; where that fails, read on as long as they are there."""
        announcement, now_ms = self._announcement, self._clock.now_ms()
        if announcement is None or not announcement.is_due(now_ms):
            return
        address = self._options.address
        try:
            root = open_store(address.root, address.storage_options)
            self._announcement = announcement.kept(root, self._clock)
        except SparklogError as error:
            logger.warning("the announcement %s was not renewed: %s", announcement.key, error)
            self._announcement = announcement._replace(until_ms=now_ms + announcement.ttl_ms)

    def _after(self, error: SparklogError) -> int:
        """Where to go on after what is lost, if that is to be passed over."""
        if self._options.fail_on_data_loss:
            advice = "; or set failOnDataLoss=false to read what there is"
            raise DataLossError(f"{error.message}{advice}", **error.context) from error
        logger.warning("%s; passing over it, since failOnDataLoss is false", error.message)
        return int(error.end_offset)

    def _newest(self, start: int, end: int, happened: SparklogError) -> Sequence[Segment]:
        """The segments that hold the rest of the range now."""
        planned, address = self._planned, self._options.address
        try:
            self._coordinator = shared_cluster(address.root, address.storage_options)
        except SparklogError:
            raise happened from None
        found = self._coordinator.state.topics.get(planned.topic)
        if found is None or found.topic_id != planned.topic_id:
            raise happened
        self._replicas = replicas_in_sync(found.partitions[planned.partition])
        newest = newest_segments(self._coordinator, planned.topic, planned.topic_id, planned.partition)
        try:
            self._segments = newest(start, end, happened)
        except OffsetOutOfRangeError as error:
            log_start = max(int(error.end_offset), start)
            self._segments = newest(log_start, end, happened) if log_start < end else []
            raise
        return self._segments

    def _store_of(self, broker: int) -> Store:
        if self._coordinator is not None:
            return self._coordinator.brokers.store_of(self._coordinator.state, broker)
        if broker not in self._stores:
            raise StorageError(f"broker {broker} could not be opened when the read was planned, or is not registered")
        return self._stores[broker]
