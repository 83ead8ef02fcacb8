"""Looks up the current segments of a range, for readers whose list of segments is out of date."""

from __future__ import annotations

from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import OffsetOutOfRangeError, SparklogError
from sparklog.log.records.ranges import Newest
from sparklog.protocol.segments import Segment


def newest_segments(coordinator: Coordinator, topic: str, topic_id: str, partition: int) -> Newest:
    """Return a function that looks up a partition's segments in the newest state, which the coordinator reads.

    It raises OffsetOutOfRangeError if the start of the range was deleted, the reader's own error if the topic was
    deleted, and the storage's error if that does not answer: then it is not known whether records are lost.
    """

    def newest(start: int, end: int, cause: SparklogError) -> list[Segment]:
        try:
            state = coordinator.refresh()
        except SparklogError as error:
            raise error from cause
        topic_state = state.topics.get(topic)
        if topic_state is None or topic_state.topic_id != topic_id:
            raise cause
        log_start = topic_state.partitions[partition].log_start_offset
        if start < log_start:
            raise records_deleted(topic, partition, start, log_start) from cause
        return coordinator.segments(topic, state).partition(partition).between(start, end)

    return newest


def records_deleted(topic: str, partition: int, offset: int, log_start_offset: int) -> OffsetOutOfRangeError:
    """Return the error for records that were deleted while they were about to be read."""
    return OffsetOutOfRangeError(
        f"records of {topic}-{partition} from offset {offset} on were deleted while they were about to be read: the "
        f"log starts at {log_start_offset} now; continue from there",
        topic=topic,
        partition=partition,
        offset=offset,
        end_offset=log_start_offset,
    )
