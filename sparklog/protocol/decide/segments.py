"""What a coordinator answers to jobs that roll, compact, delete or repair segments: (state, request) -> actions.

Such a job reads the list of segments at one version, works for minutes, and then asks for its changes. They are taken
if nobody replaced or deleted any of the same offsets since; what cannot be taken is left out and named, while the rest
of the request goes on: the job plans that part again. Appends never stand in the way.

Rules: the check needs the heads alone (``PartitionState.changes``), never the lists. Pure, without a clock.
Not for: which segments to change (``rolling``, ``compaction``, ``retention``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

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
"""The offset that means all records there are, as in Kafka's ``deleteRecords``."""


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """Put ``added`` in place of the segments inside ``[start_offset, end_offset)``; fields as ``ReplaceSegments``.

    Those of a partition that say ``together`` are made all or none: a compaction that took a tombstone out in one place
    and not the older records of its key in another would bring these back.
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


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """Let all segments that end at or before ``end_offset`` leave the log; fields as ``DeleteSegments``."""

    topic: str
    topic_id: str
    partition: int
    end_offset: int
    removed: RemovedSegments


class SegmentsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Changes planned at ``version``, in one commit. ``files``: what may be deleted later, already stored as a listing.

    A listing may name files of changes that are left out: whoever deletes looks whether a file is still part of the
    log.
    """

    version: int
    changes: Sequence[Replacement | Deletion]
    files: RemoveFiles | None = None


class LeftOut(NamedTuple):
    """A change that was not made, and why."""

    change: Replacement | Deletion
    why: str


class SegmentsResult(NamedTuple):
    """The changes that were made, and those that were not."""

    done: list[Replacement | Deletion]
    left_out: list[LeftOut]


def removed(topic_id: str, segments: Iterable[Segment]) -> RemovedSegments:
    """What these live segments amount to, as a change that removes them has to say."""
    count = size = 0
    hashes: list[int] = []
    for segment in segments:
        count += 1
        size += segment.size_bytes
        hashes.append(segment_checksum.segment_hash(topic_id, segment))
    return RemovedSegments(
        segments=count, size_bytes=size, checksum=segment_checksum.to_text(segment_checksum.total(hashes))
    )


def change_segments(state: State, request: SegmentsRequest) -> Decision:
    """Take the changes that nothing stands in the way of. The result is a ``SegmentsResult``."""
    actions: list[Action] = []
    result = SegmentsResult([], [])
    taken: dict[tuple[str, int], list[tuple[int, int]]] = {}
    refused = _refused_together(state, request)
    for change in request.changes:
        start, end = _range(change)
        place = (change.topic, change.partition)
        why = _why_not(state, change, request.version)
        if not why and place in refused and isinstance(change, Replacement) and change.together:
            why = refused[place]
        if not why and any(start < other_end and other_start < end for other_start, other_end in taken.get(place, ())):
            why = "the request changes the same offsets twice"
        if why:
            result.left_out.append(LeftOut(change, why))
            continue
        taken.setdefault(place, []).append((start, end))
        actions.append(_action(change))
        result.done.append(change)
    if actions and request.files is not None:
        actions.append(request.files)
    return Decision(actions, result)


def _refused_together(state: State, request: SegmentsRequest) -> dict[tuple[str, int], str]:
    """By partition, why the changes that are made together are not."""
    refused: dict[tuple[str, int], str] = {}
    for change in request.changes:
        if isinstance(change, Replacement) and change.together:
            why = _why_not(state, change, request.version)
            if why:
                refused.setdefault((change.topic, change.partition), why)
    return refused


def _range(change: Replacement | Deletion) -> tuple[int, int]:
    return (0 if isinstance(change, Deletion) else change.start_offset), change.end_offset


def _why_not(state: State, change: Replacement | Deletion, version: int) -> str:
    topic = state.topics.get(change.topic)
    if topic is None or topic.topic_id != change.topic_id or change.partition >= len(topic.partitions):
        return "the topic was deleted"
    if version <= state.writer_fence:
        return f"a vacuum at version {state.writer_fence} may have taken away what was prepared at version {version}"
    partition = topic.partitions[change.partition]
    start, end = _range(change)
    if changed_since(partition, version, start, end):
        return f"other segments make up offsets {start} to {end} since version {version}"
    if isinstance(change, Deletion):
        return ""
    return _why_not_held(state, partition, change)


def changed_since(partition: PartitionState, version: int, start: int, end: int) -> bool:
    """Whether segments of ``[start, end)`` may have been replaced or deleted after ``version``."""
    changes = partition.changes
    if len(changes) == limits.SEGMENT_CHANGES_KEPT and changes[0].version > version:
        return True  # there may have been others, which are forgotten
    return any(change.version > version and change.start < end and start < change.end for change in changes)


def _why_not_held(state: State, partition: PartitionState, change: Replacement) -> str:
    for added in change.added:
        missing = [broker for broker in partition.isr if broker not in holders(added.run)]
        if missing:
            return f"{added.run.path} is not on brokers {missing}, which came into the ISR since"
        lost = [broker for broker in holders(added.run) if may_lack(state, broker, added.run.path)]
        if lost:
            return f"{added.run.path} is on brokers {lost}, which have lost files since"
        if begun_at(added.run.path) <= state.writer_fence:
            return f"{added.run.path} was begun before a vacuum at version {state.writer_fence}, which may take it away"
    return ""


def _action(change: Replacement | Deletion) -> ReplaceSegments | DeleteSegments:
    if isinstance(change, Deletion):
        return DeleteSegments(
            topic=change.topic,
            topic_id=change.topic_id,
            partition=change.partition,
            end_offset=change.end_offset,
            removed=change.removed,
        )
    return ReplaceSegments(
        topic=change.topic,
        topic_id=change.topic_id,
        partition=change.partition,
        start_offset=change.start_offset,
        end_offset=change.end_offset,
        removed=change.removed,
        added=list(change.added),
        cleaned_offset=change.cleaned_offset,
    )


def delete_records(state: State, offsets: Mapping[tuple[str, int], int]) -> Decision:
    """Start partitions at later offsets; ``HIGH_WATERMARK`` deletes all records there are.

    The result is the low watermark of each partition: where its log starts now. Raises UnknownTopicOrPartitionError,
    OffsetOutOfRangeError above the high watermark, PolicyViolationError where ``cleanup.policy`` does not delete; all
    of them before anything is deleted. Kafka: ``ReplicaManager.deleteRecords``.
    """
    actions: list[Action] = []
    low: dict[tuple[str, int], int] = {}
    for (topic, number), asked in offsets.items():
        partition = state.partition(topic, number)
        found = state.topics[topic]
        if "delete" not in TopicConfig.resolve(found.configs, state.configs).cleanup_policy:
            raise PolicyViolationError(
                f"records of topic {topic!r} are not deleted: its cleanup.policy does not contain delete", topic=topic
            )
        offset = partition.high_watermark if asked == HIGH_WATERMARK else asked
        if not 0 <= offset <= partition.high_watermark:
            raise OffsetOutOfRangeError(
                f"{topic}-{number} cannot start at offset {asked}: its records go from {partition.log_start_offset} to "
                f"{partition.high_watermark - 1}; nothing was deleted",
                topic=topic,
                partition=number,
                offset=asked,
            )
        low[topic, number] = max(offset, partition.log_start_offset)
        if offset > partition.log_start_offset:
            actions.append(
                DeleteRecords(topic=topic, topic_id=found.topic_id, partition=number, log_start_offset=offset)
            )
    return Decision(actions, low)
