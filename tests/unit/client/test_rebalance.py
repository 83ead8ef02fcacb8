"""The steps from the partitions that a subscription has to those of its member."""

from __future__ import annotations

from sparklog.client.consumer.rebalance import RebalanceStep, plan_rebalance
from sparklog.coordinator.group_member import FoundGroup, MemberChange, SeenGroup, Told
from sparklog.protocol.decide.groups import GroupCommit
from sparklog.types import OffsetAndMetadata, TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
NONE: frozenset[TopicPartition] = frozenset()


def found(change: MemberChange, *owned: TopicPartition, member: str = "m", is_out: bool = False) -> FoundGroup:
    return FoundGroup(change, Told(member, dict.fromkeys(owned, "id")), SeenGroup(), member, is_out)


def test_nothing_is_to_be_done_where_the_subscription_has_what_the_member_has() -> None:
    assert plan_rebalance(found(MemberChange(1), A, B), [A, B]) is None


def test_what_was_left_by_an_interrupted_change_is_lost_and_what_was_not_added_is_assigned() -> None:
    plan = plan_rebalance(found(MemberChange(1), A, B), [B, C])
    assert plan is not None
    assert (plan.lost, plan.revoked, plan.assigned) == (frozenset([C]), NONE, frozenset([A]))
    assert list(plan.steps) == [
        RebalanceStep.ADOPT,
        RebalanceStep.LOSE,
        RebalanceStep.FINISH_COMMITS,
        RebalanceStep.ASSIGN,
    ]


def test_a_partition_that_is_revoked_and_assigned_again_is_dropped_before_it_is_added() -> None:
    change = MemberChange(2, revoked=frozenset([A, B]), assigned=frozenset([A]), completed=True, to_acknowledge=True)
    plan = plan_rebalance(found(change, A), [A, B])
    assert plan is not None
    assert (plan.lost, plan.revoked, plan.assigned) == (NONE, frozenset([A, B]), frozenset([A]))
    told = [RebalanceStep.ADOPT, RebalanceStep.TELL_REVOKED, RebalanceStep.DROP_REVOKED, RebalanceStep.FINISH_COMMITS]
    assert list(plan.steps) == [*told, RebalanceStep.ACKNOWLEDGE, RebalanceStep.ASSIGN]


def test_a_topic_that_was_created_again_is_lost_and_assigned() -> None:
    plan = plan_rebalance(found(MemberChange(2, lost=frozenset([A]), assigned=frozenset([A])), A), [A])
    assert plan is not None
    assert (plan.lost, plan.assigned) == (frozenset([A]), frozenset([A]))


def test_who_is_out_of_the_group_loses_what_it_has() -> None:
    plan = plan_rebalance(found(MemberChange(-1, lost=frozenset([A])), member="m", is_out=True), [A, B])
    assert plan is not None
    assert plan.lost == {A, B}
    assert list(plan.steps) == [RebalanceStep.ADOPT, RebalanceStep.LOSE]
    assert [plan.is_of(member) for member in ("m", "", "other")] == [True, True, False]


def test_the_end_of_a_rebalance_is_told_also_to_a_member_that_got_nothing() -> None:
    plan = plan_rebalance(found(MemberChange(3, completed=True)), [])
    assert plan is not None
    assert (plan.assigned, list(plan.steps)) == (NONE, [RebalanceStep.ADOPT, RebalanceStep.ASSIGN])


def test_others_wait_also_for_a_member_that_has_nothing_left_to_give_up() -> None:
    plan = plan_rebalance(found(MemberChange(3, to_acknowledge=True)), [])
    assert plan is not None
    assert list(plan.steps) == [RebalanceStep.ADOPT, RebalanceStep.TELL_REVOKED, RebalanceStep.ACKNOWLEDGE]


def test_the_last_offsets_leave_out_what_the_program_commits_from_the_listener_on() -> None:
    plan = plan_rebalance(found(MemberChange(2, revoked=frozenset([A, B, C]), to_acknowledge=True)), [A, B, C])
    assert plan is not None
    plan.last = GroupCommit(group="g", offsets={at: OffsetAndMetadata(20) for at in (A, B, C)})
    plan.note_commit([A])  # before the listener, as Kafka's consumer commits its positions
    plan.committed = set()
    plan.note_commit([B])
    assert set(plan.last_offsets().offsets) == {A, C}
