"""Whether the lists of live segments add up: to the state's counts, to its checksums, and to a log without holes.

Rules: pure. Offsets may be missing between segments only where compaction has been, or where segments were replaced or
deleted; the state remembers the latest of these changes, so older ones are given the benefit of the doubt.
Not for: whether the files are there.
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
        message = f"the topics' checksums add up to {added}, the state of version {state.version} says "
        yield Finding(kind=kinds.SEGMENT_LIST, severity=ERROR, message=message + state.checksum, action=_ACTION)


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
            f"its live segments have the checksum {segment_checksum.to_text(total)}, the state says {topic.checksum}"
        )
        yield Finding(
            kind=kinds.SEGMENT_LIST, severity=ERROR, message=message, action=_ACTION, topic=topic.name, partition=-1
        )


def check_partition(
    topic: str, number: int, partition: PartitionState, segments: Sequence[Segment]
) -> Iterator[Finding]:
    """Check one partition's segments against its state."""
    size = sum(segment.size_bytes for segment in segments)
    if (len(segments), size) != (partition.segments, partition.size_bytes):
        message = (
            f"the state counts {partition.segments} segments of {partition.size_bytes} bytes, and {len(segments)} of "
            f"{size} are listed"
        )
        yield _finding(topic, number, message, 0, partition.log_end_offset)
    at = partition.log_start_offset
    for nth, segment in enumerate(segments):
        fault = _segment_fault(segment)
        if fault:
            yield _finding(topic, number, fault, segment.base_offset, segment.end_offset)
        if nth and segment.base_offset < segments[nth - 1].end_offset:
            overlap = segment.base_offset, min(segments[nth - 1].end_offset, segment.end_offset)
            yield _finding(topic, number, "two segments have these offsets", *overlap)
        elif segment.base_offset > at and not _may_be_missing(partition, at, segment.base_offset):
            yield _finding(topic, number, "no segment has these offsets", at, segment.base_offset)
        at = max(at, segment.end_offset)
    if at > partition.log_end_offset:
        message = f"segments go on to {at}, and the log ends at {partition.log_end_offset}"
        yield _finding(topic, number, message, partition.log_end_offset, at)
    elif at < partition.log_end_offset and not _may_be_missing(partition, at, partition.log_end_offset):
        yield _finding(topic, number, "no segment has these offsets", at, partition.log_end_offset)


def _segment_fault(segment: Segment) -> str:
    span = segment.end_offset - segment.base_offset
    if not 1 <= segment.records <= span:
        return f"a segment of {segment.records} records for {span} offsets"
    if segment.min_timestamp_us > segment.max_timestamp_us:
        return f"a segment of timestamps {segment.min_timestamp_us} to {segment.max_timestamp_us}"
    return ""


def _may_be_missing(partition: PartitionState, start: int, end: int) -> bool:
    """Whether something is known to have taken offsets ``[start, end)`` out of the log, or may have."""
    if len(partition.changes) >= limits.SEGMENT_CHANGES_KEPT:
        return True
    at = max(start, partition.cleaned_offset)
    for change in sorted(partition.changes, key=lambda change: change.start):
        if change.start <= at:
            at = max(at, change.end)
    return at >= end


def _finding(topic: str, partition: int, message: str, start: int, end: int) -> Finding:
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
