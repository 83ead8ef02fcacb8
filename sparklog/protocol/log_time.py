"""The log's time, and its reset after a clock that was ahead moved it into the future.

Each commit has a time later than the previous one; expiry (idle producers, transactional ids) and deadlines (deletion
of retired files) are measured by it. So one commit with a time far ahead would bind all later ones. ``ResetTime`` is
the only action whose commit may have an earlier time: the present. Later times in the state are set to it, so that
nothing expires later than it should, and nothing sooner.

Rules: pure. Timestamps of records do not change: they are the producers', and those with a commit's time
(``LogAppendTime``) stay as their readers have seen them.
Not for: the time of a commit (``log.commits.commit_log``), the current time (``log.commits.storage_clock``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from sparklog import limits
from sparklog.protocol.commits import ResetTime
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import GroupOffset, GroupState, PartitionState, RemovedFiles, State, TopicState

LEFT_AT_LEAST_MS = 3_600_000
"""ms for which retired files are kept after a reset, unless they are due earlier."""


def decide_reset(state: State, now_ms: int) -> Decision[int]:
    """Reset the log's time to ``now_ms`` if it is ahead by more than clocks may differ; the result is the difference in
    ms, 0 if nothing changes."""
    ahead_ms = state.timestamp_ms - now_ms
    if ahead_ms <= limits.MAX_CLOCK_SKEW_MS:
        return Decision([], 0)
    return Decision([ResetTime(time_ms=now_ms)], ahead_ms)


def reset_groups(groups: Mapping[str, GroupState], now_ms: int) -> Iterator[tuple[str, GroupState]]:
    """Yield the groups with times after ``now_ms``, with these times set to it."""
    for name, group in groups.items():
        late: dict[str, GroupOffset] = {
            key: replace(offset, timestamp_ms=now_ms)
            for key, offset in group.offsets.items()
            if offset.timestamp_ms > now_ms
        }
        if late or group.empty_since_ms > now_ms:
            empty_since_ms = min(group.empty_since_ms, now_ms)
            yield name, replace(group, offsets=group.offsets.update(late), empty_since_ms=empty_since_ms)


def reset_removed_files(
    removed: Mapping[str, RemovedFiles], now_ms: int, was_ms: int
) -> Iterator[tuple[str, RemovedFiles]]:
    """Yield the listings that would be due too late, with the time they have left, but at least an hour: it is unknown
    which were made before the time was ahead. ``was_ms`` is the log's time before the reset."""
    for key, files in removed.items():
        latest_ms = now_ms + max(files.delete_at_ms - was_ms, LEFT_AT_LEAST_MS)
        if files.delete_at_ms > latest_ms:
            yield key, replace(files, delete_at_ms=latest_ms)


def reset_topic(topic: TopicState, now_ms: int) -> TopicState:
    """Return the topic with its own time and those of its schemas limited to ``now_ms``; the same object if none
    changes."""
    times = (schema.timestamp_ms for versions in topic.schemas.values() for schema in versions)
    if max(topic.created_ms, *times, now_ms) == now_ms:
        return topic
    schemas = {
        config: tuple(replace(schema, timestamp_ms=min(schema.timestamp_ms, now_ms)) for schema in versions)
        for config, versions in topic.schemas.items()
    }
    return replace(topic, created_ms=min(topic.created_ms, now_ms), schemas=schemas)


def reset_partition(partition: PartitionState, now_ms: int) -> PartitionState:
    """Return the partition with the times of producers limited to ``now_ms``; the same object if none changes."""
    late = {number: producer for number, producer in partition.producers.items() if producer.timestamp_ms > now_ms}
    if not late:
        return partition
    reset = {number: replace(producer, timestamp_ms=now_ms) for number, producer in late.items()}
    return replace(partition, producers=partition.producers.update(reset))
