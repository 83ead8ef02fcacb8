"""Which segments of a partition retention takes out of the log: Kafka's ``UnifiedLog.deleteOldSegments``, pure.

Three passes, each from the oldest segment up to the first that stays: what lies below the log start offset, then what
``retention.bytes`` has no room for, then what is older than ``retention.ms``. The last two only where
``cleanup.policy`` has ``delete``. So what goes is always the oldest part of the log, and the log starts where it ends.

Rules: segments are Kafka's, so many small files that make up one segment (``protocol.rolling``) go together or not at
all; the active one too, which Kafka rolls first. Only below the log start offset, where nobody can read any more, files
go one by one: Kafka keeps those of the active segment until it rolls. Nothing at or above the high watermark goes.

Not for: what a reader may still hold, and when files are deleted (``maintenance.deletion``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from sparklog.config.topic_configs import DELETE, TopicConfig
from sparklog.protocol.plan.rolling import Group
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, State, TopicState

NO_LIMIT = -1
"""``retention.ms`` or ``retention.bytes`` of a topic that keeps everything."""

LOG_START_OFFSET = "log start offset"
RETENTION_BYTES = "retention.bytes"
RETENTION_MS = "retention.ms"
REASONS = (LOG_START_OFFSET, RETENTION_BYTES, RETENTION_MS)
"""Why segments go, in the order in which they are looked at."""


class Retention(NamedTuple):
    """What a topic's configs say. ``delete``: whether its records ever go by age or size."""

    delete: bool
    retention_ms: int = NO_LIMIT
    retention_bytes: int = NO_LIMIT


class Deletable(NamedTuple):
    """The oldest segments of a partition, which may go; the log starts at ``end_offset`` then.

    ``reasons`` counts them by ``REASONS``.
    """

    end_offset: int
    segments: list[Segment]
    reasons: Mapping[str, int]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


def retention_of(state: State, topic: TopicState) -> Retention:
    """What holds for a topic with the cluster's defaults of this state."""
    config = TopicConfig.resolve(topic.configs, state.configs)
    return Retention(DELETE in config.cleanup_policy, config.retention_ms, config.retention_bytes)


def may_delete(partition: PartitionState, retention: Retention) -> bool:
    """Whether the heads alone leave it open that something goes; a list need not be loaded where they do not."""
    if not partition.segments:
        return False
    limited = retention.retention_ms >= 0 or 0 <= retention.retention_bytes <= partition.size_bytes
    return partition.log_start_offset > 0 or (retention.delete and limited)


def deletable(
    groups: Iterable[Group], partition: PartitionState, retention: Retention, now_ms: int
) -> Deletable | None:
    """What goes, or None where everything stays. ``groups`` are the partition's, oldest first; as few are taken from it
    as are needed."""
    walk = _Walk(iter(groups), partition.high_watermark)
    _below_log_start(walk, partition.log_start_offset)
    if retention.delete:
        _beyond_size(walk, partition.size_bytes - walk.size_bytes, retention.retention_bytes)
        _beyond_age(walk, retention.retention_ms, now_ms)
    if not walk.taken:
        return None
    end_offset = partition.log_end_offset if walk.oldest is None else walk.oldest.segments[0].base_offset
    return Deletable(end_offset, walk.taken, walk.reasons)


class _Walk:
    """The oldest group that is still there, and what was taken before it. Lives for one decision."""

    def __init__(self, groups: Iterator[Group], high_watermark: int) -> None:
        self._groups = groups
        self._high_watermark = high_watermark
        self.oldest = next(groups, None)
        self.taken: list[Segment] = []
        self.size_bytes = 0
        self.reasons: dict[str, int] = {}

    @property
    def candidate(self) -> Group | None:
        """The oldest group, unless a record of it is not below the high watermark."""
        found = self.oldest
        return found if found is not None and found.end_offset <= self._high_watermark else None

    def take(self, count: int, reason: str) -> None:
        """The first segments of the oldest group go."""
        assert self.oldest is not None
        gone, left = self.oldest.segments[:count], self.oldest.segments[count:]
        self.taken += gone
        self.size_bytes += sum(segment.size_bytes for segment in gone)
        self.reasons[reason] = self.reasons.get(reason, 0) + len(gone)
        self.oldest = Group(left, self.oldest.complete) if left else next(self._groups, None)

    def take_all(self, reason: str) -> None:
        assert self.oldest is not None
        self.take(len(self.oldest.segments), reason)


def _below_log_start(walk: _Walk, log_start_offset: int) -> None:
    """Kafka's deleteLogStartOffsetBreachedSegments, also for parts of the active segment."""
    while walk.oldest is not None:
        gone = sum(segment.end_offset <= log_start_offset for segment in walk.oldest.segments)
        if not gone:
            return
        walk.take(gone, LOG_START_OFFSET)


def _beyond_size(walk: _Walk, size_bytes: int, retention_bytes: int) -> None:
    """Kafka's deleteRetentionSizeBreachedSegments: only what still leaves ``retention_bytes`` when it is gone."""
    if retention_bytes < 0:
        return
    excess = size_bytes - retention_bytes
    while walk.candidate is not None and (size := walk.candidate.size_bytes) <= excess:
        excess -= size
        walk.take_all(RETENTION_BYTES)


def _beyond_age(walk: _Walk, retention_ms: int, now_ms: int) -> None:
    """Kafka's deleteRetentionMsBreachedSegments: by the largest timestamp; one in the future keeps its segment, and all
    that come after it."""
    if retention_ms < 0:
        return
    while walk.candidate is not None and now_ms - walk.candidate.max_timestamp_us // 1000 > retention_ms:
        walk.take_all(RETENTION_MS)
