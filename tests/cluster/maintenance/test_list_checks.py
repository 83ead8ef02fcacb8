"""Lists of live segments: gaps, overlaps, wrong counts and wrong checksums are reported with their offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from immutables import Map
from msgspec.structs import replace

from sparklog.limits import SEGMENT_CHANGES_KEPT
from sparklog.log.segments import TopicSegments
from sparklog.maintenance.fsck.kinds import Finding
from sparklog.maintenance.fsck.list_checks import check_lists, check_partition
from sparklog.protocol import segment_checksum
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, SegmentChange, State, TopicState


def segment(base: int, end: int, records: int = -1) -> Segment:
    return Segment(
        partition=0,
        base_offset=base,
        end_offset=end,
        records=records if records >= 0 else end - base,
        path=f"orders-0/{base:020d}-v0-x.log",
        broker=0,
        first_batch=0,
        batches=1,
        first_row=0,
        size_bytes=10,
        min_timestamp_us=0,
        max_timestamp_us=0,
        append_time_ms=-1,
        leader_epoch=0,
        version=0,
    )


def partition(segments: Sequence[Segment], **changes: Any) -> PartitionState:
    state = PartitionState(
        replicas=(0,),
        isr=(0,),
        leader=0,
        log_end_offset=segments[-1].end_offset if segments else 0,
        segments=len(segments),
        size_bytes=10 * len(segments),
    )
    return replace(state, **changes)


def offsets_reported(segments: Sequence[Segment], **changes: Any) -> list[tuple[int, int]]:
    return [offsets_of(finding) for finding in check_partition("orders", 0, partition(segments, **changes), segments)]


def offsets_of(finding: Finding) -> tuple[int, int]:
    assert (finding.kind, finding.topic, finding.partition) == ("segment-list", "orders", 0)
    return finding.start_offset, finding.end_offset


def test_consecutive_segments_are_in_order() -> None:
    assert offsets_reported([segment(0, 5), segment(5, 9), segment(9, 10)]) == []
    assert offsets_reported([]) == []


def test_a_log_that_starts_inside_its_first_segment_is_in_order() -> None:
    assert offsets_reported([segment(0, 5), segment(5, 9)], log_start_offset=3) == []
    assert offsets_reported([segment(0, 5), segment(5, 9)], log_start_offset=7) == []


def test_a_gap_is_reported() -> None:
    assert offsets_reported([segment(0, 5), segment(7, 9)]) == [(5, 7)]
    assert offsets_reported([segment(2, 5)]) == [(0, 2)]
    assert offsets_reported([segment(0, 5)], log_end_offset=8) == [(5, 8)]


def test_gaps_left_by_compaction_or_recent_changes_are_not_reported() -> None:
    assert offsets_reported([segment(0, 5), segment(7, 9)], cleaned_offset=7) == []
    assert (
        offsets_reported([segment(0, 5), segment(7, 9)], changes=(SegmentChange(3, 0, 6), SegmentChange(4, 6, 9))) == []
    )
    assert offsets_reported([segment(0, 5), segment(7, 9)], changes=(SegmentChange(3, 0, 6),)) == [(5, 7)]
    assert (
        offsets_reported([segment(0, 5), segment(7, 9)], changes=(SegmentChange(3, 0, 1),) * SEGMENT_CHANGES_KEPT) == []
    )


def test_overlapping_segments_are_reported() -> None:
    assert offsets_reported([segment(0, 5), segment(3, 9)]) == [(3, 5)]


def test_segments_after_the_log_end_offset_are_reported() -> None:
    assert offsets_reported([segment(0, 5), segment(5, 9)], log_end_offset=7) == [(7, 9)]


@pytest.mark.parametrize("records", [0, 6])
def test_segments_with_more_records_than_offsets_or_without_records_are_reported(records: int) -> None:
    assert offsets_reported([segment(0, 5, records)]) == [(0, 5)]


def test_counts_that_differ_are_reported() -> None:
    assert offsets_reported([segment(0, 5)], size_bytes=11) == [(0, 5)]


def test_counts_of_values_that_do_not_fit_are_recomputed() -> None:
    assert offsets_reported([segment(0, 5)], unfit=2) == [(0, 5)]


def lists(checksum: str, total: str) -> list[Finding]:
    segments = [segment(0, 5), segment(5, 9, 3)]
    topic = TopicState(name="orders", topic_id="id", created_ms=0, partitions=(partition(segments),), checksum=checksum)
    state = State(cluster_id="c", topics=Map({"orders": topic}), checksum=total)
    return list(check_lists(state, {"orders": TopicSegments(topic, [], segments)}))


def test_checksums_of_topics_and_of_the_cluster_are_recomputed() -> None:
    correct = segment_checksum.to_text(
        segment_checksum.total(segment_checksum.segment_hash("id", item) for item in (segment(0, 5), segment(5, 9, 3)))
    )
    assert lists(correct, correct) == []
    assert [finding.topic for finding in lists("0" * 32, correct)] == ["orders", ""]
    assert [finding.topic for finding in lists(correct, "0" * 32)] == [""]
