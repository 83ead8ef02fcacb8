"""Decisions that concern the replicas of many partitions: draining a broker, proposing an assignment, and the throttle
of a reassignment. Rules: as in ``decide``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparklog.errors import InvalidReplicaAssignmentError, PolicyViolationError
from sparklog.protocol.decide.brokers import cordon, find_broker, replicas_on
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.replicas import alter_reassignments
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.plan.placement import available_brokers, first_places, spread
from sparklog.protocol.state import State
from sparklog.types import TopicPartition

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Kafka's settings of a throttle: bytes per second for the cluster, and ``partition:broker`` pairs for each topic."""


def set_throttle(state: State, moves: Mapping[tuple[str, int], Sequence[int]], rate: int) -> Decision[None]:
    """Set the cluster's rate in bytes per second, and each topic's throttled replicas: sources and destinations."""
    actions = alter_configs(state, "", dict.fromkeys(RATES, str(rate)), []).actions[:]
    for topic in sorted({topic for topic, _ in moves}):
        sources: list[str] = []
        destinations: list[str] = []
        for number, replicas in sorted((number, moves[name, number]) for name, number in moves if name == topic):
            partition = state.partition(topic, number)
            holders = [broker for broker in partition.replicas if broker not in partition.adding]
            sources += [f"{number}:{broker}" for broker in holders]
            destinations += [f"{number}:{broker}" for broker in replicas if broker not in holders]
        lists = dict(zip(LISTS, (",".join(sources), ",".join(destinations)), strict=True))
        actions += alter_configs(state, topic, lists, []).actions
    return Decision(actions, None)


def clear_throttle(state: State, topics: Iterable[str]) -> Decision[None]:
    """Delete the cluster's rate and the throttled replicas of these topics; missing topics are ignored."""
    actions = alter_configs(state, "", {}, [name for name in RATES if name in state.configs]).actions[:]
    for topic in sorted(name for name in {*topics} if name in state.topics):
        lists = [name for name in LISTS if name in state.topics[topic].configs]
        actions += alter_configs(state, topic, {}, lists).actions
    return Decision(actions, None)


def propose_assignment(state: State, topic: str, brokers: Sequence[int]) -> dict[TopicPartition, list[int]]:
    """Assign replicas as for a new topic, round-robin, with the topic's current replication factor.

    Raises UnknownTopicOrPartitionError, and InvalidReplicaAssignmentError for brokers that do not exist, are cordoned,
    or are too few.
    """
    for broker in brokers:
        if broker not in state.brokers:
            raise InvalidReplicaAssignmentError(f"Unknown broker id {broker}; existing ids: {sorted(state.brokers)}")
        if state.brokers[broker].cordoned:
            raise InvalidReplicaAssignmentError(
                f"broker {broker} is cordoned and gets no new replicas; leave it out, or run `sparklog brokers "
                f"uncordon --id {broker}`"
            )
    topic_state = state.topic(topic)
    factor = len(topic_state.partitions[0].replicas) - len(topic_state.partitions[0].adding)
    if factor > len(brokers):
        raise InvalidReplicaAssignmentError(
            f"topic {topic} has {factor} replicas of each partition, and --broker-list names {len(brokers)} brokers",
            topic=topic,
        )
    start, shift = first_places(topic_state.topic_id, len(brokers))
    lists = spread(brokers, len(topic_state.partitions), factor, start=start, shift=shift)
    return {TopicPartition(topic, number): replicas for number, replicas in enumerate(lists)}


def drain_broker(state: State, broker: int) -> Decision[list[TopicPartition]]:
    """Cordon a broker and begin to move its replicas; the result are their partitions.

    In one commit, so that no replica is added in between; nothing changes if any cannot be placed elsewhere. Raises
    BrokerIdNotRegisteredError, PolicyViolationError for the root, InvalidReplicaAssignmentError.
    """
    if not find_broker(state, broker).url:
        raise PolicyViolationError(f"broker {broker} cannot be drained: it is the root of the cluster")
    decided = alter_reassignments(state, plan_drain(state, broker))
    for error in decided.result.values():
        if error is not None:
            raise error
    return Decision([*cordon(state, broker, True).actions, *decided.actions], sorted(decided.result))


def plan_drain(state: State, broker: int) -> dict[tuple[str, int], list[int]]:
    """Return new replicas for all partitions of a broker, so that it holds none: each replica goes to the broker with
    the fewest replicas.

    Raises InvalidReplicaAssignmentError if there are too few other brokers.
    """
    load = {number: 0 for number in available_brokers(state) if number != broker}
    for topic in state.topics_in_order():
        for partition in topic.partitions:
            for replica in partition.replicas:
                if replica in load:
                    load[replica] += 1
    moves: dict[tuple[str, int], list[int]] = {}
    for topic_partition in replicas_on(state, broker):
        partition = state.partition(*topic_partition)
        replicas = [replica for replica in partition.replicas if replica not in partition.removing]
        if broker not in replicas:
            continue
        candidates = [number for number in load if number not in replicas]
        if not candidates:
            raise InvalidReplicaAssignmentError(
                f"{topic_partition} has replicas {replicas}, and there is no other broker, online and not cordoned, to "
                f"take the replica of broker {broker}; register one, or lower the replication factor",
                topic=topic_partition.topic,
                partition=topic_partition.partition,
            )
        chosen = min(candidates, key=lambda number: (load[number], number))
        load[chosen] += 1
        moves[topic_partition] = [chosen if replica == broker else replica for replica in replicas]
    return moves
