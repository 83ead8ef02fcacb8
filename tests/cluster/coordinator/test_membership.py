"""Members of a group, driven by hand: time stands still unless a test moves it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.leases import group_prefix
from sparklog.coordinator.membership import Change, GroupMember
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    IndeterminateCommitError,
    StorageUnavailableError,
)
from sparklog.ids import SeededIds
from sparklog.protocol.decide.topics import create_partitions
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import FaultyStore
from sparklog.types import OffsetAndMetadata, TopicPartition

SESSION_MS = 10_000


class Group:
    """Members in processes of their own: each has a coordinator, all share the storage and a clock."""

    def __init__(self, name: str, partitions: int = 4, assignor: str = "cooperative-sticky") -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(name, self.clock)
        self.admin = create_cluster(self.store, clock=self.clock, ids=SeededIds(0))
        self.admin.create_topic("orders", partitions)
        self.assignor = assignor
        self._made = 0

    def coordinator(self) -> Coordinator:
        self._made += 1
        return open_cluster(self.store, clock=self.clock, ids=SeededIds(self._made))

    def member(self, instance_id: str = "", topics: tuple[str, ...] = ("orders",), **more: Any) -> GroupMember:
        made = GroupMember(
            self.coordinator(),
            "g",
            instance_id=instance_id,
            assignors=(self.assignor,),
            session_timeout_ms=SESSION_MS,
            **more,
        )
        made.join(topics)
        return made

    def beats(self, *members: GroupMember, seconds: float = 3, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(seconds)
            for member in members:
                member.beat()

    def names(self) -> set[str]:
        return set(self.admin.refresh().groups["g"].members)

    def committed(self) -> dict[int, int]:
        return {at.partition: at.offset for at in self.admin.refresh().groups["g"].offsets.values()}


@pytest.fixture
def group(request: pytest.FixtureRequest) -> Group:
    return Group(request.node.name)


@pytest.fixture
def eager(request: pytest.FixtureRequest) -> Group:
    return Group(request.node.name, assignor="range")


def places(*partitions: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("orders", partition) for partition in partitions)


def refreshed(member: GroupMember) -> Change:
    member.coordinator.refresh()
    return member.reconcile()


def numbers(found: frozenset[TopicPartition]) -> list[int]:
    return sorted(place.partition for place in found)


# -- joining and leaving


def test_the_first_member_gets_everything_with_one_commit(group: Group) -> None:
    before = group.admin.refresh().version
    member = group.member()
    change = member.reconcile()
    assert change.assigned == member.owned == places(0, 1, 2, 3)
    assert (change.generation, change.completed, change.to_acknowledge) == (1, True, False)
    assert group.admin.refresh().version == before + 1
    assert not member.reconcile()


def test_a_second_member_takes_over_once_the_first_has_let_go(group: Group) -> None:
    first = group.member()
    first.reconcile()
    second = group.member()
    assert second.reconcile().assigned == frozenset()
    given_up = refreshed(first)
    assert given_up.to_acknowledge
    assert len(given_up.revoked) == 2
    assert not refreshed(second).assigned
    first.acknowledge(dict.fromkeys(given_up.revoked, 7))
    assert refreshed(second).assigned == given_up.revoked
    assert group.committed() == dict.fromkeys(numbers(given_up.revoked), 7)
    assert refreshed(first).completed
    assert not refreshed(first)


def test_who_leaves_is_gone_at_once(group: Group) -> None:
    first, second = group.member(), group.member()
    refreshed(first)
    first.acknowledge()
    had = refreshed(second).assigned
    second.leave()
    assert second.reconcile().lost == had
    assert refreshed(first).assigned == had
    assert first.owned == places(0, 1, 2, 3)
    assert second.member_id == ""


def test_a_changed_subscription_is_a_new_generation(group: Group) -> None:
    member = group.member()
    member.reconcile()
    group.admin.create_topic("audit", 1)
    member.join(["orders", "audit"])
    assert member.reconcile().assigned == {TopicPartition("audit", 0)}


def test_a_topic_that_appears_later_is_assigned(group: Group) -> None:
    member = group.member(topics=("later",))
    assert member.reconcile().assigned == frozenset()
    group.admin.create_topic("later", 1)
    assert refreshed(member).assigned == {TopicPartition("later", 0)}
    group.admin.submit(partial(create_partitions, topic="later", total=2))
    assert refreshed(member).assigned == {TopicPartition("later", 1)}


def test_partitions_of_a_topic_that_was_made_again_are_lost_and_assigned(group: Group) -> None:
    member = group.member()
    member.reconcile()
    delete_topic(group.admin, "orders")
    group.admin.create_topic("orders", 1)
    change = refreshed(member)
    assert (change.lost, change.assigned) == (places(0, 1, 2, 3), places(0))


def test_a_member_without_an_assignor_in_common_is_refused(group: Group) -> None:
    group.member()
    group.assignor = "range"
    with pytest.raises(InconsistentGroupProtocolError):
        group.member()


def test_what_is_to_be_acknowledged_is_said_until_it_is(group: Group) -> None:
    first = group.member()
    first.reconcile()
    group.member()
    assert refreshed(first).revoked
    assert not first.reconcile().revoked
    assert first.reconcile().to_acknowledge
    first.acknowledge()
    assert not first.reconcile().to_acknowledge


# -- eager assignors


def test_with_an_eager_assignor_everything_is_given_up_first(eager: Group) -> None:
    first = eager.member()
    first.reconcile()
    second = eager.member()
    change = refreshed(first)
    assert (change.revoked, change.assigned, change.to_acknowledge) == (places(0, 1, 2, 3), frozenset(), True)
    first.acknowledge()
    assert first.reconcile().assigned == places(0, 1)
    assert refreshed(second).assigned == places(2, 3)


def test_with_an_eager_assignor_a_rebalance_that_moves_nothing_is_told_as_well(eager: Group) -> None:
    first = eager.member()
    first.reconcile()
    eager.admin.create_topic("other", 1)
    eager.member(topics=("other",))
    change = refreshed(first)
    assert (change.revoked, change.assigned, change.completed) == (places(0, 1, 2, 3), places(0, 1, 2, 3), True)


def test_an_incremental_member_is_told_differences_whatever_the_assignor(eager: Group) -> None:
    first = eager.member(incremental=True)
    first.reconcile()
    eager.member()
    assert refreshed(first).revoked == places(2, 3)


# -- liveness


def test_a_silent_member_is_taken_out_after_its_session_timeout(group: Group) -> None:
    first, second = group.member(), group.member()
    refreshed(first)
    first.acknowledge()
    group.beats(first, times=3)
    assert len(group.names()) == 2
    group.beats(first, times=2)
    assert group.names() == {first.member_id}
    assert refreshed(first).assigned
    assert first.owned == places(0, 1, 2, 3)
    assert [info.key for info in group.store.list(group_prefix("g"))] == [first._lease.key]  # type: ignore[union-attr]
    assert second.member_id


def test_members_that_beat_are_never_taken_out(group: Group) -> None:
    members = [group.member() for _ in range(5)]
    group.beats(*members, times=20)
    assert len(group.names()) == 5


def test_a_mass_death_is_over_in_about_one_session_timeout(group: Group) -> None:
    members = [group.member() for _ in range(12)]
    group.beats(*members, times=3)
    group.beats(members[0], times=7)
    assert group.names() == {members[0].member_id}


def test_a_member_that_was_stopped_loses_its_partitions_and_joins_again(group: Group) -> None:
    stopped = group.member()
    stopped.reconcile()
    other = group.member()
    group.beats(other, times=5)
    assert refreshed(other).assigned == places(0, 1, 2, 3)
    assert stopped.overdue
    with pytest.raises(CommitFailedError, match="removed from the group"):
        stopped.commit({TopicPartition("orders", 0): 9})
    stopped.beat()
    former = stopped.member_id
    assert stopped.reconcile().lost == places(0, 1, 2, 3)
    assert stopped.member_id == ""
    stopped.join(["orders"])
    assert stopped.member_id not in ("", former)
    assert stopped.reconcile().assigned == frozenset()
    assert not stopped.overdue


def test_who_changes_its_subscription_after_it_was_taken_out_does_not_come_back_unawares(group: Group) -> None:
    stopped, other = group.member(), group.member()
    stopped.reconcile()
    group.beats(other, times=5)
    stopped.join(["orders", "audit"])
    assert stopped.reconcile().lost
    assert group.names() == {other.member_id}


def test_when_all_are_stopped_together_nobody_takes_out_the_others_on_waking(group: Group) -> None:
    members = [group.member() for _ in range(4)]
    group.beats(*members, times=3)
    group.clock.advance(3600)
    group.beats(*members, times=3)
    assert len(group.names()) == 4


# -- static members


def test_a_static_member_that_comes_back_in_time_keeps_its_partitions(group: Group) -> None:
    first, second = group.member("i-1"), group.member("i-2")
    refreshed(first)
    first.acknowledge()
    first.reconcile()
    owned, generation = refreshed(second).assigned, second.generation
    second.leave()
    assert len(group.names()) == 2
    again = group.member("i-2")
    assert again.reconcile().assigned == owned
    assert again.generation == generation
    assert not refreshed(first)


def test_a_static_member_that_stays_away_is_taken_out(group: Group) -> None:
    first, second = group.member("i-1"), group.member("i-2")
    second.leave()
    group.beats(first, times=5)
    assert group.names() == {first.member_id}


def test_two_processes_with_one_instance_id_fence_each_other_once(group: Group) -> None:
    old = group.member("i-1")
    old.reconcile()
    new = group.member("i-1")
    assert new.reconcile().assigned == places(0, 1, 2, 3)
    with pytest.raises(FencedInstanceIdError):
        old.commit({TopicPartition("orders", 0): 1})
    assert refreshed(old).lost == places(0, 1, 2, 3)
    with pytest.raises(FencedInstanceIdError):
        old.reconcile()
    with pytest.raises(FencedInstanceIdError):
        old.join(["orders"])
    assert group.names() == {new.member_id}


# -- offsets


def test_a_commit_that_a_rebalance_has_overtaken_holds_for_what_is_still_held(group: Group) -> None:
    first = group.member()
    first.reconcile()
    group.member()
    first.commit({TopicPartition("orders", partition): 5 for partition in range(4)})
    assert group.committed() == {0: 5, 1: 5, 2: 5, 3: 5}


def test_a_commit_of_what_another_member_has_by_now_is_refused(group: Group) -> None:
    first = group.member()
    first.reconcile()
    second = group.member()
    moved = refreshed(first).revoked
    first.acknowledge()
    refreshed(second)
    for member in (first, group.member()):
        with pytest.raises(CommitFailedError):
            member.commit(dict.fromkeys(moved, OffsetAndMetadata(5)))
    assert group.committed() == {}


def test_an_acknowledgement_that_a_rebalance_has_overtaken_commits_and_is_asked_for_again(group: Group) -> None:
    first = group.member()
    first.reconcile()
    group.member()
    given_up = refreshed(first).revoked
    group.member()
    first.acknowledge(dict.fromkeys(given_up, 3))
    assert group.committed() == dict.fromkeys(numbers(given_up), 3)
    change = first.reconcile()
    assert change.to_acknowledge
    first.acknowledge(dict.fromkeys(change.revoked, 4))
    assert not first.reconcile().to_acknowledge


def test_the_last_offsets_of_a_deleted_topic_do_not_stand_in_the_way(group: Group) -> None:
    group.admin.create_topic("audit", 1)
    first = group.member(topics=("orders", "audit"))
    first.reconcile()
    group.member()
    given_up = refreshed(first).revoked
    delete_topic(group.admin, "audit")
    first.coordinator.refresh()
    first.acknowledge({**dict.fromkeys(given_up, 1), TopicPartition("audit", 0): 1})
    assert "audit" not in {at.topic for at in group.admin.refresh().groups["g"].offsets.values()}


def test_members_of_one_process_acknowledge_a_rebalance_in_one_commit(request: pytest.FixtureRequest) -> None:
    coordinator = create_cluster(MemoryStore(request.node.name))
    coordinator.create_topic("orders", 40)

    def member() -> GroupMember:
        made = GroupMember(coordinator, "g", assignors=("cooperative-sticky",))
        made.join(["orders"])
        return made

    members = [member() for _ in range(4)]
    while any(found.reconcile().to_acknowledge for found in members):
        for found in members:
            found.acknowledge()
    joined = member()
    giving_up = [found for found in members if found.reconcile().to_acknowledge]
    assert len(giving_up) == 4
    version = coordinator.state.version
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(GroupMember.acknowledge, giving_up))
    assert coordinator.state.version <= version + 2  # one, unless a thread is late
    assert len(joined.reconcile().assigned) == 8


class Unanswering(FaultyStore):
    """Once ``deaf``, it stores a commit without an answer, and does not give it back either."""

    deaf = False
    stored = ""

    def put_if_absent(self, key: str, data: Any) -> None:
        super().put_if_absent(key, data)
        if self.deaf:
            self.stored = key
            raise StorageUnavailableError("no answer", path=key)

    def get(self, key: str, *limits: Any) -> bytes:
        if self.deaf and key == self.stored:
            raise StorageUnavailableError("no answer", path=key)
        return super().get(key, *limits)


def test_a_join_whose_outcome_is_unknown_is_tried_again_under_the_same_id(group: Group) -> None:
    """Else what it left in the log is a member that nobody renews, and holds partitions for a session timeout."""
    store = Unanswering(group.store)
    coordinator = open_cluster(store, clock=group.clock, ids=SeededIds(9))
    member = GroupMember(coordinator, "g", assignors=(group.assignor,), session_timeout_ms=SESSION_MS)
    assert member.reconcile() == Change(-1)
    group.admin.create_topic("others", 1)  # so that the log has moved on when it looks again
    store.deaf = True
    with pytest.raises(IndeterminateCommitError):
        member.join(["orders"])
    assert not member.reconcile()
    store.deaf = False
    member.join(["orders"])
    assert group.names() == {member.member_id}
    assert numbers(refreshed(member).assigned) == [0, 1, 2, 3]
