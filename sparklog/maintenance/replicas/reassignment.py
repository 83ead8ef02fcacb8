"""Moves replicas to other brokers from beginning to end: ``alter_reassignments``, and the replication job after it.

    reassign(coordinator, {("orders", 0): [1, 2]}, InProcess(), bytes_per_second=50e6)

The move is written down first, in one commit; so a run that is killed is finished by the next replication, whoever runs
that. The copies that are no longer wanted stay where they are until ``sparklog vacuum`` takes them away: readers of a
moment ago may be reading them.

Not for: choosing brokers of new topics (``protocol.placement``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import InvalidReplicaAssignmentError, SparklogError
from sparklog.maintenance.replicas.replication import Progress, Replicated, replicate
from sparklog.maintenance.runner import TaskRunner
from sparklog.protocol.decide.brokers import replicas_on
from sparklog.protocol.decide.replicas import alter_reassignments, reassignments
from sparklog.protocol.plan.placement import available_brokers
from sparklog.protocol.state import State
from sparklog.types import TopicPartition


class Reassigned(NamedTuple):
    """What a run came to: partitions that could not be moved with the error, those still under way, what was copied."""

    refused: dict[TopicPartition, SparklogError]
    under_way: list[TopicPartition]
    replicated: Replicated


def reassign(
    coordinator: Coordinator,
    wanted: Mapping[tuple[str, int], Sequence[int] | None],
    runner: TaskRunner,
    bytes_per_second: float | None = None,
    progress: Progress = lambda done, total: None,
) -> Reassigned:
    """Move partitions to brokers, or cancel that (None), and copy until they are there. Errors as ``replicate``."""
    outcome = coordinator.submit(partial(alter_reassignments, wanted=wanted))
    refused = {place: error for place, error in outcome.items() if error is not None}
    topics = {topic for topic, number in wanted if TopicPartition(topic, number) not in refused}
    replicated = replicate(coordinator, runner, topics, bytes_per_second=bytes_per_second, progress=progress)
    under_way = list(reassignments(coordinator.refresh(), list(wanted)))
    return Reassigned(refused, under_way, replicated)


def off_broker(state: State, broker: int) -> dict[tuple[str, int], list[int]]:
    """Where the replicas of a broker can go, so that it holds none: each to the broker that has fewest by then.

    Raises InvalidReplicaAssignmentError where there are too few others.
    """
    load = {number: 0 for number in available_brokers(state) if number != broker}
    for topic in state.topics_in_order():
        for partition in topic.partitions:
            for replica in partition.replicas:
                if replica in load:
                    load[replica] += 1
    moves: dict[tuple[str, int], list[int]] = {}
    for place in replicas_on(state, broker):
        partition = state.partition(*place)
        replicas = [replica for replica in partition.replicas if replica not in partition.removing]
        if broker not in replicas:
            continue
        able = [number for number in load if number not in replicas]
        if not able:
            raise InvalidReplicaAssignmentError(
                f"{place} has replicas {replicas}, and no other broker is online and not cordoned that could take that "
                f"of broker {broker}; register one, or lower the replication factor",
                topic=place.topic,
                partition=place.partition,
            )
        chosen = min(able, key=lambda number: (load[number], number))
        load[chosen] += 1
        moves[place] = [chosen if replica == broker else replica for replica in replicas]
    return moves
