"""Retention: removes the oldest segments of partitions from the log by age, size and log start offset.

    result = retain(coordinator)

Kafka's ``LogManager.cleanupLogs``, which runs every ``log.retention.check.interval.ms``. For each topic: read the
segment lists of its partitions, decide (``protocol.plan.retention``), store a listing of the files, and remove the
segments of all its partitions with one commit, or with several where they are more than a listing holds
(``limits.LISTED_FILES``). The files are deleted later (``gc.sweep``). No data file is touched, so a broker may be
offline.

Rules: what is decided on one state is committed only for partitions whose segments and topic limits have not changed
since; the others are skipped, and the next run decides again. A crash leaves only a listing that no commit names.
Not for: leases of readers, and deleting files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from sparklog import limits
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.coordinator.one_timeline import in_one_timeline
from sparklog.errors import SparklogError
from sparklog.log.commits.retired_files import delete_unnamed, files_of, write_removed
from sparklog.maintenance.runner import raise_first
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.segments import (
    Deletion,
    LeftOut,
    SegmentsRequest,
    SegmentsResult,
    change_segments,
    delete_delay_ms,
    removed,
)
from sparklog.protocol.plan.retention import Deletable, Retention, deletable, may_delete, retention_of
from sparklog.protocol.plan.rolling import groups, rules_of
from sparklog.protocol.state import State, TopicState

COMMIT_BYTES = 3 * limits.MAX_COMMIT_BYTES // 4
DELETION_BYTES = 300
"""Maximum bytes of a commit for one partition, besides the name of its topic."""


@dataclass
class RetentionResult:
    """What retention did. ``reasons`` counts segments by ``protocol.plan.retention.REASONS``."""

    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    commits: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def count(self, deleted: Deletable) -> None:
        self.partitions += not deleted.more
        self.segments += len(deleted.segments)
        self.size_bytes += deleted.size_bytes
        for reason, segments in deleted.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + segments


class _PlannedDeletion(NamedTuple):
    """The deletion of segments of one partition."""

    change: Deletion
    deletable: Deletable


@in_one_timeline
def retain(
    coordinator: Coordinator, topics: Collection[str] | None = None, check: Callable[[], None] = lambda: None
) -> RetentionResult:
    """Remove the segments that are due, of all topics or of these. ``check`` is called between topics and may raise to
    stop.

    Raises UnknownTopicOrPartitionError for a topic that does not exist; after all other topics are processed, also the
    first StorageError, IndeterminateCommitError, CommitConflictError or CorruptMetadataError of a topic.
    """
    result = RetentionResult()
    errors: list[Exception] = []
    state = coordinator.refresh()
    for topic in [state.topic(name) for name in sorted(state.topics if topics is None else topics)]:
        check()
        try:
            _retain_topic(coordinator, state, topic, result)
        except SparklogError as error:
            if topic.name in coordinator.state.topics:  # else it was deleted in the meantime
                errors.append(error)
    raise_first(errors)
    return result


def _retain_topic(coordinator: Coordinator, state: State, topic: TopicState, result: RetentionResult) -> None:
    more = True
    while more:
        retention = retention_of(state, topic)
        now_ms = coordinator.log.expiry_clock.now_ms()
        planned = _by_commit(topic, _plan(coordinator, state, topic, retention, now_ms))
        done = [_commit(coordinator, state, retention, now_ms, deletions, result) for deletions in planned]
        more = any(deleted.more for commit in done for deleted in commit)
        if more:
            state = coordinator.refresh()
            topic = state.topic(topic.name)


def _by_commit(topic: TopicState, planned: Iterable[_PlannedDeletion]) -> Iterator[list[_PlannedDeletion]]:
    """Yield the deletions of one commit after the other: what it can state, and what the listing of its files may."""
    most = COMMIT_BYTES // (DELETION_BYTES + len(topic.name))
    deletions: list[_PlannedDeletion] = []
    files = 0
    for deletion in planned:
        added = len(deletion.deletable.segments) * _copies(topic, deletion.change.partition)
        if deletions and (len(deletions) == most or files + added > limits.LISTED_FILES):
            yield deletions
            deletions, files = [], 0
        deletions.append(deletion)
        files += added
    if deletions:
        yield deletions


def _copies(topic: TopicState, partition: int) -> int:
    """Return how often a file of a partition is listed at most (``files_of``)."""
    return max(len(topic.partitions[partition].replicas), 2)


def _plan(
    coordinator: Coordinator, state: State, topic: TopicState, retention: Retention, now_ms: int
) -> Iterator[_PlannedDeletion]:
    config = TopicConfig.resolve(topic.configs, state.configs)
    for number, partition in enumerate(topic.partitions):
        if not may_delete(partition, retention):
            continue
        segments = coordinator.segments(topic.name, state).partition(number)
        live = groups(segments, rules_of(config, topic.topic_id, number))
        limit = limits.LISTED_FILES // _copies(topic, number)
        deleted = deletable(live, partition, retention, now_ms, limit)
        if deleted is not None:
            change = Deletion(
                topic=topic.name,
                topic_id=topic.topic_id,
                partition=number,
                end_offset=deleted.end_offset,
                removed=removed(topic.topic_id, deleted.segments),
            )
            yield _PlannedDeletion(change, deleted)


def _commit(
    coordinator: Coordinator,
    state: State,
    retention: Retention,
    now_ms: int,
    deletions: Sequence[_PlannedDeletion],
    result: RetentionResult,
) -> list[Deletable]:
    """Store the listing, then remove the segments with one commit; return what was removed."""
    topic = state.topic(deletions[0].change.topic)
    files = (
        file
        for deletion in deletions
        for file in files_of(topic.partitions[deletion.change.partition], deletion.deletable.segments)
    )
    config = TopicConfig.resolve(topic.configs, state.configs)
    has_history = any(segment.is_history for each in deletions for segment in each.deletable.segments)
    delay_ms = delete_delay_ms(config, has_history)
    listing = write_removed(coordinator.store, coordinator.log.ids, state.version, files, delay_ms)
    changes = [deletion.change for deletion in deletions]
    request = SegmentsRequest(version=state.version, changes=changes, files=listing, has_history=has_history)

    def is_set_back() -> bool:
        return coordinator.log.expiry_clock.now_ms() < now_ms - limits.MAX_CLOCK_SKEW_MS

    with delete_unnamed(coordinator.log, [listing]):
        answer = coordinator.submit(lambda newest: _decide(newest, retention, topic, request, is_set_back()))
    result.commits += bool(answer.done)
    changed = {change.partition for change in answer.done}
    done = [deletion.deletable for deletion in deletions if deletion.change.partition in changed]
    for deleted in done:
        result.count(deleted)
    for skipped in answer.left_out:
        result.left_out.append(
            f"skipped {skipped.change.topic}-{skipped.change.partition}: {skipped.why}; the next run retries it"
        )
    return done


def _decide(
    state: State, retention: Retention, planned: TopicState, request: SegmentsRequest, is_set_back: bool
) -> Decision[SegmentsResult]:
    """Return the changes that are still valid; none if the topic's limits have changed since the plan on ``planned``,
    or the clock was set back.

    A partition that has become smaller since is skipped too: what is left may be less than ``retention.bytes`` now.
    """
    topic = state.topics.get(planned.name)
    if topic is None or topic.topic_id != planned.topic_id:
        return change_segments(state, request)
    left_out: list[LeftOut] = []
    limits_changed = retention_of(state, topic) != retention
    for change in request.changes:
        if is_set_back:
            left_out.append(LeftOut(change, "the clock was ahead when its segments were found to be due"))
        elif limits_changed:
            left_out.append(LeftOut(change, "the topic's limits have changed"))
        elif retention.retention_bytes >= 0:
            before, now = planned.partitions[change.partition], topic.partitions[change.partition]
            if now.size_bytes < before.size_bytes:
                left_out.append(LeftOut(change, "its segments have become smaller"))
    if not left_out:
        return change_segments(state, request)
    skipped = {change.partition for change, _ in left_out}
    remaining = [change for change in request.changes if change.partition not in skipped]
    decision = change_segments(state, replace(request, changes=remaining))
    done, also_left_out = decision.result
    return Decision(decision.actions, SegmentsResult(done, [*left_out, *also_left_out]))
