"""Rolling: small files become large segments, with one commit for many partitions.

    result = roll(coordinator, InProcess())

Rules: what is merged is decided by ``protocol.rolling`` on one state; each merge is a task that any runner may run
anywhere; readers of the old files go on, since these stay for ``file.delete.delay.ms`` and longer where a reader has
announced itself. A merge that another job got in the way of is left out, and planned again next time.
Not for: what is removed from a log (``retention``, ``compact``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from typing import NamedTuple

from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.maintenance.runner import TaskRunner
from sparklog.maintenance.segments.merge import RewriteTask, Rewritten, rewrite
from sparklog.maintenance.segments.replacement import (
    Counts,
    Replaced,
    SegmentReplacement,
    missing_source,
    places_of,
    target_of,
)
from sparklog.protocol.decide.segments import Replacement, removed
from sparklog.protocol.plan.rolling import plan_roll, rules_of
from sparklog.protocol.state import State


class _Planned(NamedTuple):
    """A task and the topic that it is for."""

    topic: str
    task: RewriteTask


def roll(coordinator: Coordinator, runner: TaskRunner, topics: Collection[str] | None = None) -> Counts:
    """Merge what is due in all topics, or in these. What a task raises is raised once the others are committed.

    Errors as ``rewrite`` and ``SegmentReplacement``; UnknownTopicOrPartitionError for a topic that is not there.
    """
    state = coordinator.refresh()
    planned = list(_plan(coordinator, state, topics))
    replacing = SegmentReplacement(coordinator, state)
    with replacing.committed_at_the_end():
        for result in runner.run(rewrite, (one.task for one in planned)):
            replacing.take(partial(_replaced, coordinator, state, planned[result.number], result))
    return replacing.counts


def _plan(coordinator: Coordinator, state: State, topics: Collection[str] | None) -> Iterator[_Planned]:
    number = 0
    for name in sorted(state.topics if topics is None else topics):
        topic = state.topic(name)
        config = TopicConfig.resolve(topic.configs, state.configs)
        for partition, held in enumerate(topic.partitions):
            if held.segments < 2 or held.leader < 0:
                continue
            live = coordinator.segments(name, state).partition(partition)
            merges = plan_roll(live, rules_of(config, topic.topic_id, partition), held.log_start_offset)
            places = places_of(coordinator, held) if merges else None
            for merge in merges:
                assert places is not None
                target = target_of(coordinator, state, name, partition)
                yield _Planned(name, RewriteTask(number, tuple(merge.segments), places, target, merge.closed))
                number += 1


def _replaced(coordinator: Coordinator, state: State, planned: _Planned, result: Rewritten) -> list[Replaced]:
    """What a task's result is to be put in the place of. Raises as ``missing_source`` where it found a file missing."""
    segments = planned.task.segments
    first, last = segments[0], segments[-1]
    if result.added is None:
        raise missing_source(coordinator, state, planned.topic, segments, result.missing)
    topic_id = state.topic(planned.topic).topic_id
    change = Replacement(
        topic=planned.topic,
        topic_id=topic_id,
        partition=first.partition,
        start_offset=first.base_offset,
        end_offset=last.end_offset,
        removed=removed(topic_id, segments),
        added=[result.added],
    )
    return [Replaced(change, segments, planned.task.places)]
