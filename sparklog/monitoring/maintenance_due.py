"""What maintenance should have done by some time, as far as the log says: files to roll or to remove.

Rules: pure, with the plans that maintenance itself uses. Not for: doing it (``maintenance``).
"""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.config.topic_configs import TopicConfig
from sparklog.protocol.plan.retention import deletable, may_delete, retention_of
from sparklog.protocol.plan.rolling import Merge, groups, plan_roll, rules_of
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState, State, TopicState


def may_be_rolled(partition: PartitionState) -> bool:
    """Return whether files of a partition may be due for a roll, judged without its list of segments."""
    return partition.leader >= 0 and partition.segments >= (1 if partition.log_start_offset else 2)


def files_to_roll(state: State, topic: TopicState, number: int, live: Iterable[Segment], version: int) -> int:
    """Return how many files of a partition have been due for a roll since ``version`` or longer."""
    merges = _merges(state, topic, number, live)
    return sum(len(merge.segments) for merge in merges if all(segment.version <= version for segment in merge.segments))


def segments_to_roll(state: State, topic: TopicState, number: int, live: Iterable[Segment]) -> list[Segment]:
    """Return the segments of a partition that a roll would merge now."""
    return [segment for merge in _merges(state, topic, number, live) for segment in merge.segments]


def _merges(state: State, topic: TopicState, number: int, live: Iterable[Segment]) -> Iterable[Merge]:
    rules = rules_of(TopicConfig.resolve(topic.configs, state.configs), topic.topic_id, number)
    return plan_roll(live, rules, topic.partitions[number].log_start_offset)


def may_be_expired(state: State, topic: TopicState, partition: PartitionState) -> bool:
    """Return whether segments of a partition may be due for retention, judged without its list of segments."""
    return may_delete(partition, retention_of(state, topic))


def files_expired(
    state: State, topic: TopicState, number: int, live: Iterable[Segment], version: int, time_ms: int
) -> int:
    """Return how many files of a partition, of ``version`` or older, retention should have removed by a time."""
    due = segments_expired(state, topic, number, live, time_ms)
    return sum(segment.version <= version for segment in due)


def segments_expired(
    state: State, topic: TopicState, number: int, live: Iterable[Segment], time_ms: int
) -> list[Segment]:
    """Return the segments of a partition that retention should have removed by a time."""
    rules = rules_of(TopicConfig.resolve(topic.configs, state.configs), topic.topic_id, number)
    due = deletable(groups(live, rules), topic.partitions[number], retention_of(state, topic), time_ms)
    return [] if due is None else list(due.segments)
