"""The live segments of one topic at one version: found by offset and by timestamp, by binary search.

A list has two kinds of parts: Arrow tables from checkpoints, possibly of a million rows, searched where they lie; and
the segments of the commits since, as plain objects. Within a partition, parts are in offset order, since a log only
grows at its end. Immutable and thread-safe.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Protocol, overload

import msgspec
import pyarrow as pa

from sparklog.errors import CorruptMetadataError
from sparklog.protocol.segments import Segment
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


class _Run(Protocol):
    """The segments of one partition in one part."""

    def __len__(self) -> int: ...
    def segment(self, index: int) -> Segment: ...
    def end_offset(self, index: int) -> int: ...
    def running_max_timestamp(self, index: int) -> int: ...


class _TableRun:
    """Rows ``[first, last)`` of a checkpoint's table."""

    def __init__(self, table: pa.RecordBatch, first: int, last: int) -> None:
        self._rows = table.slice(first, last - first)
        self._ends = self._rows.column("end_offset")
        self._running_max: pa.Array | None = None

    def __len__(self) -> int:
        return int(self._rows.num_rows)

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

    def segment(self, index: int) -> Segment:
        return self._segments[index]

    def end_offset(self, index: int) -> int:
        return self._segments[index].end_offset

    def running_max_timestamp(self, index: int) -> int:
        if self._running_max is None:
            self._running_max = list(accumulate((s.max_timestamp_us for s in self._segments), max))
        return self._running_max[index]


class PartitionSegments(Sequence[Segment]):
    """The live segments of one partition in offset order."""

    def __init__(self, runs: Sequence[_Run]) -> None:
        self._runs = [run for run in runs if len(run)]
        self._starts = [0, *accumulate(len(run) for run in self._runs)]

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> list[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | list[Segment]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        run, row = self._place(index)
        return run.segment(row)

    def __iter__(self) -> Iterator[Segment]:
        return (run.segment(row) for run in self._runs for row in range(len(run)))

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

    def between(self, start: int, end: int) -> list[Segment]:
        """The segments that hold any offset of ``[start, end)``."""
        found: list[Segment] = []
        for index in range(self.find_offset(start), len(self)):
            segment = self[index]
            if segment.base_offset >= end:
                break
            found.append(segment)
        return found


class TopicSegments:
    """The live segments of one topic: parts of a checkpoint, oldest first, then the newer segments in commit order."""

    def __init__(self, topic: TopicState, parts: Sequence[pa.RecordBatch], recent: Sequence[Segment]) -> None:
        self._topic = topic
        self._parts = parts
        self._recent: dict[int, list[Segment]] = {}
        for segment in recent:
            self._recent.setdefault(segment.partition, []).append(segment)
        self._cache: dict[int, PartitionSegments] = {}

    def partition(self, partition: int) -> PartitionSegments:
        """The segments of one partition; empty where it has none.

        Raises CorruptMetadataError when they are not as many as the state counts, so that a list that lost some is
        never taken for a shorter log.
        """
        found = self._cache.get(partition)
        if found is None:
            runs: list[_Run] = [_table_run(part, partition) for part in self._parts]
            runs.append(_ListRun(self._recent.get(partition, [])))
            found = PartitionSegments(runs)
            expected = self._topic.partitions[partition].segments
            if len(found) != expected:
                raise CorruptMetadataError(
                    f"the state counts {expected} segments in {self._topic.name}-{partition}, and {len(found)} are "
                    "listed; open the cluster again, and if it stays so delete the newest checkpoint",
                    topic=self._topic.name,
                    partition=partition,
                )
            self._cache[partition] = found
        return found


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
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def part_up_to(part: pa.RecordBatch, version: int) -> pa.RecordBatch:
    """The segments of a part that commits up to ``version`` added."""
    import pyarrow.compute as pc

    return part.filter(pc.less_equal(part.column("version"), version))


def merge_parts(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One part from several of the same topic."""
    table = pa.Table.from_batches(parts, schema=SCHEMA)
    ordered = table.sort_by([("partition", "ascending"), ("base_offset", "ascending")])
    return ordered.combine_chunks().to_batches()[0] if ordered.num_rows else to_part([])
