"""Moves replicas to other brokers, as an administrator does: commits the reassignment, then runs the replication job.

    reassign(coordinator, {("orders", 0): [1, 2]}, InProcess(), bytes_per_second=50e6)

The reassignment is committed first, so if a run is killed, the next replication by any process finishes it. The old
copies are kept until ``sparklog vacuum`` deletes them, since readers may still be reading them.

Not for: choosing brokers of new topics (``protocol.plan.placement``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import SparklogError
from sparklog.maintenance.replicas.replication import Progress, ReplicationResult, replicate
from sparklog.maintenance.runner import TaskRunner
from sparklog.protocol.decide.replicas import alter_reassignments, reassignments
from sparklog.types import TopicPartition


class ReassignmentResult(NamedTuple):
    """The result of a run: refused partitions with the error, those still being moved, and what was copied."""

    refused: dict[TopicPartition, SparklogError]
    under_way: list[TopicPartition]
    replicated: ReplicationResult


def reassign(
    coordinator: Coordinator,
    wanted: Mapping[tuple[str, int], Sequence[int] | None],
    runner: TaskRunner,
    bytes_per_second: float | None = None,
    progress: Progress = lambda done, total: None,
) -> ReassignmentResult:
    """Move partitions to brokers, or cancel their reassignment (None), and copy until they are complete. Errors as
    ``replicate``."""
    outcome = coordinator.submit(partial(alter_reassignments, wanted=wanted))
    refused = {partition: error for partition, error in outcome.items() if error is not None}
    topics = {topic for topic, number in wanted if TopicPartition(topic, number) not in refused}
    replicated = replicate(coordinator, runner, topics, bytes_per_second=bytes_per_second, progress=progress)
    under_way = list(reassignments(coordinator.refresh(), list(wanted)))
    return ReassignmentResult(refused, under_way, replicated)
