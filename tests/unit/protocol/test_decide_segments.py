"""Decisions that replace and delete segments, and how they treat concurrent changes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sparklog import limits
from sparklog.errors import CorruptMetadataError, OffsetOutOfRangeError, PolicyViolationError
from sparklog.protocol.commits import FenceWriters, LiveSegment, RemovedSegments, RemoveFiles, ReplaceSegments, Run
from sparklog.protocol.decide import segments as decide_segments
from sparklog.protocol.decide.append import decide_append
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.segments import Deletion, Replacement, SegmentsRequest, SegmentsResult
from sparklog.protocol.decide.topics import NewTopic, alter_configs, create_topic, delete_topic
from sparklog.protocol.state import State
from tests.unit.protocol.states import after, commit, item, request, with_topic

NOTHING = "0" * 32


def with_records(appends: int = 10) -> State:
    """Offsets 0 to 3 * appends of orders-0, with three records in each segment."""
    state = with_topic()
    for _ in range(appends):
        state = after(state, decide_append(state, request(item(3))))
    return state


def merged(start: int, end: int, version: int = 1) -> Replacement:
    run = Run(
        path=f"orders-0/{start:020d}-v{version}-w.log",
        batches=1,
        records=end - start,
        size_bytes=10,
        min_timestamp_us=1,
        max_timestamp_us=5,
    )
    return Replacement(
        topic="orders",
        topic_id="t1",
        partition=0,
        start_offset=start,
        end_offset=end,
        removed=RemovedSegments(segments=(end - start) // 3, size_bytes=10, checksum=NOTHING),
        added=[LiveSegment(base_offset=start, end_offset=end, run=run)],
    )


def deletion(end: int) -> Deletion:
    removed = RemovedSegments(segments=end // 3, size_bytes=0, checksum=NOTHING)
    return Deletion(topic="orders", topic_id="t1", partition=0, end_offset=end, removed=removed)


def asked(state: State, version: int, *changes: Replacement | Deletion) -> tuple[State, SegmentsResult]:
    decision = decide_segments.change_segments(state, SegmentsRequest(version=version, changes=changes))
    return (after(state, decision) if decision.actions else state), decision.result


def test_concurrent_appends_do_not_prevent_a_replacement() -> None:
    planned = with_records()
    newer = after(planned, decide_append(planned, request(item(3))))
    state, result = asked(newer, planned.version, merged(0, 9))
    assert not result.left_out
    assert state.partition("orders", 0).segments == 11 - 3 + 1
    assert state.partition("orders", 0).log_end_offset == 33


@pytest.mark.parametrize(("start", "end"), [(0, 3), (6, 12), (0, 30)])
def test_the_second_of_two_overlapping_changes_is_skipped(start: int, end: int) -> None:
    planned = with_records()
    first, _ = asked(planned, planned.version, merged(0, 9))
    state, result = asked(first, planned.version, merged(start, end))
    assert state is first
    assert "have changed since version" in result.left_out[0].why


def test_changes_of_disjoint_offsets_are_both_made() -> None:
    planned = with_records()
    first, _ = asked(planned, planned.version, merged(9, 18))
    _, result = asked(first, planned.version, merged(0, 9), merged(18, 30))
    assert len(result.done) == 2


def test_a_deletion_does_not_prevent_a_replacement_behind_it() -> None:
    planned = with_records()
    first, _ = asked(planned, planned.version, deletion(9))
    assert first.partition("orders", 0).log_start_offset == 9
    _, result = asked(first, planned.version, merged(9, 18))
    assert not result.left_out
    _, result = asked(first, planned.version, merged(6, 12))
    assert result.left_out


@pytest.mark.parametrize(("start", "is_left_out"), [(0, False), (9, True), (18, True), (21, False)])
def test_a_change_is_left_out_if_segments_that_decided_it_have_changed(start: int, is_left_out: bool) -> None:
    planned = with_records()
    changed, _ = asked(planned, planned.version, merged(start, start + 9))
    decided = replace(merged(9, 12), decided_on=(9, 21))
    _, result = asked(after(changed, decide_append(changed, request(item(3)))), planned.version, decided)
    assert bool(result.left_out) == is_left_out


def test_a_deletion_of_segments_that_decided_a_change_does_not_prevent_it() -> None:
    planned = with_records()
    first, _ = asked(planned, planned.version, deletion(9))
    _, result = asked(first, planned.version, replace(merged(9, 12), decided_on=(0, 21)))
    assert result.done


def test_a_change_too_old_to_be_remembered_counts_as_a_conflict() -> None:
    planned = state = with_records(limits.SEGMENT_CHANGES_KEPT + 2)
    for number in range(limits.SEGMENT_CHANGES_KEPT):
        state, result = asked(state, state.version, merged(3 * number, 3 * number + 3))
        assert not result.left_out
    _, result = asked(state, planned.version, merged(51, 54))
    assert result.left_out, "the limit of remembered changes is reached: there may have been more"
    _, result = asked(state, planned.version + 1, merged(51, 54))
    assert result.done, "the oldest remembered change was already known when the job planned"


def test_repeated_changes_in_one_request_are_made_once() -> None:
    state = with_records()
    _, result = asked(state, state.version, merged(0, 9), merged(6, 12))
    assert len(result.done) == len(result.left_out) == 1


def test_grouped_changes_are_made_all_or_none() -> None:
    planned = with_records()
    first, _ = asked(planned, planned.version, merged(0, 3))
    pair = [replace(merged(start, start + 9), together=True) for start in (0, 12)]
    state, result = asked(first, planned.version, *pair, merged(24, 30))
    assert [one.change for one in result.left_out] == pair
    assert result.done == [merged(24, 30)]
    _, result = asked(state, state.version, *pair)
    assert result.done == pair


def test_replacements_with_files_begun_before_a_vacuum_are_refused() -> None:
    state = commit(with_records(), [FenceWriters(version=5)])
    _, result = asked(state, state.version, merged(0, 9, version=5), merged(9, 18, version=6))
    assert [one.change.start_offset for one in result.left_out if isinstance(one.change, Replacement)] == [0]


def test_changes_planned_for_a_deleted_topic_do_not_touch_a_recreated_one() -> None:
    state = with_records()
    again = after(state, delete_topic(state, "orders"))
    again = after(again, create_topic(again, NewTopic(name="orders", topic_id="t2", partitions=2)))
    _, result = asked(again, state.version, merged(0, 9))
    assert result.left_out[0].why == "the topic was deleted"


def test_a_commit_names_a_listing_only_if_it_retires_files() -> None:
    state = with_records()
    files = RemoveFiles(listing="meta/removed/x", files=1, size_bytes=1, delay_ms=60_000)
    decision = decide_segments.change_segments(
        state, SegmentsRequest(version=state.version, changes=[merged(0, 9)], files=files)
    )
    new = after(state, decision)
    assert new.removed_files["meta/removed/x"].delete_at_ms == new.timestamp_ms + 60_000
    decision = decide_segments.change_segments(
        new, SegmentsRequest(version=state.version, changes=[merged(0, 9)], files=files)
    )
    assert decision.actions == []


@pytest.mark.parametrize("action", [merged(0, 99), merged(9, 9)])
def test_the_fold_refuses_a_commit_with_mismatching_segments(action: Replacement) -> None:
    state = with_records()
    with pytest.raises(CorruptMetadataError, match="do not fit"):
        commit(
            state,
            [
                ReplaceSegments(
                    topic="orders",
                    topic_id="t1",
                    partition=0,
                    start_offset=action.start_offset,
                    end_offset=action.end_offset,
                    removed=action.removed,
                )
            ],
        )


# -- delete-records


def test_records_are_deleted_up_to_an_offset_or_to_the_high_watermark() -> None:
    state = with_records()
    decision = decide_segments.delete_records(state, {("orders", 0): 7})
    assert decision.result == {("orders", 0): 7}
    state = after(state, decision)
    assert state.partition("orders", 0).log_start_offset == 7
    assert state.partition("orders", 0).segments == 10
    assert decide_segments.delete_records(state, {("orders", 0): 3}) == Decision([], {("orders", 0): 7})
    assert decide_segments.delete_records(state, {("orders", 0): -1}).result == {("orders", 0): 30}


def test_deleting_beyond_the_log_end_is_refused() -> None:
    with pytest.raises(OffsetOutOfRangeError, match="orders-0 cannot start at offset 31"):
        decide_segments.delete_records(with_records(), {("orders", 0): 31})


def test_deleting_records_of_a_compacted_topic_is_refused() -> None:
    state = with_records()
    state = after(state, alter_configs(state, "orders", {"cleanup.policy": "compact"}, []))
    with pytest.raises(PolicyViolationError, match="does not contain delete"):
        decide_segments.delete_records(state, {("orders", 0): 3})
