"""Which logs to compact, up to which offset, and into which files the survivors are written: Kafka's cleaner, pure.

A compacted log keeps the latest record of each key. Its head, from ``PartitionState.cleaned_offset`` on, is *dirty*: a
key may occur there again. One pass takes the whole log up to the first segment that must not be cleaned, keeps the
latest record of each key in it, and records how far it came.

A tombstone, a record with a key and no value, marks the key as deleted. It is kept for ``delete.retention.ms`` after
the first pass that keeps it, so that a reader that has seen the key learns of its deletion: that pass gives the segment
a *delete horizon*, and the first pass after the horizon drops its tombstones (KIP-534). A file has one horizon, so
tombstones share a file only if their horizons are close together, and then the latest applies to all.

Rules: pure, without clock and storage; the active segment is never cleaned; offsets never change.
Not for: finding the latest records (``maintenance.segments.latest_records``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sparklog.config.definitions import LONG_MAX
from sparklog.config.topic_configs import COMPACT, TopicConfig
from sparklog.protocol.plan.rolling import Group, may_share_file
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState

NO_HORIZON = -1
"""``delete_horizon_ms`` of a segment without tombstones, or that was never cleaned."""

HORIZON_WINDOWS = 8
"""Windows that ``delete.retention.ms`` is divided into: tombstones with horizons in the same window may share a file.
So frequent passes do not leave a file each, and tombstones are dropped at most one window late."""


class CleaningRules(NamedTuple):
    """The configs of a topic for compaction."""

    min_lag_ms: int = 0
    max_lag_ms: int = 2**63 - 1
    min_dirty_ratio: float = 0.5
    delete_retention_ms: int = 86_400_000
    segment_bytes: int = 1 << 30

    @property
    def horizon_window_ms(self) -> int:
        return max(self.delete_retention_ms // HORIZON_WINDOWS, 1)


class LogToClean(NamedTuple):
    """The part of a log that a pass would clean: all of ``segments``, of which those from ``first_dirty_offset`` on
    have not been cleaned. ``overdue``: it has a record older than ``max.compaction.lag.ms``."""

    segments: Sequence[Segment]
    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def rules_of(config: TopicConfig) -> CleaningRules | None:
    """Return the rules from a topic's configs; None if ``cleanup.policy`` does not contain compact."""
    if COMPACT not in config.cleanup_policy:
        return None
    return CleaningRules(
        config.min_compaction_lag_ms,
        config.max_compaction_lag_ms,
        config.min_cleanable_dirty_ratio,
        config.delete_retention_ms,
        config.segment_bytes,
    )


def log_to_clean(
    groups: Iterable[Group], partition: PartitionState, rules: CleaningRules, now_ms: int
) -> LogToClean | None:
    """Return the part of a partition that a pass would clean; None if nothing dirty may be cleaned.

    ``groups`` are the partition's segments in Kafka's sense, oldest first. Kafka: LogCleanerManager.cleanableOffsets.
    """
    dirty_from = first_dirty_offset(partition)
    segments: list[Segment] = []
    clean = dirty = 0
    earliest_ms: int | None = None
    for group in groups:
        if group.end_offset <= partition.log_start_offset:
            continue  # will be deleted
        if not group.complete or group.end_offset > partition.high_watermark:
            break
        if group.end_offset > dirty_from:
            if rules.min_lag_ms > 0 and group.max_timestamp_us // 1000 > now_ms - rules.min_lag_ms:
                break
            dirty += group.size_bytes
            first_ms = group.segments[0].min_timestamp_us // 1000
            if first_ms > 0:
                earliest_ms = first_ms if earliest_ms is None else min(earliest_ms, first_ms)
        else:
            clean += group.size_bytes
        segments += group.segments
    if not dirty:
        return None
    overdue = earliest_ms is not None and earliest_ms < now_ms - rules.max_lag_ms
    return LogToClean(segments, dirty_from, segments[-1].end_offset, clean, dirty, overdue)


def first_dirty_offset(partition: PartitionState) -> int:
    """Return the start of the dirty part: the end of the last pass, or the log start offset if that is no longer in the
    log."""
    if partition.log_start_offset <= partition.cleaned_offset <= partition.log_end_offset:
        return partition.cleaned_offset
    return partition.log_start_offset


def is_due(log: LogToClean, rules: CleaningRules) -> bool:
    """Return whether a log is dirty enough, or has been for long enough, to be cleaned (LogCleanerManager's filter)."""
    return log.overdue or log.dirty_ratio > rules.min_dirty_ratio


# -- survivors and their files


class Survey(NamedTuple):
    """Result of a pass for one segment: the number of surviving records, and whether it has tombstones."""

    segment: Segment
    survivors: int
    has_tombstones: bool

    @property
    def estimated_bytes(self) -> int:
        return self.segment.size_bytes * self.survivors // self.segment.records

    @property
    def is_whole(self) -> bool:
        return self.survivors == self.segment.records


class Output(NamedTuple):
    """Segments whose survivors go into one file with this delete horizon; ``rewrite`` false: it already is that file.

    The horizon does not matter if no tombstone survives.
    """

    members: Sequence[Survey]
    delete_horizon_ms: int
    rewrite: bool = True


class CompactionPass(NamedTuple):
    """One pass over a log, at ``now_ms``."""

    first_dirty_offset: int
    now_ms: int
    rules: CleaningRules

    def drops_tombstones(self, segment: Segment) -> bool:
        """Return whether a segment's delete horizon has passed."""
        return segment.delete_horizon_ms != NO_HORIZON and self.now_ms >= segment.delete_horizon_ms

    def horizon_of(self, survey: Survey) -> int:
        """Return the delete horizon for the survivors of a segment."""
        segment = survey.segment
        if not survey.has_tombstones or self.drops_tombstones(segment):
            return NO_HORIZON
        if segment.delete_horizon_ms != NO_HORIZON:
            return segment.delete_horizon_ms
        return min(self.now_ms + self.rules.delete_retention_ms, LONG_MAX)


def outputs(surveys: Iterable[Survey], cleaning: CompactionPass) -> list[Output]:
    """Distribute the survivors of a log over files of up to ``segment.bytes`` (Cleaner.groupSegmentsBySize).

    Segments without survivors are in no file. A large unchanged segment is not rewritten.
    """
    builders: list[_OutputBuilder] = []
    previous_stands_alone = True
    for survey in (survey for survey in surveys if survey.survivors):
        alone = _stands_alone(survey, cleaning)
        if alone or previous_stands_alone or not builders[-1].takes(survey):
            builders.append(_OutputBuilder(cleaning))
        builders[-1].add(survey)
        previous_stands_alone = alone
    return _ensure_progress([builder.output() for builder in builders], cleaning)


class _OutputBuilder:
    """Collects segments that become one file."""

    def __init__(self, cleaning: CompactionPass) -> None:
        self.members: list[Survey] = []
        self._cleaning = cleaning
        self._bytes = 0
        self._horizon = NO_HORIZON

    def takes(self, added: Survey) -> bool:
        return (
            self._bytes + added.estimated_bytes <= self._cleaning.rules.segment_bytes
            and may_share_file(self.members[0].segment, added.segment)
            and self._are_near(self._cleaning.horizon_of(added))
        )

    def add(self, survey: Survey) -> None:
        self.members.append(survey)
        self._bytes += survey.estimated_bytes
        self._horizon = max(self._horizon, self._cleaning.horizon_of(survey))

    def output(self) -> Output:
        rewrite = len(self.members) > 1 or not _is_unchanged(self.members[0], self._cleaning)
        return Output(self.members, self._horizon, rewrite)

    def _are_near(self, horizon: int) -> bool:
        window = self._cleaning.rules.horizon_window_ms
        return NO_HORIZON in (horizon, self._horizon) or horizon // window == self._horizon // window


def _stands_alone(survey: Survey, cleaning: CompactionPass) -> bool:
    """Return whether a segment is kept as it is, because it is large and unchanged."""
    large = 2 * survey.segment.size_bytes >= cleaning.rules.segment_bytes
    return large and _is_unchanged(survey, cleaning)


def _is_unchanged(survey: Survey, cleaning: CompactionPass) -> bool:
    horizon = cleaning.horizon_of(survey)
    return survey.is_whole and horizon in (NO_HORIZON, survey.segment.delete_horizon_ms)


def _ensure_progress(planned: list[Output], cleaning: CompactionPass) -> list[Output]:
    """Rewrite at least one dirty segment, since the progress of a pass is recorded with a replacement."""
    dirty = [
        number
        for number, output in enumerate(planned)
        if output.members[-1].segment.end_offset > cleaning.first_dirty_offset
    ]
    if dirty and not any(output.rewrite for output in planned):
        smallest = min(dirty, key=lambda number: planned[number].members[0].segment.size_bytes)
        planned[smallest] = planned[smallest]._replace(rewrite=True)
    return planned
