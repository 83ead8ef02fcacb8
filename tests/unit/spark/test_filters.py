"""Pruning by filters. The filter classes are Spark's, from 4.1 on, and need no session."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.spark.source.filters import HIGHEST, LOWEST, Pruning, Span, prune
from sparklog.spark.versions.api import base_push_filters

if base_push_filters is None:
    pytest.skip("this Spark pushes no filters down", allow_module_level=True)

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def test_no_filters_leave_everything() -> None:
    assert prune([]) == Pruning()
    assert prune([]).admits("any", 99)


def test_topics_are_kept_by_equality_and_by_list() -> None:
    pruned = prune([In(("topic",), ("a", "b")), EqualTo(("topic",), "b")])
    assert pruned.admits("b", 0)
    assert not pruned.admits("a", 0)


def test_partitions_are_kept_by_list_and_by_comparison() -> None:
    pruned = prune([In(("partition",), (1, 2, 3)), GreaterThan(("partition",), 1), LessThanOrEqual(("partition",), 2)])
    assert [number for number in range(5) if pruned.admits("a", number)] == [2]


def test_filters_on_offsets_become_a_span() -> None:
    pruned = prune([GreaterThanOrEqual(("offset",), 5), LessThan(("offset",), 9)])
    assert pruned.offsets == Span(5, 8)


def test_a_list_of_offsets_becomes_its_enclosing_span() -> None:
    assert prune([In(("offset",), (9, 4, None, 7))]).offsets == Span(4, 9)


def test_timestamps_become_microseconds() -> None:
    time = EPOCH + timedelta(seconds=1, microseconds=5)
    assert prune([GreaterThan(("timestamp",), time)]).timestamps_us.first == 1_000_006
    assert prune([EqualTo(("timestamp",), time)]).timestamps_us == Span(1_000_005, 1_000_005)


def test_a_time_in_another_zone_is_the_same_instant() -> None:
    time = datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert prune([EqualTo(("timestamp",), time)]).timestamps_us == Span(0, 0)


def test_unsupported_filters_prune_nothing() -> None:
    filters: list[Filter] = [
        Not(EqualTo(("partition",), 1)),
        IsNotNull(("topic",)),
        StringContains(("topic",), "a"),
        EqualTo(("value",), b"x"),
        EqualTo(("headers", "key"), "x"),
        EqualTo(("topic",), 5),
        EqualTo(("partition",), "1"),
        EqualTo(("offset",), 1.5),
        GreaterThan(("timestamp",), datetime(2020, 1, 1)),
        In(("offset",), ()),
    ]
    pruned = prune(filters)
    assert pruned == Pruning()


def test_equality_with_null_matches_nothing() -> None:
    assert not prune([EqualNullSafe(("topic",), None)]).admits("a", 0)


def test_contradicting_filters_match_nothing() -> None:
    pruned = prune([EqualTo(("partition",), 1), EqualTo(("partition",), 2)])
    assert not any(pruned.admits("a", number) for number in range(4))


KINDS = {
    EqualTo: lambda left, right: left == right,
    GreaterThan: lambda left, right: left > right,
    GreaterThanOrEqual: lambda left, right: left >= right,
    LessThan: lambda left, right: left < right,
    LessThanOrEqual: lambda left, right: left <= right,
}


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(KINDS, key=str)), st.sampled_from(["offset", "partition"]), st.integers(0, 9)),
        max_size=5,
    )
)
def test_pruning_never_loses_a_record_that_passes(filters: list[tuple[type[Filter], str, int]]) -> None:
    pruned = prune([kind((column,), value) for kind, column, value in filters])  # type: ignore[call-arg]
    for offset in range(10):
        for partition in range(10):
            row = {"offset": offset, "partition": partition}
            if all(KINDS[kind](row[column], value) for kind, column, value in filters):
                assert offset in pruned.offsets
                assert pruned.admits("any", partition)


def test_a_span_without_bounds_overlaps_everything() -> None:
    assert Span().overlaps(LOWEST, LOWEST)
    assert Span().overlaps(HIGHEST, HIGHEST)
    assert not Span(5, 8).overlaps(9, 12)
    assert not Span(5, 8).overlaps(1, 4)
    assert Span(5, 8).overlaps(8, 8)
