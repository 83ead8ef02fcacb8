"""Leader elections and ISR changes when brokers go offline, come back, or an election is requested.

A broker that fails its checks is offline: it leaves the ISR of all its partitions, and where it led, the first replica
in the list that is in sync and online is elected. The last in-sync replicas stay in the ISR while they are offline, as
in Kafka: they hold all records, and one of them leads again once it is back. With ``unclean.leader.election.enable``
another replica may take over; the segments it lacks leave the log in the same commit, and their offsets are never
reused.

Rules: as in ``decide``. Results of checks are arguments, and are compared with the newest state here. Each partition
that changes is one ``ChangePartition``; its leader epoch grows when its leader changes.
Not for: running checks (``coordinator.controller``), the effect of an append on the ISR (``append``, ``acks``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.config.topic_configs import TopicConfig
from sparklog.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    PreferredLeaderNotAvailableError,
)
from sparklog.protocol.commits import Action, ChangeBroker, ChangePartition
from sparklog.protocol.decide.acks import make_partition_change
from sparklog.protocol.decide.brokers import check_controller, is_online, online_brokers
from sparklog.protocol.decide.decision import Decision, ErrorByPartition, decide_each
from sparklog.protocol.decide.segments import Replacement, SegmentsRequest, change_segments, changed_since
from sparklog.protocol.state import State, TopicState
from sparklog.types import TopicPartition

NO_LEADER = -1

MAX_CHANGES = 10_000
"""Most partitions whose leader or ISR one commit changes, so that it stays below ``limits.MAX_COMMIT_BYTES``."""


class CheckedBrokers(NamedTuple):
    """Results of the checks of brokers. ``went_back`` are locations that hold less than they did before."""

    online: Collection[int] = ()
    offline: Collection[int] = ()
    went_back: Collection[int] = ()


class Elected(NamedTuple):
    """Partitions that a decision changes. ``more``: there are others, which another commit has to change."""

    partitions: list[TopicPartition]
    more: bool = False


class UncleanElection(NamedTuple):
    """Election of a replica that is not in sync; ``lost`` removes the segments it lacks from the log. ``others`` are
    the online replicas that it was preferred to."""

    topic: str
    topic_id: str
    partition: int
    broker: int
    log_end_offset: int
    version: int
    lost: Sequence[Replacement]
    others: Collection[int] = ()


class PartitionChange:
    """Builds a change of one partition's replicas. Not thread-safe; lives for one decision.

    Modify ``isr``, ``replicas``, ``adding``, ``removing`` and ``leader``; ``finish`` completes a reassignment if
    possible, elects a leader if the current one cannot stay, and returns the action.
    """

    def __init__(self, topic: TopicState, number: int, online: Collection[int]) -> None:
        self.topic = topic
        self.number = number
        self.before = topic.partitions[number]
        self.online = online
        self.isr = list(self.before.isr)
        self.replicas = list(self.before.replicas)
        self.adding = list(self.before.adding)
        self.removing = list(self.before.removing)
        self.leader = self.before.leader

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.number)

    def leave_isr(self, brokers: Collection[int]) -> None:
        """Remove brokers from the ISR, unless it would become empty."""
        remaining = [broker for broker in self.isr if broker not in brokers]
        if remaining:
            self.isr = remaining

    def join_isr(self, broker: int) -> None:
        in_sync = {*self.isr, broker}
        self.isr = [replica for replica in self.replicas if replica in in_sync]

    def finish(self) -> ChangePartition | None:
        """Return the action, or None if nothing changes."""
        self._complete_reassignment()
        if self.leader not in self.isr or self.leader not in self.online:
            eligible = [broker for broker in self.replicas if broker in self.isr and broker in self.online]
            self.leader = eligible[0] if eligible else NO_LEADER
        after = replace(
            self.before,
            leader=self.leader,
            leader_epoch=self.before.leader_epoch + (self.leader != self.before.leader),
            isr=tuple(self.isr),
            replicas=tuple(self.replicas),
            adding=tuple(self.adding),
            removing=tuple(self.removing),
        )
        if after == self.before:
            return None
        return make_partition_change(self.topic.name, self.topic.topic_id, self.number, after)

    def _complete_reassignment(self) -> None:
        """Complete the reassignment if it can be, as Kafka's
        ``PartitionReassignmentReplicas.maybeCompleteReassignment``."""
        if not (self.adding or self.removing) or not set(self.adding) <= set(self.isr):
            return
        isr = [broker for broker in self.isr if broker not in self.removing]
        if not isr:
            return
        self.replicas = [broker for broker in self.replicas if broker not in self.removing]
        self.isr, self.adding, self.removing = isr, [], []


def broker_checks(state: State, epoch: int, checked: CheckedBrokers, limit: int = MAX_CHANGES) -> Decision[Elected]:
    """Set brokers online or offline, and change leaders and ISRs accordingly; the result is ``Elected``.

    Includes changes that an earlier pass left undone. Raises ControllerMovedError.
    """
    check_controller(state, epoch)
    actions: list[Action] = []
    online = online_brokers(state)
    for wanted, brokers in ((True, checked.online), (False, checked.offline)):
        for number in sorted(set(brokers) & state.brokers.keys()):
            if state.brokers[number].online != wanted:
                actions.append(ChangeBroker(broker=number, online=wanted))
                (online.add if wanted else online.discard)(number)
    actions += [
        ChangeBroker(broker=number, lost_files=True) for number in sorted({*checked.went_back} & {*state.brokers})
    ]
    elected = Elected([])
    for change in find_changes(state, online, checked.went_back):
        if len(elected.partitions) == limit:
            elected = Elected(elected.partitions, more=True)
            break
        actions.append(change)
        elected.partitions.append(TopicPartition(change.topic, change.partition))
    return Decision(actions, elected)


def find_changes(state: State, online: Collection[int], went_back: Collection[int]) -> Iterator[ChangePartition]:
    """Yield the changes that follow from the set of online brokers, and from those that have lost their files.

    Brokers that have lost files leave an ISR before those that are only offline, so that they do not stay in it as the
    last one in sync.
    """
    offline = [number for number in state.brokers if number not in online]
    unavailable = {*offline, *went_back}
    for topic in state.topics_in_order():
        for number, partition in enumerate(topic.partitions):
            if partition.leader in online and not any(broker in unavailable for broker in partition.isr):
                continue
            change = PartitionChange(topic, number, online)
            change.leave_isr(went_back)
            change.leave_isr(offline)
            action = change.finish()
            if action is not None:
                yield action


def elect_preferred(
    state: State, partitions: Sequence[tuple[str, int]] | None = None, epoch: int | None = None
) -> Decision[ErrorByPartition]:
    """Elect the preferred leader, the first in the replica list, where it is online and in sync.

    ``epoch`` is the controller's if the controller requests it, which it may as long as the cluster allows it. The
    result has an error or None by partition: UnknownTopicOrPartitionError, ElectionNotNeededError,
    PreferredLeaderNotAvailableError. For all partitions (None) it omits those that need no election.
    """
    if epoch is not None:
        check_controller(state, epoch)
        if not ClusterConfig.resolve(state.configs).auto_leader_rebalance_enable:
            return Decision([], {})
    online = online_brokers(state)
    decision = decide_each(
        every_partition(state) if partitions is None else partitions,
        lambda partition: [_elect_preferred_leader(state, partition.topic, partition.partition, online)],
    )
    if partitions is not None:
        return decision
    needed = {name: error for name, error in decision.result.items() if not isinstance(error, ElectionNotNeededError)}
    return Decision(decision.actions, needed)


def every_partition(state: State) -> list[TopicPartition]:
    return [TopicPartition(name, number) for name in sorted(state.topics) for number in partitions_of(state, name)]


def partitions_of(state: State, topic: str) -> range:
    return range(len(state.topics[topic].partitions))


def _elect_preferred_leader(state: State, topic: str, number: int, online: Collection[int]) -> ChangePartition:
    partition = state.partition(topic, number)
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise ElectionNotNeededError(
            f"broker {preferred}, the preferred leader of {topic}-{number}, already leads it",
            topic=topic,
            partition=number,
        )
    change = PartitionChange(state.topics[topic], number, online)
    change.leader = preferred
    action = change.finish()
    if action is None or action.leader != preferred:
        raise PreferredLeaderNotAvailableError(
            f"broker {preferred}, the preferred leader of {topic}-{number}, is "
            f"{'not in sync' if preferred in online else 'offline'}; it can lead once it has caught up",
            topic=topic,
            partition=number,
        )
    return action


def imbalance(state: State) -> dict[int, float]:
    """Return for each broker the share (0 to 1) of the partitions it should lead that other brokers lead."""
    preferred: dict[int, int] = {}
    others: dict[int, int] = {}
    for topic in state.topics_in_order():
        for partition in topic.partitions:
            first = partition.replicas[0]
            preferred[first] = preferred.get(first, 0) + 1
            others[first] = others.get(first, 0) + (partition.leader != first)
    return {broker: others[broker] / count for broker, count in preferred.items()}


def needs_unclean_election(state: State, topic: str, number: int) -> list[int]:
    """Return the replicas that could lead a partition whose in-sync replicas are all offline, in order of
    preference."""
    partition = state.partition(topic, number)
    if partition.leader >= 0 or any(is_online(state, broker) for broker in partition.isr):
        return []
    return [broker for broker in partition.replicas if is_online(state, broker)]


def elect_unclean(
    state: State, elections: Sequence[UncleanElection], epoch: int | None = None
) -> Decision[ErrorByPartition]:
    """Elect leaders that are not in sync. The result has an error or None by partition.

    ``epoch`` is the controller's if the controller requests it, which it may as long as the topic allows it. Segments
    that the new leader lacks leave the log; their offsets stay unused. Errors: ElectionNotNeededError if there is a
    leader, EligibleLeadersNotAvailableError if the partition has changed since it was inspected, or a replica that was
    not inspected came back: inspect it again.
    """
    if epoch is not None:
        check_controller(state, epoch)
    by_partition = {(election.topic, election.partition): election for election in elections}

    def elect(partition: TopicPartition) -> list[Action]:
        election = by_partition[partition]
        if epoch is not None and not allows_unclean_election(state, election.topic):
            raise EligibleLeadersNotAvailableError(
                f"unclean.leader.election.enable of topic {election.topic} was set to false since broker "
                f"{election.broker} was inspected as the leader of partition {election.partition}",
                topic=election.topic,
                partition=election.partition,
            )
        return _elect_unclean_leader(state, election)

    return decide_each(by_partition, elect)


def allows_unclean_election(state: State, topic: str) -> bool:
    """Return whether the controller may elect leaders of a topic that are not in sync."""
    configs = state.topics[topic].configs if topic in state.topics else {}
    return TopicConfig.resolve(configs, state.configs).unclean_leader_election_enable


def _elect_unclean_leader(state: State, election: UncleanElection) -> list[Action]:
    partition = state.partition(election.topic, election.partition)
    name = f"{election.topic}-{election.partition}"
    if partition.leader >= 0:
        raise ElectionNotNeededError(
            f"broker {partition.leader} leads {name}", topic=election.topic, partition=election.partition
        )
    topic = state.topics[election.topic]
    unchanged = topic.topic_id == election.topic_id and partition.log_end_offset == election.log_end_offset
    unchanged = unchanged and not changed_since(partition, election.version, 0, partition.log_end_offset)
    removals = change_segments(state, SegmentsRequest(version=election.version, changes=election.lost))
    broker = state.brokers.get(election.broker)
    unchanged = unchanged and broker is not None and broker.lost_files_at <= election.version
    candidates = set(needs_unclean_election(state, election.topic, election.partition))
    inspected = {election.broker, *election.others}
    if not unchanged or removals.result.left_out or election.broker not in candidates or candidates - inspected:
        raise EligibleLeadersNotAvailableError(
            f"{name} has changed since broker {election.broker} was inspected as its leader; retry the election",
            topic=election.topic,
            partition=election.partition,
        )
    change = PartitionChange(topic, election.partition, {election.broker})
    change.isr = [election.broker]
    action = change.finish()
    assert action is not None
    return [*removals.actions, action]
