"""Replace segments, as rolling and compaction do, for the tests of reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from sparklog.coordinator import Coordinator
from sparklog.format import schema
from sparklog.log.layout import segment_key
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.commits import LiveSegment
from sparklog.protocol.decide.segments import Deletion, Replacement, SegmentsRequest, change_segments, removed
from sparklog.protocol.segments import NO_APPEND_TIME, Segment
from sparklog.store.base import Store

Keep = Callable[[int], bool]


def rewrite(
    coordinator: Coordinator,
    first: int = 0,
    count: int | None = None,
    *,
    topic: str = "t",
    partition: int = 0,
    keep: Keep = lambda offset: True,
    codec: str = "none",
    batch_rows: int = 3,
    copies: Sequence[tuple[int, Store]] = (),
) -> list[str]:
    """Merge segments into one with the records of these offsets; return the paths of the replaced files.

    The new file is written to each of the ``copies``, brokers with their stores; by default to broker 0."""
    state = coordinator.refresh()
    segments = coordinator.segments(topic, state).partition(partition)[first:][:count]
    change = Replacement(
        topic=topic,
        topic_id=state.topic(topic).topic_id,
        partition=partition,
        start_offset=segments[0].base_offset,
        end_offset=segments[-1].end_offset,
        removed=removed(state.topic(topic).topic_id, segments),
        added=_merged(coordinator, topic, segments, keep, codec, batch_rows, copies or [(0, coordinator.store)]),
    )
    assert (
        coordinator.submit(
            partial(change_segments, request=SegmentsRequest(version=state.version, changes=[change]))
        ).left_out
        == []
    )
    return [segment.path for segment in segments]


def drop_segments(coordinator: Coordinator, count: int, topic: str = "t", partition: int = 0) -> list[str]:
    """Delete the oldest segments, as retention does; return their paths."""
    state = coordinator.refresh()
    segments = coordinator.segments(topic, state).partition(partition)[:count]
    topic_id = state.topic(topic).topic_id
    end = segments[-1].end_offset
    change = Deletion(
        topic=topic, topic_id=topic_id, partition=partition, end_offset=end, removed=removed(topic_id, segments)
    )
    assert (
        coordinator.submit(
            partial(change_segments, request=SegmentsRequest(version=state.version, changes=[change]))
        ).left_out
        == []
    )
    return [segment.path for segment in segments]


def delete_files(store: Store, paths: Sequence[str]) -> None:
    """Delete replaced files with their indexes."""
    for path in paths:
        store.delete(path)
        store.delete(path.removesuffix(".log") + ".index")


def _merged(
    coordinator: Coordinator,
    topic: str,
    segments: Sequence[Segment],
    keep: Keep,
    codec: str,
    batch_rows: int,
    copies: Sequence[tuple[int, Store]],
) -> list[LiveSegment]:
    base, end = segments[0].base_offset, segments[-1].end_offset
    offsets, batches = [], []
    for records in Fetcher(dict(copies).__getitem__).read(topic, segments, base, end):
        offsets += list(records.all_offsets())
        batches.append(records.batch)
    kept_rows = [row for row, offset in enumerate(offsets) if keep(offset)]
    if not kept_rows:
        return []
    rows = pa.Table.from_batches(batches).take(kept_rows).combine_chunks().to_batches()[0]
    relative = [offsets[row] - base for row in kept_rows]
    has_offsets = len(kept_rows) < end - base
    state = coordinator.state
    key = segment_key(topic, segments[0].partition, base, state.version, coordinator.log.ids.write_id())
    (broker, store), *others = copies
    writer = SegmentFileWriter(
        store, key, codec=codec, has_headers=True, has_offsets=has_offsets, broker=broker, replicas=others
    )
    writer.start_run(RunTarget(topic, state.topic(topic).topic_id, segments[0].partition))
    for first in range(0, len(kept_rows), batch_rows):
        batch = rows.slice(first, batch_rows)
        if has_offsets:
            column = pa.array(relative[first : first + batch_rows], pa.int32())
            fields = schema.record_schema((*schema.COLUMNS, schema.OFFSET))
            batch = pa.RecordBatch.from_arrays([*batch.columns, column], schema=fields)
        writer.write(batch)
    [append] = writer.finish()
    stamped = segments[0].append_time_ms != NO_APPEND_TIME
    return [LiveSegment(base_offset=base, end_offset=end, append_time=stamped, run=append.run)]
