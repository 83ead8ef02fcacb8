"""Rolling: merges small files into large segments, with one commit for many partitions.

    result = roll(coordinator, InProcess())

Rules: ``protocol.plan.rolling`` decides on one state what to merge; each merge is a task that any runner may run
anywhere; readers of the old files are not disturbed, since these are kept for ``file.delete.delay.ms``, and longer for
readers with a lease. A merge of segments that another job changed in the meantime is skipped; the next run retries it.
Not for: removing records from a log (``retention``, ``compact``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sparklog.config.topic_configs import TopicConfig
from sparklog.coordinator import Coordinator
from sparklog.coordinator.one_timeline import in_one_timeline
from sparklog.maintenance.runner import TaskRunner
from sparklog.maintenance.segments.merge import MergeTask, merge_segments
from sparklog.maintenance.segments.replacement import Counts, SegmentReplacement, replicas_of, target_of
from sparklog.protocol.plan.rolling import plan_roll, rules_of
from sparklog.protocol.state import State


@in_one_timeline
def roll(coordinator: Coordinator, runner: TaskRunner, topics: Collection[str] | None = None) -> Counts:
    """Merge the segments that are due, of all topics or of these. Errors of tasks are raised after the other tasks are
    committed.

    Errors as ``merge_segments`` and ``SegmentReplacement``; UnknownTopicOrPartitionError for an unknown topic.
    """
    state = coordinator.refresh()
    return SegmentReplacement(coordinator, state).run(runner, merge_segments, _plan(coordinator, state, topics))


def _plan(coordinator: Coordinator, state: State, topics: Collection[str] | None) -> Iterator[MergeTask]:
    task_number = 0
    for name in sorted(state.topics if topics is None else topics):
        topic = state.topic(name)
        config = TopicConfig.resolve(topic.configs, state.configs)
        for number, partition in enumerate(topic.partitions):
            if partition.leader < 0 or partition.segments < (1 if partition.log_start_offset else 2):
                continue  # the log start offset may lie inside a history segment, also if that is the only one
            live = coordinator.segments(name, state).partition(number)
            merges = plan_roll(live, rules_of(config, topic.topic_id, number), partition.log_start_offset)
            for merge in merges:
                replicas = replicas_of(coordinator, partition)
                target = target_of(coordinator, state, name, number)
                yield MergeTask(task_number, tuple(merge.segments), replicas, target, merge.closed, merge.start_offset)
                task_number += 1
