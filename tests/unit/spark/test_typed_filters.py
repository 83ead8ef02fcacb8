"""Which files a filter on typed columns skips: never one that has a record which passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta, timezone
from math import isnan
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    StringType,
    TimestampType,
)

from sparklog.format.parquet.delta_stats import TypedBounds, TypedStats, encode_stats
from sparklog.limits import STATED_COLUMNS
from sparklog.spark.history.typed_filters import NO_FILTERS, TypedFilters
from sparklog.spark.source.filters import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

INFINITY = float("inf")
NAN = float("nan")
MOMENT = datetime(2026, 11, 1, 9, 30, tzinfo=timezone.utc)

KINDS: dict[str, tuple[DataType, pa.DataType, st.SearchStrategy[Any]]] = {
    "boolean": (BooleanType(), pa.bool_(), st.booleans()),
    "int": (IntegerType(), pa.int32(), st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1)),
    "float": (FloatType(), pa.float32(), st.sampled_from([-INFINITY, -1.0, -0.0, 0.0, 0.5, INFINITY, NAN])),
    "double": (DoubleType(), pa.float64(), st.floats() | st.sampled_from([-1.0, -0.0, 0.0, 1.0])),
    "decimal": (DecimalType(6, 2), pa.decimal128(6, 2), st.decimals(-2, 2, places=2)),
    "string": (
        StringType(),
        pa.string(),
        st.text("ab\U0010ffff", max_size=3)
        | st.builds("".join, st.tuples(st.just("x" * 31), st.text("xy\U0010ffff", max_size=4))),
    ),
    "date": (DateType(), pa.date32(), st.dates(date(2026, 1, 1), date(2026, 1, 5)) | st.dates()),
    "timestamp": (
        TimestampType(),
        pa.timestamp("us", "UTC"),
        st.integers(-5, 5).map(lambda us: MOMENT + timedelta(microseconds=us))
        | st.datetimes(timezones=st.just(timezone.utc)),
    ),
}

COMPARISONS: dict[Callable[..., Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda value, other: value == other,
    EqualNullSafe: lambda value, other: value == other,
    GreaterThan: lambda value, other: value > other,
    GreaterThanOrEqual: lambda value, other: value >= other,
    LessThan: lambda value, other: value < other,
    LessThanOrEqual: lambda value, other: value <= other,
}


class StringStartsWith(NamedTuple):
    """As Spark's filter, which not every version has: of a kind by which no file is skipped."""

    attribute: tuple[str, ...]
    value: str


def stats_of(values: Sequence[Any], kind: pa.DataType) -> str:
    bounds = TypedBounds()
    bounds.add({"a": pa.array(values, kind)})
    return encode_stats(len(values), (0, len(values) - 1), (0, 0), {"key": 0, "value": 0}, bounds.stats)


def as_spark_orders(value: Any) -> Any:
    """NaN is larger than any other number."""
    return (1, 0.0) if isinstance(value, float) and isnan(value) else (0, value)


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_no_file_with_a_record_that_passes_is_skipped(name: str, data: st.DataObject) -> None:
    kind, arrow, values = KINDS[name]
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=4))
    numbers = values.filter(lambda value: value == value)  # a comparison with NaN prunes nothing (``expressions``)
    present = [row for row in rows if row is not None and row == row]
    other = data.draw(st.sampled_from(present) | numbers if present else numbers)
    stats = stats_of(rows, arrow)
    for comparison, passes in COMPARISONS.items():
        found = [row for row in rows if row is not None and passes(as_spark_orders(row), as_spark_orders(other))]
        admitted = TypedFilters([comparison(("a",), other)], {"a": kind}).admit(stats)
        assert admitted or not found, (comparison, rows, other, stats)
    assert TypedFilters([In(("a",), (None, other))], {"a": kind}).admit(stats) or other not in rows
    assert TypedFilters([IsNull(("a",))], {"a": kind}).admit(stats) == (None in rows)
    assert TypedFilters([EqualNullSafe(("a",), None)], {"a": kind}).admit(stats) == (None in rows)
    assert TypedFilters([IsNotNull(("a",))], {"a": kind}).admit(stats) == any(row is not None for row in rows)


STATS = encode_stats(
    9,
    (0, 8),
    (0, 0),
    {"key": 0, "value": 0},
    TypedStats({"n": 3, "text": "b"}, {"n": 5, "text": "c"}, {"n": 1, "text": 0, "empty": 9}),
)
TYPES: dict[str, DataType] = {
    "n": IntegerType(),
    "text": StringType(),
    "empty": DateType(),
    "later": IntegerType(),
    "list": ArrayType(IntegerType()),
}


@pytest.mark.parametrize(
    "predicate",
    [
        EqualTo(("n",), 2),
        EqualTo(("n",), 6),
        EqualNullSafe(("n",), 6),
        GreaterThan(("n",), 5),
        GreaterThanOrEqual(("n",), 6),
        LessThan(("n",), 3),
        LessThanOrEqual(("n",), 2),
        In(("n",), (1, 2, None, 7)),
        IsNull(("text",)),
        EqualTo(("text",), "a"),
        GreaterThan(("text",), "c"),
        IsNotNull(("empty",)),
        EqualTo(("empty",), date(2026, 1, 1)),
        IsNotNull(("later",)),
        LessThan(("later",), 1),
    ],
)
def test_files_without_values_that_pass_are_skipped(predicate: Filter) -> None:
    assert not TypedFilters([predicate], TYPES).admit(STATS)


@pytest.mark.parametrize(
    "predicate",
    [
        EqualTo(("n",), 4),
        EqualTo(("n",), "text"),
        EqualTo(("n", "field"), 9),
        EqualTo(("other",), 9),
        In(("n",), (1, 4)),
        IsNull(("n",)),
        IsNull(("later",)),
        EqualNullSafe(("later",), None),
        IsNotNull(("n",)),
        StringStartsWith(("text",), "z"),
        EqualTo(("list",), 1),
        IsNotNull(("list",)),
    ],
)
def test_files_are_kept_if_statistics_do_not_say_that_no_value_passes(predicate: Any) -> None:
    assert TypedFilters([predicate], TYPES).admit(STATS)


def test_all_filters_have_to_be_passed() -> None:
    assert not TypedFilters([EqualTo(("n",), 4), EqualTo(("text",), "a")], TYPES).admit(STATS)
    assert NO_FILTERS.admit(STATS)


def test_columns_beyond_those_with_statistics_may_have_values() -> None:
    names = [f"n{number}" for number in range(STATED_COLUMNS)]
    stats = encode_stats(9, (0, 8), (0, 0), {}, TypedStats({}, {}, dict.fromkeys(names, 9)))
    types: dict[str, DataType] = {name: IntegerType() for name in (*names, "more")}
    assert TypedFilters([EqualTo(("more",), 1), IsNull(("more",))], types).admit(stats)
    assert not TypedFilters([EqualTo(("n0",), 1)], types).admit(stats)


@pytest.mark.parametrize("stats", ["", "{}", "[]", '{"numRecords":1}', "nonsense"])
def test_files_without_statistics_are_kept(stats: str) -> None:
    assert TypedFilters([EqualTo(("n",), 1), IsNull(("later",))], TYPES).admit(stats)


def test_bounds_of_another_type_are_none() -> None:
    types: dict[str, DataType] = {"n": DateType(), "text": TimestampType()}
    filters = [EqualTo(("n",), date(2026, 1, 1)), EqualTo(("text",), MOMENT)]
    assert TypedFilters(filters, types).admit(STATS)
