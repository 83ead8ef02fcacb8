"""Which live segments make up one segment in Kafka's sense, and which of them to merge into one file.

An append adds a small file. Adjacent files form a *group* up to the point where Kafka would have rolled to the next
segment; the last group is the active segment. Retention and compaction work on groups, so their result does not depend
on whether a roll has already merged the files. A ``closed`` file always remains a group of its own.

Kafka rolls when it is about to append (``LogSegment.shouldRoll``): where the segment would grow over ``segment.bytes``,
where the newest timestamp about to be appended is more than ``segment.ms`` after that of the segment's first batch, or
where the offsets would not fit 32 bits. Here a file holds records of one leader epoch and one kind of timestamp, so a
group ends where these change. As in Kafka, nothing rolls merely because time passes.

Rules: pure, without clock and storage; every process with the same list and configs finds the same groups, so the
jitter is a hash of partition and offset, not random.
Not for: reading and writing files (``maintenance.segments.merge``), and what is deleted or compacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

from sparklog import limits
from sparklog.config.definitions import LONG_MAX
from sparklog.config.topic_configs import COMPACT, DELTA, TopicConfig
from sparklog.protocol.segments import NO_APPEND_TIME, Segment

MERGE_FACTOR = 4
"""Files of the active segment are merged when the result is this many times as large as the largest of them. So a
record is rewritten once each time its file grows fourfold: at most 9 times from 4 KiB to a segment of 1 GiB."""

MAX_FILES_PER_MERGE = 20_000
"""files that one merge reads; the next roll continues from there."""


class RollRules(NamedTuple):
    """When a segment of one partition is full. ``jitter_key`` identifies the partition, for the jitter.

    ``history``: closed segments become history segments.
    """

    segment_bytes: int
    segment_ms: int
    jitter_ms: int = 0
    jitter_key: str = ""
    history: bool = False


class Group(NamedTuple):
    """The live segments, in offset order, that make up one segment in Kafka's sense. Never empty.

    ``complete``: no segment will be added to it. Only the last group of a partition, the active segment, may not be.
    """

    segments: Sequence[Segment]
    complete: bool = True

    @property
    def base_offset(self) -> int:
        return self.segments[0].base_offset

    @property
    def end_offset(self) -> int:
        return self.segments[-1].end_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def records(self) -> int:
        return sum(segment.records for segment in self.segments)

    @property
    def max_timestamp_us(self) -> int:
        return max(segment.max_timestamp_us for segment in self.segments)


class Merge(NamedTuple):
    """Adjacent files that become one. ``closed``: the result is a complete segment. Records below ``start_offset`` are
    left out."""

    segments: Sequence[Segment]
    closed: bool
    start_offset: int = 0


def rules_of(config: TopicConfig, topic_id: str, partition: int) -> RollRules:
    """Return the rules for one partition from its topic's configs.

    On a compacted topic ``max.compaction.lag.ms`` shortens ``segment.ms``, since only rolled segments can be compacted
    (Kafka, ``LogConfig.maxSegmentMs``).
    """
    segment_ms = config.segment_ms
    if COMPACT in config.cleanup_policy:
        segment_ms = min(segment_ms, config.max_compaction_lag_ms)
    jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
    history = config.history_format == DELTA
    return RollRules(config.segment_bytes, segment_ms, jitter_ms, f"{topic_id}:{partition}", history)


def jitter_of(rules: RollRules, base_offset: int) -> int:
    """Return how many ms earlier than ``segment.ms`` the segment that begins at this offset rolls: 0 to the jitter."""
    if rules.jitter_ms <= 0:
        return 0
    digest = blake2b(f"{rules.jitter_key}:{base_offset}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % rules.jitter_ms


def groups(segments: Iterable[Segment], rules: RollRules) -> Iterator[Group]:
    """Yield the segments of a partition in Kafka's sense, oldest first, from its live segments in offset order."""
    group: list[Segment] = []
    size = latest_us = 0
    for segment in segments:
        if group and (segment.closed or _is_full(group[0], size, latest_us, segment, rules)):
            yield Group(group)
            group = []
        if segment.closed:
            yield Group([segment])
            continue
        if not group:
            size, latest_us = 0, _latest_us(segment, rules)
        group.append(segment)
        size += segment.size_bytes
    if group:
        yield Group(group, complete=False)


def _latest_us(first: Segment, rules: RollRules) -> int:
    """Return the largest timestamp that still belongs to the segment that begins with this file.

    Kafka counts from the segment's first batch; here it is the smallest timestamp of the first file, which does not
    change when files are merged. If that is negative, age does not matter.
    """
    if first.min_timestamp_us < 0:
        return LONG_MAX
    return first.min_timestamp_us + 1000 * (rules.segment_ms - jitter_of(rules, first.base_offset))


def _is_full(first: Segment, size: int, latest_us: int, added: Segment, rules: RollRules) -> bool:
    """Return whether Kafka would roll before appending this, or the two cannot share a file."""
    return (
        size > rules.segment_bytes - added.size_bytes
        or added.max_timestamp_us > latest_us
        or not may_share_file(first, added)
    )


def may_share_file(first: Segment, added: Segment) -> bool:
    """Return whether a file that begins with ``first`` may hold this: offsets, leader epoch, kind of timestamp."""
    return (
        added.end_offset - first.base_offset <= limits.MAX_SEGMENT_OFFSETS
        and added.leader_epoch == first.leader_epoch
        and (added.append_time_ms == NO_APPEND_TIME) == (first.append_time_ms == NO_APPEND_TIME)
    )


def plan_roll(segments: Iterable[Segment], rules: RollRules, log_start_offset: int = 0) -> list[Merge]:
    """Return the merges of a partition that are due: complete groups, and parts of the active segment worth merging.

    Files below the log start offset will soon be deleted and are ignored, as are groups of one file, except a complete
    one that is to become a history segment, and a history segment with records below the log start offset: readers of
    the topic's Delta table do not know that offset, so that history has none of these.
    """
    merges: list[Merge] = []
    for group in groups(segments, rules):
        first = group.segments[0]
        becomes_history = rules.history and group.complete and not first.is_history
        if group.end_offset <= log_start_offset:
            continue
        if first.is_history and first.begins_before(log_start_offset):
            merges.append(Merge(group.segments, closed=True, start_offset=log_start_offset))
        elif len(group.segments) < 2 and not becomes_history:
            continue
        elif group.complete:
            merges += _plan_closing(group.segments, log_start_offset if rules.history else 0)
        else:
            merges += [Merge(run, closed=False) for run in _find_runs(group.segments)]
    return merges


def _plan_closing(segments: Sequence[Segment], start_offset: int) -> list[Merge]:
    """Return the merge of a complete group; if it has too many files for one, merges of its parts, which stay open
    until the next roll."""
    if len(segments) <= MAX_FILES_PER_MERGE:
        return [Merge(segments, closed=True, start_offset=start_offset)]
    return [Merge(piece, closed=False) for piece in _cut(segments)]


def _cut(segments: Sequence[Segment]) -> Iterator[Sequence[Segment]]:
    for start in range(0, len(segments), MAX_FILES_PER_MERGE):
        if start + 1 < len(segments):
            yield segments[start : start + MAX_FILES_PER_MERGE]


def _find_runs(segments: Sequence[Segment]) -> Iterator[Sequence[Segment]]:
    """Yield runs of adjacent files to merge: each result is at least ``MERGE_FACTOR`` times as large as its largest
    file.

    These are the longest such runs, found by splitting the files at the largest one until a part qualifies.
    """
    parts = [segments]
    while parts:
        part = parts.pop()
        if len(part) < MERGE_FACTOR:
            continue
        at = max(range(len(part)), key=lambda index: part[index].size_bytes)
        if sum(segment.size_bytes for segment in part) >= MERGE_FACTOR * part[at].size_bytes:
            yield from _cut(part)
        else:
            parts += [part[at + 1 :], part[:at]]
