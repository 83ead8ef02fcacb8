"""Merges segments of one partition into one file: the task of rolling, and the last step of compaction.

The new file has the same records with the same offsets, in batches of the usual size, with the topic's compression.
Batches that have that size and compression already are copied: verified, but not decoded.
For a topic with ``message.timestamp.type=LogAppendTime`` the times of the commits are written into the file. If there
are gaps between the offsets, the file stores the offset of each record.

Rules: a task is picklable and uses only its arguments; it reads verified bytes; it leaves a file that no commit names,
or nothing. Every attempt of a task writes under a name of its own, so that an abandoned attempt cannot interfere with
the next.
Not for: planning (``protocol.plan.rolling``, ``protocol.plan.compaction``) and committing (``roll``, ``compact``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.errors import DataLossError
from sparklog.format import codecs, schema
from sparklog.format.index import BatchEntry, BatchProducer
from sparklog.ids import Ids
from sparklog.log.layout import segment_key
from sparklog.maintenance.segments.files import (
    Layout,
    ReplicaStores,
    SegmentOutput,
    Source,
    count_from,
    fetch_ahead,
)
from sparklog.protocol.commits import LiveSegment
from sparklog.protocol.plan.compaction import NO_HORIZON
from sparklog.protocol.segments import NO_APPEND_TIME, Segment
from sparklog.schema.languages.record_schema import RecordSchema


class Target(NamedTuple):
    """How tasks write the files of one partition.

    ``codec`` None keeps the codec of the source (``compression.type=producer``). ``version`` is the version of the
    state that the job was planned on; ``index_interval_bytes`` as in Kafka. ``history``: closed segments become history
    segments, with the typed columns that ``schema`` reads.
    """

    topic: str
    partition: int
    version: int
    ids: Ids
    codec: str | None = None
    level: int | None = None
    index_interval_bytes: int = 0
    history: bool = False
    schema: RecordSchema = RecordSchema()

    def new_key(self, base_offset: int, history: bool = False) -> str:
        """Return a unique key, of a history segment or another file."""
        return segment_key(self.topic, self.partition, base_offset, self.version, self.ids.write_id(), history)


@dataclass(frozen=True)
class SegmentTask:
    """Consecutive segments of one partition to replace. ``number`` identifies the task to its planner."""

    number: int
    segments: Sequence[Segment]
    replicas: ReplicaStores
    target: Target

    @contextmanager
    def sources(self) -> Iterator[list[Source]]:
        """Yield the segments to read, and close their files in the end."""
        sources = [Source(self.target.topic, segment, self.replicas) for segment in self.segments]
        try:
            yield sources
        finally:
            for source in sources:
                source.close()


@dataclass(frozen=True)
class MergeTask(SegmentTask):
    """Segments to merge into one file, without the records below ``start_offset``."""

    closed: bool
    start_offset: int = 0


class RangeReplacement(NamedTuple):
    """The segments ``added`` in place of those inside ``[start_offset, end_offset)``."""

    start_offset: int
    end_offset: int
    added: list[LiveSegment]


class TaskResult(NamedTuple):
    """The new segments; or the path of a ``missing`` file, which another job may have deleted in the meantime."""

    number: int
    changes: list[RangeReplacement]
    missing: str = ""


class Kept(NamedTuple):
    """Which records are kept: a bit for each, in the order of the segments. ``first`` has the number of each segment's
    first record by base offset."""

    bits: pa.Buffer
    first: dict[int, int]

    def rows(self, source: Source, row: int, count: int) -> pa.BooleanArray:
        """Return whether each of ``count`` records from this row of a segment on is kept."""
        at = self.first[source.segment.base_offset] + row
        return pa.Array.from_buffers(pa.bool_(), count, [None, self.bits], 0, at)

    def records(self, source: Source) -> int:
        """Return how many records of a segment are kept."""
        return int(self.rows(source, 0, source.segment.records).true_count)


def merge_segments(task: MergeTask) -> TaskResult:
    """Write the new file. Raises StorageError, or CorruptionError if no replica is intact."""
    start, end = task.segments[0].base_offset, task.segments[-1].end_offset
    try:
        with task.sources() as sources:
            horizon_ms = _common_horizon(sources)
            kept = _keep_from(sources, task.start_offset) if task.start_offset > start else None
            if kept is not None and not any(kept.records(source) for source in sources):
                return TaskResult(task.number, [RangeReplacement(start, end, [])])
            live = write_file(sources, task.replicas, task.target, task.closed, kept, horizon_ms)
    except DataLossError as error:
        return TaskResult(task.number, [], error.path)
    return TaskResult(task.number, [RangeReplacement(start, end, [live])])


def _common_horizon(sources: Sequence[Source]) -> int:
    """Return the delete horizon of a file with all these tombstones: the latest; none if there are some that no pass
    has kept yet, whose time begins with the next pass."""
    latest = max(source.segment.delete_horizon_ms for source in sources)
    if latest == NO_HORIZON:
        return NO_HORIZON
    uncleaned = (source for source in sources if source.segment.delete_horizon_ms == NO_HORIZON)
    return NO_HORIZON if any(has_tombstones(source) for source in uncleaned) else latest


def has_tombstones(source: Source) -> bool:
    """Return whether a segment has a record without a value."""
    return any(entry.null_values for _, entry in source.entries())


def _keep_from(sources: Sequence[Source], start_offset: int) -> Kept:
    """Keep the records from this offset on."""
    bits: list[pa.BooleanArray] = []
    first: dict[int, int] = {}
    records = 0
    for source in sources:
        first[source.segment.base_offset] = records
        records += source.segment.records
        for number, entry in source.entries():
            bits.append(_is_from(source, number, entry, start_offset))
        source.close()
    return Kept(pa.concat_arrays(bits).buffers()[1], first)


def _is_from(source: Source, number: int, entry: BatchEntry, start_offset: int) -> pa.BooleanArray:
    """Return for each record of a batch whether its offset is ``start_offset`` or larger."""
    base_offset = source.segment.base_offset
    if source.segment.has_gaps:
        offsets = source.offsets(entry, source.read(number, [schema.OFFSET]), base_offset)
    else:
        offsets = count_from(source.row(entry), entry.count)
    return pc.greater_equal(offsets.cast(pa.int64()), pa.scalar(start_offset - base_offset, pa.int64()))


def write_file(
    sources: Sequence[Source],
    replicas: ReplicaStores,
    target: Target,
    closed: bool,
    kept: Kept | None = None,
    delete_horizon_ms: int = NO_HORIZON,
) -> LiveSegment:
    """Write the records of these segments, or of them only the ``kept`` ones, of which there is at least one, to a new
    file, durable at every broker. Return the segment as a commit names it, with ``delete_horizon_ms`` if it has
    tombstones.

    All segments have the leader epoch and the timestamp type of the first. Errors as ``merge_segments``.
    """
    first, last = sources[0].segment, sources[-1].segment
    records = sum(source.segment.records if kept is None else kept.records(source) for source in sources)
    has_gaps = records < last.end_offset - first.base_offset
    layout = _choose_layout(sources, target, has_gaps, closed and target.history)
    key = target.new_key(first.base_offset, layout.history)
    output = SegmentOutput(replicas, key, layout, target.index_interval_bytes, first.base_offset)
    try:
        for source in fetch_ahead(sources):
            _write_segment(source, output, layout.columns, first.base_offset, kept)
            source.close()
    except BaseException:
        output.abort()
        raise
    written = output.finish()
    assert written.run.records == records, f"{written.run.records} records were written of {records}"
    return LiveSegment(
        base_offset=first.base_offset,
        end_offset=last.end_offset,
        leader_epoch=first.leader_epoch,
        append_time=first.append_time_ms != NO_APPEND_TIME,
        closed=closed,
        delete_horizon_ms=delete_horizon_ms if written.tombstones else NO_HORIZON,
        stats=written.stats,
        file_bytes=written.file_bytes,
        unfit=written.unfit,
        run=written.run,
    )


def _choose_layout(sources: Sequence[Source], target: Target, has_offsets: bool, history: bool) -> Layout:
    if history:
        return Layout(
            target.codec or codecs.ZSTD, target.level, True, True, has_offsets, history=True, schema=target.schema
        )
    present = {name for source in fetch_ahead(sources, Source.fetch_index) for name in source.columns}
    codec, level = target.codec, target.level
    if codec is None:
        sizes: Counter[str] = Counter()
        for source in sources:
            sizes[source.index.codec] += source.segment.size_bytes
        codec, level = sizes.most_common(1)[0][0], None
    return Layout(codec, level, schema.KEY in present, schema.HEADERS in present, has_offsets)


def _write_segment(
    source: Source, output: SegmentOutput, columns: Sequence[str], base_offset: int, kept: Kept | None
) -> None:
    """Write the kept records of a segment with the new file's columns. Batches that need no change are copied as
    stored."""
    for number, entry in source.entries():
        mask = None if kept is None else kept.rows(source, source.row(entry), entry.count)
        survivors = entry.count if mask is None else mask.true_count
        if survivors == entry.count and output.takes_as_stored(source, entry):
            output.copy(source.read_stored(number), entry)
        elif survivors:
            batch = _convert_batch(source, entry, source.read(number, columns), columns, base_offset)
            if survivors == entry.count:
                output.add(batch, BatchProducer(entry.producer_id, entry.producer_epoch, entry.base_sequence))
            else:
                output.add(batch.filter(mask))


def _convert_batch(
    source: Source, entry: BatchEntry, batch: pa.RecordBatch, columns: Sequence[str], base_offset: int
) -> pa.RecordBatch:
    """Return a batch as the new file stores it: with the append time as timestamp, if the topic has it, and with
    offsets relative to the file's base offset."""
    stamp_ms = source.segment.append_time_ms
    fields = schema.record_schema(columns)
    arrays: list[pa.Array] = []
    for field in fields:
        if field.name == schema.OFFSET:
            arrays.append(source.offsets(entry, batch, base_offset))
        elif field.name == schema.TIMESTAMP and stamp_ms >= 0:
            stamp = pa.scalar(stamp_ms * 1000, pa.int64()).cast(schema.TIMESTAMP_TYPE)
            arrays.append(pa.repeat(stamp, entry.count))
        else:
            arrays.append(batch.column(field.name))
    return pa.RecordBatch.from_arrays(arrays, schema=fields)
