"""Finding segments: binary search agrees with a linear search, however the list is divided into parts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import CorruptMetadataError
from sparklog.log.segments import PartitionSegments, TopicSegments, merge_parts, to_part
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, TopicState


def segment(base: int, records: int, max_timestamp: int = 0, partition: int = 0, version: int = 0) -> Segment:
    return Segment(
        partition=partition,
        base_offset=base,
        end_offset=base + records,
        records=records,
        path=f"t-{partition}/{base}.log",
        broker=0,
        first_batch=0,
        batches=1,
        first_row=0,
        size_bytes=1,
        min_timestamp_us=0,
        max_timestamp_us=max_timestamp,
        append_time_ms=-1,
        leader_epoch=0,
        version=version,
    )


def chain(lengths: list[tuple[int, int]], partition: int = 0) -> list[Segment]:
    segments, base = [], 0
    for records, timestamp in lengths:
        segments.append(segment(base, records, timestamp, partition))
        base += records
    return segments


def topic(*counts: int) -> TopicState:
    partitions = tuple(PartitionState(replicas=(0,), isr=(0,), leader=0, segments=count) for count in counts)
    return TopicState(name="t", topic_id="id", created_ms=0, partitions=partitions)


def listed(segments: list[Segment], cuts: list[int]) -> PartitionSegments:
    """Partition 0 as checkpoint parts up to each cut, the rest recent; partition 1 is listed among them."""
    other = chain([(1, 1)], partition=1)
    bounds = [0, *sorted(min(cut, len(segments)) for cut in cuts)]
    parts = [to_part(segments[a:b] + (other if a == 0 else [])) for a, b in pairwise(bounds)]
    recent = segments[bounds[-1] :] + ([] if parts else other)
    return TopicSegments(topic(len(segments), 1), parts, recent).partition(0)


lengths = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20)), max_size=30)
cuts = st.lists(st.integers(0, 30), max_size=3)


@given(lengths, cuts, st.integers(0, 160))
def test_find_offset_is_the_first_segment_that_ends_after_it(
    shape: list[tuple[int, int]], parts: list[int], offset: int
) -> None:
    segments = chain(shape)
    expected = next((i for i, s in enumerate(segments) if s.end_offset > offset), len(segments))
    assert listed(segments, parts).find_offset(offset) == expected


@given(lengths, cuts, st.integers(0, 22))
def test_find_timestamp_is_the_first_segment_whose_largest_timestamp_is_not_smaller(
    shape: list[tuple[int, int]], parts: list[int], timestamp: int
) -> None:
    segments = chain(shape)
    expected = next((i for i, s in enumerate(segments) if s.max_timestamp_us >= timestamp), len(segments))
    assert listed(segments, parts).find_timestamp(timestamp) == expected


@given(lengths, cuts, st.integers(0, 160), st.integers(0, 160))
def test_between_returns_the_segments_that_overlap_the_offsets(
    shape: list[tuple[int, int]], parts: list[int], start: int, end: int
) -> None:
    segments = chain(shape)
    expected = [s for s in segments if s.end_offset > start and s.base_offset < end] if start < end else []
    overlapping = listed(segments, parts).between(start, end)
    assert [s for s in overlapping if s.base_offset < end] == (expected if start < end else overlapping)


@given(lengths, cuts)
def test_a_list_reads_the_same_however_it_is_divided_into_parts(shape: list[tuple[int, int]], parts: list[int]) -> None:
    segments = chain(shape)
    partition_segments = listed(segments, parts)
    assert list(partition_segments) == segments
    assert [partition_segments[i] for i in range(len(partition_segments))] == segments
    assert partition_segments[1:3] == segments[1:3]


@given(lengths, cuts, st.slices(40))
def test_a_slice_of_a_list_is_that_slice(shape: list[tuple[int, int]], parts: list[int], part: slice) -> None:
    segments = chain(shape)
    partition_segments = listed(segments, parts)
    assert partition_segments[part] == segments[part]
    assert [partition_segments[index] for index in range(len(partition_segments))] == segments


def test_merged_parts_are_in_partition_and_offset_order() -> None:
    first = [segment(0, 2, partition=1), segment(0, 3, partition=0)]
    second = [segment(3, 1, partition=0), segment(2, 1, partition=1)]
    merged = merge_parts([to_part(first), to_part(second)])
    order = list(zip(merged.column("partition").to_pylist(), merged.column("base_offset").to_pylist(), strict=True))
    assert order == [(0, 0), (0, 3), (1, 0), (1, 2)]


def test_a_list_that_lacks_a_segment_is_refused() -> None:
    with pytest.raises(CorruptMetadataError, match="counts 2 segments in t-0, but 1 are"):
        TopicSegments(topic(2), [], [segment(0, 1)]).partition(0)
