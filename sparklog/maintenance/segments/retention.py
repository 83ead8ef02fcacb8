"""Retention: the oldest segments of partitions leave the log by age, size and log start offset.

    result = retain(coordinator)

Kafka's ``LogManager.cleanupLogs``, which ``log.retention.check.interval.ms`` drives. For each topic: read the lists of
its partitions, decide (``protocol.retention``), store a listing of the files, and let one commit take the segments of
all its partitions out. The files go later (``deletion``). No data file is touched, so a broker may be offline.

Rules: what is decided on one state is committed only for partitions whose segments and whose topic's limits are still
the same; the others are left out and decided again next time. A crash leaves a listing that no commit names, and
nothing else.
Not for: what a reader may still hold, and deleting files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from msgspec.structs import replace

from sparklog import limits
from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.errors import IndeterminateCommitError, SparklogError, StorageError
from sparklog.log.commits.retired_files import files_of, write_removed
from sparklog.maintenance.runner import raise_first
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.segments import (
    Deletion,
    LeftOut,
    SegmentsRequest,
    SegmentsResult,
    change_segments,
    removed,
)
from sparklog.protocol.plan.retention import Deletable, Retention, deletable, may_delete, retention_of
from sparklog.protocol.plan.rolling import groups, rules_of
from sparklog.protocol.state import State, TopicState

_COMMIT_BYTES = 3 * limits.MAX_COMMIT_BYTES // 4
_DELETION_BYTES = 300
"""bytes of a commit that one partition takes at most, besides the name of its topic."""


@dataclass
class Retained:
    """What retention has done. ``reasons`` counts segments by ``protocol.retention.REASONS``."""

    topics: int = 0
    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    commits: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    def count(self, found: Deletable) -> None:
        self.partitions += 1
        self.segments += len(found.segments)
        self.size_bytes += found.size_bytes
        for reason, segments in found.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + segments


class _Planned(NamedTuple):
    """What is to leave one partition."""

    change: Deletion
    found: Deletable


def retain(
    coordinator: Coordinator, topics: Collection[str] | None = None, check: Callable[[], None] = lambda: None
) -> Retained:
    """Take out of the log what is due, of all topics or of these. ``check`` is called between topics, to stop there.

    Raises UnknownTopicOrPartitionError for a topic that is not there; once the others are dealt with, also
    StorageError, IndeterminateCommitError, CommitConflictError and CorruptMetadataError of a topic.
    """
    result = Retained()
    errors: list[Exception] = []
    state = coordinator.refresh()
    for topic in [state.topic(name) for name in sorted(state.topics if topics is None else topics)]:
        check()
        try:
            _retain_topic(coordinator, state, topic, result)
        except SparklogError as error:
            if topic.name in coordinator.state.topics:  # else it was deleted meanwhile
                errors.append(error)
    raise_first(errors)
    return result


def _retain_topic(coordinator: Coordinator, state: State, topic: TopicState, result: Retained) -> None:
    retention = retention_of(state, topic)
    planned = list(_plan(coordinator, state, topic, retention))
    result.topics += bool(planned)
    at_a_time = _COMMIT_BYTES // (_DELETION_BYTES + len(topic.name))
    for start in range(0, len(planned), at_a_time):
        _commit(coordinator, state, retention, planned[start : start + at_a_time], result)


def _plan(coordinator: Coordinator, state: State, topic: TopicState, retention: Retention) -> Iterator[_Planned]:
    now_ms = coordinator.expiry_time_ms()
    config = TopicConfig.resolve(topic.configs, state.configs)
    for number, partition in enumerate(topic.partitions):
        if not may_delete(partition, retention):
            continue
        listed = coordinator.segments(topic.name, state).partition(number)
        live = groups(listed, rules_of(config, topic.topic_id, number))
        found = deletable(live, partition, retention, now_ms)
        if found is not None:
            change = Deletion(
                topic=topic.name,
                topic_id=topic.topic_id,
                partition=number,
                end_offset=found.end_offset,
                removed=removed(topic.topic_id, found.segments),
            )
            yield _Planned(change, found)


def _commit(
    coordinator: Coordinator, state: State, retention: Retention, planned: Sequence[_Planned], result: Retained
) -> None:
    """Store the listing, then take the segments out in one commit."""
    topic = state.topic(planned[0].change.topic)
    files = (file for one in planned for file in files_of(topic.partitions[one.change.partition], one.found.segments))
    delay_ms = TopicConfig.resolve(topic.configs, state.configs).file_delete_delay_ms
    listing = write_removed(coordinator.store, coordinator.log.ids, state.version, files, delay_ms)
    request = SegmentsRequest(version=state.version, changes=[one.change for one in planned], files=listing)
    answer: SegmentsResult | None = None
    try:
        answer = cast(SegmentsResult, coordinator.submit(lambda newest: _decided(newest, retention, topic, request)))
    except IndeterminateCommitError:
        raise
    except SparklogError:
        _forget(coordinator, listing.listing)
        raise
    if not answer.done:
        _forget(coordinator, listing.listing)
    result.commits += bool(answer.done)
    done = {change.partition for change in answer.done}
    for one in planned:
        if one.change.partition in done:
            result.count(one.found)
    for left_out in answer.left_out:
        place = f"{left_out.change.topic}-{left_out.change.partition}"
        result.left_out.append(f"{place} keeps its segments for now: {left_out.why}")


def _decided(state: State, retention: Retention, planned: TopicState, request: SegmentsRequest) -> Decision:
    """The changes that still hold; none where the limits were changed since they were planned on ``planned``.

    Nor of a partition that has become smaller since: what is left there may be less than ``retention.bytes`` now.
    """
    topic = state.topics.get(planned.name)
    if topic is None or topic.topic_id != planned.topic_id:
        return change_segments(state, request)
    left_out: list[LeftOut] = []
    limits_changed = retention_of(state, topic) != retention
    for change in request.changes:
        if limits_changed:
            left_out.append(LeftOut(change, "the topic's limits were changed meanwhile"))
        elif retention.retention_bytes >= 0 and _has_shrunk(planned, topic, change.partition):
            left_out.append(LeftOut(change, "its segments became smaller meanwhile"))
    if not left_out:
        return change_segments(state, request)
    without = {one.change.partition for one in left_out}
    kept = [change for change in request.changes if change.partition not in without]
    decided = change_segments(state, replace(request, changes=kept))
    done, also_left_out = cast(SegmentsResult, decided.result)
    return Decision(decided.actions, SegmentsResult(done, [*left_out, *also_left_out]))


def _has_shrunk(planned: TopicState, topic: TopicState, partition: int) -> bool:
    return topic.partitions[partition].size_bytes < planned.partitions[partition].size_bytes


def _forget(coordinator: Coordinator, listing: str) -> None:
    """Delete a listing that no commit names."""
    with suppress(StorageError):
        coordinator.store.delete(listing)
