"""Decisions about changes of segments by jobs that roll, compact, delete or repair them.

A job reads the list of segments at one version, works for minutes, and then requests its changes. A change is accepted
if no other job has replaced or deleted segments of the same offsets since; a rejected one is left out and reported, and
the job plans it again, while the rest of the request is committed. Appends never conflict.

Rules: as in ``decide``. The check needs only the partition's state (``PartitionState.changes``), never lists of
segments; a job that took so long that the state has forgotten changes compares lists first (``unchanged_at``).
Not for: which segments to change (``plan``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from sparklog import limits
from sparklog.config.topic_configs import TopicConfig
from sparklog.errors import OffsetOutOfRangeError, PolicyViolationError
from sparklog.protocol import segment_checksum
from sparklog.protocol.commits import (
    Action,
    DeleteRecords,
    DeleteSegments,
    LiveSegment,
    RemovedSegments,
    RemoveFiles,
    ReplaceSegments,
)
from sparklog.protocol.decide.brokers import may_lack
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.file_names import begun_at
from sparklog.protocol.partition_fold import holders
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, State

HIGH_WATERMARK = -1
"""The offset that means all records, as in Kafka's ``deleteRecords``."""


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """Replace the segments inside ``[start_offset, end_offset)`` by ``added``; fields as in ``ReplaceSegments``.

    Replacements of a partition with ``together`` are made all or none: a compaction that removed a tombstone in one
    segment but not the older records of its key in another would make these visible again. ``decided_on`` is the
    range of offsets whose records decided the change: it is left out, too, if segments of these were replaced. A
    compaction drops a tombstone since no older record of its key is left, and a repair brings records back that later
    ones supersede.
    """

    topic: str
    topic_id: str
    partition: int
    start_offset: int
    end_offset: int
    removed: RemovedSegments
    added: Sequence[LiveSegment] = ()
    cleaned_offset: int = -1
    together: bool = False
    decided_on: tuple[int, int] | None = None


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """Remove all segments that end at or before ``end_offset`` from the log; fields as in ``DeleteSegments``."""

    topic: str
    topic_id: str
    partition: int
    end_offset: int
    removed: RemovedSegments


class SegmentsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Changes planned at ``version``, in one commit. ``files`` is the stored listing of files to delete later.
    ``unchanged_at``: a version at which the segments to remove were seen to be those of the plan.

    A listing may name files of changes that are left out: a sweep checks whether a file is still part of the log. Its
    files are kept for as long as it says, or as the topics say now, if that is longer; ``has_history``: some of them
    are history.
    """

    version: int
    unchanged_at: int = -1
    changes: Sequence[Replacement | Deletion]
    files: RemoveFiles | None = None
    has_history: bool = False


class LeftOut(NamedTuple):
    """A change that was not made, and the reason."""

    change: Replacement | Deletion
    why: str


class SegmentsResult(NamedTuple):
    """The changes that were made, and those that were not."""

    done: list[Replacement | Deletion]
    left_out: list[LeftOut]


def removed(topic_id: str, segments: Sequence[Segment]) -> RemovedSegments:
    """Return count, bytes and checksum of live segments, which a change that removes them has to state."""
    checksum = segment_checksum.total(segment_checksum.segment_hash(topic_id, segment) for segment in segments)
    return RemovedSegments(
        segments=len(segments),
        size_bytes=sum(segment.size_bytes for segment in segments),
        checksum=segment_checksum.to_text(checksum),
        unfit=sum(segment.unfit for segment in segments),
    )


def change_segments(state: State, request: SegmentsRequest) -> Decision[SegmentsResult]:
    """Accept the changes that conflict with no other. The result is a ``SegmentsResult``."""
    actions: list[Action] = []
    result = SegmentsResult([], [])
    taken: dict[tuple[str, int], list[tuple[int, int]]] = {}
    refused = _find_refused_together(state, request)
    for change in request.changes:
        start, end = _find_range(change)
        partition = (change.topic, change.partition)
        why = _find_conflict(state, change, request)
        if not why and partition in refused and isinstance(change, Replacement) and change.together:
            why = refused[partition]
        if not why and any(
            start < other_end and other_start < end for other_start, other_end in taken.get(partition, ())
        ):
            why = "the request changes the same offsets twice"
        if why:
            result.left_out.append(LeftOut(change, why))
            continue
        taken.setdefault(partition, []).append((start, end))
        actions.append(_make_action(change))
        result.done.append(change)
    if actions and request.files is not None:
        delays = [
            delete_delay_ms(TopicConfig.resolve(state.topics[name].configs, state.configs), request.has_history)
            for name in {change.topic for change in result.done}
        ]
        actions.append(replace(request.files, delay_ms=max(request.files.delay_ms, *delays)))
    return Decision(actions, result)


def delete_delay_ms(config: TopicConfig, has_history: bool) -> int:
    """Return how long the files of segments that are replaced or expire are kept, together."""
    if has_history:
        return max(config.file_delete_delay_ms, config.history_delete_delay_ms)
    return config.file_delete_delay_ms


def _find_refused_together(state: State, request: SegmentsRequest) -> dict[tuple[str, int], str]:
    """Return by partition the reason why its changes that are made together are refused."""
    refused: dict[tuple[str, int], str] = {}
    for change in request.changes:
        if isinstance(change, Replacement) and change.together:
            why = _find_conflict(state, change, request)
            if why:
                refused.setdefault((change.topic, change.partition), why)
    return refused


def _find_range(change: Replacement | Deletion) -> tuple[int, int]:
    return (0 if isinstance(change, Deletion) else change.start_offset), change.end_offset


def _find_conflict(state: State, change: Replacement | Deletion, request: SegmentsRequest) -> str:
    topic, version = state.topics.get(change.topic), request.version
    if topic is None or topic.topic_id != change.topic_id or change.partition >= len(topic.partitions):
        return "the topic was deleted"
    if version <= state.writer_fence:
        return (
            f"a vacuum at version {state.writer_fence} may have deleted files that were prepared at version {version}"
        )
    partition = topic.partitions[change.partition]
    start, end = _find_range(change)
    ranges = [(start, end)]
    if isinstance(change, Replacement) and change.decided_on is not None:
        first, last = change.decided_on
        ranges.append((max(first, partition.log_start_offset), last))  # what was deleted supersedes nothing
    for start, end in ranges:
        if changed_since(partition, max(version, request.unchanged_at), start, end):
            return f"segments of offsets {start} to {end} have changed since version {version}"
    if isinstance(change, Deletion):
        return ""
    return _find_missing_copy(state, partition, change)


def changed_since(partition: PartitionState, version: int, start: int, end: int) -> bool:
    """Return whether segments of ``[start, end)`` may have been replaced or deleted after ``version``."""
    if has_forgotten(partition, version):
        return True
    return any(change.version > version and change.start < end and start < change.end for change in partition.changes)


def has_forgotten(partition: PartitionState, version: int) -> bool:
    """Return whether the state may have forgotten changes of segments after ``version``: it keeps the latest."""
    changes = partition.changes
    return len(changes) == limits.SEGMENT_CHANGES_KEPT and changes[0].version > version


def _find_missing_copy(state: State, partition: PartitionState, change: Replacement) -> str:
    for added in change.added:
        missing = [broker for broker in partition.isr if broker not in holders(added.run)]
        if missing:
            return f"{added.run.path} is not on brokers {missing}, which have joined the ISR since"
        lost = [broker for broker in holders(added.run) if may_lack(state, broker, added.run.path)]
        if lost:
            return f"{added.run.path} is on brokers {lost}, which were replaced or moved since, or have lost files"
        if begun_at(added.run.path) <= state.writer_fence:
            return f"{added.run.path} was begun before a vacuum at version {state.writer_fence}, which may delete it"
    return ""


def _make_action(change: Replacement | Deletion) -> ReplaceSegments | DeleteSegments:
    fields = asdict(change)
    if isinstance(change, Deletion):
        return DeleteSegments(**fields)
    del fields["together"], fields["decided_on"]
    return ReplaceSegments(**{**fields, "added": list(change.added)})


def delete_records(state: State, offsets: Mapping[tuple[str, int], int]) -> Decision[dict[tuple[str, int], int]]:
    """Move log start offsets of partitions forward; ``HIGH_WATERMARK`` deletes all records.

    The result is the low watermark of each partition: its new log start offset. Raises UnknownTopicOrPartitionError,
    OffsetOutOfRangeError above the high watermark, PolicyViolationError if ``cleanup.policy`` does not contain delete;
    all of them before anything is deleted. Kafka: ``ReplicaManager.deleteRecords``.
    """
    actions: list[Action] = []
    low_watermarks: dict[tuple[str, int], int] = {}
    for (topic, number), requested in offsets.items():
        partition = state.partition(topic, number)
        topic_state = state.topics[topic]
        if "delete" not in TopicConfig.resolve(topic_state.configs, state.configs).cleanup_policy:
            raise PolicyViolationError(
                f"records of topic {topic!r} cannot be deleted: its cleanup.policy does not contain delete", topic=topic
            )
        offset = partition.high_watermark if requested == HIGH_WATERMARK else requested
        if not 0 <= offset <= partition.high_watermark:
            raise OffsetOutOfRangeError(
                f"{topic}-{number} cannot start at offset {requested}: it has offsets {partition.log_start_offset} to "
                f"{partition.high_watermark - 1}; nothing was deleted",
                topic=topic,
                partition=number,
                offset=requested,
            )
        low_watermarks[topic, number] = max(offset, partition.log_start_offset)
        if offset > partition.log_start_offset:
            actions.append(
                DeleteRecords(topic=topic, topic_id=topic_state.topic_id, partition=number, log_start_offset=offset)
            )
    return Decision(actions, low_watermarks)
