"""The live segments of one topic at one version: found by offset and by timestamp, by binary search.

A list has two kinds of parts: Arrow tables from checkpoints, possibly of a million rows, searched where they lie; and
the segments of the commits since, as plain objects. Within a partition, parts are in offset order, since a log only
grows at its end; where commits since the checkpoint replaced or deleted segments, the parts are cut there and what took
their place stands between. Immutable and thread-safe.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, islice, starmap, takewhile
from typing import Any, Protocol, overload

import msgspec
import pyarrow as pa

from sparklog.errors import CorruptMetadataError, OffsetOutOfRangeError
from sparklog.format.plain_arrays import plain_batch
from sparklog.protocol.segments import Segment, SegmentEvent, SegmentsReplaced
from sparklog.protocol.state import TopicState

_FIELDS = Segment.__struct_fields__
_TYPES = {
    "path": pa.string(),
    "partition": pa.int32(),
    "broker": pa.int32(),
    "leader_epoch": pa.int32(),
    "closed": pa.bool_(),
}
SCHEMA = pa.schema([pa.field(name, _TYPES.get(name, pa.int64()), False) for name in _FIELDS])
"""The columns of a part of a checkpoint: those of ``Segment``, sorted by partition and base offset."""

DEFAULTS: dict[str, object] = {
    one.name: one.default for one in msgspec.structs.fields(Segment) if one.default is not msgspec.NODEFAULT
}
"""The columns that a part written before there were such may lack."""


_MOST_ROWS_AT_ONCE = 4096


class _Run(Protocol):
    """The segments of one partition in one part."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Segment]: ...
    def segment(self, index: int) -> Segment: ...
    def end_offset(self, index: int) -> int: ...
    def running_max_timestamp(self, index: int) -> int: ...
    def rows(self, first: int, last: int) -> _Run: ...
    def table(self) -> pa.RecordBatch: ...


class _TableRun:
    """Rows ``[first, last)`` of a checkpoint's table."""

    def __init__(self, table: pa.RecordBatch, first: int, last: int) -> None:
        self._rows = table.slice(first, last - first)
        self._ends = self._rows.column("end_offset")
        self._running_max: pa.Array | None = None

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __iter__(self) -> Iterator[Segment]:
        """Some at a time, which takes a twentieth of the time of one by one; few at first, as few may be wanted."""
        first, count = 0, 1
        while first < len(self):
            rows = self._rows.slice(first, count)
            yield from starmap(Segment, zip(*(column.to_pylist() for column in rows.columns), strict=True))
            first, count = first + count, min(4 * count, _MOST_ROWS_AT_ONCE)

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
            import pyarrow.compute as pc  # late: it takes 40 ms that most commands of the command line have no use for

            self._running_max = pc.cumulative_max(self._rows.column("max_timestamp_us"))
        return int(self._running_max[index].as_py())


class _ListRun:
    """Segments that came after the checkpoint."""

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


class PartitionSegments(Sequence[Segment]):
    """The live segments of one partition in offset order.

    Offsets before ``deleted_before`` were deleted after the state that the list was asked for.
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
        run, row = self._place(index)
        return run.segment(row)

    def __iter__(self) -> Iterator[Segment]:
        return chain.from_iterable(self._runs)

    def _from(self, index: int) -> Iterator[Segment]:
        """The segments from this one on."""
        if index >= len(self):
            return iter(())
        number = bisect.bisect_right(self._starts, index) - 1
        run = self._runs[number]
        return chain(run.rows(index - self._starts[number], len(run)), *self._runs[number + 1 :])

    def _place(self, index: int) -> tuple[_Run, int]:
        number = bisect.bisect_right(self._starts, index) - 1
        return self._runs[number], index - self._starts[number]

    def find_offset(self, offset: int) -> int:
        """The index of the first segment that ends after ``offset``; ``len(self)`` if none does."""
        return bisect.bisect_right(range(len(self)), offset, key=self._end_offset)

    def _end_offset(self, index: int) -> int:
        run, row = self._place(index)
        return run.end_offset(row)

    def find_timestamp(self, timestamp_us: int) -> int:
        """The index of the first segment with a record at or after this time; ``len(self)`` if there is none.

        Kafka's rule (``UnifiedLog.fetchOffsetByTimestamp``): the first segment whose largest timestamp is not smaller.
        Largest timestamps need not grow, their running maximum does, and it first reaches the time at the same segment.
        """
        first = 0
        for run in self._runs:
            if run.running_max_timestamp(len(run) - 1) >= timestamp_us:
                return first + bisect.bisect_left(range(len(run)), timestamp_us, key=run.running_max_timestamp)
            first += len(run)
        return first

    def as_of(self, end_offset: int, deleted_before: int) -> PartitionSegments:
        """This list for an older state of the same partition, whose log ended at ``end_offset``.

        The last segment may go on after it, where later records were merged into the same file.
        """
        kept = bisect.bisect_left(range(len(self)), end_offset, key=lambda index: self[index].base_offset)
        runs = [
            run.rows(0, kept - first) for run, first in zip(self._runs, self._starts[:-1], strict=True) if first < kept
        ]
        return PartitionSegments(runs, deleted_before)

    def tables(self) -> list[pa.RecordBatch]:
        """The list as it is stored in checkpoints."""
        return [run.table() for run in self._runs]

    def between(self, start: int, end: int) -> list[Segment]:
        """The segments that hold any offset of ``[start, end)``.

        Raises OffsetOutOfRangeError where records of the range were deleted since the state that the list is of.
        """
        if start < min(self._deleted_before, end):
            raise OffsetOutOfRangeError(
                f"offsets {start} to {min(self._deleted_before, end) - 1} were deleted while they were about to be "
                f"read: the log starts at {self._deleted_before} now; refresh, and read from there",
                offset=start,
            )
        return list(takewhile(lambda segment: segment.base_offset < end, self._from(self.find_offset(start))))


class TopicSegments:
    """The live segments of one topic: parts of a checkpoint, oldest first, then what commits did since, in their order.

    ``newest`` is the topic as it is now where ``topic`` is older: a partition whose list ``is_lost`` (it was replaced
    since in part, and a checkpoint has only what took the place) is answered from the newest list, which holds the same
    records under the same offsets, except for those that compaction or a deletion took meanwhile.
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
        """The segments of one partition; empty where it has none.

        Raises CorruptMetadataError when they are not as many as the state counts, so that a list that lost some is
        never taken for a shorter log.
        """
        found = self._cache.get(partition)
        if found is None:
            found = self._cache[partition] = self._list(partition)
        return found

    def _list(self, partition: int) -> PartitionSegments:
        state = self.topic.partitions[partition]
        if self._newest is not None and self._is_lost(partition):
            now = self._newest.topic.partitions[partition]
            return self._newest.partition(partition).as_of(state.log_end_offset, now.log_start_offset)
        found = PartitionSegments(self._runs(partition))
        if len(found) != state.segments:
            raise CorruptMetadataError(
                f"the state counts {state.segments} segments in {self.topic.name}-{partition}, and {len(found)} are "
                "listed; open the cluster again, and if it stays so delete the newest checkpoint",
                topic=self.topic.name,
                partition=partition,
            )
        return found

    def _runs(self, partition: int) -> list[_Run]:
        runs: list[_Run] = [_table_run(part, partition) for part in self._parts]
        appended: list[Segment] = []
        for event in self._events.get(partition, ()):
            if isinstance(event, Segment):
                appended.append(event)
            else:
                runs, appended = _with_replaced([*runs, _ListRun(appended)], event), []
        return [*runs, _ListRun(appended)]

    def table(self) -> pa.RecordBatch:
        """All segments as one part of a checkpoint."""
        tables = [table for number in range(len(self.topic.partitions)) for table in self.partition(number).tables()]
        batches = pa.Table.from_batches(tables, schema=SCHEMA).combine_chunks().to_batches()
        return batches[0] if batches else to_part([])


def _with_replaced(runs: Sequence[_Run], event: SegmentsReplaced) -> list[_Run]:
    """The runs without the segments inside the event's offsets, and with what took their place there."""
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
    """A part of a checkpoint from segments in commit order."""
    ordered = sorted(segments, key=lambda segment: (segment.partition, segment.base_offset))
    rows = [msgspec.structs.astuple(segment) for segment in ordered]
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[] for _ in _FIELDS]
    return plain_batch(columns, SCHEMA)


def part_up_to(part: pa.RecordBatch, version: int) -> pa.RecordBatch:
    """The segments of a part that commits up to ``version`` added."""
    import pyarrow.compute as pc

    return part.filter(pc.less_equal(part.column("version"), version))


def merge_parts(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One part from several of the same topic."""
    table = pa.Table.from_batches(parts, schema=SCHEMA)
    ordered = table.sort_by([("partition", "ascending"), ("base_offset", "ascending")])
    return ordered.combine_chunks().to_batches()[0] if ordered.num_rows else to_part([])
