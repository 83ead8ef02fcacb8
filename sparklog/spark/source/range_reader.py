"""Read the records of one planned range in a task, from any replica that has them.

The plan gives a task the segments and stores that it needs, so normally it never opens the commit log. Only if no
replica can serve a file, because it has been merged into another one or the replicas have changed, does the task open
the cluster and look up the rest of its range in the newest segment list.

Rules: lost records are a DataLossError, or with ``failOnDataLoss=false`` a warning, and the task continues after them.
Not for: rows and columns of Spark (``log.records.batches``), planning (``planning``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from sparklog.clock import Clock, SystemClock
from sparklog.coordinator import Coordinator, shared_cluster
from sparklog.coordinator.reader_leases import ReaderLease
from sparklog.coordinator.record_reader import RecordReader
from sparklog.errors import DataLossError, OffsetOutOfRangeError, SparklogError
from sparklog.log.records.batches import positions_of
from sparklog.log.records.records import Records
from sparklog.protocol.decide.append import Begun
from sparklog.protocol.segments import Segment
from sparklog.spark.options import SourceOptions
from sparklog.spark.source.planning import PlannedRange
from sparklog.store.base import Store
from sparklog.store.open import open_store

logger = logging.getLogger(__name__)

FIRST_RENEWAL_SECONDS = 30.0
"""seconds of reading after which a lease is renewed in any case, fewer than it is valid longer than it states: the plan
may be old, and its clock another one. Later renewals go by this process's own time."""


class RangeReader:
    """Reads one range. Not thread-safe; ``close`` it. ``stores`` are by broker id.

    The reader lease ``lease`` is renewed during the read.
    """

    def __init__(
        self,
        planned: PlannedRange,
        stores: Mapping[int, Store],
        options: SourceOptions,
        lease: ReaderLease | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._planned = planned
        self._lease = lease
        self._clock = clock or SystemClock()
        self._renew_at = self._clock.monotonic() + FIRST_RENEWAL_SECONDS
        self._options = options
        self._reader = RecordReader(self._open_cluster, self._clock, stores, planned.replicas)

    @property
    def bytes_read(self) -> int:
        """Bytes of ``.log`` and ``.index`` read so far."""
        return self._reader.fetcher.bytes_read

    def close(self) -> None:
        """Close open files."""
        self._reader.close()

    def records(self, columns: Sequence[str]) -> Iterator[Records]:
        """Yield the records with these stored columns. Raises DataLossError, CorruptRecordError, CorruptIndexError."""
        return self._read(self._planned.segments, self._planned.start, self._planned.end, columns)

    def positions(self, with_offsets: bool) -> Iterator[Records]:
        """Yield the records without stored columns. Files are read only if offsets have gaps.

        Without ``with_offsets`` only the number of records is right, not their offsets.
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
        partition = (planned.topic, planned.topic_id, planned.partition, Begun(planned.version, planned.digest))
        while True:
            try:
                for _, records in self._reader.read_segments(*partition, segments, start, end, columns):
                    start = records.end_offset
                    self._renew()
                    yield records
                return
            except (DataLossError, OffsetOutOfRangeError) as error:
                start = max(start, self._skip_loss(error))
                segments = [segment for segment in segments if segment.end_offset > start]

    def _renew(self) -> None:
        """Renew the reader lease if it is due. Best effort: without it the read continues while the files exist."""
        lease, now_ms, now = self._lease, self._clock.now_ms(), self._clock.monotonic()
        is_overdue = now >= self._renew_at  # whatever it states: its maker's clock may be hours ahead
        if lease is None or not (is_overdue or lease.is_due(now_ms)):
            return
        try:
            store = open_store(*self._options.address)
            self._lease = (lease.renewed if is_overdue else lease.kept)(store, self._clock)
            self._renew_at = now + lease.ttl_ms / 2000 if is_overdue else self._renew_at
        except SparklogError as error:
            logger.warning("reader lease %s could not be renewed: %s", lease.key, error)
            self._lease = lease._replace(until_ms=now_ms + lease.ttl_ms)
            self._renew_at = now + FIRST_RENEWAL_SECONDS

    def _skip_loss(self, error: SparklogError) -> int:
        """Return the offset after the lost records. Raises DataLossError unless losses are to be skipped."""
        if self._options.fail_on_data_loss:
            advice = "; or set failOnDataLoss=false to read what there is"
            raise DataLossError(f"{error.message}{advice}", **error.context) from error
        logger.warning("%s; skipping it, since failOnDataLoss is false", error.message)
        return int(error.end_offset)

    def _open_cluster(self) -> Coordinator:
        return shared_cluster(*self._options.address)
