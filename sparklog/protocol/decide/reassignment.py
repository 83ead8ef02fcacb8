"""Decisions about a reassignment as a whole: draining a broker, and the throttle. Rules: as in ``decide``.

Not for: choosing brokers (``plan.reassignment``), and changing single partitions (``replicas``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparklog.errors import PolicyViolationError
from sparklog.protocol.decide.brokers import cordon, find_broker
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.replicas import alter_reassignments
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.plan.reassignment import plan_drain
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
