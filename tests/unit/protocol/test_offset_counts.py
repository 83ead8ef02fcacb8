"""How many offsets of groups one commit changes, and what deciding about many of them costs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparklog import limits
from sparklog.coordinator.offsets_topic import RECORDS_PER_COMMIT, changes, partition_of
from sparklog.errors import CommitFailedError, RecordListTooLargeError
from sparklog.protocol.commits import Action, Commit, CommitOffsets, CommittedOffset
from sparklog.protocol.decide.groups import (
    GroupCommit,
    JoinRequest,
    check_offset_changes,
    commit_group_offsets,
    expire_offsets,
    join_group,
    split_offsets,
)
from sparklog.protocol.state import State
from tests.unit.protocol.states import after, with_topic

MOST = limits.MAX_OFFSETS_PER_COMMIT
DAYS_8_MS = 8 * 86_400_000


def offsets(group: str, count: int, first: int = 0) -> CommitOffsets:
    committed = [
        CommittedOffset(topic="orders", topic_id="i", partition=first + number, offset=number)
        for number in range(count)
    ]
    return CommitOffsets(group=group, generation=-1, offsets=committed)


def stored(actions: list[Action]) -> Commit:
    return Commit(format=1, version=1, write_id="w", timestamp=1, previous="", checksum="", actions=actions)


@given(st.integers(0, 20), st.integers(1, 7))
def test_parts_hold_every_offset_once_in_order(count: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_OFFSETS_PER_COMMIT", most)
        parts = split_offsets({("t", number): number for number in range(count)})
    assert [pair for part in parts for pair in part.items()] == [(("t", number), number) for number in range(count)]
    assert all(len(part) <= most for part in parts)
    assert len(parts) == max(1, -(-count // most))


def test_a_commit_of_more_offsets_than_a_commit_has_room_for_is_refused() -> None:
    check_offset_changes([offsets("a", MOST - 1), offsets("b", 1)])
    with pytest.raises(RecordListTooLargeError, match="65,537 offsets"):
        check_offset_changes([offsets("a", MOST), offsets("b", 1)])


def test_records_of_commits_that_fit_keep_their_offsets() -> None:
    made = changes(stored([offsets("a", 3), offsets("b", MOST - 3)]))
    assert [change.number for change in made] == list(range(MOST))


def test_records_of_a_larger_commit_of_an_earlier_version_do_not_reach_into_the_next_ones() -> None:
    assert partition_of("a") != partition_of("b")
    made = changes(stored([offsets("a", 40_000), offsets("b", 40_000)]))
    assert len(made) == 80_000
    assert len({(change.partition, change.number) for change in made}) == 80_000
    too_many = changes(stored([offsets("a", MOST + 5)]))
    assert [change.number for change in too_many] == list(range(RECORDS_PER_COMMIT))


def test_expired_offsets_are_deleted_in_as_many_commits_as_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_OFFSETS_PER_COMMIT", 4)
    state = with_topic(partitions=10)
    for group in ("a", "b"):
        positions = {("orders", number): 1 for number in range(10)}
        state = after(state, commit_group_offsets(state, GroupCommit(group=group, offsets=positions)))
    fresh = {("orders", number): 2 for number in range(1)}
    now_ms = state.timestamp_ms + DAYS_8_MS
    state = replace(state, timestamp_ms=now_ms)
    state = after(state, commit_group_offsets(state, GroupCommit(group="a", offsets=fresh)))
    rounds = 0
    while (decision := expire_offsets(state, now_ms)).result:
        check_offset_changes(decision.actions)
        state, rounds = after(state, decision), rounds + 1
    assert set(state.groups) == {"a"}
    assert [offset.partition for offset in state.groups["a"].offsets.values()] == [0]
    assert rounds == 3


class Counted(tuple[int, ...]):
    """Partitions that count how many of them are looked at."""

    looked_at = 0

    def __iter__(self) -> Iterator[int]:
        for each in super().__iter__():
            Counted.looked_at += 1
            yield each

    def __contains__(self, value: object) -> bool:
        return any(each == value for each in self)


def with_counted_members(partitions: int) -> State:
    """A group of two members, of which the first has all partitions but the last."""
    state = with_topic(partitions=partitions)
    for member in ("m-1", "m-2"):
        state = after(state, join_group(state, JoinRequest(group="g", member=member, topics=("orders",))))
    group = state.groups["g"]
    shares = {"m-1": Counted(range(partitions - 1)), "m-2": Counted([partitions - 1])}
    members = {
        name: replace(member, assigned={"orders": shares[name]}, revoking={}) for name, member in group.members.items()
    }
    return replace(state, groups=state.groups.set("g", replace(group, members=members)))


def test_each_partition_of_the_members_is_looked_at_once_by_a_commit_of_many_offsets() -> None:
    state = with_counted_members(2000)
    own = {("orders", number): 1 for number in range(1999)}
    request = GroupCommit(group="g", offsets=own, member="m-1", generation=state.groups["g"].generation)
    Counted.looked_at = 0
    commit_group_offsets(state, request)
    assert Counted.looked_at <= 2000
    with pytest.raises(CommitFailedError, match=r"orders-1999.*assigned to member 'm-2'"):
        commit_group_offsets(state, replace(request, offsets={**own, ("orders", 1999): 1}))
