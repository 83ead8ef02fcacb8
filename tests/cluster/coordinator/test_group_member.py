"""Members of a group, driven step by step: time passes only when a test advances it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

import sparklog.coordinator.coordinator as coordinator_module
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.group_member import GroupMember, MemberChange
from sparklog.coordinator.leases import group_prefix, lease_key
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
    """Members in separate processes: each has a coordinator, all share the storage and a clock."""

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
        member = GroupMember(
            self.coordinator(),
            "g",
            instance_id=instance_id,
            assignors=(self.assignor,),
            session_timeout_ms=SESSION_MS,
            **more,
        )
        member.join(topics)
        return member

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


def orders_partitions(*partitions: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("orders", partition) for partition in partitions)


def refreshed(member: GroupMember) -> MemberChange:
    member.coordinator.refresh()
    return member.reconcile()


def numbers(partitions: frozenset[TopicPartition]) -> list[int]:
    return sorted(partition.partition for partition in partitions)


# -- joining and leaving


def test_the_first_member_gets_everything_with_one_commit(group: Group) -> None:
    before = group.admin.refresh().version
    member = group.member()
    change = member.reconcile()
    assert change.assigned == member.owned == orders_partitions(0, 1, 2, 3)
    assert (change.generation, change.completed, change.to_acknowledge) == (1, True, False)
    assert group.admin.refresh().version == before + 1
    assert not member.reconcile()


def test_a_second_member_takes_over_after_the_first_has_revoked(group: Group) -> None:
    first = group.member()
    first.reconcile()
    second = group.member()
    assert second.reconcile().assigned == frozenset()
    change = refreshed(first)
    assert change.to_acknowledge
    assert len(change.revoked) == 2
    assert not refreshed(second).assigned
    first.acknowledge(dict.fromkeys(change.revoked, 7))
    assert refreshed(second).assigned == change.revoked
    assert group.committed() == dict.fromkeys(numbers(change.revoked), 7)
    assert refreshed(first).completed
    assert not refreshed(first)


def test_a_member_that_leaves_is_removed_immediately(group: Group) -> None:
    first, second = group.member(), group.member()
    refreshed(first)
    first.acknowledge()
    partitions = refreshed(second).assigned
    second.leave()
    assert second.reconcile().lost == partitions
    assert refreshed(first).assigned == partitions
    assert first.owned == orders_partitions(0, 1, 2, 3)
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


def test_partitions_of_a_recreated_topic_are_lost_and_assigned(group: Group) -> None:
    member = group.member()
    member.reconcile()
    delete_topic(group.admin, "orders")
    group.admin.create_topic("orders", 1)
    change = refreshed(member)
    assert (change.lost, change.assigned) == (orders_partitions(0, 1, 2, 3), orders_partitions(0))


def test_a_member_without_a_common_assignor_is_refused(group: Group) -> None:
    group.member()
    group.assignor = "range"
    with pytest.raises(InconsistentGroupProtocolError):
        group.member()


def test_a_pending_acknowledgement_is_reported_until_it_is_sent(group: Group) -> None:
    first = group.member()
    first.reconcile()
    group.member()
    assert refreshed(first).revoked
    assert not first.reconcile().revoked
    assert first.reconcile().to_acknowledge
    first.acknowledge()
    assert not first.reconcile().to_acknowledge


# -- eager assignors


def test_with_an_eager_assignor_all_partitions_are_revoked_first(eager: Group) -> None:
    first = eager.member()
    first.reconcile()
    second = eager.member()
    change = refreshed(first)
    assert (change.revoked, change.assigned, change.to_acknowledge) == (
        orders_partitions(0, 1, 2, 3),
        frozenset(),
        True,
    )
    first.acknowledge()
    assert first.reconcile().assigned == orders_partitions(0, 1)
    assert refreshed(second).assigned == orders_partitions(2, 3)


def test_with_an_eager_assignor_a_rebalance_that_moves_nothing_is_reported_as_well(eager: Group) -> None:
    first = eager.member()
    first.reconcile()
    eager.admin.create_topic("other", 1)
    eager.member(topics=("other",))
    change = refreshed(first)
    assert (change.revoked, change.assigned, change.completed) == (
        orders_partitions(0, 1, 2, 3),
        orders_partitions(0, 1, 2, 3),
        True,
    )


def test_an_incremental_member_gets_differences_with_any_assignor(eager: Group) -> None:
    first = eager.member(incremental=True)
    first.reconcile()
    eager.member()
    assert refreshed(first).revoked == orders_partitions(2, 3)


# -- liveness


def test_a_silent_member_is_removed_after_its_session_timeout(group: Group) -> None:
    first, second = group.member(), group.member()
    refreshed(first)
    first.acknowledge()
    group.beats(first, times=3)
    assert len(group.names()) == 2
    group.beats(first, times=2)
    assert group.names() == {first.member_id}
    assert refreshed(first).assigned
    assert first.owned == orders_partitions(0, 1, 2, 3)
    assert [info.key for info in group.store.list(group_prefix("g"))] == [lease_key("g", first.member_id)]
    assert second.member_id


def test_members_that_send_heartbeats_are_never_removed(group: Group) -> None:
    members = [group.member() for _ in range(5)]
    group.beats(*members, times=20)
    assert len(group.names()) == 5


def test_many_dead_members_are_removed_within_about_one_session_timeout(group: Group) -> None:
    members = [group.member() for _ in range(12)]
    group.beats(*members, times=3)
    group.beats(members[0], times=7)
    assert group.names() == {members[0].member_id}


def test_a_stopped_member_loses_its_partitions_and_rejoins(group: Group) -> None:
    stopped = group.member()
    stopped.reconcile()
    other = group.member()
    group.beats(other, times=5)
    assert refreshed(other).assigned == orders_partitions(0, 1, 2, 3)
    assert stopped.overdue
    with pytest.raises(CommitFailedError, match="removed from the group"):
        stopped.commit({TopicPartition("orders", 0): 9})
    stopped.beat()
    former = stopped.member_id
    assert stopped.reconcile().lost == orders_partitions(0, 1, 2, 3)
    assert stopped.member_id == ""
    stopped.join(["orders"])
    assert stopped.member_id not in ("", former)
    assert stopped.reconcile().assigned == frozenset()
    assert not stopped.overdue


def test_a_removed_member_that_changes_its_subscription_does_not_rejoin_unnoticed(group: Group) -> None:
    stopped, other = group.member(), group.member()
    stopped.reconcile()
    group.beats(other, times=5)
    stopped.join(["orders", "audit"])
    assert stopped.reconcile().lost
    assert group.names() == {other.member_id}


def test_members_that_were_all_stopped_together_do_not_remove_each_other_when_they_resume(group: Group) -> None:
    members = [group.member() for _ in range(4)]
    group.beats(*members, times=3)
    group.clock.advance(3600)
    group.beats(*members, times=3)
    assert len(group.names()) == 4


# -- static members


def test_a_static_member_that_returns_in_time_keeps_its_partitions(group: Group) -> None:
    first, second = group.member("i-1"), group.member("i-2")
    refreshed(first)
    first.acknowledge()
    first.reconcile()
    owned, generation = refreshed(second).assigned, second.generation
    second.leave()
    assert len(group.names()) == 2
    restarted = group.member("i-2")
    assert restarted.reconcile().assigned == owned
    assert restarted.generation == generation
    assert not refreshed(first)


def test_a_static_member_that_stays_away_is_removed(group: Group) -> None:
    first, second = group.member("i-1"), group.member("i-2")
    second.leave()
    group.beats(first, times=5)
    assert group.names() == {first.member_id}


def test_two_processes_with_one_instance_id_fence_each_other_once(group: Group) -> None:
    old = group.member("i-1")
    old.reconcile()
    new = group.member("i-1")
    assert new.reconcile().assigned == orders_partitions(0, 1, 2, 3)
    with pytest.raises(FencedInstanceIdError):
        old.commit({TopicPartition("orders", 0): 1})
    assert refreshed(old).lost == orders_partitions(0, 1, 2, 3)
    with pytest.raises(FencedInstanceIdError):
        old.reconcile()
    with pytest.raises(FencedInstanceIdError):
        old.join(["orders"])
    assert group.names() == {new.member_id}


# -- offsets


def test_a_commit_during_a_rebalance_is_valid_for_partitions_still_owned(group: Group) -> None:
    first = group.member()
    first.reconcile()
    group.member()
    first.commit({TopicPartition("orders", partition): 5 for partition in range(4)})
    assert group.committed() == {0: 5, 1: 5, 2: 5, 3: 5}


def test_a_commit_of_partitions_that_another_member_owns_is_refused(group: Group) -> None:
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


def test_an_acknowledgement_overtaken_by_a_rebalance_commits_and_is_requested_again(group: Group) -> None:
    first = group.member()
    first.reconcile()
    group.member()
    revoked = refreshed(first).revoked
    group.member()
    first.acknowledge(dict.fromkeys(revoked, 3))
    assert group.committed() == dict.fromkeys(numbers(revoked), 3)
    change = first.reconcile()
    assert change.to_acknowledge
    first.acknowledge(dict.fromkeys(change.revoked, 4))
    assert not first.reconcile().to_acknowledge


def test_the_last_offsets_of_a_deleted_topic_do_not_block_an_acknowledgement(group: Group) -> None:
    group.admin.create_topic("audit", 1)
    first = group.member(topics=("orders", "audit"))
    first.reconcile()
    group.member()
    revoked = refreshed(first).revoked
    delete_topic(group.admin, "audit")
    first.coordinator.refresh()
    first.acknowledge({**dict.fromkeys(revoked, 1), TopicPartition("audit", 0): 1})
    assert "audit" not in {at.topic for at in group.admin.refresh().groups["g"].offsets.values()}


def test_members_of_one_process_acknowledge_a_rebalance_in_one_commit(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator_module, "GATHER_SECONDS", 30)  # on a busy machine a thread may be late
    coordinator = create_cluster(MemoryStore(request.node.name))
    coordinator.create_topic("orders", 40)

    def new_member() -> GroupMember:
        member = GroupMember(coordinator, "g", assignors=("cooperative-sticky",))
        member.join(["orders"])
        return member

    members = [new_member() for _ in range(4)]
    while any(member.reconcile().to_acknowledge for member in members):
        for member in members:
            member.acknowledge()
    joined = new_member()
    revoking = [member for member in members if member.reconcile().to_acknowledge]
    assert len(revoking) == 4
    version = coordinator.state.version
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(GroupMember.acknowledge, revoking))
    assert coordinator.state.version == version + 1
    assert len(joined.reconcile().assigned) == 8


class Unanswering(FaultyStore):
    """Once ``deaf``, it stores a commit without an answer, and does not return it when read."""

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


def test_a_join_with_an_unknown_outcome_is_retried_under_the_same_id(group: Group) -> None:
    """Otherwise the first join leaves a member that holds partitions for a session timeout and renews no lease."""
    store = Unanswering(group.store)
    coordinator = open_cluster(store, clock=group.clock, ids=SeededIds(9))
    member = GroupMember(coordinator, "g", assignors=(group.assignor,), session_timeout_ms=SESSION_MS)
    assert member.reconcile() == MemberChange(-1)
    group.admin.create_topic("others", 1)  # the log has advanced when the member reads it again
    store.deaf = True
    with pytest.raises(IndeterminateCommitError):
        member.join(["orders"])
    assert not member.reconcile()
    store.deaf = False
    member.join(["orders"])
    assert group.names() == {member.member_id}
    assert numbers(refreshed(member).assigned) == [0, 1, 2, 3]
