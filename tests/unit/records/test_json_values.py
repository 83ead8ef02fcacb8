"""Typed columns become JSON values, from which the same columns are read."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidRecordError
from sparklog.records.json_values import JsonWriter
from sparklog.schema.languages.ddl import UNFIT, SchemaField, SchemaType, parse_ddl
from sparklog.schema.typed_columns import arrow_type
from sparklog.schema.values.typed_values import ValueReader, value_reader

TIMES = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)).map(
    lambda time: time.replace(tzinfo=timezone.utc)
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "boolean": st.booleans(),
    "tinyint": st.integers(-(2**7), 2**7 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "date": st.dates(),
    "timestamp": TIMES,
    "binary": st.binary(max_size=5),
    "decimal(38,0)": st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    "decimal(9,9)": st.integers(-(10**9) + 1, 10**9 - 1).map(lambda number: Decimal(number).scaleb(-9)),
}
"""Values of each primitive type."""


def fields(depth: int) -> st.SearchStrategy[tuple[SchemaField, ...]]:
    """Return random fields f0, f1, …, of types nested up to ``depth`` deep."""
    primitive = st.sampled_from([parse_ddl(f"f {text}")[0].type for text in VALUES])
    kinds = primitive
    if depth:
        element = kind_of(depth - 1)
        lists = st.sampled_from(["array", "map"]).flatmap(
            lambda name: element.map(lambda kind: SchemaType(name, element=kind))
        )
        structs = fields(depth - 1).map(lambda members: SchemaType("struct", fields=members))
        kinds = st.one_of(primitive, lists, structs)
    member = st.tuples(kinds, st.booleans())
    return st.lists(member, min_size=1, max_size=3).map(
        lambda members: tuple(SchemaField(f"f{n}", kind, required) for n, (kind, required) in enumerate(members))
    )


def kind_of(depth: int) -> st.SearchStrategy[SchemaType]:
    return fields(depth).map(lambda members: members[0].type)


def rows_of(members: tuple[SchemaField, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {field.name: value_of(field.type) if field.required else st.none() | value_of(field.type) for field in members}
    )


def value_of(kind: SchemaType) -> st.SearchStrategy[Any]:
    if kind.name == "struct":
        return rows_of(kind.fields)
    if kind.element is not None:
        items = st.none() | value_of(kind.element)
        if kind.name == "array":
            return st.lists(items, max_size=3)
        return st.dictionaries(VALUES["string"], items, max_size=3).map(lambda entries: list(entries.items()))
    return VALUES[str(kind)]


@given(st.data())
def test_rows_are_read_back_from_their_values(data: st.DataObject) -> None:
    schema = data.draw(fields(2))
    rows = data.draw(st.lists(rows_of(schema), min_size=1, max_size=4))
    columns = {field.name: pa.array([row[field.name] for row in rows], arrow_type(field.type)) for field in schema}
    cut = data.draw(st.integers(0, len(rows) - 1))
    values = JsonWriter(schema).values({name: array.slice(cut) for name, array in columns.items()}, len(rows) - cut)
    read = ValueReader(schema).columns(values)
    assert not any(read.pop(UNFIT).to_pylist())
    for name, array in read.items():
        assert array.equals(columns[name].slice(cut)), (array.to_pylist(), values.to_pylist())


def write(ddl: str, **columns: pa.Array) -> list[bytes]:
    rows = len(next(iter(columns.values())))
    written: list[bytes] = JsonWriter(parse_ddl(ddl)).values(columns, rows).to_pylist()
    return written


def test_fields_that_are_null_or_missing_are_left_out() -> None:
    assert write("a string, b int, c int", a=pa.array(["x", None]), c=pa.array([None, None], pa.int32())) == [
        b'{"a":"x"}',
        b"{}",
    ]


def test_values_are_json_that_other_readers_take() -> None:
    columns = {
        "text": pa.array(['"\\\n\x00é\U0001f600']),
        "number": pa.array([0.1], pa.float32()),
        "money": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
        "day": pa.array([date(2026, 11, 1)]),
        "time": pa.array([datetime(2026, 11, 1, 9, 30, tzinfo=timezone.utc)], pa.timestamp("us", "UTC")),
        "tags": pa.array([[("a", 1), ("b", None)]], pa.map_(pa.string(), pa.int32())),
        "raw": pa.array([b"\xff"]),
    }
    ddl = "text string, number float, money decimal(9,2), day date, time timestamp, tags map<string,int>, raw binary"
    assert json.loads(write(ddl, **columns)[0]) == {
        "text": '"\\\n\x00é\U0001f600', "number": 0.1, "money": 1.5, "day": "2026-11-01",
        "time": "2026-11-01T09:30:00.000000Z", "tags": {"a": 1, "b": None}, "raw": "/w==",
    }  # fmt: skip


def test_columns_of_smaller_types_and_of_names_in_another_case_are_taken() -> None:
    assert write("a bigint, b double, c struct<d: int>", A=pa.array([1], pa.int8()), B=pa.array([0.1], pa.float32()),
                 C=pa.array([{"D": 5}])) == [b'{"a":1,"b":0.10000000149011612,"c":{"d":5}}']  # fmt: skip


@pytest.mark.parametrize(
    ("ddl", "array", "reason"),
    [
        ("a double", pa.array([1.0, float("nan")]), "field 'a' cannot be written: JSON has no NaN"),
        ("a array<float>", pa.array([[float("inf")]], pa.list_(pa.float32())), "field 'a.element' cannot"),
        ("a int NOT NULL", pa.array([1, None], pa.int32()), "field 'a' cannot be written: it is NOT NULL"),
        ("a struct<b: int NOT NULL>", pa.array([{"b": 1}, {"b": None}]), "field 'a.b' cannot be written: it is NOT"),
        ("a struct<b: int NOT NULL>", pa.array([{"c": 1}]), "field 'a.b' cannot be written: it is NOT NULL"),
        ("b int NOT NULL", pa.array([1]), "field 'b' cannot be written: it is NOT NULL"),
        ("a tinyint", pa.array([300]), "field 'a' cannot be written: it cannot be read as tinyint"),
        ("a date", pa.array([-(2**30)], pa.int32()).cast(pa.date32()), "a date is outside of the years 1 to 9999"),
        ("a timestamp", pa.array([2**62]).cast(pa.timestamp("us", "UTC")), "a timestamp is outside of the years"),
        ("a string", pa.array([b"\xff"]).view(pa.string()), "field 'a' cannot be written: it cannot be read as string"),
    ],
)
def test_what_json_or_the_schema_cannot_hold_is_refused_with_its_field(ddl: str, array: pa.Array, reason: str) -> None:
    with pytest.raises(InvalidRecordError, match=reason):
        write(ddl, a=array)


def test_a_null_struct_may_lack_its_required_fields() -> None:
    assert write("a struct<b: int NOT NULL>", a=pa.array([None, {"b": 1}])) == [b"{}", b'{"a":{"b":1}}']


def test_a_value_that_is_too_large_to_be_read_is_refused() -> None:
    members = ", ".join(f"m{number}: bigint" for number in range(500))
    schema = parse_ddl(f"a array<struct<{members}>>")
    array = pa.array([[{}] * 20_000], pa.list_(pa.struct([("m0", pa.int64())])))
    with pytest.raises(InvalidRecordError, match="row 0 of a batch cannot be read from JSON"):
        JsonWriter(schema).values({"a": array}, 1)
    assert value_reader(schema).find_misfit(b'{"a":[{}]}') == ""


def test_no_rows_are_no_values() -> None:
    assert write("a int NOT NULL, b array<string>", b=pa.array([], pa.list_(pa.string()))) == []


def test_the_bounds_of_float_are_read_back() -> None:
    floats = pa.array([3.4028234663852886e38, -3.4028234663852886e38, 1e-45, -0.0, 16777217.0], pa.float32())
    read = value_reader(parse_ddl("a float")).columns(JsonWriter(parse_ddl("a float")).values({"a": floats}, 5))["a"]
    assert str(read.to_pylist()) == str(floats.to_pylist())
