"""The log's time never decreases, except by the action that resets it; no time in the state is later than the reset."""

from __future__ import annotations

from typing import Any

import pytest

from sparklog import limits
from sparklog.errors import CorruptMetadataError
from sparklog.protocol.commits import InitProducer, JoinGroup, LeaveGroup, RemoveFiles, ResetTime
from sparklog.protocol.decide import groups as decide_groups
from sparklog.protocol.decide.append import decide_append
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.log_time import LEFT_AT_LEAST_MS, decide_reset
from sparklog.protocol.state import State
from sparklog.types import OffsetAndMetadata
from tests.unit.protocol.states import commit, item, request, with_topic

NOW_MS = 1_700_000_000_000
AHEAD_MS = 200 * 3_600_000
PRODUCER: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
DELAY_MS = 60_000


def driven_ahead() -> State:
    """A cluster with one of every kind of entry that has a time, from before the clock was wrong and from after."""
    state = commit(with_topic(), [], NOW_MS - 1000)
    for at in (NOW_MS - 900, NOW_MS + AHEAD_MS):
        group = "late" if at > NOW_MS else "early"
        number = 1 if at > NOW_MS else 0
        offsets = decide_groups.GroupCommit(group=group, offsets={("orders", 0): OffsetAndMetadata(0)})
        actions = [
            *decide_append(state, request(item(partition=number, **PRODUCER))).actions,
            InitProducer(producer_id=number, producer_epoch=1, transactional_id=f"t-{group}"),
            *decide_groups.commit_group_offsets(state, offsets).actions,
            JoinGroup(group=f"{group}-left", member="m", assignors=["range"]),
            RemoveFiles(listing=f"meta/removed/{group}", files=1, size_bytes=1, delay_ms=DELAY_MS),
        ]
        state = commit(state, actions, at)
        state = commit(state, [LeaveGroup(group=f"{group}-left", members=["m"])], at + 1)
    return state


def times(state: State) -> list[int]:
    """All times of a state that decisions depend on."""
    stamps = [state.timestamp_ms, *(topic.created_ms for topic in state.topics.values())]
    stamps += [producer.timestamp_ms for producer in state.producers.values()]
    for group in state.groups.values():
        stamps += [group.empty_since_ms, *(offset.timestamp_ms for offset in group.offsets.values())]
    for topic in state.topics.values():
        stamps += [producer.timestamp_ms for partition in topic.partitions for producer in partition.producers.values()]
    return stamps


def test_a_reset_lowers_all_later_times_and_changes_nothing_else() -> None:
    before = driven_ahead()
    assert max(times(before)) >= NOW_MS + AHEAD_MS
    decision = decide_reset(before, NOW_MS)
    assert decision.result == before.timestamp_ms - NOW_MS
    state = commit(before, decision.actions, NOW_MS)
    assert max(times(state)) == NOW_MS
    assert sorted(min(time, NOW_MS) for time in times(before)) == sorted(times(state))
    assert state.checksum == before.checksum
    assert set(state.groups) == set(before.groups)


def test_retired_files_keep_their_remaining_time() -> None:
    before = driven_ahead()
    state = commit(before, [ResetTime(time_ms=NOW_MS)], NOW_MS)
    kept = {key.rsplit("/", 1)[1]: files.delete_at_ms for key, files in state.removed_files.items()}
    assert kept == {"early": NOW_MS - 900 + DELAY_MS, "late": NOW_MS + LEFT_AT_LEAST_MS}


def test_a_repetition_is_recognized_across_a_reset() -> None:
    before = driven_ahead()
    state = commit(before, [ResetTime(time_ms=NOW_MS)], NOW_MS)
    repeated = decide_append(state, request(item(partition=1, **PRODUCER)))
    assert repeated.actions == []


def test_time_increases_again_after_a_reset() -> None:
    state = commit(driven_ahead(), [ResetTime(time_ms=NOW_MS)], NOW_MS)
    with pytest.raises(CorruptMetadataError, match="its time"):
        commit(state, [], NOW_MS)
    assert commit(state, [], NOW_MS + 1).timestamp_ms == NOW_MS + 1


def test_only_a_reset_to_its_own_time_may_go_back() -> None:
    state = driven_ahead()
    with pytest.raises(CorruptMetadataError, match="its time"):
        commit(state, [], NOW_MS)
    with pytest.raises(CorruptMetadataError, match="its time"):
        commit(state, [ResetTime(time_ms=NOW_MS - 1)], NOW_MS)


@pytest.mark.parametrize("ahead_ms", [-AHEAD_MS, 0, limits.MAX_CLOCK_SKEW_MS])
def test_a_small_clock_difference_does_not_cause_a_reset(ahead_ms: int) -> None:
    state = commit(with_topic(), [], NOW_MS + ahead_ms)
    assert decide_reset(state, NOW_MS) == Decision([], 0)


def test_requests_in_the_commit_of_a_reset_are_kept() -> None:
    before = driven_ahead()
    next_id = before.next_producer_id
    actions = [
        *decide_append(before, request(item(partition=0, records=2))).actions,
        ResetTime(time_ms=NOW_MS),
        InitProducer(producer_id=next_id, producer_epoch=1, transactional_id="new"),
    ]
    state = commit(before, actions, NOW_MS)
    assert state.partition("orders", 0).log_end_offset == before.partition("orders", 0).log_end_offset + 2
    assert state.producers[next_id].timestamp_ms == NOW_MS
    assert max(times(state)) == NOW_MS
