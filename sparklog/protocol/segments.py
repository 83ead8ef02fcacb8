"""A live segment: a run of record batches that a commit made part of a partition."""

from __future__ import annotations

import msgspec

from sparklog.protocol.commits import Append, Commit, DeleteSegments, LiveSegment, ReplaceSegments
from sparklog.protocol.state import State

NO_APPEND_TIME = -1
"""``append_time_ms`` where timestamps are the producers'."""

STORED_APPEND_TIME = -2
"""``append_time_ms`` where the timestamps in the file are those of the commits that appended the records."""


class Segment(msgspec.Struct, frozen=True):
    """Records ``[base_offset, end_offset)`` of a partition and where they are.

    ``records`` is smaller than the offset range only after compaction; the file says each record's offset then.
    ``append_time_ms`` is the timestamp of every record of an append to a LogAppendTime topic, else one of the negative
    numbers above. ``version`` is the commit that added the segment. Sizes are bytes, timestamps microseconds.
    ``closed``: nothing is merged with it any more; ``delete_horizon_ms``: see ``commits.LiveSegment``.
    """

    partition: int
    base_offset: int
    end_offset: int
    records: int
    path: str
    broker: int
    first_batch: int
    batches: int
    first_row: int
    size_bytes: int
    min_timestamp_us: int
    max_timestamp_us: int
    append_time_ms: int
    leader_epoch: int
    version: int
    closed: bool = False
    delete_horizon_ms: int = -1

    @property
    def has_gaps(self) -> bool:
        """Whether compaction took records out, so that rows say nothing of offsets."""
        return self.records < self.end_offset - self.base_offset

    @property
    def index_path(self) -> str:
        return index_path(self.path)

    def row_of(self, offset: int) -> int:
        """The row of the file that holds this offset; only for a segment without gaps."""
        return self.first_row + (offset - self.base_offset)


def index_path(log_path: str) -> str:
    """The ``.index`` beside a ``.log``."""
    return log_path.removesuffix(".log") + ".index"


def segment_of(append: Append, commit: Commit) -> Segment:
    """The segment that an append adds, with the time of its commit where the topic stamps on append."""
    run = append.run
    stamped = append.log_append_time
    return Segment(
        partition=append.partition,
        base_offset=append.base_offset,
        end_offset=append.base_offset + run.records,
        records=run.records,
        path=run.path,
        broker=run.broker,
        first_batch=run.first_batch,
        batches=run.batches,
        first_row=run.first_row,
        size_bytes=run.size_bytes,
        min_timestamp_us=commit.timestamp * 1000 if stamped else run.min_timestamp_us,
        max_timestamp_us=commit.timestamp * 1000 if stamped else run.max_timestamp_us,
        append_time_ms=commit.timestamp if stamped else NO_APPEND_TIME,
        leader_epoch=append.leader_epoch,
        version=commit.version,
    )


class SegmentsReplaced(msgspec.Struct, frozen=True):
    """The live segments inside offsets ``[start, end)`` of a partition gave way to ``added``, none where they went."""

    partition: int
    start: int
    end: int
    version: int
    added: tuple[Segment, ...] = ()


SegmentEvent = Segment | SegmentsReplaced
"""What a commit does to the list of a topic's segments: a segment comes at the end, or some give way to others."""


def segment_events(commit: Commit) -> dict[str, list[SegmentEvent]]:
    """What a commit does to lists of segments, by topic id, in the order of its actions."""
    events: dict[str, list[SegmentEvent]] = {}
    for action in commit.actions:
        if isinstance(action, Append):
            events.setdefault(action.topic_id, []).append(segment_of(action, commit))
        elif isinstance(action, ReplaceSegments):
            added = tuple(replacement_of(action.partition, one, commit.version) for one in action.added)
            replaced = SegmentsReplaced(action.partition, action.start_offset, action.end_offset, commit.version, added)
            events.setdefault(action.topic_id, []).append(replaced)
        elif isinstance(action, DeleteSegments):
            deleted = SegmentsReplaced(action.partition, 0, action.end_offset, commit.version)
            events.setdefault(action.topic_id, []).append(deleted)
    return events


def replacement_of(partition: int, added: LiveSegment, version: int) -> Segment:
    """The segment that commit ``version`` puts in the place of others."""
    run = added.run
    return Segment(
        partition=partition,
        base_offset=added.base_offset,
        end_offset=added.end_offset,
        records=run.records,
        path=run.path,
        broker=run.broker,
        first_batch=run.first_batch,
        batches=run.batches,
        first_row=run.first_row,
        size_bytes=run.size_bytes,
        min_timestamp_us=run.min_timestamp_us,
        max_timestamp_us=run.max_timestamp_us,
        append_time_ms=STORED_APPEND_TIME if added.append_time else NO_APPEND_TIME,
        leader_epoch=added.leader_epoch,
        version=version,
        closed=added.closed,
        delete_horizon_ms=added.delete_horizon_ms,
    )


def live_topic_ids(state: State) -> set[str]:
    """The ids of the topics that exist; segments of any other id are no longer part of the log."""
    return {topic.topic_id for topic in state.topics.values()}
