"""Statistics of history segments, as Delta states them."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal

import pyarrow as pa
import pytest

from sparklog.format.column_bounds import ALL_NULL
from sparklog.format.parquet.delta_stats import (
    LARGEST,
    TypedBounds,
    TypedStats,
    complete_stats,
    decode_bounds,
    decode_stats,
    encode_stats,
)
from sparklog.limits import MAX_STATED_NAMES, MAX_STORED_TEXT_LENGTH, STATED_COLUMNS


def test_offsets_and_times_are_exact() -> None:
    stats = json.loads(encode_stats(3, (5, 9), (0, 1_234_567), {"key": 1, "value": 0}))
    assert stats == {
        "numRecords": 3,
        "minValues": {"offset": 5, "timestamp": "1970-01-01T00:00:00.000Z"},
        "maxValues": {"offset": 9, "timestamp": "1970-01-01T00:00:01.234567Z"},
        "nullCount": {"offset": 0, "timestamp": 0, "key": 1, "value": 0},
    }


@pytest.mark.parametrize("time_us", [2**63 - 1, -(2**63), 253_402_300_800_000_000])
def test_times_that_delta_cannot_state_have_no_bounds(time_us: int) -> None:
    stats = json.loads(encode_stats(1, (0, 0), (0, time_us), {}))
    assert (stats["minValues"], stats["maxValues"]) == ({"offset": 0}, {"offset": 0})


def stats_of(table: pa.Table, batch_rows: int = 2) -> TypedStats:
    bounds = TypedBounds()
    for batch in table.to_batches(batch_rows):
        bounds.add(dict(zip(table.column_names, batch.columns, strict=True)))
    return bounds.stats


def test_typed_columns_have_the_bounds_of_all_batches() -> None:
    moment = datetime(2026, 11, 1, 9, 30, tzinfo=timezone.utc)
    table = pa.table(
        {
            "whole": pa.array([3, None, 7, 1], pa.int32()),
            "number": [0.5, 2.5, None, None],
            "text": ["b", "a", "d", "c"],
            "day": [date(2026, 1, 2), None, None, date(2025, 1, 1)],
            "time": pa.array([moment, None, moment, None], pa.timestamp("us", "UTC")),
            "sure": [True, False, None, None],
            "list": [[1], [2], None, []],
            "empty": pa.nulls(4, pa.int64()),
            "long": ["x" * 33, "y", "z", None],
            "raw": [b"x", None, None, None],
        }
    )
    stats = stats_of(table)
    assert stats.smallest == {
        "whole": 1,
        "number": 0.5,
        "text": "a",
        "day": "2025-01-01",
        "time": "2026-11-01T09:30:00.000Z",
        "sure": False,
        "long": "x" * 32,
    }
    assert stats.largest == {
        "whole": 7,
        "number": 2.5,
        "text": "d",
        "day": "2026-01-02",
        "time": "2026-11-01T09:30:00.000Z",
        "sure": True,
        "long": "z",
    }
    assert stats.null_counts == {
        "whole": 1, "number": 2, "text": 0, "day": 2, "time": 2, "sure": 2, "empty": 4, "long": 1, "raw": 3,
    }  # fmt: skip


INF, NAN = float("inf"), float("nan")
LAST = "\U0010ffff"


@pytest.mark.parametrize(
    ("text", "largest"),
    [
        ("x" * 32, "x" * 32),
        ("x" * 33, "x" * 32 + LAST),
        ("x" * 5000, "x" * 32 + LAST),
        ("x" * 32 + LAST + "y", "x" * 32 + LAST * 2),
        ("x" * 32 + LAST, "x" * 32 + LAST * 2),
        (LAST * 33 + "a", LAST * 34),
    ],
)
def test_bounds_of_long_texts_are_cut(text: str, largest: str) -> None:
    stats = stats_of(pa.table({"a": [text]}))
    assert (stats.smallest["a"], stats.largest["a"]) == (text[:32], largest)
    assert text <= largest


def test_bounds_of_a_text_that_no_short_one_exceeds_are_not_stated() -> None:
    text = "x" * 32 + LAST * 33 + "y"
    table = pa.table({"a": [text], "b": ["x" * 32 + LAST * 31 + "y"]})
    stats = stats_of(table)
    assert "a" not in stats.largest
    encoded = encode_stats(1, (0, 0), (0, 0), {}, stats)
    assert set(decode_bounds(encoded, list(table.schema))) == {"b"}
    decoded = decode_stats(encoded)
    assert decoded is not None
    assert decoded.bounds("a", str) is None
    assert decoded.bounds("b", str) == ("x" * 32, "x" * 32 + LAST * 32)


def test_bounds_of_decimals_are_numbers_with_all_digits() -> None:
    digits = "123456789012345678.01234567890123456789"
    table = pa.table({"a": pa.array([Decimal(digits), Decimal("1e-20"), None], pa.decimal128(38, 20))})
    stats = encode_stats(3, (0, 2), (0, 0), {}, stats_of(table))
    assert '"a":0.00000000000000000001}' in stats
    assert f'"a":{digits}}}' in stats


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**62, 0], pa.timestamp("us", "UTC")),
        pa.array([-(2**62), 0], pa.timestamp("us", "UTC")),
        pa.array([2**31 - 1, 0], pa.int32()).cast(pa.date32()),
    ],
)
def test_values_that_cannot_be_stated_have_no_bounds(column: pa.Array) -> None:
    assert stats_of(pa.table({"a": column})) == TypedStats({}, {}, {"a": 0})


@pytest.mark.parametrize(
    ("numbers", "bounds"),
    [
        ([INF, 1.0], (1.0, LARGEST[64])),
        ([-INF, 1.0], (-LARGEST[64], 1.0)),
        ([1.0, NAN, -2.0], (-2.0, LARGEST[64])),
        ([NAN, -INF], (-LARGEST[64], LARGEST[64])),
        ([NAN, None], (LARGEST[64], LARGEST[64])),
        ([-INF], (-LARGEST[64], -LARGEST[64])),
        ([0.0], (-0.0, 0.0)),
    ],
)
def test_nan_and_infinity_are_stated_as_the_largest_numbers(
    numbers: list[float | None], bounds: tuple[float, float]
) -> None:
    stats = stats_of(pa.table({"a": pa.array(numbers, pa.float64())}), batch_rows=4)
    assert (repr(stats.smallest["a"]), repr(stats.largest["a"])) == (repr(bounds[0]), repr(bounds[1]))


def test_numbers_of_32_bits_have_bounds_of_32_bits() -> None:
    stats = stats_of(pa.table({"a": pa.array([NAN, -INF], pa.float32())}))
    assert (stats.smallest["a"], stats.largest["a"]) == (-LARGEST[32], LARGEST[32])


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_infinity_of_a_float_that_became_a_double_has_no_bounds(kind: pa.DataType) -> None:
    typed = stats_of(pa.table({"a": pa.array([1.0, INF, NAN], pa.float32())}))
    stats = encode_stats(3, (0, 2), (0, 0), {}, typed)
    assert decode_bounds(stats, [pa.field("a", kind)]) == {}
    stated = decode_stats(stats)
    assert stated is not None
    assert stated.bounds("a", float) is None


def test_only_the_first_columns_have_statistics() -> None:
    table = pa.table({f"c{number}": [number] for number in range(STATED_COLUMNS + 5)})
    assert len(stats_of(table).smallest) == STATED_COLUMNS


def test_columns_that_a_file_does_not_have_are_stated_as_null() -> None:
    typed = TypedStats({"a": Decimal("0.1")}, {"a": 2}, {"a": 1})
    stats = encode_stats(3, (5, 9), (0, 0), {"key": 1, "value": 0}, typed)
    assert complete_stats(stats, ["a"]) == stats
    completed = complete_stats(stats, ["b", "a", "_unfit"])
    assert json.loads(completed) == {
        **json.loads(stats),
        "nullCount": {**json.loads(stats)["nullCount"], "b": 3, "_unfit": 3},
    }
    assert complete_stats(completed, ["b", "a", "_unfit"]) == completed


def test_columns_that_a_file_may_have_are_not_stated_as_null() -> None:
    counts = {f"c{number}": 0 for number in range(STATED_COLUMNS)}
    stats = encode_stats(3, (5, 9), (0, 0), {}, TypedStats({}, {}, counts))
    assert complete_stats(stats, ["another", *counts]) == stats
    few = encode_stats(3, (5, 9), (0, 0), {})
    names = [*counts, "_unfit"]
    assert json.loads(complete_stats(few, names))["nullCount"].keys() == {"offset", "timestamp", *counts}
    assert complete_stats("no statistics", ["a"]) == "no statistics"


def test_bounds_of_a_column_that_a_file_does_not_have_are_those_of_nulls() -> None:
    absent, nested = pa.field("later", pa.int64()), pa.field("list", pa.list_(pa.int64()))
    few = encode_stats(3, (5, 9), (0, 0), {"key": 0, "value": 0}, TypedStats({"a": 1}, {"a": 2}, {"a": 0}))
    assert decode_bounds(few, [absent, nested]) == {"later": ALL_NULL}
    counts = {f"c{number}": 0 for number in range(STATED_COLUMNS)}
    assert decode_bounds(encode_stats(3, (5, 9), (0, 0), {}, TypedStats({}, {}, counts)), [absent]) == {}


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us", "UTC"), pa.binary()], ids=str
)
def test_bounds_of_another_type_are_not_known(kind: pa.DataType) -> None:
    stats = encode_stats(3, (5, 9), (0, 0), {}, TypedStats({"a": 1}, {"a": 1000}, {"a": 0}))
    assert decode_bounds(stats, [pa.field("a", kind)]) == {}


def test_the_longest_statistics_fit_in_a_commit() -> None:
    """Of a schema that was accepted (``config.topic_configs``)."""
    length = MAX_STATED_NAMES // STATED_COLUMNS - len('""')
    names = [f"{number:0{length}}" for number in range(STATED_COLUMNS)]
    bounds = dict.fromkeys(names, "\x01" * 65)
    stats = TypedStats(bounds, bounds, dict.fromkeys(names, 2**63))
    text = encode_stats(2**63, (2**63 - 2, 2**63 - 1), (1, 2**53), dict.fromkeys(("key", "value"), 2**63), stats)
    assert len(text) <= MAX_STORED_TEXT_LENGTH
