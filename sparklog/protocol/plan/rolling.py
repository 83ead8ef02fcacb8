"""Which live segments make up one segment in Kafka's sense, and which of them to merge into one file.

An append adds a small file. Files that lie one after another form a *group* up to where Kafka would have rolled to the
next segment; the last group is the active segment. Retention and compaction go by groups, so what they do is the same
whether or not a roll has merged the files by then. A file that is ``closed`` is a group of its own for good.

Kafka rolls when it is about to append (``LogSegment.shouldRoll``): where the segment would grow over ``segment.bytes``,
where the newest timestamp about to be appended is more than ``segment.ms`` after that of the segment's first batch, or
where the offsets would not fit 32 bits. Here a file holds records of one leader epoch and one kind of timestamp, so a
group ends where these change. Nothing rolls by the passing of time alone, as in Kafka.

Rules: pure, without clock and storage; every process that looks at the same list and configs finds the same groups, so
the jitter comes from a hash of the place and not from chance.
Not for: reading and writing files (``maintenance.rewrite``), and what is deleted or compacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple, cast

from sparklog import limits
from sparklog.config.definitions import LONG_MAX
from sparklog.config.topic_configs import COMPACT, TopicConfig
from sparklog.protocol.segments import NO_APPEND_TIME, Segment

MERGE_FACTOR = 4
"""Files of the active segment are merged once they make one this many times as large as the largest of them. So a
record is written again once for each time its file grows fourfold: at most 9 times from 4 KiB to a segment of 1 GiB."""

MAX_FILES_PER_MERGE = 20_000
"""files that one merge takes in; the next roll goes on from there."""


class RollRules(NamedTuple):
    """When a segment of one partition is full. ``place`` names the partition, for the jitter."""

    segment_bytes: int
    segment_ms: int
    jitter_ms: int = 0
    place: str = ""


class Group(NamedTuple):
    """The live segments, in offset order, that make up one segment in Kafka's sense. Never empty.

    ``complete``: nothing more is added to it. At most the last group of a partition is not: the active segment.
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
    """Files, one after another, that become one. ``closed``: a whole segment that nothing is added to any more."""

    segments: Sequence[Segment]
    closed: bool


def rules_of(config: TopicConfig, topic_id: str, partition: int) -> RollRules:
    """What a topic's configs say of one partition.

    On a compacted topic ``max.compaction.lag.ms`` shortens ``segment.ms``, since only what has rolled can be compacted
    (Kafka, ``LogConfig.maxSegmentMs``).
    """
    segment_ms = config.segment_ms
    if COMPACT in config.cleanup_policy:
        segment_ms = min(segment_ms, cast(int, config.get("max.compaction.lag.ms")))
    jitter_ms = min(cast(int, config.get("segment.jitter.ms")), config.segment_ms)
    return RollRules(config.segment_bytes, segment_ms, jitter_ms, f"{topic_id}:{partition}")


def jitter_of(rules: RollRules, base_offset: int) -> int:
    """How many ms earlier than ``segment.ms`` the segment that begins at this offset rolls: 0 up to the jitter."""
    if rules.jitter_ms <= 0:
        return 0
    digest = blake2b(f"{rules.place}:{base_offset}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % rules.jitter_ms


def groups(segments: Iterable[Segment], rules: RollRules) -> Iterator[Group]:
    """The segments of a partition in Kafka's sense, oldest first; of its live segments as they are listed."""
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
    """The largest timestamp that still belongs to the segment that begins with this file.

    Kafka counts from its first batch. That is here the smallest timestamp of the first file, which stays the same when
    files are merged. Where it is negative age says nothing.
    """
    if first.min_timestamp_us < 0:
        return LONG_MAX
    return first.min_timestamp_us + 1000 * (rules.segment_ms - jitter_of(rules, first.base_offset))


def _is_full(first: Segment, size: int, latest_us: int, added: Segment, rules: RollRules) -> bool:
    """Whether Kafka would roll before appending this, or the two cannot be in one file."""
    return (
        size > rules.segment_bytes - added.size_bytes
        or added.max_timestamp_us > latest_us
        or added.end_offset - first.base_offset > limits.MAX_SEGMENT_OFFSETS
        or added.leader_epoch != first.leader_epoch
        or (added.append_time_ms == NO_APPEND_TIME) != (first.append_time_ms == NO_APPEND_TIME)
    )


def plan_roll(segments: Iterable[Segment], rules: RollRules, log_start_offset: int = 0) -> list[Merge]:
    """What to merge in a partition now: complete groups whole, and parts of the active segment that are worth it.

    Files that lie below the log start offset are about to go and left alone. A group of one file is as good as merged.
    """
    merges: list[Merge] = []
    for group in groups(segments, rules):
        if group.end_offset <= log_start_offset or len(group.segments) < 2:
            continue
        if group.complete:
            merges += _closing(group.segments)
        else:
            merges += [Merge(run, closed=False) for run in _tiered(group.segments)]
    return merges


def _closing(segments: Sequence[Segment]) -> list[Merge]:
    """The whole, closed; only where it has too many files for one merge, parts of it that stay open until the next."""
    if len(segments) <= MAX_FILES_PER_MERGE:
        return [Merge(segments, closed=True)]
    return [Merge(piece, closed=False) for piece in _pieces(segments)]


def _pieces(segments: Sequence[Segment]) -> Iterator[Sequence[Segment]]:
    for start in range(0, len(segments), MAX_FILES_PER_MERGE):
        if start + 1 < len(segments):
            yield segments[start : start + MAX_FILES_PER_MERGE]


def _tiered(segments: Sequence[Segment]) -> Iterator[Sequence[Segment]]:
    """Runs of neighbours to merge: each makes a file at least ``MERGE_FACTOR`` times as large as its largest member.

    The longest such runs, found by taking the files apart at the largest one until a part qualifies.
    """
    parts = [segments]
    while parts:
        part = parts.pop()
        if len(part) < MERGE_FACTOR:
            continue
        at = max(range(len(part)), key=lambda index: part[index].size_bytes)
        if sum(segment.size_bytes for segment in part) >= MERGE_FACTOR * part[at].size_bytes:
            yield from _pieces(part)
        else:
            parts += [part[at + 1 :], part[:at]]
