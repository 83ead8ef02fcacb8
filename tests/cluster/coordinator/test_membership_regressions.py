"""Members of groups in situations that are rare and cost records, or a partition for good."""

from __future__ import annotations

import pytest

from sparklog.coordinator.membership import GroupMember
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import CommitFailedError
from sparklog.types import TopicPartition
from tests.cluster.coordinator.test_membership import SESSION_MS, Group, refreshed


def test_offsets_of_a_topic_that_was_deleted_and_made_again_do_not_pass_over_its_records(
    request: pytest.FixtureRequest,
) -> None:
    group = Group(request.node.name)
    member = group.member()
    refreshed(member)
    delete_topic(group.admin, "orders")
    group.admin.create_topic("orders", 4)
    place = TopicPartition("orders", 0)
    with pytest.raises(CommitFailedError, match="created again"):
        member.commit({place: 50})
    assert place in refreshed(member).lost
    member.commit({place: 7})
    assert group.committed() == {0: 7}


def test_a_member_with_a_short_timeout_is_taken_out_by_one_that_looks_more_rarely_than_that(
    request: pytest.FixtureRequest,
) -> None:
    group = Group(request.node.name)
    dead = group.member()
    slow = GroupMember(group.coordinator(), "g", assignors=(group.assignor,), session_timeout_ms=6 * SESSION_MS)
    slow.join(["orders"])
    group.beats(slow, seconds=1.5 * SESSION_MS / 1000, times=5)
    assert group.names() == {slow.member_id}
    assert dead.member_id not in group.names()


def test_a_member_that_beats_but_lets_nothing_go_is_taken_out_after_its_rebalance_timeout(
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


def test_a_member_that_lets_go_in_time_stays(request: pytest.FixtureRequest) -> None:
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
