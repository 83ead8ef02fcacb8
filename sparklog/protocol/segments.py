"""Live segments: runs of record batches that commits made part of partitions, and how commits change lists of them.

Rules: pure. Not for: loading lists of segments (``log.segments``).
"""

from __future__ import annotations

import msgspec

from sparklog.protocol.commits import Append, Commit, DeleteSegments, LiveSegment, ReplaceSegments
from sparklog.protocol.file_names import index_path, is_history

NO_APPEND_TIME = -1
"""``append_time_ms`` if timestamps are the producers'."""

STORED_APPEND_TIME = -2
"""``append_time_ms`` if the timestamps in the file are those of the commits that appended the records."""


class Segment(msgspec.Struct, frozen=True):
    """Records ``[base_offset, end_offset)`` of a partition and their location.

    ``records`` is smaller than the offset range only after compaction; then the file contains each record's offset.
    ``append_time_ms`` is the timestamp of every record of an append to a LogAppendTime topic, else one of the negative
    numbers above. ``version`` is the commit that added the segment. Sizes are bytes, timestamps microseconds.
    ``closed``: it is not merged any more; ``delete_horizon_ms``, ``stats``, ``file_bytes``, ``unfit``: see
    ``commits.LiveSegment``.
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
    stats: str = ""
    file_bytes: int = 0
    unfit: int = 0

    @property
    def has_gaps(self) -> bool:
        """Whether compaction removed records, so that offsets do not follow from rows."""
        return self.records < self.end_offset - self.base_offset

    @property
    def index_path(self) -> str:
        return index_path(self.path)

    @property
    def is_history(self) -> bool:
        """Whether its file is Parquet."""
        return is_history(self.path)

    @property
    def offsets(self) -> tuple[int, int]:
        """The first and the last offset in the file of this history segment; as far as it may reach if not stated."""
        return offsets_in(self.stats) or (self.base_offset, self.end_offset - 1)

    def begins_before(self, offset: int) -> bool:
        """Return whether the file of this history segment has a record below ``offset``."""
        return self.base_offset < offset and self.offsets[0] < offset

    def row_of(self, offset: int) -> int:
        """Return the row of the file that holds this offset; only for a segment without gaps."""
        return self.first_row + (offset - self.base_offset)


class _Bound(msgspec.Struct):
    offset: int


class _Stats(msgspec.Struct, rename="camel"):
    min_values: _Bound
    max_values: _Bound


def offsets_in(stats: str | None) -> tuple[int, int] | None:
    """Return the first and the last offset of a file from its statistics; None if they do not state them."""
    try:
        bounds = msgspec.json.decode(stats or "", type=_Stats)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return bounds.min_values.offset, bounds.max_values.offset


def segment_of(append: Append, commit: Commit) -> Segment:
    """Return the segment that an append adds, with its commit's time if the topic has LogAppendTime."""
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
    """The live segments inside offsets ``[start, end)`` of a partition were replaced by ``added``, or deleted."""

    partition: int
    start: int
    end: int
    version: int
    added: tuple[Segment, ...] = ()


SegmentEvent = Segment | SegmentsReplaced
"""A change of the list of a topic's segments: a segment is appended, or some are replaced."""


def segment_events(commit: Commit) -> dict[str, list[SegmentEvent]]:
    """Return the changes that a commit makes to lists of segments, by topic id, in the order of its actions."""
    events: dict[str, list[SegmentEvent]] = {}
    for action in commit.actions:
        if isinstance(action, Append):
            events.setdefault(action.topic_id, []).append(segment_of(action, commit))
        elif isinstance(action, ReplaceSegments):
            added = tuple(replacement_of(action.partition, segment, commit.version) for segment in action.added)
            replaced = SegmentsReplaced(action.partition, action.start_offset, action.end_offset, commit.version, added)
            events.setdefault(action.topic_id, []).append(replaced)
        elif isinstance(action, DeleteSegments):
            deleted = SegmentsReplaced(action.partition, 0, action.end_offset, commit.version)
            events.setdefault(action.topic_id, []).append(deleted)
    return events


def replacement_of(partition: int, added: LiveSegment, version: int) -> Segment:
    """Return the segment by which commit ``version`` replaces others."""
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
        stats=added.stats,
        file_bytes=added.file_bytes,
        unfit=added.unfit,
    )
