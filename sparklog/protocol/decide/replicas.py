"""Replicas that come and go: into the ISR once they have caught up, and from one broker to another.

A replica is in sync when it holds every live segment. The replication job finds out that it did at some version; what
was appended since, it holds as well if every append since then went to it too (``PartitionState.followed_from``).

Rules: as in ``decide``; a reassignment is Kafka's: while it is under way the replica list has the old and the new ones,
and it is complete once all new ones are in sync.
Not for: copying (``maintenance.replication``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparklog.errors import InvalidReplicaAssignmentError, NoReassignmentInProgressError, SparklogError
from sparklog.protocol.commits import Action
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.elections import (
    PartitionChange,
    every_partition,
    is_online,
    online_brokers,
    partitions_of,
)
from sparklog.protocol.decide.segments import changed_since
from sparklog.protocol.state import State
from sparklog.types import TopicPartition


class CaughtUp(NamedTuple):
    """A broker holds every segment that a partition had at ``version``, when its log ended at ``log_end_offset``.

    ``lacking`` are brokers in the ISR that were seen not to: the last one in sync stays in it whatever it has lost.
    """

    topic: str
    topic_id: str
    partition: int
    broker: int
    log_end_offset: int
    version: int
    lacking: tuple[int, ...] = ()


class Expanded(NamedTuple):
    """Who came into an ISR, and who has to copy more first, with the reason."""

    joined: list[CaughtUp]
    left_out: list[tuple[CaughtUp, str]]


def expand_isr(state: State, caught_up: Sequence[CaughtUp]) -> Decision:
    """Let replicas into the ISR that hold every live segment; the result is ``Expanded``.

    Such a replica also holds what was appended since it was looked at, if every append since then went to it as well,
    unless its location lost files meanwhile.
    Completes reassignments whose new replicas are all in sync then.
    """
    online = online_brokers(state)
    result = Expanded([], [])
    changes: dict[tuple[str, int], PartitionChange] = {}
    for one in caught_up:
        why = _why_not_in_sync(state, one)
        if why:
            result.left_out.append((one, why))
            continue
        place = (one.topic, one.partition)
        if place not in changes:
            changes[place] = PartitionChange(state.topics[one.topic], one.partition, online)
        changes[place].join_isr(one.broker)
        changes[place].leave_isr(one.lacking)
        result.joined.append(one)
    actions = [action for change in changes.values() if (action := change.finish()) is not None]
    return Decision([*actions], result)


def _why_not_in_sync(state: State, one: CaughtUp) -> str:
    topic = state.topics.get(one.topic)
    if topic is None or topic.topic_id != one.topic_id:
        return "the topic was deleted"
    partition = topic.partitions[one.partition]
    if one.broker not in partition.replicas:
        return f"broker {one.broker} is no replica any more"
    if not is_online(state, one.broker):
        return f"broker {one.broker} is offline"
    if one.version < state.brokers[one.broker].lost_files_at:
        return f"broker {one.broker} has lost files since version {one.version}"
    if changed_since(partition, one.version, 0, partition.log_end_offset):
        return f"segments were replaced or deleted since version {one.version}"
    followed_from = partition.followed_from.get(one.broker, partition.log_end_offset)
    if one.broker not in partition.isr and followed_from > one.log_end_offset:
        return f"records were appended from offset {one.log_end_offset} on"
    return ""


class Reassignment(NamedTuple):
    """The replicas of a partition that is being reassigned: all of them, those to come, those to go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def reassignments(
    state: State, partitions: Sequence[tuple[str, int]] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Those under way, of all partitions or of these; ones that do not exist have none."""
    found: dict[TopicPartition, Reassignment] = {}
    for topic, number in every_partition(state) if partitions is None else partitions:
        if topic in state.topics and number in partitions_of(state, topic):
            partition = state.partition(topic, number)
            if partition.adding or partition.removing:
                place = TopicPartition(topic, number)
                found[place] = Reassignment(partition.replicas, partition.adding, partition.removing)
    return found


def alter_reassignments(
    state: State, wanted: Mapping[tuple[str, int], Sequence[int] | None], allow_replication_factor_change: bool = True
) -> Decision:
    """Begin to move replicas, or cancel that (None). The result has an error or None by partition:

    UnknownTopicOrPartitionError, InvalidReplicaAssignmentError, NoReassignmentInProgressError. A reassignment under way
    is changed to the new target. One that adds nothing is complete at once.
    """
    online = online_brokers(state)
    actions: list[Action] = []
    outcome: dict[TopicPartition, SparklogError | None] = {}
    for (topic, number), target in wanted.items():
        place = TopicPartition(topic, number)
        try:
            state.partition(topic, number)
            change = PartitionChange(state.topics[topic], number, online)
            if target is None:
                _cancel(change)
            else:
                _retarget(state, change, target, allow_replication_factor_change)
            action = change.finish()
        except SparklogError as error:
            outcome[place] = error
        else:
            outcome[place] = None
            if action is not None:
                actions.append(action)
    return Decision(actions, outcome)


def _retarget(state: State, change: PartitionChange, target: Sequence[int], factor_may_change: bool) -> None:
    """Kafka's ``PartitionReassignmentReplicas``: the target first, then what it lets go."""
    original = [broker for broker in change.replicas if broker not in change.adding]
    settled = [broker for broker in change.replicas if broker not in change.removing]
    _check_target(state, change.place, target, original)
    if not factor_may_change and len(target) != len(settled):
        raise InvalidReplicaAssignmentError(
            f"{change.place} has replication factor {len(settled)}, and {list(target)} would change it, which the "
            "request does not allow",
            topic=change.topic.name,
            partition=change.number,
        )
    change.removing = [broker for broker in original if broker not in target]
    change.adding = [broker for broker in target if broker not in original]
    change.replicas = [*target, *change.removing]
    _keep_in_sync(change)


def _keep_in_sync(change: PartitionChange) -> None:
    """The ISR without brokers that are no replicas any more. Raises InvalidReplicaAssignmentError if it were empty."""
    isr = [broker for broker in change.isr if broker in change.replicas]
    if not isr:
        raise InvalidReplicaAssignmentError(
            f"{change.place} is in sync on {change.isr} alone, none of which would be left; wait until another has "
            "caught up",
            topic=change.topic.name,
            partition=change.number,
        )
    change.isr = isr


def _check_target(state: State, place: TopicPartition, target: Sequence[int], present: Sequence[int]) -> None:
    unknown = [broker for broker in target if broker not in state.brokers]
    cordoned = [
        broker
        for broker in target
        if broker not in present and broker not in unknown and state.brokers[broker].cordoned
    ]
    if not target or unknown or cordoned or len(set(target)) != len(target):
        raise InvalidReplicaAssignmentError(
            f"{list(target)} cannot be the replicas of {place}: name registered brokers ({sorted(state.brokers)}), "
            f"each once, and as new ones none that is cordoned{f' ({cordoned})' if cordoned else ''}",
            topic=place.topic,
            partition=place.partition,
        )


def _cancel(change: PartitionChange) -> None:
    """Kafka's ``PartitionReassignmentRevert``."""
    if not (change.adding or change.removing):
        raise NoReassignmentInProgressError(
            f"the replicas of {change.place} are not being moved", topic=change.topic.name, partition=change.number
        )
    change.replicas = [broker for broker in change.replicas if broker not in change.adding]
    change.adding, change.removing = [], []
    _keep_in_sync(change)
