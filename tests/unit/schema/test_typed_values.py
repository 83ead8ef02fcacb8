"""Typed columns are read from JSON values: what fits a schema, what does not, and what each becomes."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidRecordError, RecordListTooLargeError
from sparklog.format.schema import record_schema
from sparklog.records.record_checks import check_schema
from sparklog.records.row_checks import check_rows
from sparklog.records.topic_rules import TopicRules
from sparklog.schema.languages.ddl import UNFIT, parse_ddl
from sparklog.schema.languages.record_schema import PartSchema, RecordSchema
from sparklog.schema.typed_columns import typed_fields
from sparklog.schema.values import decoded_values, typed_values
from sparklog.schema.values.typed_values import ValueReader, value_reader

DDL = "text string, whole int, large bigint, number double, day date, time timestamp, sure boolean, money decimal(6,2)"
NESTED = "nested array<struct<money: decimal(6,2), time: timestamp>>"


def read(values: list[bytes | None], ddl: str = DDL) -> list[dict[str, object]]:
    columns = ValueReader(parse_ddl(ddl)).columns(pa.array(values, pa.binary()))
    assert [(name, array.type) for name, array in columns.items()] == [
        *((field.name, field.type) for field in typed_fields(parse_ddl(ddl))),
        (UNFIT, pa.bool_()),
    ]
    return pa.table(columns).to_pylist()


def test_a_value_that_fits_has_its_fields_in_the_columns() -> None:
    value = {
        "text": "a",
        "whole": -5,
        "large": 2**62,
        "number": 1,
        "day": "2026-11-01",
        "time": "2026-11-01T10:00:00.25+02:00",
        "sure": True,
        "money": "12.50",
        "other": [{"ignored": None}],
    }
    assert read([json.dumps(value).encode()]) == [
        {
            "text": "a",
            "whole": -5,
            "large": 2**62,
            "number": 1.0,
            "day": date(2026, 11, 1),
            "time": datetime(2026, 11, 1, 8, 0, 0, 250_000, tzinfo=timezone.utc),
            "sure": True,
            "money": Decimal("12.50"),
            UNFIT: False,
        }
    ]


def test_absent_fields_nulls_and_tombstones_are_null_and_fit() -> None:
    rows = read([b"{}", b'{"text":null,"whole":null}', None])
    assert all(value is None for row in rows for name, value in row.items() if name != UNFIT)
    assert [row[UNFIT] for row in rows] == [False, False, False]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b"1",
        b"\xff",
        b"{",
        b'{"text":1}',
        b'{"text":"\xff"}',
        b'{"text":"\\ud800x"}',
        b'{"whole":1.0}',
        b'{"whole":"1"}',
        b'{"whole":2147483648}',
        b'{"large":9223372036854775808}',
        b'{"number":"1"}',
        b'{"number":1e999}',
        b'{"day":"2026-13-01"}',
        b'{"time":5}',
        b'{"sure":1}',
        b'{"money":1.255}',
        b'{"money":"123456789"}',
        b'{"money":1e-9999999}',
        b'{"money":1e9999999}',
        b'{"money":"1e99999999999999999999"}',
        b'{"money":"NaN"}',
        b'{"money":"1_0"}',
        b'{"money":" 1 "}',
        '{"money":"\N{FULLWIDTH DIGIT ONE}"}'.encode(),
        b'{"money":true}',
        b'{"time":"9999-12-31T23:59:59-05:00"}',
        b'{"time":"0001-01-01T00:00:00+05:00"}',
        b'{"nested":[{"money":1e-9999999}]}',
        b'{"nested":[{"time":"9999-12-31T23:59:59-05:00"}]}',
        b'{"text":"a"} trailing',
        b"[" * 100_000,
    ],
)
def test_a_value_that_does_not_fit_is_marked_and_leaves_its_neighbours_alone(value: bytes) -> None:
    before, unfit, after = read([b'{"text":"before"}', value, b'{"text":"after"}'], f"{DDL}, {NESTED}")
    assert unfit == {**dict.fromkeys(unfit), UNFIT: True}
    assert (before["text"], before[UNFIT], after["text"], after[UNFIT]) == ("before", False, "after", False)
    assert value_reader(parse_ddl(f"{DDL}, {NESTED}")).find_misfit(value)


@pytest.mark.parametrize(
    ("number", "expected"),
    [("1e2", "100.00"), ('"1.50000"', "1.50"), ("0e10", "0.00"), ('"0e-999999"', "0.00"), ("-0.01", "-0.01")],
)
def test_a_decimal_fits_if_it_has_no_more_digits_than_its_type(number: str, expected: str) -> None:
    value = b'{"money":%s}' % number.encode()
    assert [str(row["money"]) for row in read([value])] == [expected]
    assert not value_reader(parse_ddl(DDL)).find_misfit(value)


@pytest.mark.parametrize("text", [b"1" * 1_000_000 + b"x", b"1" * 1_000_000 + b".", b"1." + b"0" * 1_000_000 + b"e"])
def test_a_long_text_that_is_no_decimal_costs_no_more_than_reading_it(text: bytes) -> None:
    """With an expression that matches a digit in two ways this takes hours."""
    (row,) = read([b'{"money":"%s"}' % text])
    assert row[UNFIT]


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (b'{"time":"9999-12-31T23:59:59-05:00"}', "$.time"),
        (b'{"money":1e-9999999}', "$.money"),
        (b'{"large":9223372036854775808}', "$.large"),
        (b'{"nested":[{},{"money":true}]}', "$.nested[1].money"),
    ],
)
def test_a_misfit_names_the_field(value: bytes, field: str) -> None:
    assert f"at `{field}`" in value_reader(parse_ddl(f"{DDL}, {NESTED}")).find_misfit(value)


def test_a_value_that_arrow_refuses_does_not_make_all_others_be_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = [b'{"time":"2026-11-01T10:00:00Z"}'] * 1000
    values[77] = b'{"time":"9999-12-31T23:59:59-05:00"}'
    sizes: list[int] = []
    array = pa.array

    def count(items: Sequence[object], kind: pa.DataType) -> pa.Array:
        sizes.append(len(items))
        return array(items, kind)

    monkeypatch.setattr(pa, "array", count)
    assert [number for number, row in enumerate(read(list(values), "time timestamp")) if row[UNFIT]] == [77]
    assert len(sizes) < 30


LISTS = "l array<struct<a: bigint, b: bigint>>, m map<string, array<bigint>>"


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (b'{"l":[{},{},{}]}', b'{"l":[{},{},{},{},{},{},{}]}'),
        (b'{"m":{"a":[1,2,3,4]}}', b'{"m":{"a":[1,2,3,4],"b":[5,6,7,8],"c":[1,2,3,4,5,6,7]}}'),
    ],
)
def test_a_value_whose_lists_take_too_much_is_not_read(
    small: bytes, large: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (decoded_values, typed_values):
        monkeypatch.setattr(module, "MAX_ELEMENT_BYTES", 150)
    rows = read([small, large, small], LISTS)
    assert [row[UNFIT] for row in rows] == [False, True, False]
    assert rows[0] == rows[2]
    assert "may take 150" in value_reader(parse_ddl(LISTS)).find_misfit(large)


def test_many_empty_objects_are_counted_before_they_take_memory() -> None:
    fields = ", ".join(f"f{number}: bigint" for number in range(500))
    reader = ValueReader(parse_ddl(f"l array<struct<{fields}>>"))
    values = pa.array([b'{"l":[' + b",".join([b"{}"] * 20_000) + b"]}"])
    tracemalloc.start()
    assert reader.columns(values)[UNFIT].to_pylist() == [True]
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_columns_over_a_limit_are_not_made() -> None:
    reader = value_reader(parse_ddl("l array<bigint>"))
    values = pa.array([b'{"l":[1,2,3,4]}'] * 100)
    with pytest.raises(RecordListTooLargeError, match="100 records take over 3000 bytes"):
        reader.columns(values, 3000)
    assert reader.columns(values, 5000)["l"].nbytes < 5000
    unfit = reader.unfit_columns(3)
    assert [unfit["l"].null_count, unfit[UNFIT].to_pylist()] == [3, [True] * 3]


def test_a_required_field_has_to_be_there() -> None:
    rows = read([b'{"a":1}', b"{}", b'{"a":null}'], "a int NOT NULL")
    assert [row[UNFIT] for row in rows] == [False, True, True]


def test_nested_types_are_read() -> None:
    ddl = (
        "list array<struct<x: int, y: array<string>>>, map map<string, double>, raw binary, small tinyint, short float"
    )
    value = b'{"list":[{"x":1,"y":["a",null]},null,{}],"map":{"k":1.5,"n":null},"raw":"aGk=","small":-128,"short":0.5}'
    assert read([value], ddl) == [
        {
            "list": [{"x": 1, "y": ["a", None]}, None, {"x": None, "y": None}],
            "map": [("k", 1.5), ("n", None)],
            "raw": b"hi",
            "small": -128,
            "short": 0.5,
            UNFIT: False,
        }
    ]


def test_a_large_value_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_values, "MAX_VALUE_BYTES", 20)
    small, large = b'{"text":"aaaa"}', b'{"text":"aaaaaaaaaaaaa"}'
    assert [row["text"] for row in read([small, large, small])] == ["aaaa", None, "aaaa"]
    assert [row[UNFIT] for row in read([small, large])] == [False, True]
    assert "24 bytes" in value_reader(parse_ddl(DDL)).find_misfit(large)


def test_many_values_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_values, "READ_BYTES", 50)
    values = [b'{"whole":%d}' % number for number in range(100)]
    assert [row["whole"] for row in read([*values, b"no"])] == [*range(100), None]
    assert read([]) == []


TIMES = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.just(timezone(timedelta(hours=2))))
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(st.characters(exclude_categories=["Cs"])) | st.none(),
        "whole": st.integers(-(2**31), 2**31 - 1),
        "large": st.integers(-(2**63), 2**63 - 1),
        "number": st.floats(allow_nan=False, allow_infinity=False),
        "day": st.dates(),
        "time": TIMES,
        "sure": st.booleans(),
    },
)


@given(st.lists(VALUES, min_size=1, max_size=20))
def test_any_values_that_fit_come_back_exactly(values: list[dict[str, object]]) -> None:
    def as_json(value: object) -> object:
        return value.isoformat() if isinstance(value, date) else value

    encoded = [json.dumps({name: as_json(field) for name, field in value.items()}).encode() for value in values]
    for row, value in zip(read(list(encoded)), values, strict=True):
        assert row == {**dict.fromkeys(row), **value, UNFIT: False}


@given(st.lists(st.binary(max_size=30) | st.none(), max_size=20))
def test_any_bytes_are_read_or_marked(values: list[bytes | None]) -> None:
    rows = read(list(values))
    reader = value_reader(parse_ddl(DDL))
    assert [row[UNFIT] for row in rows] == [bool(reader.find_misfit(value)) for value in values]


def test_a_topic_with_validation_refuses_records_and_rows_that_do_not_fit() -> None:
    schema = RecordSchema(PartSchema("json", ("a int",)))
    rules = TopicRules(topic="t", max_message_bytes=1000, before_max_ms=10**15, after_max_ms=10**15, schema=schema)
    check_schema(None, b'{"a":1}', rules)
    check_schema(b"k", None, rules)
    with pytest.raises(
        InvalidRecordError, match=r"topic 't' does not fit its schema: Expected `int \| null`, got `str`"
    ):
        check_schema(None, b'{"a":"x"}', rules)
    values = [b"{}", b'{"a":2}', b'{"a":"x"}', b"no"]
    columns = [pa.nulls(4, pa.binary()), pa.array(values, pa.binary()), pa.array([0] * 4, pa.timestamp("us", "UTC"))]
    rows = pa.RecordBatch.from_arrays(columns, schema=record_schema(("key", "value", "timestamp")))
    with pytest.raises(InvalidRecordError, match="does not fit") as refused:
        check_rows(rows, rules, now_ms=0)
    assert refused.value.index == 2
    check_rows(rows.slice(0, 2), rules, now_ms=0)


NUMBERS = {"b": 8, "s": 16, "i": 32, "l": 64}
ANY_NUMBER = st.integers(-(2**65), 2**65) | st.floats(allow_nan=False, allow_infinity=False) | st.none()
EDGES = st.builds(
    lambda bits, off, sign: sign * (2 ** (bits - 1)) + off,
    st.sampled_from(list(NUMBERS.values())),
    st.integers(-2, 2),
    st.sampled_from([1, -1]),
)


@given(st.lists(st.fixed_dictionaries(dict.fromkeys("bsilfd", ANY_NUMBER | EDGES)), min_size=1, max_size=5))
def test_numbers_are_the_same_one_by_one_and_together(values: list[dict[str, object]]) -> None:
    """Of each field alone, and of all values at a time: numbers are packed where none of them is null."""
    ddl = {"b": "tinyint", "s": "smallint", "i": "int", "l": "bigint", "f": "float", "d": "double"}
    for name, kind in ddl.items():
        encoded = [json.dumps({name: value[name]}).encode() for value in values]
        together = read(list(encoded), f"{name} {kind}")
        assert together == [row for one in encoded for row in read([one], f"{name} {kind}")]
        for row, value in zip(together, values, strict=True):
            assert row == {
                name: None if row[UNFIT] else _as_type(value[name], name),
                UNFIT: not _fits(value[name], name),
            }


def _fits(value: object, name: str) -> bool:
    if value is None or name == "d":
        return True
    if name == "f":
        return abs(float(value)) <= 3.4028234663852886e38  # type: ignore[arg-type]
    return isinstance(value, int) and -(2 ** (NUMBERS[name] - 1)) <= value < 2 ** (NUMBERS[name] - 1)


def _as_type(value: object, name: str) -> object:
    if name not in "fd" or value is None:
        return value
    return pa.scalar(float(value), pa.float32() if name == "f" else pa.float64()).as_py()  # type: ignore[arg-type]
