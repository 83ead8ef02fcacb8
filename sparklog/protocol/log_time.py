"""The log's time, and the way back where a clock that was ahead drove it into the future.

Each commit has a time, after that of the one before; what expires in the fold (silent producers, transactional ids) and
what is due later (files out of the log) goes by it. So one commit with a time far ahead would bind all that follow.
``ResetTime`` is the one action whose commit may have an earlier time: the present. What the state holds of times after
that is set to it, so nothing lives longer than it should, and nothing dies sooner.

Rules: pure. What is in records is left alone: their times are their producers', and those that were stamped with a
commit's time (``LogAppendTime``) stay as their readers have seen them.
Not for: what a commit's time may be (``log.commit_log``), and what the time is (``log.storage_clock``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from sparklog import limits
from sparklog.protocol.commits import ResetTime
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import GroupOffset, GroupState, PartitionState, RemovedFiles, State

LEFT_AT_LEAST_MS = 3_600_000
"""ms that files which left the log stay after a reset, unless their time comes before."""


def decide_reset(state: State, now_ms: int) -> Decision:
    """Set the log's time back to ``now_ms`` where it is ahead by more than clocks may differ; the result is by how many
    milliseconds, 0 where nothing happens."""
    ahead_ms = state.timestamp_ms - now_ms
    if ahead_ms <= limits.MAX_CLOCK_SKEW_MS:
        return Decision([], 0)
    return Decision([ResetTime(time_ms=now_ms)], ahead_ms)


def groups_until(groups: Mapping[str, GroupState], now_ms: int) -> Iterator[tuple[str, GroupState]]:
    """The groups that something of is after ``now_ms``, as they are once it is not."""
    for name, group in groups.items():
        late: dict[str, GroupOffset] = {
            key: replace(offset, timestamp_ms=now_ms)
            for key, offset in group.offsets.items()
            if offset.timestamp_ms > now_ms
        }
        if late or group.empty_since_ms > now_ms:
            empty_since_ms = min(group.empty_since_ms, now_ms)
            yield name, replace(group, offsets=group.offsets.update(late), empty_since_ms=empty_since_ms)


def removed_until(removed: Mapping[str, RemovedFiles], now_ms: int, was_ms: int) -> Iterator[tuple[str, RemovedFiles]]:
    """Listings whose time comes later than it should, with the time they have left, an hour at least: which ones were
    made before the time was ahead is not known. ``was_ms`` was the log's time."""
    for key, files in removed.items():
        latest_ms = now_ms + max(files.delete_at_ms - was_ms, LEFT_AT_LEAST_MS)
        if files.delete_at_ms > latest_ms:
            yield key, replace(files, delete_at_ms=latest_ms)


def partition_until(partition: PartitionState, now_ms: int) -> PartitionState:
    """The partition with no producer heard of after ``now_ms``; the same one where there is none."""
    late = {number: known for number, known in partition.producers.items() if known.timestamp_ms > now_ms}
    if not late:
        return partition
    present = {number: replace(known, timestamp_ms=now_ms) for number, known in late.items()}
    return replace(partition, producers=partition.producers.update(present))
