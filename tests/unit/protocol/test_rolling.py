"""Which files make up a segment as Kafka would have rolled it, and which of them are merged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparklog import limits
from sparklog.config.topic_configs import TopicConfig
from sparklog.protocol.plan.rolling import (
    MERGE_FACTOR,
    Merge,
    RollRules,
    groups,
    jitter_of,
    plan_roll,
    rules_of,
)
from sparklog.protocol.segments import NO_APPEND_TIME, STORED_APPEND_TIME, Segment

DAY_MS = 86_400_000
WIDE = RollRules(segment_bytes=1 << 40, segment_ms=1 << 50)


def file(base: int, records: int = 10, size: int = 100, minute: int = 0, **more: Any) -> Segment:
    """A file of an append whose records all have one minute."""
    fields: dict[str, object] = {
        "partition": 0,
        "base_offset": base,
        "end_offset": base + records,
        "records": records,
        "path": f"t-0/{base}.log",
        "broker": 0,
        "first_batch": 0,
        "batches": 1,
        "first_row": 0,
        "size_bytes": size,
        "min_timestamp_us": minute * 60_000_000,
        "max_timestamp_us": minute * 60_000_000,
        "append_time_ms": NO_APPEND_TIME,
        "leader_epoch": 0,
        "version": base,
    }
    return Segment(**{**fields, **more})


def files(*sizes: int) -> list[Segment]:
    return [file(10 * number, size=size) for number, size in enumerate(sizes)]


def bases(segments: Sequence[Segment], rules: RollRules) -> list[list[int]]:
    return [[segment.base_offset for segment in group.segments] for group in groups(segments, rules)]


def merged(merge: Merge) -> Segment:
    """The file written by a merge."""
    first, last = merge.segments[0], merge.segments[-1]
    return file(
        first.base_offset,
        last.end_offset - first.base_offset,
        sum(segment.size_bytes for segment in merge.segments),
        min_timestamp_us=min(segment.min_timestamp_us for segment in merge.segments),
        max_timestamp_us=max(segment.max_timestamp_us for segment in merge.segments),
        closed=merge.closed,
    )


def rolled(segments: Sequence[Segment], merges: Sequence[Merge], history: bool = False) -> list[Segment]:
    """The list of segments after a roll, which makes closed ones history if told so."""
    replaced = {segment.base_offset for merge in merges for segment in merge.segments}
    kept = [segment for segment in segments if segment.base_offset not in replaced]
    new = [merged(merge) for merge in merges]
    if history:
        new = [replace(segment, path=f"{segment.path}.parquet") if segment.closed else segment for segment in new]
    return sorted([*kept, *new], key=lambda segment: segment.base_offset)


# -- where a segment ends


def test_a_segment_takes_files_up_to_segment_bytes_and_no_more() -> None:
    rules = RollRules(segment_bytes=300, segment_ms=1 << 50)
    assert bases(files(100, 100, 100, 100), rules) == [[0, 10, 20], [30]]
    assert bases(files(100, 100, 101), rules) == [[0, 10], [20]]


def test_a_file_over_segment_bytes_is_a_segment_of_its_own() -> None:
    assert bases(files(10, 500, 10, 10), RollRules(300, 1 << 50)) == [[0], [10], [20, 30]]


def test_only_the_last_group_is_the_active_segment() -> None:
    planned = list(groups(files(200, 200, 200), RollRules(300, 1 << 50)))
    assert [group.complete for group in planned] == [True, True, False]


def test_a_segment_rolls_once_a_record_is_more_than_segment_ms_after_its_first() -> None:
    rules = RollRules(1 << 40, segment_ms=60_000)
    segments = [file(0, minute=0), file(10, minute=1), file(20, minute=2)]
    assert bases(segments, rules) == [[0, 10], [20]]


def test_passing_time_alone_rolls_nothing() -> None:
    assert [group.complete for group in groups([file(0, minute=0)], RollRules(1 << 40, 1))] == [False]


def test_a_record_older_than_the_first_does_not_roll_the_segment() -> None:
    assert bases([file(0, minute=9), file(10, minute=1)], RollRules(1 << 40, 60_000)) == [[0, 10]]


def test_negative_timestamps_do_not_roll() -> None:
    first = file(0, minute=-5)
    assert bases([first, file(10, minute=99)], RollRules(1 << 40, 60_000)) == [[0, 10]]


def test_the_offset_span_of_a_segment_fits_32_bits() -> None:
    segments = [file(0), file(limits.MAX_SEGMENT_OFFSETS - 10), file(limits.MAX_SEGMENT_OFFSETS)]
    assert [len(group) for group in bases(segments, WIDE)] == [2, 1]


def test_a_new_leader_epoch_starts_a_segment() -> None:
    assert bases([file(0), file(10, leader_epoch=1), file(20, leader_epoch=1)], WIDE) == [[0], [10, 20]]


def test_another_timestamp_type_starts_a_segment() -> None:
    stamped = [file(10, append_time_ms=5), file(20, append_time_ms=STORED_APPEND_TIME)]
    assert bases([file(0), *stamped, file(30)], WIDE) == [[0], [10, 20], [30]]


def test_a_closed_file_is_a_segment_and_completes_the_preceding_one() -> None:
    segments = [file(0), file(10), file(20, closed=True), file(30)]
    found = list(groups(segments, WIDE))
    assert [[one.base_offset for one in group.segments] for group in found] == [[0, 10], [20], [30]]
    assert [group.complete for group in found] == [True, True, False]


def test_a_log_that_ends_with_a_closed_file_has_an_empty_active_segment() -> None:
    assert all(group.complete for group in groups([file(0), file(10, closed=True)], WIDE))


# -- configs


def test_max_compaction_lag_shortens_the_roll_time_of_compacted_topics_only() -> None:
    lag = {"max.compaction.lag.ms": "5000", "segment.ms": "9000"}
    assert rules_of(TopicConfig.resolve({**lag, "cleanup.policy": "compact"}), "t", 0).segment_ms == 5000
    assert rules_of(TopicConfig.resolve({**lag, "cleanup.policy": "compact,delete"}), "t", 0).segment_ms == 5000
    assert rules_of(TopicConfig.resolve(lag), "t", 0).segment_ms == 9000


def test_jitter_is_deterministic_and_differs_between_partitions() -> None:
    config = TopicConfig.resolve({"segment.jitter.ms": str(DAY_MS)})
    one = [jitter_of(rules_of(config, "t", 0), base) for base in range(50)]
    assert one == [jitter_of(rules_of(config, "t", 0), base) for base in range(50)]
    assert one != [jitter_of(rules_of(config, "t", 1), base) for base in range(50)]
    assert all(0 <= jitter < DAY_MS for jitter in one)
    assert len(set(one)) == 50


def test_jitter_never_exceeds_segment_ms() -> None:
    rules = rules_of(TopicConfig.resolve({"segment.jitter.ms": str(DAY_MS), "segment.ms": "1000"}), "t", 0)
    assert all(jitter_of(rules, base) < 1000 for base in range(100))


def test_no_jitter_by_default() -> None:
    assert jitter_of(rules_of(TopicConfig.resolve({}), "t", 0), 5) == 0


# -- what is merged


def test_a_complete_segment_of_several_files_is_merged_and_closed() -> None:
    merges = plan_roll(files(100, 100, 100, 100), RollRules(300, 1 << 50))
    assert [(len(merge.segments), merge.closed) for merge in merges] == [(3, True)]


def test_a_complete_segment_of_one_file_is_not_rewritten() -> None:
    assert plan_roll(files(300, 300, 300), RollRules(300, 1 << 50)) == []


def test_small_files_of_the_active_segment_are_merged_and_remain_open() -> None:
    assert plan_roll(files(*[7] * 1000), WIDE) == [Merge(files(*[7] * 1000), closed=False)]


def test_fewer_files_than_the_merge_factor_are_not_merged() -> None:
    assert plan_roll(files(*[7] * (MERGE_FACTOR - 1)), WIDE) == []


def test_a_large_file_is_not_rewritten_with_a_few_small_neighbours() -> None:
    found = plan_roll(files(1000, 5, 5, 5, 5, 1000), WIDE)
    assert [[segment.size_bytes for segment in merge.segments] for merge in found] == [[5, 5, 5, 5]]


def test_files_below_the_log_start_offset_are_not_rewritten() -> None:
    assert plan_roll(files(100, 100, 100, 300), RollRules(300, 1 << 50), log_start_offset=30) == []
    assert len(plan_roll(files(100, 100, 100, 300), RollRules(300, 1 << 50), log_start_offset=29)) == 1


any_file = st.tuples(
    st.integers(1, 400), st.integers(0, 5), st.sampled_from([0, 0, 0, 1]), st.sampled_from([False, False, False, True])
)


@st.composite
def logs(draw: st.DrawFn) -> list[Segment]:
    """Files with increasing times and leader epochs, some of them closed."""
    segments: list[Segment] = []
    minute = epoch = 0
    for number, (size, passed, elected, closed) in enumerate(draw(st.lists(any_file, max_size=30))):
        minute, epoch = minute + passed, epoch + elected
        segments.append(file(10 * number, size=size, minute=minute, leader_epoch=epoch, closed=closed))
    return segments


rules = st.builds(
    RollRules,
    st.integers(1, 900),
    st.integers(1, 400_000),
    st.sampled_from([0, 100_000]),
    st.just("place"),
    st.booleans(),
)


@given(logs(), rules)
def test_groups_partition_the_list_and_each_is_full(segments: list[Segment], rules: RollRules) -> None:
    planned = list(groups(segments, rules))
    assert [segment for group in planned for segment in group.segments] == segments
    assert all(group.complete for group in planned[:-1])
    for group in planned:
        assert group.size_bytes <= rules.segment_bytes or len(group.segments) == 1
        assert len({segment.leader_epoch for segment in group.segments}) == 1
        assert len(group.segments) == 1 or not any(segment.closed for segment in group.segments)


@given(logs(), rules)
def test_a_roll_preserves_segments_and_a_second_one_closes_no_more(segments: list[Segment], rules: RollRules) -> None:
    before = [(group.base_offset, group.end_offset, group.complete) for group in groups(segments, rules)]
    kept = {segment.base_offset: segment.leader_epoch for segment in segments}
    after = [
        replace(one, leader_epoch=kept[one.base_offset])
        for one in rolled(segments, plan_roll(segments, rules), rules.history)
    ]
    assert [(group.base_offset, group.end_offset, group.complete) for group in groups(after, rules)] == before
    assert not any(merge.closed for merge in plan_roll(after, rules))


@given(st.lists(st.integers(1, 50), min_size=20, max_size=300), st.integers(1, 7))
def test_rolling_keeps_files_few_and_rewrites_each_record_a_few_times_only(sizes: list[int], every: int) -> None:
    """Rolling after every few appends: the number of files in the active segment grows with the logarithm."""
    log: list[Segment] = []
    rewritten: dict[int, int] = {}
    for number, size in enumerate(sizes):
        log.append(file(10 * number, size=size))
        rewritten[10 * number] = 0
        if number % every == 0:
            merges = plan_roll(log, WIDE)
            for merge in merges:
                for base in range(merge.segments[0].base_offset, merge.segments[-1].end_offset, 10):
                    rewritten[base] += 1
            log = rolled(log, merges)
    assert max(rewritten.values()) <= math.log(sum(sizes), MERGE_FACTOR) + 1
    assert len(rolled(log, plan_roll(log, WIDE))) <= 12 * MERGE_FACTOR


def test_ten_thousand_small_appends_are_merged_into_few_files() -> None:
    log: list[Segment] = []
    for number in range(10_000):
        log.append(file(10 * number, size=10_000))
        if number % 100 == 0:
            log = rolled(log, plan_roll(log, WIDE))
    log = rolled(log, plan_roll(log, WIDE))
    assert len(log) <= 5 * MERGE_FACTOR
