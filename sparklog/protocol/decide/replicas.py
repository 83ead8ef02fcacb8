"""Decisions to expand the ISR by replicas that have caught up, and to reassign replicas.

A replica is in sync when it holds every live segment. The replication job verifies that for some version; the replica
holds later appends as well if every one of them was also written to it (``PartitionState.followed_from``).

Rules: as in ``decide``. A reassignment works as in Kafka: while it is in progress the replica list has the old and the
new ones, and it is complete once all new ones are in sync.
Not for: copying (``maintenance.replicas.replication``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sparklog.errors import InvalidReplicaAssignmentError, NoReassignmentInProgressError
from sparklog.protocol.commits import Action
from sparklog.protocol.decide.brokers import is_online, online_brokers
from sparklog.protocol.decide.decision import Decision, ErrorByPartition, decide_each
from sparklog.protocol.decide.elections import PartitionChange, every_partition, partitions_of
from sparklog.protocol.decide.segments import changed_since
from sparklog.protocol.state import State
from sparklog.types import TopicPartition


class CaughtUp(NamedTuple):
    """A broker holds every segment that a partition had at ``version``, when its log ended at ``log_end_offset``.

    ``lacking`` are brokers in the ISR that were found not to; the last one in sync stays in the ISR nevertheless.
    """

    topic: str
    topic_id: str
    partition: int
    broker: int
    log_end_offset: int
    version: int
    lacking: tuple[int, ...] = ()


class Expanded(NamedTuple):
    """Replicas that joined an ISR, and those that did not, with the reason."""

    joined: list[CaughtUp]
    left_out: list[tuple[CaughtUp, str]]


def expand_isr(state: State, caught_up: Sequence[CaughtUp]) -> Decision[Expanded]:
    """Add replicas that hold every live segment to the ISR; the result is ``Expanded``.

    A replica also holds the records appended since it was verified if every append since then was written to it as
    well, unless its location has lost files since. Completes reassignments whose new replicas are then all in sync.
    """
    online = online_brokers(state)
    result = Expanded([], [])
    changes: dict[tuple[str, int], PartitionChange] = {}
    for replica in caught_up:
        reason = find_obstacle(state, replica)
        if reason:
            result.left_out.append((replica, reason))
            continue
        partition = (replica.topic, replica.partition)
        if partition not in changes:
            changes[partition] = PartitionChange(state.topics[replica.topic], replica.partition, online)
        changes[partition].join_isr(replica.broker)
        changes[partition].leave_isr(replica.lacking)
        result.joined.append(replica)
    actions = [action for change in changes.values() if (action := change.finish()) is not None]
    return Decision([*actions], result)


def find_obstacle(state: State, replica: CaughtUp) -> str:
    topic = state.topics.get(replica.topic)
    if topic is None or topic.topic_id != replica.topic_id:
        return "the topic was deleted"
    partition = topic.partitions[replica.partition]
    if replica.broker not in partition.replicas:
        return f"broker {replica.broker} is no longer a replica"
    if not is_online(state, replica.broker):
        return f"broker {replica.broker} is offline"
    if replica.version < state.brokers[replica.broker].lost_files_at:
        return f"broker {replica.broker} has lost files since version {replica.version}"
    for (
        other
    ) in partition.isr:  # it stays in the ISR as the last one in sync, so the ``lacking`` have to be found again
        if replica.version < state.brokers[other].lost_files_at:
            return f"broker {other}, which is in sync, has lost files since version {replica.version}"
    if changed_since(partition, replica.version, 0, partition.log_end_offset):
        return f"segments were replaced or deleted since version {replica.version}"
    followed_from = partition.followed_from.get(replica.broker, partition.log_end_offset)
    if replica.broker not in partition.isr and followed_from > replica.log_end_offset:
        return f"records were appended from offset {replica.log_end_offset} on"
    return ""


class Reassignment(NamedTuple):
    """The replicas of a partition that is being reassigned: all, those being added, those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def reassignments(
    state: State, partitions: Sequence[tuple[str, int]] | None = None
) -> dict[TopicPartition, Reassignment]:
    """Return the reassignments in progress, of all partitions or of the given ones; unknown partitions are ignored."""
    active: dict[TopicPartition, Reassignment] = {}
    for topic, number in every_partition(state) if partitions is None else partitions:
        if topic in state.topics and number in partitions_of(state, topic):
            partition = state.partition(topic, number)
            if partition.adding or partition.removing:
                topic_partition = TopicPartition(topic, number)
                active[topic_partition] = Reassignment(partition.replicas, partition.adding, partition.removing)
    return active


def alter_reassignments(
    state: State, wanted: Mapping[tuple[str, int], Sequence[int] | None], allow_replication_factor_change: bool = True
) -> Decision[ErrorByPartition]:
    """Begin reassignments, or cancel them (None). The result has an error or None by partition:

    UnknownTopicOrPartitionError, InvalidReplicaAssignmentError, NoReassignmentInProgressError. A reassignment in
    progress gets the new target. One that adds no replica completes immediately.
    """
    online = online_brokers(state)

    def decide(partition: TopicPartition) -> list[Action]:
        state.partition(*partition)
        change = PartitionChange(state.topics[partition.topic], partition.partition, online)
        target = wanted[partition]
        if target is None:
            _cancel(change)
        else:
            _retarget(state, change, target, allow_replication_factor_change)
        action = change.finish()
        return [] if action is None else [action]

    return decide_each(wanted, decide)


def _retarget(state: State, change: PartitionChange, target: Sequence[int], factor_may_change: bool) -> None:
    """Set the replicas as Kafka's ``PartitionReassignmentReplicas``: first the target, then those being removed."""
    original = [broker for broker in change.replicas if broker not in change.adding]
    settled = [broker for broker in change.replicas if broker not in change.removing]
    _check_target(state, change.topic_partition, target, original)
    if not factor_may_change and len(target) != len(settled):
        raise InvalidReplicaAssignmentError(
            f"{change.topic_partition} has replication factor {len(settled)}; {list(target)} would change it, which "
            "the request does not allow",
            topic=change.topic.name,
            partition=change.number,
        )
    change.removing = [broker for broker in original if broker not in target]
    change.adding = [broker for broker in target if broker not in original]
    change.replicas = [*target, *change.removing]
    _keep_in_sync(change)


def _keep_in_sync(change: PartitionChange) -> None:
    """Remove brokers that are no longer replicas from the ISR. Raises InvalidReplicaAssignmentError if none is left."""
    isr = [broker for broker in change.isr if broker in change.replicas]
    if not isr:
        raise InvalidReplicaAssignmentError(
            f"the only in-sync replicas of {change.topic_partition} are {change.isr}, and none of them would be kept; "
            "wait until another has caught up",
            topic=change.topic.name,
            partition=change.number,
        )
    change.isr = isr


def _check_target(state: State, topic_partition: TopicPartition, target: Sequence[int], present: Sequence[int]) -> None:
    unknown = [broker for broker in target if broker not in state.brokers]
    cordoned = [
        broker
        for broker in target
        if broker not in present and broker not in unknown and state.brokers[broker].cordoned
    ]
    if not target or unknown or cordoned or len(set(target)) != len(target):
        raise InvalidReplicaAssignmentError(
            f"{list(target)} cannot be the replicas of {topic_partition}: name registered brokers "
            f"({sorted(state.brokers)}), each once, and no cordoned one as a new replica"
            f"{f' ({cordoned} are cordoned)' if cordoned else ''}",
            topic=topic_partition.topic,
            partition=topic_partition.partition,
        )


def _cancel(change: PartitionChange) -> None:
    """Cancel the reassignment as Kafka's ``PartitionReassignmentRevert``."""
    if not (change.adding or change.removing):
        raise NoReassignmentInProgressError(
            f"the replicas of {change.topic_partition} are not being reassigned",
            topic=change.topic.name,
            partition=change.number,
        )
    change.replicas = [broker for broker in change.replicas if broker not in change.adding]
    change.adding, change.removing = [], []
    _keep_in_sync(change)
