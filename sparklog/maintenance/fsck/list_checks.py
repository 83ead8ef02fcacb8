"""Checks the lists of live segments: against the state's counts and checksums, and for gaps in the log.

Rules: pure. Offsets may be missing between segments only where the log was compacted, or segments were replaced or
deleted; the state records only the latest of these changes, so older gaps cannot be checked and are not reported.
Not for: whether the files exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from sparklog import limits
from sparklog.errors import CorruptMetadataError
from sparklog.log.segments import TopicSegments
from sparklog.maintenance.fsck import kinds
from sparklog.maintenance.fsck.kinds import ERROR, Finding
from sparklog.protocol import segment_checksum
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, State, TopicState

_ACTION = "copy the folder `meta/` away as it is, and report this: every commit is checked before it is written"


def check_lists(state: State, lists: Mapping[str, TopicSegments]) -> Iterator[Finding]:
    """Check the list of every topic, and that the topics' checksums add up to the cluster's."""
    total = segment_checksum.EMPTY
    for name, topic in sorted(state.topics.items()):
        total = segment_checksum.add(total, segment_checksum.from_text(topic.checksum))
        yield from _check_topic(topic, lists[name])
    if segment_checksum.to_text(total) != state.checksum:
        added = segment_checksum.to_text(total)
        message = f"the topics' checksums add up to {added}, but the state of version {state.version} has "
        yield _finding("", -1, message + state.checksum)


def _check_topic(topic: TopicState, listed: TopicSegments) -> Iterator[Finding]:
    total = segment_checksum.EMPTY
    complete = True
    for number, partition in enumerate(topic.partitions):
        try:
            segments = list(listed.partition(number))
        except CorruptMetadataError as error:
            complete = False
            yield _finding(topic.name, number, error.message, 0, partition.log_end_offset)
            continue
        total = segment_checksum.add(
            total,
            segment_checksum.total(segment_checksum.segment_hash(topic.topic_id, segment) for segment in segments),
        )
        yield from check_partition(topic.name, number, partition, segments)
    if complete and segment_checksum.to_text(total) != topic.checksum:
        message = (
            f"the live segments have the checksum {segment_checksum.to_text(total)}, but the state has {topic.checksum}"
        )
        yield _finding(topic.name, -1, message)


def check_partition(
    topic: str, number: int, partition: PartitionState, segments: Sequence[Segment]
) -> Iterator[Finding]:
    """Check one partition's segments against its state."""
    size = sum(segment.size_bytes for segment in segments)
    if (len(segments), size) != (partition.segments, partition.size_bytes):
        message = (
            f"the state counts {partition.segments} segments of {partition.size_bytes} bytes, but the list has "
            f"{len(segments)} of {size} bytes"
        )
        yield _finding(topic, number, message, 0, partition.log_end_offset)
    unfit = sum(segment.unfit for segment in segments)
    if unfit != partition.unfit:
        message = f"the state counts {partition.unfit} records that do not fit the schema, but the list has {unfit}"
        yield _finding(topic, number, message, 0, partition.log_end_offset)
    next_offset = partition.log_start_offset
    for nth, segment in enumerate(segments):
        fault = _segment_fault(segment)
        if fault:
            yield _finding(topic, number, fault, segment.base_offset, segment.end_offset)
        if nth and segment.base_offset < segments[nth - 1].end_offset:
            overlap = segment.base_offset, min(segments[nth - 1].end_offset, segment.end_offset)
            yield _finding(topic, number, "two segments have these offsets", *overlap)
        elif segment.base_offset > next_offset and not _may_be_missing(partition, next_offset, segment.base_offset):
            yield _finding(topic, number, "no segment has these offsets", next_offset, segment.base_offset)
        next_offset = max(next_offset, segment.end_offset)
    end = partition.log_end_offset
    if next_offset > end:
        message = f"the segments end at offset {next_offset}, but the log ends at {end}"
        yield _finding(topic, number, message, end, next_offset)
    elif next_offset < end and not _may_be_missing(partition, next_offset, end):
        yield _finding(topic, number, "no segment has these offsets", next_offset, end)


def _segment_fault(segment: Segment) -> str:
    span = segment.end_offset - segment.base_offset
    if not 1 <= segment.records <= span:
        return f"invalid segment: {segment.records} records for {span} offsets"
    if segment.min_timestamp_us > segment.max_timestamp_us:
        return f"invalid segment: timestamps {segment.min_timestamp_us} to {segment.max_timestamp_us}"
    return ""


def _may_be_missing(partition: PartitionState, start: int, end: int) -> bool:
    """Whether recorded changes removed the offsets ``[start, end)`` from the log, or changes no longer recorded may
    have."""
    if len(partition.changes) >= limits.SEGMENT_CHANGES_KEPT:
        return True
    removed_end = max(start, partition.cleaned_offset)
    for change in sorted(partition.changes, key=lambda change: change.start):
        if change.start <= removed_end:
            removed_end = max(removed_end, change.end)
    return removed_end >= end


def _finding(topic: str, partition: int, message: str, start: int = -1, end: int = -1) -> Finding:
    return Finding(
        kind=kinds.SEGMENT_LIST,
        severity=ERROR,
        message=message,
        action=_ACTION,
        topic=topic,
        partition=partition,
        start_offset=start,
        end_offset=end,
    )
