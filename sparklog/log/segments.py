"""The live segments of one topic at one version, with binary search by offset and by timestamp.

A list has two kinds of parts: Arrow tables from checkpoints, possibly of a million rows, searched in place; and the
segments of the commits since, as plain objects. Within a partition, parts are in offset order, since a log only grows
at its end; where commits since the checkpoint replaced or deleted segments, the parts are split and the replacements
inserted. Immutable and thread-safe.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, islice, starmap, takewhile
from typing import Any, TypeAlias, overload

import msgspec
import pyarrow as pa

from sparklog.errors import CorruptMetadataError, OffsetOutOfRangeError
from sparklog.format.plain_arrays import plain_batch
from sparklog.protocol.levels import FEATURES
from sparklog.protocol.segments import Segment, SegmentEvent, SegmentsReplaced
from sparklog.protocol.state import TopicState

_FIELDS = Segment.__struct_fields__
_TYPES = {
    "path": pa.string(),
    "partition": pa.int32(),
    "broker": pa.int32(),
    "leader_epoch": pa.int32(),
    "closed": pa.bool_(),
    "stats": pa.string(),
}
SCHEMA = pa.schema([pa.field(name, _TYPES.get(name, pa.int64()), False) for name in _FIELDS])
"""The columns of a part of a checkpoint: those of ``Segment``, sorted by partition and base offset."""

DEFAULTS: dict[str, object] = {
    field.name: field.default for field in msgspec.structs.fields(Segment) if field.default is not msgspec.NODEFAULT
}
"""The columns that older parts may lack, with their defaults."""


def columns_of(level: int) -> list[str]:
    """Return the columns that a checkpoint of a level has: those of later levels come after these."""
    later = {name for feature in FEATURES if feature.level > level for name in feature.fields.get("LiveSegment", ())}
    return [name for name in _FIELDS if name not in later]


_FIRST_BLOCK_ROWS = 8
_MAX_BLOCK_ROWS = 4096


class _TableRun:
    """Rows ``[first, last)`` of a checkpoint's table."""

    def __init__(self, table: pa.RecordBatch, first: int, last: int) -> None:
        self._rows = table.slice(first, last - first)
        self._ends = self._rows.column("end_offset")
        self._running_max: pa.Array | None = None

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __iter__(self) -> Iterator[Segment]:
        """Convert rows in blocks, 20 times as fast as one by one; small blocks first, as few rows may be needed."""
        first, count = 0, _FIRST_BLOCK_ROWS
        total = len(self)
        while first < total:
            rows = self._rows.slice(first, count)
            yield from starmap(Segment, zip(*(column.to_pylist() for column in rows.columns), strict=True))
            first, count = first + count, min(4 * count, _MAX_BLOCK_ROWS)

    def rows(self, first: int, last: int) -> _TableRun:
        return _TableRun(self._rows, first, last)

    def table(self) -> pa.RecordBatch:
        return self._rows

    def segment(self, index: int) -> Segment:
        return Segment(*[column[index].as_py() for column in self._rows.columns])

    def end_offset(self, index: int) -> int:
        return int(self._ends[index].as_py())

    def running_max_timestamp(self, index: int) -> int:
        if self._running_max is None:
            import pyarrow.compute as pc  # late: the import takes 40 ms, which most commands do not need

            self._running_max = pc.cumulative_max(self._rows.column("max_timestamp_us"))
        return int(self._running_max[index].as_py())


class _ListRun:
    """Segments committed after the checkpoint."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments = segments
        self._running_max: list[int] | None = None

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def rows(self, first: int, last: int) -> _ListRun:
        return _ListRun(self._segments[first:last])

    def table(self) -> pa.RecordBatch:
        return to_part(self._segments)

    def segment(self, index: int) -> Segment:
        return self._segments[index]

    def end_offset(self, index: int) -> int:
        return self._segments[index].end_offset

    def running_max_timestamp(self, index: int) -> int:
        if self._running_max is None:
            self._running_max = list(accumulate((s.max_timestamp_us for s in self._segments), max))
        return self._running_max[index]


_Run: TypeAlias = _TableRun | _ListRun
"""The segments of one partition in one part."""


class PartitionSegments(Sequence[Segment]):
    """The live segments of one partition in offset order.

    Offsets before ``deleted_before`` were deleted after the list's state.
    """

    def __init__(self, runs: Sequence[_Run], deleted_before: int = 0) -> None:
        self._runs = [run for run in runs if len(run)]
        self._starts = [0, *accumulate(len(run) for run in self._runs)]
        self._deleted_before = deleted_before

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        if isinstance(index, slice):
            first, last, step = index.indices(len(self))
            return list(islice(self._from(first), 0, max(last - first, 0), step)) if step > 0 else list(self)[index]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        run, row = self._find_row(index)
        return run.segment(row)

    def __iter__(self) -> Iterator[Segment]:
        return chain.from_iterable(self._runs)

    def _from(self, index: int) -> Iterator[Segment]:
        """Iterate from the segment with this index on."""
        if index >= len(self):
            return iter(())
        number = bisect.bisect_right(self._starts, index) - 1
        run = self._runs[number]
        return chain(run.rows(index - self._starts[number], len(run)), *self._runs[number + 1 :])

    def _find_row(self, index: int) -> tuple[_Run, int]:
        number = bisect.bisect_right(self._starts, index) - 1
        return self._runs[number], index - self._starts[number]

    def find_offset(self, offset: int) -> int:
        """Return the index of the first segment that ends after ``offset``; ``len(self)`` if none does."""
        return bisect.bisect_right(range(len(self)), offset, key=self._end_offset)

    def _end_offset(self, index: int) -> int:
        run, row = self._find_row(index)
        return run.end_offset(row)

    def find_timestamp(self, timestamp_us: int) -> int:
        """Return the index of the first segment with a record at or after this time; ``len(self)`` if there is none.

        Kafka's rule (``UnifiedLog.fetchOffsetByTimestamp``): the first segment whose largest timestamp is not smaller.
        Largest timestamps need not grow, but their running maximum does, and reaches the time at the same segment.
        """
        first = 0
        for run in self._runs:
            if run.running_max_timestamp(len(run) - 1) >= timestamp_us:
                return first + bisect.bisect_left(range(len(run)), timestamp_us, key=run.running_max_timestamp)
            first += len(run)
        return first

    def as_of(self, end_offset: int, deleted_before: int) -> PartitionSegments:
        """Return this list for an older state of the same partition, whose log ended at ``end_offset``.

        The last segment may extend past it, if later records were merged into the same file.
        """
        kept = bisect.bisect_left(range(len(self)), end_offset, key=lambda index: self[index].base_offset)
        runs = [
            run.rows(0, kept - first) for run, first in zip(self._runs, self._starts[:-1], strict=True) if first < kept
        ]
        return PartitionSegments(runs, deleted_before)

    def tables(self) -> list[pa.RecordBatch]:
        """Return the list as stored in checkpoints."""
        return [run.table() for run in self._runs]

    def between(self, start: int, end: int) -> list[Segment]:
        """Return the segments that hold any offset of ``[start, end)``.

        Raises OffsetOutOfRangeError if records of the range were deleted since the list's state.
        """
        if start < min(self._deleted_before, end):
            raise OffsetOutOfRangeError(
                f"offsets {start} to {min(self._deleted_before, end) - 1} were deleted while they were about to be "
                f"read: the log starts at {self._deleted_before} now; refresh, and read from there",
                offset=start,
            )
        return list(takewhile(lambda segment: segment.base_offset < end, self._from(self.find_offset(start))))


class TopicSegments:
    """The live segments of one topic: parts of a checkpoint, oldest first, then the changes by later commits, in order.

    ``newest`` is the current topic if ``topic`` is older: for a partition whose list ``is_lost`` (segments were
    replaced since, and the checkpoint has only the replacements) the newest list is used, which holds the same records
    under the same offsets, except those removed since by compaction or deletion.
    """

    def __init__(
        self,
        topic: TopicState,
        parts: Sequence[pa.RecordBatch],
        events: Sequence[SegmentEvent],
        newest: TopicSegments | None = None,
        is_lost: Callable[[int], bool] = lambda partition: False,
    ) -> None:
        self.topic = topic
        self._parts = parts
        self._events: dict[int, list[SegmentEvent]] = {}
        for event in events:
            self._events.setdefault(event.partition, []).append(event)
        self._newest = newest
        self._is_lost = is_lost
        self._cache: dict[int, PartitionSegments] = {}

    def partition(self, partition: int) -> PartitionSegments:
        """Return the segments of one partition.

        Raises CorruptMetadataError if their number is not that in the state, so that an incomplete list is never taken
        for a shorter log.
        """
        segments = self._cache.get(partition)
        if segments is None:
            segments = self._cache[partition] = self._list_partition(partition)
        return segments

    def _list_partition(self, partition: int) -> PartitionSegments:
        state = self.topic.partitions[partition]
        if self._newest is not None and self._is_lost(partition):
            now = self._newest.topic.partitions[partition]
            return self._newest.partition(partition).as_of(state.log_end_offset, now.log_start_offset)
        segments = PartitionSegments(self._runs(partition))
        if len(segments) != state.segments:
            raise CorruptMetadataError(
                f"the state counts {state.segments} segments in {self.topic.name}-{partition}, but {len(segments)} are "
                "listed; open the cluster again, and if that does not help delete the newest checkpoint",
                topic=self.topic.name,
                partition=partition,
            )
        return segments

    def _runs(self, partition: int) -> list[_Run]:
        runs: list[_Run] = [_table_run(part, partition) for part in self._parts]
        appended: list[Segment] = []
        for event in self._events.get(partition, ()):
            if isinstance(event, Segment):
                appended.append(event)
            else:
                runs, appended = _replace_in_runs([*runs, _ListRun(appended)], event), []
        return [*runs, _ListRun(appended)]

    def table(self) -> pa.RecordBatch:
        """Return all segments as one part of a checkpoint."""
        tables = [table for number in range(len(self.topic.partitions)) for table in self.partition(number).tables()]
        return pa.concat_batches([to_part([]), *tables])


def _replace_in_runs(runs: Sequence[_Run], event: SegmentsReplaced) -> list[_Run]:
    """Return the runs with the segments inside the event's offsets replaced by the event's."""
    before: list[_Run] = []
    after: list[_Run] = []
    for run in runs:
        rows = range(len(run))
        first = bisect.bisect_right(rows, event.start, key=run.end_offset)
        last = bisect.bisect_right(rows, event.end, key=run.end_offset)
        before.append(run.rows(0, first))
        after.append(run.rows(max(first, last), len(run)))
    return [run for run in (*before, _ListRun(event.added), *after) if len(run)]


def _table_run(part: pa.RecordBatch, partition: int) -> _TableRun:
    column = part.column("partition")
    rows = range(part.num_rows)
    first = bisect.bisect_left(rows, partition, key=lambda row: column[row].as_py())
    last = bisect.bisect_right(rows, partition, lo=first, key=lambda row: column[row].as_py())
    return _TableRun(part, first, last)


def to_part(segments: Sequence[Segment]) -> pa.RecordBatch:
    """Return a part of a checkpoint from segments in commit order."""
    ordered = sorted(segments, key=lambda segment: (segment.partition, segment.base_offset))
    rows = [msgspec.structs.astuple(segment) for segment in ordered]
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[] for _ in _FIELDS]
    return plain_batch(columns, SCHEMA)


def part_up_to(part: pa.RecordBatch, version: int) -> pa.RecordBatch:
    """Return the segments of a part that commits up to ``version`` added."""
    import pyarrow.compute as pc

    return part.filter(pc.less_equal(part.column("version"), version))


def merge_parts(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Merge several parts of a topic into one."""
    return pa.concat_batches(parts).sort_by([("partition", "ascending"), ("base_offset", "ascending")])
