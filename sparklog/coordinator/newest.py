"""What holds a range of a partition now: for readers whose list of segments has become too old."""

from __future__ import annotations

from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import OffsetOutOfRangeError, SparklogError
from sparklog.log.records.ranges import Newest
from sparklog.protocol.segments import Segment


def newest_segments(coordinator: Coordinator, topic: str, topic_id: str, partition: int) -> Newest:
    """Looks for the segments of a partition in the newest state there is, which the coordinator then has.

    Raises OffsetOutOfRangeError where the start of the range was deleted, and what happened to the reader where the
    topic is gone. Where the storage does not answer, that is the error: whether anything is lost is not known then.
    """

    def newest(start: int, end: int, happened: SparklogError) -> list[Segment]:
        try:
            state = coordinator.refresh()
        except SparklogError as error:
            raise error from happened
        found = state.topics.get(topic)
        if found is None or found.topic_id != topic_id:
            raise happened
        log_start = found.partitions[partition].log_start_offset
        if start < log_start:
            raise records_deleted(topic, partition, start, log_start) from happened
        return coordinator.segments(topic, state).partition(partition).between(start, end)

    return newest


def records_deleted(topic: str, partition: int, offset: int, log_start_offset: int) -> OffsetOutOfRangeError:
    """Records were deleted while they were about to be read."""
    return OffsetOutOfRangeError(
        f"records of {topic}-{partition} from offset {offset} on were deleted while they were about to be read: the "
        f"log starts at {log_start_offset} now; read on from there",
        topic=topic,
        partition=partition,
        offset=offset,
        end_offset=log_start_offset,
    )
