"""Writing segments of one partition again as one file: the task of rolling, and the last step of compaction.

The new file has the same records with the same offsets, in batches of the usual size, under the topic's compression.
Batches that have that size and compression already are copied, verified but not decoded.
Where the topic stamps on append, the times of the commits are written into the file. Where offsets are missing between
the records, the file says each record's offset.

Rules: a task is picklable and touches only what it is given; it reads verified bytes; it leaves a file that no commit
names, or nothing. Every attempt at a task writes under a name of its own, so that one that was given up cannot
disturb the next.
Not for: deciding (``protocol.rolling``, ``protocol.compaction``) and committing (``roll``, ``compact``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from sparklog.format import schema
from sparklog.format.index import BatchEntry
from sparklog.ids import Ids
from sparklog.log.layout import segment_key
from sparklog.maintenance.segments.files import (
    Layout,
    Places,
    Producer,
    SegmentOutput,
    Source,
    SourceMissingError,
    ahead,
)
from sparklog.protocol.commits import LiveSegment, Run
from sparklog.protocol.segments import NO_APPEND_TIME, Segment


class Target(NamedTuple):
    """What tasks write for one partition.

    ``codec`` None is that of the source, as ``compression.type=producer`` says. ``version`` is that of the state the
    job was planned on, ``index_interval_bytes`` as in Kafka.
    """

    topic: str
    partition: int
    version: int
    ids: Ids
    codec: str | None = None
    level: int | None = None
    index_interval_bytes: int = 0

    def new_key(self, base_offset: int) -> str:
        """A name that nobody else has."""
        return segment_key(self.topic, self.partition, base_offset, self.version, self.ids.write_id())


class RewriteTask(NamedTuple):
    """Segments of one partition, one after another, that become one file. ``number`` is for whoever made the task."""

    number: int
    segments: Sequence[Segment]
    places: Places
    target: Target
    closed: bool


class Rewritten(NamedTuple):
    """What a task made. ``missing`` instead, where a file was gone: another job may have been here first."""

    number: int
    added: LiveSegment | None = None
    missing: str = ""


class Kept(NamedTuple):
    """Which records survive: a bit for each, in the order of the segments. ``first`` are the numbers of the segments'
    first records by base offset."""

    bits: pa.Buffer
    first: dict[int, int]

    def rows(self, source: Source, row: int, count: int) -> pa.BooleanArray:
        """Whether each of ``count`` records from this row of a segment on survives."""
        at = self.first[source.segment.base_offset] + row
        return pa.Array.from_buffers(pa.bool_(), count, [None, self.bits], 0, at)

    def records(self, source: Source) -> int:
        """How many records of a segment survive."""
        return int(self.rows(source, 0, source.segment.records).true_count)


def rewrite(task: RewriteTask) -> Rewritten:
    """Write the new file. Raises StorageError, or CorruptionError where no replica is intact."""
    sources = [Source(segment, task.places) for segment in task.segments]
    try:
        made = write_file(sources, task.places, task.target)
    except SourceMissingError as error:
        return Rewritten(task.number, missing=error.path)
    return Rewritten(task.number, made.live(task.closed))


class Made(NamedTuple):
    """A file that was written, durable at every broker; ``tombstones`` are the records in it without a value."""

    base_offset: int
    end_offset: int
    leader_epoch: int
    append_time: bool
    run: Run
    tombstones: int

    def live(self, closed: bool, delete_horizon_ms: int = -1) -> LiveSegment:
        """What a commit says of it."""
        return LiveSegment(
            base_offset=self.base_offset,
            end_offset=self.end_offset,
            leader_epoch=self.leader_epoch,
            append_time=self.append_time,
            closed=closed,
            delete_horizon_ms=delete_horizon_ms,
            run=self.run,
        )


def write_file(sources: Sequence[Source], places: Places, target: Target, kept: Kept | None = None) -> Made:
    """The records of these segments, or those of them that are ``kept``, in one new file. There is at least one.

    All segments have the leader epoch and the kind of timestamp of the first. Errors as ``rewrite``.
    """
    first, last = sources[0].segment, sources[-1].segment
    records = sum(source.segment.records if kept is None else kept.records(source) for source in sources)
    explicit = records < last.end_offset - first.base_offset
    layout = _layout(sources, target, explicit)
    columns = schema.columns_present(layout.has_key, layout.has_headers, explicit)
    output = SegmentOutput(places, target.new_key(first.base_offset), layout)
    try:
        for source in ahead(sources):
            _write_from(source, output, columns, first.base_offset, kept)
            source.close()
    except BaseException:
        output.abort()
        raise
    run, tombstones = output.finish(places.write[0])
    assert run.records == records, f"{run.records} records were written of {records}"
    append_time = first.append_time_ms != NO_APPEND_TIME
    return Made(first.base_offset, last.end_offset, first.leader_epoch, append_time, run, tombstones)


def _layout(sources: Sequence[Source], target: Target, has_offsets: bool) -> Layout:
    present = {name for source in ahead(sources, Source.fetch_index) for name in source.columns}
    codec, level = target.codec, target.level
    if codec is None:
        sizes: Counter[str] = Counter()
        for source in sources:
            sizes[source.index.codec] += source.segment.size_bytes
        codec, level = sizes.most_common(1)[0][0], None
    return Layout(
        codec, level, schema.KEY in present, schema.HEADERS in present, has_offsets, target.index_interval_bytes
    )


def _write_from(
    source: Source, output: SegmentOutput, columns: Sequence[str], base_offset: int, kept: Kept | None
) -> None:
    """The kept records of a segment, under the new file's columns. What needs no change is copied as it is stored."""
    for number in source.batches:
        entry = source.entry(number)
        mask = None if kept is None else kept.rows(source, source.row(entry), entry.count)
        survivors = entry.count if mask is None else mask.true_count
        if survivors == entry.count and output.takes_as_stored(source, entry):
            output.copy(source.read_stored(number), entry)
        elif survivors:
            batch = _columns(source, entry, source.read(number, columns), columns, base_offset)
            if survivors == entry.count:
                output.add(batch, Producer(entry.producer_id, entry.producer_epoch, entry.base_sequence))
            else:
                output.add(batch.filter(mask))


def _columns(
    source: Source, entry: BatchEntry, batch: pa.RecordBatch, columns: Sequence[str], base_offset: int
) -> pa.RecordBatch:
    """A batch as it is to be stored: with the times of the commit, and with offsets from the new file's base on."""
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
