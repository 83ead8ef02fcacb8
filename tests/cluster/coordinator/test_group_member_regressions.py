"""Rare situations of group members that once lost records, or blocked a partition for good."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from sparklog.coordinator import Coordinator, group_member
from sparklog.coordinator.group_member import GroupMember, expire
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import CommitFailedError
from sparklog.protocol.decide.groups import leave_group
from sparklog.types import TopicPartition
from tests.cluster.coordinator.test_group_member import SESSION_MS, Group, refreshed


def test_offsets_of_a_recreated_topic_do_not_skip_its_records(
    request: pytest.FixtureRequest,
) -> None:
    group = Group(request.node.name)
    member = group.member()
    refreshed(member)
    delete_topic(group.admin, "orders")
    group.admin.create_topic("orders", 4)
    partition = TopicPartition("orders", 0)
    with pytest.raises(CommitFailedError, match="created again"):
        member.commit({partition: 50})
    assert partition in refreshed(member).lost
    member.commit({partition: 7})
    assert group.committed() == {0: 7}


def test_a_commit_keeps_the_topic_of_when_it_was_prepared(request: pytest.FixtureRequest) -> None:
    group = Group(request.node.name)
    member = group.member()
    refreshed(member)
    commit = member.prepare({TopicPartition("orders", 0): 50})
    delete_topic(group.admin, "orders")
    group.admin.create_topic("orders", 4)
    assert refreshed(member).assigned
    with pytest.raises(CommitFailedError, match="created again"):
        member.submit(commit)
    assert group.committed() == {}


def test_a_commit_keeps_the_membership_of_when_it_was_prepared(request: pytest.FixtureRequest) -> None:
    group = Group(request.node.name)
    partition = TopicPartition("orders", 0)
    stopped = group.member()
    refreshed(stopped)
    commit = stopped.prepare({partition: 5})
    group.admin.submit(partial(leave_group, group="g", members=[stopped.member_id], reason="expired"))
    other = group.member()
    refreshed(other)
    other.commit({partition: 50})
    other.leave()
    assert refreshed(stopped).lost
    stopped.join(["orders"])
    early = stopped.prepare({partition: 6})  # its partitions are not reported yet: it can only be of the former ones
    assert partition in refreshed(stopped).assigned
    for former in (commit, early):
        with pytest.raises(CommitFailedError):
            stopped.submit(former)
    assert group.committed() == {0: 50}


def test_a_commit_stays_valid_in_a_later_generation_while_its_member_holds_the_partitions(
    request: pytest.FixtureRequest,
) -> None:
    group = Group(request.node.name)
    member = group.member()
    refreshed(member)
    commit = member.prepare({TopicPartition("orders", number): 5 for number in range(4)})
    group.member()
    revoked = refreshed(member).revoked
    assert revoked
    member.submit(commit)
    assert group.committed() == dict.fromkeys(range(4), 5)
    member.acknowledge()
    with pytest.raises(CommitFailedError):
        member.submit(commit)


def test_last_offsets_of_a_recreated_topic_are_left_out_of_an_acknowledgement(request: pytest.FixtureRequest) -> None:
    group = Group(request.node.name)
    group.admin.create_topic("audit", 1)
    first = group.member(topics=("orders", "audit"))
    refreshed(first)
    former = dict(first.topic_ids)
    group.member()
    refreshed(first)
    delete_topic(group.admin, "audit")
    group.admin.create_topic("audit", 1)
    change = refreshed(first)
    assert change.to_acknowledge
    first.acknowledge({TopicPartition("audit", 0): 7, TopicPartition("orders", 0): 1}, former)
    assert not refreshed(first).to_acknowledge
    assert [(at.topic, at.offset) for at in group.admin.refresh().groups["g"].offsets.values()] == [("orders", 1)]


def test_a_member_with_a_short_timeout_is_removed_by_one_that_checks_less_often(
    request: pytest.FixtureRequest,
) -> None:
    group = Group(request.node.name)
    dead = group.member()
    slow = GroupMember(group.coordinator(), "g", assignors=(group.assignor,), session_timeout_ms=6 * SESSION_MS)
    slow.join(["orders"])
    group.beats(slow, seconds=1.5 * SESSION_MS / 1000, times=5)
    assert group.names() == {slow.member_id}
    assert dead.member_id not in group.names()


def test_a_member_that_sends_heartbeats_but_does_not_revoke_is_removed_after_its_rebalance_timeout(
    request: pytest.FixtureRequest,
) -> None:
    group = Group(request.node.name)
    hung = group.member(rebalance_timeout_ms=30_000)
    refreshed(hung)
    second = group.member()
    group.beats(hung, second, times=9)
    assert group.names() == {hung.member_id, second.member_id}
    group.beats(hung, second, times=1)
    assert group.names() == {second.member_id}
    assert len(refreshed(second).assigned) == 4


def test_a_member_that_revokes_when_it_is_to_be_removed_is_kept(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member that removes it was suspended since it found that it did not revoke."""
    group = Group(request.node.name)
    late = group.member(rebalance_timeout_ms=30_000)
    refreshed(late)
    second = group.member()
    group.beats(late, second, times=9)

    def remove(coordinator: Coordinator, name: str, members: Sequence[str], *more: Any) -> list[str]:
        if late.member_id in members:
            assert refreshed(late).to_acknowledge
            late.acknowledge()
        return expire(coordinator, name, members, *more)

    monkeypatch.setattr(group_member, "expire", remove)
    group.beats(late, second, times=1)
    assert group.names() == {late.member_id, second.member_id}
    assert len(refreshed(second).assigned) == 2


def test_a_member_that_revokes_in_time_is_kept(request: pytest.FixtureRequest) -> None:
    group = Group(request.node.name)
    members = [group.member(rebalance_timeout_ms=30_000)]
    refreshed(members[0])
    for _ in range(4):
        members.append(group.member(rebalance_timeout_ms=30_000))
        group.beats(*members, times=9)
        for member in members:
            if refreshed(member).to_acknowledge:
                member.acknowledge()
    assert len(group.names()) == 5


def test_a_member_that_leaves_as_its_join_ends_keeps_the_identity_of_its_membership(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a heartbeat's thread does after max_poll_interval_ms; without an identity, no commit of it would be fenced."""
    group = Group(request.node.name)
    member = group.member()
    refreshed(member)
    identity = member.identity
    submit = member.coordinator.submit

    def leave_after(*arguments: Any) -> Any:
        monkeypatch.undo()
        answer = submit(*arguments)
        member.leave()
        return answer

    monkeypatch.setattr(member.coordinator, "submit", leave_after)
    member.join(["orders", "others"])
    assert (member.joined, member.identity) == (False, identity)
    member.leave()
    assert member.identity == identity
    member.join(["orders"])
    assert refreshed(member).assigned
    assert member.identity[0] not in ("", identity[0])
