"""Which logs to compact, up to which offset, and how what survives is written: Kafka's cleaner, pure.

A compacted log keeps the latest record of each key. Its head, from ``PartitionState.cleaned_offset`` on, is *dirty*: a
key may occur there again. One pass takes the whole log up to the first segment that must not be cleaned, keeps the
latest record of each key in it, and notes how far it came.

A record with a key and no value, a tombstone, says that the key is gone. It stays for ``delete.retention.ms`` from the
first pass that keeps it, so that a reader who has seen the key learns that it is gone: that pass gives the segment a
*delete horizon*, and the first pass after the horizon drops the tombstones in it (KIP-534). A file has one horizon, so
tombstones come together in one only if their horizons are near each other, and then the latest holds for all.

Rules: pure, without clock and storage; the active segment is never cleaned; offsets never change.
Not for: finding the latest records (``maintenance.latest_records``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

from sparklog import limits
from sparklog.config.topic_configs import COMPACT, TopicConfig
from sparklog.protocol.plan.rolling import Group
from sparklog.protocol.segments import NO_APPEND_TIME, Segment
from sparklog.protocol.state import PartitionState

NO_HORIZON = -1
"""``delete_horizon_ms`` of a segment without tombstones, or that was never cleaned."""

HORIZON_WINDOWS = 8
"""Parts that ``delete.retention.ms`` is divided into: tombstones whose horizons lie in one part may share a file, so
that some go this part of the time later than they could, and frequent passes do not leave a file each."""


class CleaningRules(NamedTuple):
    """What a topic's configs say of compaction."""

    min_lag_ms: int = 0
    max_lag_ms: int = 2**63 - 1
    min_dirty_ratio: float = 0.5
    delete_retention_ms: int = 86_400_000
    segment_bytes: int = 1 << 30

    @property
    def horizon_window_ms(self) -> int:
        return max(self.delete_retention_ms // HORIZON_WINDOWS, 1)


class LogToClean(NamedTuple):
    """The part of a log that a pass would take: all of ``segments``, of which those from ``first_dirty_offset`` on have
    not been cleaned. ``overdue``: a record in it has waited for longer than ``max.compaction.lag.ms``."""

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
    """What a topic's configs say; None where ``cleanup.policy`` does not compact."""
    if COMPACT not in config.cleanup_policy:
        return None
    return CleaningRules(
        cast(int, config.get("min.compaction.lag.ms")),
        cast(int, config.get("max.compaction.lag.ms")),
        cast(float, config.get("min.cleanable.dirty.ratio")),
        cast(int, config.get("delete.retention.ms")),
        config.segment_bytes,
    )


def log_to_clean(
    groups: Iterable[Group], partition: PartitionState, rules: CleaningRules, now_ms: int
) -> LogToClean | None:
    """What a pass would take of a partition; None where there is nothing dirty that may be cleaned.

    ``groups`` are the partition's segments in Kafka's sense, oldest first. Kafka: LogCleanerManager.cleanableOffsets.
    """
    dirty_from = first_dirty_offset(partition)
    segments: list[Segment] = []
    clean = dirty = 0
    earliest_ms: int | None = None
    for group in groups:
        if group.end_offset <= partition.log_start_offset:
            continue  # about to be deleted
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
    """Where the dirty part begins: where the last pass ended, or the log's start where that is no longer in the log."""
    if partition.log_start_offset <= partition.cleaned_offset <= partition.log_end_offset:
        return partition.cleaned_offset
    return partition.log_start_offset


def is_due(log: LogToClean, rules: CleaningRules) -> bool:
    """Whether so much of a log is dirty, or for so long, that it is cleaned (LogCleanerManager's filter)."""
    return log.overdue or log.dirty_ratio > rules.min_dirty_ratio


# -- what survives, and into which files


class Survey(NamedTuple):
    """What a pass found in one segment: how many records survive, and whether it holds records without a value."""

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
    """Segments whose survivors go into one file with this delete horizon; ``rewrite`` false: it is that file already.

    The horizon is void where no tombstone survives.
    """

    members: Sequence[Survey]
    delete_horizon_ms: int
    rewrite: bool = True


class Pass(NamedTuple):
    """One pass over a log, at ``now_ms``."""

    first_dirty_offset: int
    now_ms: int
    rules: CleaningRules

    def drops_tombstones(self, segment: Segment) -> bool:
        """Whether a segment's tombstones have been there for long enough."""
        return segment.delete_horizon_ms != NO_HORIZON and self.now_ms >= segment.delete_horizon_ms

    def horizon_of(self, found: Survey) -> int:
        """The delete horizon of what survives of a segment."""
        segment = found.segment
        if not found.has_tombstones or self.drops_tombstones(segment):
            return NO_HORIZON
        if segment.delete_horizon_ms != NO_HORIZON:
            return segment.delete_horizon_ms
        return self.now_ms + self.rules.delete_retention_ms


def outputs(surveys: Iterable[Survey], cleaning: Pass) -> list[Output]:
    """How the survivors of a log are shared out to files of up to ``segment.bytes`` (Cleaner.groupSegmentsBySize).

    Segments of which nothing survives are in none. A large one that nothing is taken from is not written again.
    """
    found: list[Output] = []
    gathered = _Gathered(cleaning)
    for survey in (survey for survey in surveys if survey.survivors):
        alone = _stands_alone(survey, cleaning)
        if gathered.members and (alone or not gathered.takes(survey)):
            found.append(gathered.output())
            gathered = _Gathered(cleaning)
        gathered.add(survey)
        if alone:
            found.append(gathered.output())
            gathered = _Gathered(cleaning)
    if gathered.members:
        found.append(gathered.output())
    return _with_progress(found, cleaning)


class _Gathered:
    """Segments that become one file."""

    def __init__(self, cleaning: Pass) -> None:
        self.members: list[Survey] = []
        self._cleaning = cleaning
        self._bytes = 0
        self._horizon = NO_HORIZON

    def takes(self, added: Survey) -> bool:
        first, segment = self.members[0].segment, added.segment
        return (
            self._bytes + added.estimated_bytes <= self._cleaning.rules.segment_bytes
            and segment.end_offset - first.base_offset <= limits.MAX_SEGMENT_OFFSETS
            and segment.leader_epoch == first.leader_epoch
            and (segment.append_time_ms == NO_APPEND_TIME) == (first.append_time_ms == NO_APPEND_TIME)
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


def _stands_alone(survey: Survey, cleaning: Pass) -> bool:
    """Whether a segment stays as it is, since it is large and nothing about it changes."""
    large = 2 * survey.segment.size_bytes >= cleaning.rules.segment_bytes
    return large and _is_unchanged(survey, cleaning)


def _is_unchanged(survey: Survey, cleaning: Pass) -> bool:
    horizon = cleaning.horizon_of(survey)
    return survey.is_whole and horizon in (NO_HORIZON, survey.segment.delete_horizon_ms)


def _with_progress(found: list[Output], cleaning: Pass) -> list[Output]:
    """At least one dirty segment is written again: how far the pass came is noted with what takes a segment's place."""
    dirty = [
        number
        for number, output in enumerate(found)
        if output.members[-1].segment.end_offset > cleaning.first_dirty_offset
    ]
    if dirty and not any(output.rewrite for output in found):
        smallest = min(dirty, key=lambda number: found[number].members[0].segment.size_bytes)
        found[smallest] = found[smallest]._replace(rewrite=True)
    return found
