"""Who leads a partition and who is in sync, once brokers fail, come back, or a leader is asked for.

A broker that does not pass its checks is offline: it leaves the ISR of all its partitions, and a leader among them
gives way to the first of the replica list that is in sync and online. The last in-sync replicas stay in the ISR while
they are offline, as in Kafka: they hold all there is, and one of them leads again once it is back. With
``unclean.leader.election.enable`` another replica may take over; the segments it lacks leave the log in the same
commit, and their offsets are never given to other records.

Rules: as in ``decide``. What checks found out comes in as arguments, and is compared with the newest state here. Each
partition that changes is one ``ChangePartition``; its leader epoch grows when its leader changes.
Not for: who checks (``coordinator.controller``), what an append does to the ISR (``decide_append``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from sparklog.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    PreferredLeaderNotAvailableError,
    SparklogError,
)
from sparklog.protocol.commits import Action, ChangeBroker, ChangePartition
from sparklog.protocol.decide.brokers import check_controller
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.segments import Replacement, SegmentsRequest, change_segments, changed_since
from sparklog.protocol.state import State, TopicState
from sparklog.types import TopicPartition

NO_LEADER = -1

MAX_CHANGES = 10_000
"""Partitions whose leader or ISR one commit changes at most, so that it stays below ``limits.MAX_COMMIT_BYTES``."""


class Checked(NamedTuple):
    """What the checks of the brokers came to. ``went_back`` are locations that hold less than they did before."""

    online: Collection[int] = ()
    offline: Collection[int] = ()
    went_back: Collection[int] = ()


class Elected(NamedTuple):
    """What a decision on many partitions came to. ``more``: there are others, which another commit has to change."""

    partitions: list[TopicPartition]
    more: bool = False


class UncleanElection(NamedTuple):
    """A replica that is not in sync is to lead; ``lost`` takes the segments it lacks out of the log."""

    topic: str
    topic_id: str
    partition: int
    broker: int
    log_end_offset: int
    version: int
    lost: Sequence[Replacement]


def is_online(state: State, broker: int) -> bool:
    found = state.brokers.get(broker)
    return found is not None and found.online


def online_brokers(state: State) -> set[int]:
    return {number for number, broker in state.brokers.items() if broker.online}


class PartitionChange:
    """The replicas of one partition on their way to the next commit. Not thread-safe; lives for one decision.

    Change ``isr``, ``replicas``, ``adding``, ``removing`` and ``leader``; ``finish`` completes a reassignment that can
    be, chooses a leader where the present one cannot stay, and says what that comes to.
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
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.number)

    def leave_isr(self, brokers: Collection[int]) -> None:
        """Take these out of the ISR, unless nobody would be left in it."""
        left = [broker for broker in self.isr if broker not in brokers]
        if left:
            self.isr = left

    def join_isr(self, broker: int) -> None:
        in_sync = {*self.isr, broker}
        self.isr = [replica for replica in self.replicas if replica in in_sync]

    def finish(self) -> ChangePartition | None:
        """The action, None where nothing changes."""
        self._complete_reassignment()
        if self.leader not in self.isr or self.leader not in self.online:
            eligible = [broker for broker in self.replicas if broker in self.isr and broker in self.online]
            self.leader = eligible[0] if eligible else NO_LEADER
        before = self.before
        now = (self.leader, *map(tuple, (self.isr, self.replicas, self.adding, self.removing)))
        if now == (before.leader, before.isr, before.replicas, before.adding, before.removing):
            return None
        return ChangePartition(
            topic=self.topic.name,
            topic_id=self.topic.topic_id,
            partition=self.number,
            leader=self.leader,
            leader_epoch=before.leader_epoch + (self.leader != before.leader),
            isr=self.isr,
            replicas=self.replicas,
            adding=self.adding,
            removing=self.removing,
        )

    def _complete_reassignment(self) -> None:
        """Kafka's ``PartitionReassignmentReplicas.maybeCompleteReassignment``."""
        if not (self.adding or self.removing) or not set(self.adding) <= set(self.isr):
            return
        isr = [broker for broker in self.isr if broker not in self.removing]
        if not isr:
            return
        self.replicas = [broker for broker in self.replicas if broker not in self.removing]
        self.isr, self.adding, self.removing = isr, [], []


def broker_checks(state: State, epoch: int, checked: Checked, limit: int = MAX_CHANGES) -> Decision:
    """Brokers go offline and come back, and whatever follows for leaders and ISRs; the result is ``Elected``.

    Also what an earlier pass left undone follows. Raises ControllerMovedError.
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
    for change in _changes(state, online, checked.went_back):
        if len(elected.partitions) == limit:
            elected = Elected(elected.partitions, more=True)
            break
        actions.append(change)
        elected.partitions.append(TopicPartition(change.topic, change.partition))
    return Decision(actions, elected)


def _changes(state: State, online: Collection[int], went_back: Collection[int]) -> Iterator[ChangePartition]:
    """What follows from who is online, for partitions that are not as they should be.

    Who has lost files leaves before who is merely offline, and so does not stay as the last one in sync.
    """
    offline = [number for number in state.brokers if number not in online]
    gone = {*offline, *went_back}
    for topic in state.topics_in_order():
        for number, partition in enumerate(topic.partitions):
            if partition.leader in online and not any(broker in gone for broker in partition.isr):
                continue
            change = PartitionChange(topic, number, online)
            change.leave_isr(went_back)
            change.leave_isr(offline)
            action = change.finish()
            if action is not None:
                yield action


def elect_preferred(state: State, partitions: Sequence[tuple[str, int]] | None = None) -> Decision:
    """Let the first of the replica list lead, where it is online and in sync.

    The result has an error or None by partition, without those of all partitions (None) that need no election:
    UnknownTopicOrPartitionError, ElectionNotNeededError, PreferredLeaderNotAvailableError.
    """
    online = online_brokers(state)
    actions: list[Action] = []
    outcome: dict[TopicPartition, SparklogError | None] = {}
    for topic, number in every_partition(state) if partitions is None else partitions:
        try:
            actions.append(_preferred(state, topic, number, online))
        except ElectionNotNeededError as error:
            if partitions is not None:
                outcome[TopicPartition(topic, number)] = error
        except SparklogError as error:
            outcome[TopicPartition(topic, number)] = error
        else:
            outcome[TopicPartition(topic, number)] = None
    return Decision(actions, outcome)


def every_partition(state: State) -> list[TopicPartition]:
    return [TopicPartition(name, number) for name in sorted(state.topics) for number in partitions_of(state, name)]


def partitions_of(state: State, topic: str) -> range:
    return range(len(state.topics[topic].partitions))


def _preferred(state: State, topic: str, number: int, online: Collection[int]) -> ChangePartition:
    partition = state.partition(topic, number)
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        raise ElectionNotNeededError(
            f"broker {preferred}, the preferred leader of {topic}-{number}, leads it already",
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
    """Of the partitions that each broker is the preferred leader of, the share that others lead (0 to 1)."""
    preferred: dict[int, int] = {}
    others: dict[int, int] = {}
    for topic in state.topics_in_order():
        for partition in topic.partitions:
            first = partition.replicas[0]
            preferred[first] = preferred.get(first, 0) + 1
            others[first] = others.get(first, 0) + (partition.leader != first)
    return {broker: others[broker] / count for broker, count in preferred.items()}


def needs_unclean_election(state: State, topic: str, number: int) -> list[int]:
    """The replicas that could lead a partition whose in-sync replicas are all offline, in order of preference."""
    partition = state.partition(topic, number)
    if partition.leader >= 0 or any(is_online(state, broker) for broker in partition.isr):
        return []
    return [broker for broker in partition.replicas if is_online(state, broker)]


def elect_unclean(state: State, elections: Sequence[UncleanElection], epoch: int | None = None) -> Decision:
    """Let replicas lead that are not in sync. The result has an error or None by partition.

    ``epoch`` is the controller's, where it is the controller that asks. Segments that the new leader lacks leave the
    log; the offsets stay unused. ElectionNotNeededError where there is a leader, EligibleLeadersNotAvailableError where
    the partition has changed since it was looked at: look again.
    """
    if epoch is not None:
        check_controller(state, epoch)
    actions: list[Action] = []
    outcome: dict[TopicPartition, SparklogError | None] = {}
    for one in elections:
        try:
            actions += _unclean(state, one)
        except SparklogError as error:
            outcome[TopicPartition(one.topic, one.partition)] = error
        else:
            outcome[TopicPartition(one.topic, one.partition)] = None
    return Decision(actions, outcome)


def _unclean(state: State, one: UncleanElection) -> list[Action]:
    partition = state.partition(one.topic, one.partition)
    where = f"{one.topic}-{one.partition}"
    if partition.leader >= 0:
        raise ElectionNotNeededError(
            f"broker {partition.leader} leads {where}", topic=one.topic, partition=one.partition
        )
    topic = state.topics[one.topic]
    same = topic.topic_id == one.topic_id and partition.log_end_offset == one.log_end_offset
    same = same and not changed_since(partition, one.version, 0, partition.log_end_offset)
    removals = change_segments(state, SegmentsRequest(version=one.version, changes=one.lost))
    if (
        not same
        or removals.result.left_out
        or one.broker not in needs_unclean_election(state, one.topic, one.partition)
    ):
        raise EligibleLeadersNotAvailableError(
            f"{where} has changed since broker {one.broker} was looked at for it; look again",
            topic=one.topic,
            partition=one.partition,
        )
    change = PartitionChange(topic, one.partition, {one.broker})
    change.isr = [one.broker]
    action = change.finish()
    assert action is not None
    return [*removals.actions, action]
