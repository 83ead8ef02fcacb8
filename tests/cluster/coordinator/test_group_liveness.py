"""Dead group members are detected by the storage's time, from outside the groups and without waiting."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, group_liveness, open_cluster
from sparklog.coordinator.group_liveness import (
    LEASE_SLACK_MS,
    OLD_LEASE_MS,
    DeadMembers,
    abandoned_emptied,
    dead_members,
    expire_dead_members,
    remove_old_leases,
)
from sparklog.coordinator.group_member import GroupMember, expire
from sparklog.coordinator.leases import LEASES, lease_key
from sparklog.errors import GroupSubscribedToTopicError, NoError, UnknownMemberIdError
from sparklog.ids import SeededIds
from sparklog.maintenance.loop import Loop
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.steps import MaintenanceContext, steps
from sparklog.protocol.decide.groups import GroupCommit, JoinRequest, commit_group_offsets, join_group
from sparklog.protocol.state import GroupState
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.types import OffsetAndMetadata, TopicPartition

SESSION_MS = 45_000
DEAD_SECONDS = (SESSION_MS + LEASE_SLACK_MS) / 1000 + 1
DAY_MS = 86_400_000


class Groups:
    """A storage with its own clock, members, and machines whose clocks may be wrong."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.storage = ManualClock()
        self.clocks = [self.storage]
        self.admin = self.machine(0, create=True)
        self.admin.create_topic("orders", 4)

    def machine(self, ahead_ms: int, create: bool = False) -> Coordinator:
        clock = ManualClock(self.storage.now_ms() + ahead_ms)
        self.clocks.append(clock)
        store, ids = MemoryStore(self.name, self.storage), SeededIds(len(self.clocks))
        return (create_cluster if create else open_cluster)(store, clock=clock, ids=ids)

    def member(self, group: str = "g", ahead_ms: int = 0, **more: Any) -> GroupMember:
        member = GroupMember(self.machine(ahead_ms), group, session_timeout_ms=SESSION_MS, **more)
        member.join(["orders"])
        return member

    def advance(self, seconds: float) -> None:
        for clock in self.clocks:
            clock.advance(seconds)

    def members(self, group: str = "g") -> set[str]:
        return set(self.admin.refresh().groups[group].members)


@pytest.fixture
def groups(request: pytest.FixtureRequest) -> Iterator[Groups]:
    yield Groups(request.node.name)
    forget_space(request.node.name)


def maintain(coordinator: Coordinator, once: bool = True) -> dict[str, int]:
    with closing(MaintenanceContext(coordinator, lambda _: InProcess(), once=once)) as context:
        (report,) = Loop(steps(context, ["cleanup"]), coordinator.log.clock).once()
    assert report.problems == []
    return report.counts


def test_a_member_is_dead_once_its_lease_is_older_than_its_session_timeout(groups: Groups) -> None:
    groups.member()
    groups.advance(SESSION_MS / 1000)
    assert dead_members(groups.admin, groups.admin.refresh().groups) == {}
    groups.advance(DEAD_SECONDS - SESSION_MS / 1000)
    assert dead_members(groups.admin, groups.admin.refresh().groups) == {"g": sorted(groups.members())}


@pytest.mark.parametrize("member_ahead", [-8 * DAY_MS, 0, 8 * DAY_MS])
@pytest.mark.parametrize("judge_ahead", [-8 * DAY_MS, 0, 8 * DAY_MS])
def test_the_clocks_of_machines_do_not_matter(groups: Groups, member_ahead: int, judge_ahead: int) -> None:
    member, judge = groups.member(ahead_ms=member_ahead), groups.machine(judge_ahead)
    for _ in range(5):
        groups.advance(30)
        member.beat()
        assert dead_members(judge, judge.refresh().groups) == {}
    groups.advance(DEAD_SECONDS)
    assert dead_members(judge, judge.refresh().groups) == {"g": [member.member_id]}


def test_maintenance_removes_the_last_members_of_a_group(groups: Groups) -> None:
    groups.member()
    groups.member(instance_id="static")
    alive = groups.member("other")
    groups.advance(DEAD_SECONDS)
    alive.beat()
    assert maintain(groups.admin)["dead_group_members_taken_out"] == 2
    assert groups.members() == set()
    assert groups.members("other") == {alive.member_id}
    assert [info.key for info in groups.admin.store.list(LEASES)] == [lease_key("other", alive.member_id)]


def test_the_offsets_of_the_group_expire_from_then_on(groups: Groups) -> None:
    member = groups.member()
    member.reconcile()
    member.commit({TopicPartition("orders", 0): 0})
    groups.advance(DEAD_SECONDS)
    maintain(groups.admin)
    groups.advance(8 * 86_400)
    assert maintain(groups.admin)["groups_whose_offsets_expired"] == 1
    assert "g" not in groups.admin.refresh().groups


def test_a_member_that_was_removed_by_mistake_rejoins(groups: Groups) -> None:
    member = groups.member()
    groups.advance(DEAD_SECONDS)
    assert expire_dead_members(groups.admin, ["g"]) == [member.member_id]
    member.beat()
    member.reconcile()
    member.join(["orders"])
    assert groups.members() == {member.member_id}


def test_a_member_that_lives_again_when_it_is_to_be_removed_stays(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that removes it was suspended since it found it silent."""
    member = groups.member()
    groups.advance(DEAD_SECONDS)

    def find(coordinator: Coordinator, of: Mapping[str, GroupState]) -> dict[str, list[str]]:
        dead = dead_members(coordinator, of)
        groups.advance(3600)
        member.beat()
        return dead

    monkeypatch.setattr(group_liveness, "dead_members", find)
    assert expire_dead_members(groups.machine(0), ["g"]) == []
    assert groups.members() == {member.member_id}


def test_a_group_is_not_deleted_whose_member_commits_when_it_is_to_be_removed(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    member = groups.member()
    member.reconcile()
    groups.advance(DEAD_SECONDS)

    def remove(coordinator: Coordinator, group: str, members: Sequence[str], seen: GroupState) -> list[str]:
        member.commit({TopicPartition("orders", 0): 0})
        return expire(coordinator, group, members, seen)

    monkeypatch.setattr(group_liveness, "expire", remove)
    with AdminClient(cluster=groups.machine(0)) as admin:
        assert admin.delete_groups(["g"]) == {"g": "NonEmptyGroupError"}
    committed = groups.admin.refresh().committed("g", "orders", 0)
    assert committed is not None
    assert groups.members() == {member.member_id}


def test_one_pass_waits_for_a_member_that_died_before_its_first_heartbeat(groups: Groups) -> None:
    request = JoinRequest(group="g", member="m", topics=["orders"], session_timeout_ms=SESSION_MS)
    groups.admin.submit(partial(join_group, request=request))
    before = groups.admin.log.clock.monotonic()
    assert maintain(groups.admin)["dead_group_members_taken_out"] == 1
    assert SESSION_MS / 1000 <= groups.admin.log.clock.monotonic() - before <= SESSION_MS / 1000 + 5


def test_one_pass_does_not_wait_if_all_members_have_a_lease(groups: Groups) -> None:
    groups.member()
    before = groups.admin.log.clock.monotonic()
    assert maintain(groups.admin)["dead_group_members_taken_out"] == 0
    assert groups.admin.log.clock.monotonic() == before


def test_a_loop_detects_a_member_without_a_lease_over_several_passes(groups: Groups) -> None:
    groups.admin.submit(
        partial(
            join_group, request=JoinRequest(group="g", member="m", topics=["orders"], session_timeout_ms=SESSION_MS)
        )
    )
    dead = DeadMembers(groups.admin)
    removed: list[str] = []
    for _ in range(3):
        removed += dead.expire()
        groups.advance(600)
    assert removed == ["m"]


def test_a_group_without_members_costs_no_request(groups: Groups) -> None:
    groups.admin.submit(
        partial(
            commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): OffsetAndMetadata(0)})
        )
    )
    store = FaultyStore(groups.admin.store)
    coordinator = open_cluster(store, clock=groups.storage)
    calls = len(store.calls)
    assert abandoned_emptied(coordinator, coordinator.state.groups) == dict(coordinator.state.groups)
    assert len(store.calls) == calls


def test_a_group_with_one_live_member_is_shown_as_in_the_log(groups: Groups) -> None:
    groups.member()
    groups.advance(DEAD_SECONDS)
    alive = groups.member()
    stored_groups = groups.admin.refresh().groups
    assert abandoned_emptied(groups.admin, stored_groups) == dict(stored_groups)
    assert alive.member_id in stored_groups["g"].members


# -- what administrators see and do


def test_a_dead_group_is_described_and_listed_as_empty(groups: Groups) -> None:
    admin = AdminClient(cluster=groups.admin)
    groups.member()
    assert admin.describe_groups(["g"])["g"]["group_state"] == "Stable"
    groups.advance(DEAD_SECONDS)
    assert admin.describe_groups(["g"])["g"]["group_state"] == "Empty"
    assert admin.describe_groups(["g"])["g"]["members"] == []
    assert [group["group_id"] for group in admin.list_groups(states_filter=["Empty"])] == ["g"]


def test_a_dead_group_can_be_deleted_and_its_offsets_altered(groups: Groups) -> None:
    admin = AdminClient(cluster=groups.admin)
    partition = TopicPartition("orders", 0)
    groups.member()
    assert admin.alter_group_offsets("g", {partition: 0}) == {partition: UnknownMemberIdError}
    assert admin.delete_group_offsets("g", [partition]) == {partition: GroupSubscribedToTopicError}
    assert admin.delete_groups(["g"]) == {"g": "NonEmptyGroupError"}
    groups.advance(DEAD_SECONDS)
    assert admin.alter_group_offsets("g", {partition: 0}) == {partition: NoError}
    assert admin.delete_group_offsets("g", [partition]) == {partition: NoError}
    groups.member()
    groups.advance(DEAD_SECONDS)
    assert admin.delete_groups(["g"]) == {"g": "OK"}
    assert not groups.admin.refresh().groups


def test_maintenance_removes_leases_of_members_that_are_in_no_group(groups: Groups) -> None:
    """One member was killed before it had joined, and one wrote its lease once more after it was removed."""
    alive = groups.member("other")
    store = groups.admin.store
    old_leases = [lease_key("g", "never-joined"), lease_key("gone", "taken-out")]
    stray = LEASES + ".DS_Store"
    for key in (*old_leases, stray):
        store.put(key, b"{}")
    groups.advance(OLD_LEASE_MS / 1000)
    alive.beat()
    assert maintain(groups.admin)["old_leases_removed"] == 0
    groups.advance(1)
    assert maintain(groups.admin)["old_leases_removed"] == 2
    assert {info.key for info in store.list(LEASES)} == {stray, lease_key("other", alive.member_id)}


def test_the_lease_of_a_member_that_joins_during_the_removal_is_kept(groups: Groups) -> None:
    """Its lease is old because its machine was suspended before its join was committed."""
    machine = groups.machine(0)

    def join(step: int, call: Call) -> None:
        if call.operation == "list" and call.key == LEASES and not machine.state.groups:
            request = JoinRequest(group="g", member="slow", topics=["orders"], session_timeout_ms=SESSION_MS)
            machine.submit(partial(join_group, request=request))

    groups.admin.store.put(lease_key("g", "slow"), b"{}")
    groups.advance(OLD_LEASE_MS / 1000 + 1)
    watched = FaultyStore(MemoryStore(groups.name, groups.storage), before=join)
    cleaner = open_cluster(watched, clock=ManualClock(groups.storage.now_ms()))
    assert remove_old_leases(cleaner) == 0
    assert groups.members() == {"slow"}


@pytest.mark.parametrize("ahead", [-8 * DAY_MS, 8 * DAY_MS])
def test_a_wrong_clock_removes_no_lease(groups: Groups, ahead: int) -> None:
    groups.admin.store.put(lease_key("g", "new"), b"{}")
    assert remove_old_leases(groups.machine(ahead)) == 0
