"""Which part of a log a compaction cleans, when it is due, and how surviving records are grouped into files."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog import limits
from sparklog.config.definitions import LONG_MAX
from sparklog.config.topic_configs import TopicConfig
from sparklog.protocol.plan.compaction import (
    NO_HORIZON,
    CleaningRules,
    CompactionPass,
    LogToClean,
    Survey,
    first_dirty_offset,
    is_due,
    log_to_clean,
    outputs,
    rules_of,
)
from sparklog.protocol.plan.rolling import Group
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import PartitionState
from tests.unit.protocol.test_rolling import file

NOW_MS = 1_000 * 60_000
RULES = CleaningRules()
DAY_MS = 86_400_000


def partition(end: int, cleaned: int = 0, start: int = 0) -> PartitionState:
    return PartitionState(
        replicas=(0,), isr=(0,), leader=0, log_start_offset=start, log_end_offset=end, cleaned_offset=cleaned
    )


def closed(*segments: Segment) -> list[Group]:
    return [Group([segment]) for segment in segments]


def require_log(log: LogToClean | None) -> LogToClean:
    assert log is not None
    return log


# -- the range to clean


def test_the_active_segment_is_not_cleaned() -> None:
    groups = [*closed(file(0), file(10)), Group([file(20)], complete=False)]
    log = require_log(log_to_clean(groups, partition(30), RULES, NOW_MS))
    assert (log.first_dirty_offset, log.end_offset, len(log.segments)) == (0, 20, 2)


def test_a_log_with_only_an_active_segment_has_nothing_to_clean() -> None:
    assert log_to_clean([Group([file(0)], complete=False)], partition(10), RULES, NOW_MS) is None


def test_cleaned_segments_are_included_but_not_counted_as_dirty() -> None:
    log = require_log(log_to_clean(closed(file(0, size=300), file(10, size=100)), partition(20, 10), RULES, NOW_MS))
    assert (log.clean_bytes, log.dirty_bytes, log.dirty_ratio) == (300, 100, 0.25)
    assert len(log.segments) == 2


def test_a_clean_log_has_nothing_to_clean() -> None:
    assert log_to_clean(closed(file(0), file(10)), partition(20, 20), RULES, NOW_MS) is None


def test_the_dirty_part_ends_before_the_first_segment_younger_than_the_lag() -> None:
    rules = CleaningRules(min_lag_ms=10 * 60_000)
    groups = closed(file(0, minute=1), file(10, minute=991), file(20, minute=2))
    log = require_log(log_to_clean(groups, partition(30), rules, NOW_MS))
    assert log.end_offset == 10
    assert require_log(log_to_clean(closed(file(0, minute=990)), partition(10), rules, NOW_MS)).end_offset == 10


def test_the_lag_does_not_apply_to_cleaned_segments() -> None:
    groups = closed(file(0, minute=999), file(10, minute=1))
    log = require_log(log_to_clean(groups, partition(20, 10), CleaningRules(min_lag_ms=60_000 * 10), NOW_MS))
    assert log.end_offset == 20


def test_segments_below_the_log_start_offset_are_not_cleaned() -> None:
    log = require_log(log_to_clean(closed(file(0), file(10)), partition(20, start=10), RULES, NOW_MS))
    assert [segment.base_offset for segment in log.segments] == [10]


@pytest.mark.parametrize(("cleaned", "start", "expected"), [(5, 0, 5), (5, 8, 8), (40, 8, 8), (30, 0, 30)])
def test_the_dirty_part_begins_at_the_last_clean_offset_if_it_is_in_the_log(
    cleaned: int, start: int, expected: int
) -> None:
    assert first_dirty_offset(partition(30, cleaned, start)) == expected


# -- when a log is due


def test_a_log_is_due_above_the_dirty_ratio() -> None:
    half = require_log(log_to_clean(closed(file(0), file(10)), partition(20, 10), RULES, NOW_MS))
    assert not is_due(half, RULES)
    assert is_due(half, CleaningRules(min_dirty_ratio=0.49))


def test_a_log_is_due_when_its_oldest_dirty_record_exceeds_the_max_lag() -> None:
    groups = closed(file(0, size=900, minute=1), file(10, minute=100))
    at_the_lag = CleaningRules(max_lag_ms=900 * 60_000)
    assert not is_due(require_log(log_to_clean(groups, partition(20, 10), at_the_lag, NOW_MS)), at_the_lag)
    assert is_due(require_log(log_to_clean(groups, partition(20, 10), at_the_lag, NOW_MS + 1)), at_the_lag)


def test_records_without_a_timestamp_are_never_overdue() -> None:
    rules = CleaningRules(max_lag_ms=1, min_dirty_ratio=1)
    assert not is_due(require_log(log_to_clean(closed(file(0, minute=0)), partition(10), rules, NOW_MS)), rules)


def test_rules_come_from_the_configs_of_the_topic() -> None:
    assert rules_of(TopicConfig.resolve({})) is None
    configs = {
        "cleanup.policy": "compact,delete",
        "min.compaction.lag.ms": "1",
        "max.compaction.lag.ms": "2",
        "min.cleanable.dirty.ratio": "0.3",
        "delete.retention.ms": "4",
        "segment.bytes": "1048576",
    }
    assert rules_of(TopicConfig.resolve(configs)) == CleaningRules(1, 2, 0.3, 4, 1_048_576)


# -- output files


def survey(base: int, survivors: int = 10, tombstones: bool = False, **more: Any) -> Survey:
    return Survey(file(base, **more), survivors, tombstones)


def cleaning(segment_bytes: int = 1000, first_dirty: int = 0) -> CompactionPass:
    return CompactionPass(first_dirty, NOW_MS, CleaningRules(segment_bytes=segment_bytes, delete_retention_ms=DAY_MS))


def members(surveys: list[Survey], at: CompactionPass) -> list[list[int]]:
    return [[member.segment.base_offset for member in output.members] for output in outputs(surveys, at)]


def test_survivors_are_grouped_up_to_segment_bytes_by_expected_size() -> None:
    surveys = [survey(10 * number, 5, size=400) for number in range(12)]
    assert members(surveys, cleaning()) == [[0, 10, 20, 30, 40], [50, 60, 70, 80, 90], [100, 110]]


def test_segments_without_survivors_are_in_no_output() -> None:
    assert members([survey(0, 0), survey(10, 1), survey(20, 0)], cleaning()) == [[10]]


def test_a_large_segment_that_loses_no_record_is_not_rewritten() -> None:
    planned = outputs([survey(0, 3), survey(10, size=500), survey(20, 3)], cleaning())
    assert [output.rewrite for output in planned] == [True, False, True]


def test_a_large_segment_that_loses_a_record_is_rewritten() -> None:
    assert [output.rewrite for output in outputs([survey(0, 9, size=900)], cleaning())] == [True]


def test_leader_epochs_and_timestamp_types_are_not_mixed() -> None:
    surveys = [survey(0), survey(10, leader_epoch=1), survey(20, leader_epoch=1, append_time_ms=5)]
    assert members(surveys, cleaning()) == [[0], [10], [20]]


def test_the_offset_span_of_a_file_fits_32_bits() -> None:
    assert members([survey(0), survey(limits.MAX_SEGMENT_OFFSETS)], cleaning()) == [[0], [limits.MAX_SEGMENT_OFFSETS]]
    assert members([survey(0), survey(limits.MAX_SEGMENT_OFFSETS - 10)], cleaning()) == [
        [0, limits.MAX_SEGMENT_OFFSETS - 10]
    ]


def test_new_tombstones_get_a_delete_horizon_and_old_ones_keep_theirs() -> None:
    (new,) = outputs([survey(0, tombstones=True)], cleaning())
    assert (new.delete_horizon_ms, new.rewrite) == (NOW_MS + DAY_MS, True)
    (old,) = outputs([survey(0, 5, tombstones=True, delete_horizon_ms=NOW_MS + 5)], cleaning())
    assert old.delete_horizon_ms == NOW_MS + 5


def test_tombstones_that_are_kept_for_ever_have_the_last_horizon_that_a_commit_can_state() -> None:
    rules = CleaningRules(segment_bytes=1000, delete_retention_ms=LONG_MAX)
    (kept,) = outputs([survey(0, tombstones=True)], CompactionPass(0, NOW_MS, rules))
    assert kept.delete_horizon_ms == LONG_MAX


def test_files_without_tombstones_have_no_delete_horizon() -> None:
    surveys = [survey(0), survey(10, 5, tombstones=True, delete_horizon_ms=NOW_MS)]
    assert [output.delete_horizon_ms for output in outputs(surveys, cleaning())] == [NO_HORIZON]


def test_tombstones_share_a_file_only_if_their_delete_horizons_are_close() -> None:
    at = cleaning()
    window = at.rules.horizon_window_ms
    base = NOW_MS // window * window + window
    surveys = [
        survey(number * 10, 5, tombstones=True, delete_horizon_ms=base + after)
        for number, after in enumerate([0, window - 1, window, 3 * window])
    ]
    planned = outputs(surveys, at)
    assert [[member.segment.base_offset for member in output.members] for output in planned] == [[0, 10], [20], [30]]
    assert planned[0].delete_horizon_ms == base + window - 1, "the latest horizon applies to all"


def test_a_pass_that_removes_nothing_rewrites_the_smallest_dirty_segment() -> None:
    surveys = [survey(0, size=600), survey(10, size=800), survey(20, size=700)]
    planned = outputs(surveys, cleaning(first_dirty=10))
    assert [output.rewrite for output in planned] == [False, False, True]


some_surveys = st.lists(
    st.tuples(
        st.integers(0, 10), st.integers(1, 700), st.booleans(), st.sampled_from([NO_HORIZON, NOW_MS, NOW_MS + 9])
    ),
    max_size=20,
)


@given(some_surveys, st.integers(1, 2000), st.integers(0, 200))
def test_every_survivor_is_in_one_file_in_order_and_no_tombstone_expires_early(
    drawn: list[tuple[int, int, bool, int]], segment_bytes: int, first_dirty: int
) -> None:
    surveys = [
        survey(10 * number, survivors, tombstones, size=size, delete_horizon_ms=horizon)
        for number, (survivors, size, tombstones, horizon) in enumerate(drawn)
    ]
    at = cleaning(segment_bytes, first_dirty)
    planned = outputs(surveys, at)
    assert [member for output in planned for member in output.members] == [one for one in surveys if one.survivors]
    for output in planned:
        assert all(output.delete_horizon_ms >= at.horizon_of(member) for member in output.members)
        if not output.rewrite:
            (only,) = output.members
            assert only.is_whole
            assert at.horizon_of(only) in (NO_HORIZON, only.segment.delete_horizon_ms)
