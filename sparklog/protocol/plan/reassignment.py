"""Plans which brokers hold the replicas of existing partitions: to spread a topic over brokers, or to drain a broker.

Rules: pure; as in ``placement``, which places the replicas of new partitions.
Not for: committing the plan (``decide.reassignment``, ``decide.replicas``).
"""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.errors import InvalidReplicaAssignmentError
from sparklog.protocol.plan.placement import available_brokers, spread, start_and_shift
from sparklog.protocol.state import State
from sparklog.types import TopicPartition


def replicas_on(state: State, broker: int) -> list[TopicPartition]:
    """Return the partitions with a replica at a broker, including replicas that are being added."""
    return [
        TopicPartition(topic.name, number)
        for topic in state.topics_in_order()
        for number, partition in enumerate(topic.partitions)
        if broker in partition.replicas
    ]


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
    start, shift = start_and_shift(topic_state.topic_id, len(brokers))
    lists = spread(brokers, len(topic_state.partitions), factor, start=start, shift=shift)
    return {TopicPartition(topic, number): replicas for number, replicas in enumerate(lists)}


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
                f"{topic_partition} has replicas {replicas}, and no other broker that is online and not cordoned can "
                f"take the replica of broker {broker}; register one, or lower the replication factor",
                topic=topic_partition.topic,
                partition=topic_partition.partition,
            )
        chosen = min(candidates, key=lambda number: (load[number], number))
        load[chosen] += 1
        moves[topic_partition] = [chosen if replica == broker else replica for replica in replicas]
    return moves
