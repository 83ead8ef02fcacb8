"""Consumer groups: decisions and the fold together."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.decide.append import decide_append
from sparklog.protocol.decide.groups import (
    GroupCommit,
    JoinRequest,
    acknowledge_revocation,
    commit_group_offsets,
    delete_group,
    delete_group_offsets,
    expire_offsets,
    expire_silent_members,
    expire_stuck_members,
    join_group,
    leave_group,
    merge_offsets,
)
from sparklog.protocol.decide.topics import NewTopic, alter_configs, create_partitions, create_topic, delete_topic
from sparklog.protocol.group.rebalance import held_partitions
from sparklog.protocol.state import State
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.unit.protocol.states import after, commit, item, request, with_topic

WEEK_MS = 7 * 86_400_000


def joined(state: State, member: str, topics: tuple[str, ...] = ("orders",), **more: Any) -> State:
    return after(state, join_group(state, JoinRequest(group="g", member=member, topics=topics, **more)))


def left(state: State, *members: str) -> State:
    return after(state, leave_group(state, "g", members, "left"))


def acknowledged(state: State, member: str, **offsets: int) -> State:
    generation = state.groups["g"].generation
    positions = {(name.split("__")[0], int(name.split("__")[1])): offset for name, offset in offsets.items()}
    last = GroupCommit(group="g", offsets=positions, member=member, generation=generation)
    return after(state, acknowledge_revocation(state, last))


def owned(state: State, member: str) -> list[int]:
    return list(state.groups["g"].members[member].assigned.get("orders", ()))


def test_the_first_member_gets_all_partitions_on_joining() -> None:
    state = joined(with_topic(partitions=4), "a")
    assert (state.groups["g"].generation, owned(state, "a")) == (1, [0, 1, 2, 3])
    assert state.groups["g"].name_of_state == "Stable"


def test_a_second_member_gets_its_share_once_the_owner_has_revoked_it() -> None:
    state = joined(joined(with_topic(partitions=4), "a"), "b")
    assert (owned(state, "a"), owned(state, "b")) == ([0, 1], [])
    assert state.groups["g"].members["a"].revoking == {"orders": (2, 3)}
    assert state.groups["g"].name_of_state == "PreparingRebalance"
    state = acknowledged(state, "a", orders__2=7)
    assert (owned(state, "a"), owned(state, "b")) == ([0, 1], [2, 3])
    assert state.groups["g"].offsets["t1:2"].offset == 7
    assert (state.groups["g"].generation, state.groups["g"].name_of_state) == (2, "Stable")


def test_partitions_of_an_expired_member_are_reassigned_in_the_same_commit() -> None:
    state = joined(joined(with_topic(partitions=4), "a"), "b")
    state = left(state, "a")
    assert owned(state, "b") == [0, 1, 2, 3]


def test_an_expiry_decided_in_an_older_generation_removes_no_member() -> None:
    before = joined(with_topic(), "a")
    state = joined(before, "b")
    assert expire_silent_members(state, "g", ["a"], before.groups["g"]).actions == []
    assert expire_silent_members(state, "g", ["a"], state.groups["g"]).result == ["a"]


def test_a_member_that_committed_since_it_was_found_silent_is_not_removed() -> None:
    found = joined(joined(with_topic(partitions=4), "a"), "b")
    state = acknowledged(found, "a", orders__2=7)
    assert expire_silent_members(state, "g", ["a", "b"], found.groups["g"]).actions == []
    found, generation = state, state.groups["g"].generation
    last = GroupCommit(group="g", offsets={("orders", 0): 5}, member="a", generation=generation)
    state = after(found, commit_group_offsets(found, last))
    assert expire_silent_members(state, "g", ["a", "b"], found.groups["g"]).result == ["b"]


def test_a_member_that_revoked_since_it_was_found_stuck_is_not_removed() -> None:
    found = joined(joined(with_topic(partitions=4), "a"), "b")
    seen, generation = found.groups["g"], found.groups["g"].generation
    last = GroupCommit(group="g", offsets={("orders", 2): 5}, member="a", generation=generation)
    state = after(found, commit_group_offsets(found, last))
    assert expire_stuck_members(state, "g", ["a"], seen).result == ["a"], "it is alive, but others wait for it"
    assert expire_stuck_members(acknowledged(state, "a"), "g", ["a"], seen).actions == []


def test_rejoining_with_the_same_subscription_changes_nothing() -> None:
    state = joined(with_topic(), "a")
    assert join_group(state, JoinRequest(group="g", member="a", topics=("orders",))).actions == []


def test_a_changed_subscription_starts_a_generation() -> None:
    state = joined(joined(with_topic(), "a"), "a", topics=("orders", "later"))
    assert state.groups["g"].generation == 2
    assert state.groups["g"].members["a"].topics == ("later", "orders")


def test_creating_growing_or_deleting_a_topic_starts_a_generation_of_its_subscribers() -> None:
    state = joined(with_topic(partitions=1), "a", topics=("orders", "later"))
    state = after(state, create_topic(state, NewTopic(name="later", topic_id="t2", partitions=2)))
    assert state.groups["g"].members["a"].assigned == {"later": (0, 1), "orders": (0,)}
    state = after(state, create_partitions(state, "orders", 2))
    assert owned(state, "a") == [0, 1]
    state = after(state, delete_topic(state, "orders"))
    member = state.groups["g"].members["a"]
    assert (member.assigned, member.revoking, state.groups["g"].generation) == ({"later": (0, 1)}, {}, 4)


def test_a_topic_without_subscribers_starts_no_generation() -> None:
    state = joined(with_topic(), "a")
    state = after(state, create_topic(state, NewTopic(name="other", topic_id="t2")))
    assert state.groups["g"].generation == 1


def test_a_static_member_is_replaced_without_a_rebalance_and_its_former_process_is_fenced() -> None:
    state = joined(with_topic(), "a-1", instance_id="a")
    state = joined(state, "a-2", instance_id="a")
    assert (state.groups["g"].generation, owned(state, "a-2"), set(state.groups["g"].members)) == (1, [0, 1], {"a-2"})
    with pytest.raises(FencedInstanceIdError):
        commit_group_offsets(state, GroupCommit(group="g", offsets={}, member="a-1", generation=1, instance_id="a"))


@pytest.mark.parametrize("timeout", [5999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(timeout: int) -> None:
    with pytest.raises(InvalidSessionTimeoutError, match="6000"):
        joined(with_topic(), "a", session_timeout_ms=timeout)


def test_a_member_without_a_common_assignor_is_refused() -> None:
    state = joined(with_topic(), "a", assignors=("range",))
    with pytest.raises(InconsistentGroupProtocolError, match="range"):
        joined(state, "b", assignors=("sticky",))
    with pytest.raises(InvalidRequestError, match="unknown assignor"):
        joined(state, "b", assignors=("by-moon",))


def test_a_full_group_refuses_new_members_but_not_its_own() -> None:
    state = with_topic()
    state = after(state, alter_configs(state, "", {"group.max.size": "1"}, []))
    state = joined(state, "a")
    with pytest.raises(GroupMaxSizeReachedError):
        joined(state, "b")
    assert joined(state, "a", topics=("orders", "other")).groups["g"].generation == 2


# -- offsets


def test_offsets_of_an_older_generation_or_an_unknown_member_are_refused() -> None:
    state = joined(joined(with_topic(), "a"), "b")
    at = {("orders", 0): 1}
    with pytest.raises(IllegalGenerationError, match="generation 1"):
        commit_group_offsets(state, GroupCommit(group="g", offsets=at, member="a", generation=1))
    with pytest.raises(UnknownMemberIdError, match="poll to join again"):
        commit_group_offsets(state, GroupCommit(group="g", offsets=at, member="c", generation=2))
    with pytest.raises(UnknownMemberIdError, match="only they"):
        commit_group_offsets(state, GroupCommit(group="g", offsets=at))
    state = after(state, commit_group_offsets(state, GroupCommit(group="g", offsets=at, member="a", generation=2)))
    assert state.groups["g"].offsets["t1:0"].offset == 1


@pytest.mark.parametrize(("earlier", "later", "merged"), [(None, 0, 0), (0, 1, 0), (1, None, 1), (None, None, None)])
def test_merged_offsets_are_of_the_earliest_history_that_is_known(
    earlier: int | None, later: int | None, merged: int | None
) -> None:
    first = GroupCommit(group="g", offsets={("orders", 0): 1}, timeline=earlier)
    assert merge_offsets(first, GroupCommit(group="g", offsets={("orders", 1): 1}, timeline=later)).timeline == merged


def test_a_last_offset_replaces_only_the_one_that_was_committed_when_it_was_found() -> None:
    """Whoever had the partition in between has read on."""
    state = joined(with_topic(partitions=2), "a")
    last = GroupCommit(
        group="g", offsets={("orders", 0): 5, ("orders", 1): 6}, replaces={("orders", 0): None, ("orders", 1): None}
    )

    def committed(state: State, generation: int) -> dict[str, int]:
        commit = msgspec.structs.replace(last, member="a", generation=generation)
        offsets = after(state, commit_group_offsets(state, commit)).groups["g"].offsets
        return {key: at.offset for key, at in offsets.items()}

    assert committed(state, 1) == {"t1:0": 5, "t1:1": 6}
    by_another = GroupCommit(group="g", offsets={("orders", 0): 10}, member="a", generation=1)
    assert committed(after(state, commit_group_offsets(state, by_another)), 1) == {"t1:0": 10, "t1:1": 6}


def test_a_member_cannot_commit_offsets_of_revoked_partitions() -> None:
    state = joined(joined(with_topic(partitions=4), "a"), "b")
    late = GroupCommit(group="g", offsets={("orders", 2): 7}, member="a", generation=2)
    assert commit_group_offsets(state, late).actions
    with pytest.raises(CommitFailedError):
        commit_group_offsets(acknowledged(state, "a"), late)


def test_an_offset_keeps_its_metadata_and_leader_epoch() -> None:
    state = with_topic()
    position = OffsetAndMetadata(5, "half way", 3)
    state = after(state, commit_group_offsets(state, GroupCommit(group="g", offsets={("orders", 1): position})))
    kept = state.groups["g"].offsets["t1:1"]
    assert (kept.offset, kept.metadata, kept.leader_epoch, kept.topic_id) == (5, "half way", 3, "t1")


def test_offsets_of_partitions_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        commit_group_offsets(with_topic(), GroupCommit(group="g", offsets={("orders", 9): 5}))
    long = OffsetAndMetadata(5, "x" * 5000)
    with pytest.raises(OffsetMetadataTooLargeError, match="metadata"):
        commit_group_offsets(with_topic(), GroupCommit(group="g", offsets={("orders", 0): long}))


def test_deleting_a_topic_deletes_its_committed_offsets() -> None:
    state = with_topic()
    state = after(state, commit_group_offsets(state, GroupCommit(group="g", offsets={("orders", 0): 1})))
    state = after(state, delete_topic(state, "orders"))
    assert not state.groups["g"].offsets


def test_a_group_with_members_keeps_itself_and_the_offsets_of_subscribed_topics() -> None:
    state = joined(with_topic(), "a")
    state = after(
        state, commit_group_offsets(state, GroupCommit(group="g", offsets={("orders", 0): 1}, member="a", generation=1))
    )
    with pytest.raises(NonEmptyGroupError):
        delete_group(state, "g")
    with pytest.raises(NonEmptyGroupError):
        delete_group_offsets(state, "g", [("orders", 0)])
    state = left(state, "a")
    decision = delete_group_offsets(state, "g", [("orders", 0), ("orders", 1)])
    assert decision.result == [("orders", 0)]
    assert not after(state, decision).groups["g"].offsets
    assert not after(state, delete_group(state, "g")).groups


def test_offsets_of_an_empty_group_expire_and_then_the_group() -> None:
    state = joined(with_topic(), "a")
    at = GroupCommit(group="g", offsets={("orders", 0): 1}, member="a", generation=1)
    state = after(state, commit_group_offsets(state, at))
    assert expire_offsets(state, state.timestamp_ms + 2 * WEEK_MS).actions == []
    leaving = leave_group(state, "g", ["a"], "left")
    state = commit(state, leaving.actions, timestamp=state.timestamp_ms + WEEK_MS)
    assert expire_offsets(state, state.timestamp_ms + WEEK_MS - 1).actions == []
    expired = expire_offsets(state, state.timestamp_ms + WEEK_MS)
    assert expired.result == ["g"]
    assert not after(state, expired).groups


def test_records_and_the_offsets_of_a_fenced_member_are_refused_together() -> None:
    state = joined(joined(with_topic(), "a"), "b")
    stale = GroupCommit(group="g", offsets={("orders", 0): 1}, member="a", generation=1)
    with pytest.raises(IllegalGenerationError):
        decide_append(state, request(item(), groups=[stale]))


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from(["join", "leave", "ack"])), max_size=40))
def test_every_partition_always_ends_up_with_exactly_one_owner(steps: list[tuple[str, str]]) -> None:
    state = with_topic(partitions=5)
    for member, step in steps:
        group = state.groups.get("g")
        inside = group is not None and member in group.members
        if step == "join" and not inside:
            state = joined(state, member, assignors=("cooperative-sticky",))
        elif step == "leave" and inside:
            state = left(state, member)
        elif step == "ack" and inside:
            state = acknowledged(state, member)
        members = state.groups["g"].members if "g" in state.groups else {}
        holders = [partition for one in members.values() for partition in held_partitions(one)]
        assert len(holders) == len(set(holders))
    if not state.groups.get("g") or not state.groups["g"].members:
        return
    for member in state.groups["g"].members:
        state = acknowledged(state, member)
    group = state.groups["g"]
    everything = {partition for one in group.members.values() for partition in held_partitions(one)}
    assert everything == {TopicPartition("orders", number) for number in range(5)}
    assert group.name_of_state == "Stable"


def test_merged_offsets_are_those_of_both_and_an_earlier_topic_is_not_forgotten() -> None:
    earlier = GroupCommit(group="g", offsets={("a", 0): 1, ("a", 1): 1}, topic_ids={"a": "a1", "unused": "u1"})
    later = GroupCommit(group="g", offsets={("a", 1): 2, ("unused", 0): 3}, topic_ids={"a": "a2", "unused": "u2"})
    merged = merge_offsets(earlier, later)
    assert merged.offsets == {("a", 0): 1, ("a", 1): 2, ("unused", 0): 3}
    assert merged.topic_ids == {"a": "a1", "unused": "u2"}
