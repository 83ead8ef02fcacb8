"""Reads records of partitions while their segments are rolled, compacted and deleted, and their replicas move.

A list of segments is a snapshot. By the time a file is read, it may have been merged into another one and deleted: then
the rest of the range is looked up in the newest state and read from the current files. Records are lost only if the
newest list still names the file that cannot be read.

Rules: offsets never change, so a range read partly from old and partly from new files has each record once, within one
timeline: in a root that was restored since, the same offsets may be other records. If the newest state cannot be read,
that is the error: it is not known then whether records are lost.
Not for: positions (``client.consumer``), rows (``log.records.batches``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sparklog.clock import Clock
from sparklog.coordinator.begun_files import find_digest
from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import CorruptionError, DataLossError, OffsetOutOfRangeError, SparklogError, StorageError
from sparklog.log.commits.replaced_root import refuse_replaced_root, refuse_unlinked_timeline
from sparklog.log.records.fetch import Fetcher, Selection
from sparklog.log.records.read_order import replicas_in_sync
from sparklog.log.records.records import Records
from sparklog.protocol.decide.append import Begun
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State
from sparklog.store.base import Store

Select = Callable[[Segment], Selection | None]
"""What to read of a segment, None for nothing."""


class RecordReader:
    """Reads stored records. Not thread-safe: one per thread; ``close`` it.

    With ``stores`` (by broker) and ``replicas`` (in sync, the leader first), as a plan has them for one partition,
    ``open_cluster`` is called only if the segments of the plan cannot be read with them.
    """

    def __init__(
        self,
        open_cluster: Callable[[], Coordinator],
        clock: Clock | None = None,
        stores: Mapping[int, Store] | None = None,
        replicas: Sequence[int] = (),
    ) -> None:
        self._open_cluster = open_cluster
        self._coordinator = open_cluster() if stores is None else None
        self._stores = stores or {}
        self._replicas = replicas
        self.fetcher = Fetcher(self._store_of, self._replicas_of, clock)

    def close(self) -> None:
        """Close open files."""
        self.fetcher.close()

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        columns: Sequence[str] | None,
        state: State,
        select: Select | None = None,
    ) -> Iterator[tuple[Segment, Records]]:
        """Yield the records of ``[start, end)``, which are in the log of this state. As ``read_segments``."""
        coordinator = self._coordinator or self._open_cluster()
        timeline = coordinator.log.timeline_of(state)  # refused below unless it is that of now
        try:
            segments = coordinator.segments(topic, state).partition(partition).between(start, end)
        except OffsetOutOfRangeError as error:
            log_start = coordinator.state.partition(topic, partition).log_start_offset
            raise records_deleted(topic, partition, start, log_start) from error
        topic_id, planned = state.topic(topic).topic_id, Begun(state.version, state.digest)
        yield from self.read_segments(
            topic, topic_id, partition, planned, segments, start, end, columns, select, timeline
        )

    def read_segments(
        self,
        topic: str,
        topic_id: str,
        partition: int,
        planned: Begun,
        segments: Sequence[Segment],
        start: int,
        end: int,
        columns: Sequence[str] | None,
        select: Select | None = None,
        timeline: int | None = None,
    ) -> Iterator[tuple[Segment, Records]]:
        """Yield the records of ``[start, end)`` in offset order, with their segments, one stored batch at a time.

        ``planned`` is the commit at which these were the segments of the range, and ``timeline`` that of the log by
        ``unlinked_jumps``, if this process has listed them. ``select`` says what is read of each segment, instead of
        ``columns`` of all.

        Raises DataLossError if a file is missing, CorruptRecordError or CorruptIndexError if it is damaged, at all
        replicas; OffsetOutOfRangeError if records are deleted before they are read; RootReplacedError if files are
        missing since the root was restored from a copy, UnlinkedHistoryError if that is possible; the error of a
        storage.
        """
        failed: set[str] = set()
        whole = Selection(columns)
        while True:
            segment: Segment | None = None
            try:
                for segment in segments:
                    selection = whole if select is None else select(segment)
                    if selection is not None:
                        for records in self.fetcher.select(topic, segment, start, end, selection):
                            start = records.end_offset
                            yield segment, records
                    start = max(start, min(segment.end_offset, end))
                return
            except (DataLossError, CorruptionError, StorageError) as error:  # repaired, rolled or deleted since
                if segment is None:
                    raise
                coordinator = self._refresh(error)
                missing = f"records of {topic}-{partition} from offset {start} on are not in their files any more"
                self._check_timeline(coordinator, planned, timeline, missing, error)
                segments = self._find_segments(coordinator, topic, topic_id, partition, start, end, error)
                if segment.path in failed and any(current.path == segment.path for current in segments):
                    raise error
                failed.add(segment.path)

    def _refresh(self, cause: SparklogError) -> Coordinator:
        """Return the cluster, with its newest state. Raises the storage's error if that does not answer."""
        try:
            self._coordinator = self._coordinator or self._open_cluster()
            self._coordinator.refresh()
        except SparklogError as error:
            raise error from cause
        return self._coordinator

    @staticmethod
    def _check_timeline(
        coordinator: Coordinator, planned: Begun, timeline: int | None, missing: str, cause: SparklogError
    ) -> None:
        """Raise RootReplacedError if the log has another commit at the planned version, or ends before it,
        UnlinkedHistoryError if it was left after the segments were listed: what is at these offsets may be other
        records. Raises StorageError."""
        stored = find_digest(coordinator.log, planned)
        if stored not in (None, planned.digest):
            why = f"{missing}, and commit {planned.version}, at which this read was planned, is another one or gone"
            raise refuse_replaced_root(coordinator.store, why) from cause
        if timeline not in (None, coordinator.log.unlinked_jumps):
            raise refuse_unlinked_timeline(coordinator.store, missing) from cause

    @staticmethod
    def _find_segments(
        coordinator: Coordinator,
        topic: str,
        topic_id: str,
        partition: int,
        start: int,
        end: int,
        cause: SparklogError,
    ) -> Sequence[Segment]:
        """Return the segments that hold a range now. Raises OffsetOutOfRangeError if its start was deleted, ``cause``
        if the topic was deleted."""
        topic_state = coordinator.state.topics.get(topic)
        if topic_state is None or topic_state.topic_id != topic_id:
            raise cause
        log = topic_state.partitions[partition]
        if start < log.log_start_offset:
            raise records_deleted(topic, partition, start, log.log_start_offset) from cause
        if end > log.log_end_offset:  # the planned commit was removed, perhaps in a restored root
            raise cause
        return coordinator.segments(topic, coordinator.state).partition(partition).between(start, end)

    def _replicas_of(self, topic: str, partition: int) -> Sequence[int]:
        if self._coordinator is None:
            return self._replicas
        log = self._coordinator.state.find_partition(topic, partition)
        return () if log is None else replicas_in_sync(log)  # deleted: a segment's broker may still have its file

    def _store_of(self, broker: int) -> Store:
        if self._coordinator is not None:
            return self._coordinator.store_of(broker)
        if broker not in self._stores:
            raise StorageError(f"broker {broker} could not be opened when the read was planned, or is not registered")
        return self._stores[broker]


def records_deleted(topic: str, partition: int, offset: int, log_start_offset: int) -> OffsetOutOfRangeError:
    """Return the error for records that were deleted while they were about to be read."""
    return OffsetOutOfRangeError(
        f"records of {topic}-{partition} from offset {offset} on were deleted while they were about to be read: the "
        f"log starts at {log_start_offset} now; continue from there",
        topic=topic,
        partition=partition,
        offset=offset,
        end_offset=log_start_offset,
    )
