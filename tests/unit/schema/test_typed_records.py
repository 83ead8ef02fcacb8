"""Records are read into typed columns by the formats and schemas of their key and their value."""

from __future__ import annotations

import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.config.topic_configs import TopicConfig
from sparklog.errors import InvalidRecordError, RecordListTooLargeError
from sparklog.format.schema import record_schema
from sparklog.records.record_checks import check_schema
from sparklog.records.row_checks import check_rows
from sparklog.records.topic_rules import TopicRules
from sparklog.schema.languages.record_schema import PartSchema, RecordSchema
from sparklog.schema.typed_columns import typed_fields
from sparklog.schema.values.typed_records import TypedRecordReader, record_reader

AVRO = json.dumps({"type": "record", "name": "K", "fields": [{"name": "id", "type": "int"}]})
JSON, TEXT = PartSchema("json", ("a int",)), PartSchema("string")


def read(schema: RecordSchema, keys: list[bytes | None], values: list[bytes | None]) -> list[dict[str, object]]:
    columns = record_reader(schema).columns(pa.array(keys, pa.binary()), pa.array(values, pa.binary()))
    assert [(name, array.type) for name, array in columns.items()] == [
        (field.name, field.type) for field in typed_fields(schema.columns)
    ]
    for array in columns.values():
        array.validate(full=True)
    return pa.table(columns).to_pylist()


def test_keys_and_values_are_read_each_by_its_own_format() -> None:
    schema = RecordSchema(JSON, PartSchema("avro", (AVRO,)))
    assert read(schema, [b"\x02", b"", None, b"\x04"], [b'{"a":5}', b"{}", b"{}", b"no"]) == [
        {"a": 5, "_unfit": False, "key_id": 1, "_key_unfit": False},
        {"a": None, "_unfit": False, "key_id": None, "_key_unfit": True},
        {"a": None, "_unfit": False, "key_id": None, "_key_unfit": False},
        {"a": None, "_unfit": True, "key_id": 2, "_key_unfit": False},
    ]
    assert record_reader(pickle.loads(pickle.dumps(schema))) is record_reader(schema)


@pytest.mark.parametrize(
    "others", [[None] * 5, [b"{}"] * 9, [b""] * 3, [b'{"a":7}'] * 2], ids=["tombstones", "short", "empty", "long"]
)
@pytest.mark.parametrize("framed", [b"\0", b"\0\0\0\0\1", b'\0\0\0\0\1{"a":1}'])
def test_a_json_value_that_begins_with_zero_is_read_among_values_of_any_length(
    framed: bytes, others: list[bytes | None]
) -> None:
    schema = RecordSchema(JSON)
    rows = read(schema, [None] * (len(others) + 1), [framed, *others])
    assert rows[0] == {"a": 1, "_unfit": False} if len(framed) > 5 else {"a": None, "_unfit": True}
    assert rows[1:] == read(schema, [None] * len(others), others)


def test_a_topic_without_a_format_has_no_columns() -> None:
    assert TypedRecordReader(RecordSchema()).columns(pa.nulls(1, pa.binary()), pa.nulls(1, pa.binary())) == {}
    assert TopicConfig.resolve({}).record_schema.columns == ()


def test_text_is_a_column_and_other_bytes_are_unfit() -> None:
    keys = ["ü".encode(), b"\xff", None, b"", b"\xed\xa0\x80"]
    rows = read(RecordSchema(TEXT, TEXT), keys, keys[::-1])
    assert [(row["key_string"], row["_key_unfit"]) for row in rows] == [
        ("ü", False),
        (None, True),
        (None, False),
        ("", False),
        (None, True),
    ]
    assert [row["value_string"] for row in rows] == [row["key_string"] for row in rows[::-1]]
    assert [row["_unfit"] for row in rows] == [row["_key_unfit"] for row in rows[::-1]]


@given(st.lists(st.none() | st.binary(max_size=6), max_size=6))
def test_text_fits_exactly_if_python_decodes_it(values: list[bytes | None]) -> None:
    reader = record_reader(RecordSchema(TEXT))
    rows = read(RecordSchema(TEXT), [None] * len(values), values)
    for value, row in zip(values, rows, strict=True):
        misfit = reader.find_misfit(None, value)
        assert row["_unfit"] == (misfit is not None)
        assert row["value_string"] == (None if misfit or value is None else value.decode())


def test_text_that_takes_more_than_it_may_is_read_fewer_at_a_time() -> None:
    values = pa.array([b"x" * 100] * 10)
    with pytest.raises(RecordListTooLargeError, match="read fewer"):
        record_reader(RecordSchema(TEXT, TEXT)).columns(values, values, max_bytes=1500)
    assert record_reader(RecordSchema(TEXT, TEXT)).columns(values, values, max_bytes=3000)


def test_json_with_the_prefix_of_a_registry_is_read_as_without() -> None:
    prefix = b"\0\0\0\0\x07"
    values = [prefix + b'{"a":1}', b'{"a":2}', prefix, b"\0", prefix + prefix + b"{}", None, b"\1\0\0\0\7{}"]
    rows = read(RecordSchema(JSON), [None] * len(values), values)
    assert [row["a"] for row in rows] == [1, 2, None, None, None, None, None]
    assert [row["_unfit"] for row in rows] == [False, False, True, True, True, False, True]
    reader = record_reader(RecordSchema(JSON))
    assert [reader.find_misfit(None, value) is not None for value in values] == [row["_unfit"] for row in rows]


@pytest.mark.parametrize("framed", [b"\0", b"\0\0\0\0\1", b'\0\0\0\0\1{"a":1}'])
def test_values_beside_one_with_a_prefix_may_be_shorter_than_it(framed: bytes) -> None:
    values = [framed, *[b"{}", None, b""] * 20]
    rows = read(RecordSchema(JSON), [None] * len(values), values)
    assert [row["_unfit"] for row in rows] == [len(framed) < 6, *[False, False, True] * 20]


def test_records_of_which_nothing_fits_are_null_in_all_columns() -> None:
    schema = RecordSchema(JSON, TEXT)
    columns = record_reader(schema).unfit_columns(2)
    assert list(columns) == [field.name for field in schema.columns]
    assert [columns[name].to_pylist() for name in ("_unfit", "_key_unfit")] == [[True, True]] * 2
    assert columns["a"].null_count == columns["key_string"].null_count == 2


def rules(**configs: str) -> TopicRules:
    config = TopicConfig.resolve({name.replace("_", "."): text for name, text in configs.items()})
    return TopicRules.resolve("t", config, "none", None)


BOTH = {"value_format": "json", "value_schema": "a int", "key_format": "avro", "key_schema": AVRO}


@pytest.mark.parametrize(
    ("configs", "index", "message"),
    [
        ({}, -1, ""),
        ({"value_schema_validation": "true"}, 2, r"the value of a record for topic 't' .*`\$\.a`; correct the value"),
        ({"key_schema_validation": "true"}, 1, r"the key of a record for topic 't' .*`\$\.id`; correct the key, or"),
        ({"key_schema_validation": "true", "value_schema_validation": "true"}, 1, r"set key\.schema\.validation=false"),
    ],
)
def test_validation_refuses_the_part_that_it_is_set_for(configs: dict[str, str], index: int, message: str) -> None:
    chosen = rules(**BOTH, **configs)
    keys, values = [b"\x02", b"\x80", None], [b'{"a":1}', b"{}", b'{"a":"x"}']
    columns = [pa.array(keys, pa.binary()), pa.array(values, pa.binary()), pa.array([0] * 3, pa.timestamp("us", "UTC"))]
    rows = pa.RecordBatch.from_arrays(columns, schema=record_schema(("key", "value", "timestamp")))
    if index < 0:
        assert chosen.schema is None
        return check_rows(rows, chosen, now_ms=0)
    with pytest.raises(InvalidRecordError, match=message) as refused:
        check_rows(rows, chosen, now_ms=0)
    assert refused.value.index == index
    check_rows(rows.slice(0, 1), chosen, now_ms=0)
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        if number == index:
            with pytest.raises(InvalidRecordError, match=message):
                check_schema(key, value, chosen)
        elif number < index:
            check_schema(key, value, chosen)


def test_rows_without_keys_fit_the_schema_of_the_key() -> None:
    columns = [pa.array([b'{"a":1}']), pa.array([0], pa.timestamp("us", "UTC"))]
    rows = pa.RecordBatch.from_arrays(columns, schema=record_schema(("value", "timestamp")))
    check_rows(rows, rules(**BOTH, key_schema_validation="true"), now_ms=0)
