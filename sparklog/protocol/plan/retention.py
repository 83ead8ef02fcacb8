"""Which segments of a partition retention removes from the log: Kafka's ``UnifiedLog.deleteOldSegments``, pure.

Three passes, each from the oldest segment up to the first that is kept: segments below the log start offset, then those
above ``retention.bytes``, then those older than ``retention.ms``. The last two only if ``cleanup.policy`` contains
``delete``. So always the oldest part of the log is removed, and the log starts where it ends.

Rules: segments are Kafka's, so small files that make up one segment (``plan.rolling``) are removed together or not at
all, including the active one, which Kafka rolls first. Only below the log start offset, which is no longer readable,
files are removed one by one: Kafka keeps those of the active segment until it rolls. Nothing at or above the high
watermark is removed.

Not for: leases of readers, and when files are deleted (``maintenance.gc``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from sparklog.config.topic_configs import DELETE, TopicConfig
from sparklog.protocol.plan.rolling import Group
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, State, TopicState

NO_LIMIT = -1
"""``retention.ms`` or ``retention.bytes`` without a limit."""

LOG_START_OFFSET = "log start offset"
RETENTION_BYTES = "retention.bytes"
RETENTION_MS = "retention.ms"
REASONS = (LOG_START_OFFSET, RETENTION_BYTES, RETENTION_MS)
"""Why segments are removed, in the order of the passes."""


class Retention(NamedTuple):
    """The configs of a topic for retention. ``delete``: whether age and size matter at all."""

    delete: bool
    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT


class Deletable(NamedTuple):
    """The oldest segments of a partition, which may be removed; the log then starts at ``end_offset``.

    ``reasons`` counts them by ``REASONS``; ``more``: others may be due that were over the limit.
    """

    end_offset: int
    segments: list[Segment]
    reasons: Mapping[str, int]
    more: bool

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


def retention_of(state: State, topic: TopicState) -> Retention:
    """Return the retention of a topic, with the cluster's defaults of this state."""
    config = TopicConfig.resolve(topic.configs, state.configs)
    return Retention(DELETE in config.cleanup_policy, config.retention_ms, config.retention_bytes)


def may_delete(partition: PartitionState, retention: Retention) -> bool:
    """Return whether any segment may be due, judged from the partition's counters alone, without its list of
    segments."""
    if not partition.segments:
        return False
    limited = retention.retention_ms >= 0 or 0 <= retention.retention_bytes <= partition.size_bytes
    return partition.log_start_offset > 0 or (retention.delete and limited)


def deletable(
    groups: Iterable[Group], partition: PartitionState, retention: Retention, now_ms: int, limit: int = sys.maxsize
) -> Deletable | None:
    """Return the segments to remove, or None. ``groups`` are the partition's, oldest first; no more are consumed than
    needed. ``limit`` is how many files are enough; a segment that is due as a whole and consists of more is removed
    nevertheless."""
    walk = _Walk(iter(groups), partition.high_watermark, limit)
    _take_below_log_start(walk, partition.log_start_offset)
    if retention.delete:
        _take_beyond_size(walk, partition.size_bytes - walk.size_bytes, retention.retention_bytes)
        _take_beyond_age(walk, retention.retention_ms, now_ms)
    if not walk.taken:
        return None
    end_offset = partition.log_end_offset if walk.oldest is None else walk.oldest.segments[0].base_offset
    return Deletable(end_offset, walk.taken, walk.reasons, more=walk.is_full)


class _Walk:
    """The oldest remaining group, and the segments taken before it. Lives for one decision."""

    def __init__(self, groups: Iterator[Group], high_watermark: int, limit: int) -> None:
        self._groups = groups
        self._high_watermark = high_watermark
        self._limit = limit
        self.oldest = next(groups, None)
        self.taken: list[Segment] = []
        self.size_bytes = 0
        self.reasons: dict[str, int] = {}

    @property
    def room(self) -> int:
        """How many files may be taken; none or fewer once it is full."""
        return self._limit - len(self.taken)

    @property
    def is_full(self) -> bool:
        return self.room <= 0

    @property
    def candidate(self) -> Group | None:
        """The oldest group, if all its records are below the high watermark."""
        oldest = None if self.is_full else self.oldest
        return oldest if oldest is not None and oldest.end_offset <= self._high_watermark else None

    def take(self, count: int, reason: str) -> None:
        """Take the first segments of the oldest group."""
        assert self.oldest is not None
        segments, remaining = self.oldest.segments[:count], self.oldest.segments[count:]
        self.taken += segments
        self.size_bytes += sum(segment.size_bytes for segment in segments)
        self.reasons[reason] = self.reasons.get(reason, 0) + len(segments)
        self.oldest = Group(remaining, self.oldest.complete) if remaining else next(self._groups, None)

    def take_all(self, reason: str) -> None:
        assert self.oldest is not None
        self.take(len(self.oldest.segments), reason)


def _take_below_log_start(walk: _Walk, log_start_offset: int) -> None:
    """Take segments as Kafka's deleteLogStartOffsetBreachedSegments, also parts of the active segment."""
    while walk.oldest is not None and not walk.is_full:
        count = sum(segment.end_offset <= log_start_offset for segment in walk.oldest.segments)
        if not count:
            return
        walk.take(min(count, walk.room), LOG_START_OFFSET)


def _take_beyond_size(walk: _Walk, size_bytes: int, retention_bytes: int) -> None:
    """Take segments as Kafka's deleteRetentionSizeBreachedSegments: at least ``retention_bytes`` remain."""
    if retention_bytes < 0:
        return
    excess = size_bytes - retention_bytes
    while walk.candidate is not None and (size := walk.candidate.size_bytes) <= excess:
        excess -= size
        walk.take_all(RETENTION_BYTES)


def _take_beyond_age(walk: _Walk, retention_ms: int, now_ms: int) -> None:
    """Take segments as Kafka's deleteRetentionMsBreachedSegments: by the largest timestamp; one in the future keeps its
    segment and all later ones."""
    if retention_ms < 0:
        return
    while walk.candidate is not None and now_ms - walk.candidate.max_timestamp_us // 1000 > retention_ms:
        walk.take_all(RETENTION_MS)
