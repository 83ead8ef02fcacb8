"""Splitting ranges of offsets into tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidOptionError
from sparklog.spark.source.ranges import AUTO_TASK_BYTES, MaxPartitions, group_ranges, split_ranges
from sparklog.types import OffsetRange


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", number, 0, size) for number, size in enumerate(sizes)]


def sizes(pieces: list[OffsetRange]) -> list[tuple[int, int]]:
    return [(one.partition, one.size) for one in pieces]


def test_a_partition_is_one_task_by_default() -> None:
    assert split_ranges(ranges(5, 1_000_000)) == ranges(5, 1_000_000)


def test_an_empty_range_makes_no_task() -> None:
    assert split_ranges([OffsetRange("t", 0, 7, 7), OffsetRange("t", 1, 8, 7)]) == []


def test_min_partitions_below_the_partition_count_split_nothing() -> None:
    assert split_ranges(ranges(10, 10, 10), min_partitions=2) == ranges(10, 10, 10)


def test_large_ranges_are_split_in_proportion_to_their_size() -> None:
    assert sizes(split_ranges(ranges(100, 300), min_partitions=4)) == [(0, 100), (1, 100), (1, 100), (1, 100)]


def test_the_last_piece_takes_the_rounding_remainder() -> None:
    assert [one.size for one in split_ranges(ranges(10), min_partitions=3)] == [3, 3, 4]


def test_small_ranges_do_not_take_tasks_from_large_ones() -> None:
    pieces = split_ranges(ranges(2, 0, 1000, 1), min_partitions=6)
    assert sizes(pieces) == [(0, 2), (2, 250), (2, 250), (2, 250), (2, 250), (3, 1)]


def test_with_more_tasks_than_records_each_task_has_one_record() -> None:
    assert [one.size for one in split_ranges(ranges(3), min_partitions=10)] == [1, 1, 1]


def test_max_records_cut_a_range_into_equal_pieces() -> None:
    assert sizes(split_ranges(ranges(10, 3), max_records_per_partition=4)) == [(0, 3), (0, 3), (0, 4), (1, 3)]


def test_max_records_are_applied_before_min_partitions() -> None:
    pieces = split_ranges(ranges(8, 8), min_partitions=8, max_records_per_partition=4)
    assert [one.size for one in pieces] == [2] * 8


def test_an_excessive_number_of_tasks_is_refused() -> None:
    with pytest.raises(InvalidOptionError, match="maxRecordsPerPartition=1 would split"):
        split_ranges(ranges(2_000_000_000), max_records_per_partition=1)


def test_the_maximum_number_of_tasks_is_planned_quickly() -> None:
    assert len(split_ranges(ranges(30, 0, 70), min_partitions=2**31 - 1)) == 100
    with pytest.raises(InvalidOptionError, match="minPartitions=2147483647 would create 5,000,000 tasks"):
        split_ranges(ranges(5_000_000), min_partitions=2**31 - 1)


def test_splitting_many_ranges_takes_linear_time() -> None:
    assert len(split_ranges(ranges(*[1] * 50_000), min_partitions=50_001)) == 50_000


@given(
    st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 5000)), max_size=8),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 1000),
)
def test_every_offset_is_read_once_and_in_order(
    starts: list[tuple[int, int]], minimum: int | None, most: int | None
) -> None:
    given_ranges = [OffsetRange("t", number, start, start + size) for number, (start, size) in enumerate(starts)]
    tasks = split_ranges(given_ranges, minimum, most)
    assert all(one.size > 0 and (most is None or one.size <= most) for one in tasks)
    for one in given_ranges:
        pieces = [piece for piece in tasks if piece.partition == one.partition]
        edges = [one.start, *(piece.end for piece in pieces)]
        assert [piece.start for piece in pieces] == edges[:-1]
        assert edges[-1] == one.end
    assert [one.partition for one in tasks] == sorted(one.partition for one in tasks)


# -- several ranges in a task


def test_a_range_is_a_task_of_its_own_unless_fewer_are_asked_for() -> None:
    assert group_ranges([1, 2, 3], None) == group_ranges([1, 2, 3], 3) == group_ranges([1, 2, 3], 7) == [[0], [1], [2]]


def test_tasks_of_several_ranges_read_about_the_same() -> None:
    assert group_ranges([900 << 20, 300 << 20, 300 << 20, 290 << 20], 2) == [[0], [1, 2, 3]]


def test_auto_makes_few_tasks_of_small_ranges_and_splits_or_joins_no_large_one() -> None:
    assert [len(task) for task in group_ranges([300_000] * 64, "auto")] == [22, 21, 21]
    assert group_ranges([AUTO_TASK_BYTES] * 3, "auto") == [[0], [1], [2]]
    assert group_ranges([0, AUTO_TASK_BYTES * 5, 0], "auto") == [[0, 2], [1]]
    assert group_ranges([], "auto") == []


def test_auto_makes_no_fewer_tasks_than_the_minimum() -> None:
    assert len(group_ranges([300_000] * 64, "auto", min_partitions=16)) == 16


@given(
    st.lists(st.integers(0, 10 * AUTO_TASK_BYTES), max_size=40),
    st.one_of(st.none(), st.just("auto"), st.integers(1, 50)),
    st.one_of(st.none(), st.integers(1, 50)),
)
def test_every_range_is_in_one_task_and_in_order(sizes: list[int], most: MaxPartitions, least: int | None) -> None:
    tasks = group_ranges(sizes, most, least)
    assert sorted(number for task in tasks for number in task) == list(range(len(sizes)))
    assert tasks == sorted(sorted(task) for task in tasks if task)
    if isinstance(most, int):
        assert len(tasks) == min(most, len(sizes))
