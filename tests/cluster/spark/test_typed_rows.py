"""Rows with the columns of a topic's schema are written as JSON; those that do not fit it are refused beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from sparklog.coordinator import open_cluster
from sparklog.errors import InvalidRecordError
from sparklog.spark.options import sink_options
from sparklog.spark.sink import typed_rows
from sparklog.spark.sink.writer import SparklogWriter
from sparklog.spark.versions.api import arrow_schema

from .helpers import across, batches, cluster, read_rows, values, write_job, write_rows

ORDERS = {"value.format": "json", "value.schema": "customer string NOT NULL, amount double, id bigint"}
TYPED = "customer string, amount double, id bigint"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    coordinator = cluster(tmp_path / "log", plain=1)
    coordinator.create_topic("orders", 2, configs=ORDERS)
    return tmp_path / "log"


def test_the_value_is_made_of_the_columns_of_the_schema(log: Path) -> None:
    rows: list[dict[str, object]] = [
        {"key": "k1", "customer": "a", "amount": 1.5, "id": None, "partition": 1},
        {"key": None, "customer": "b", "amount": None, "id": 7, "partition": 0},
    ]
    write_rows(log, f"key string, {TYPED}, partition int", rows, topic="orders")
    read = read_rows(log, "key binary, partition int, value binary", subscribe="orders")
    assert sorted((row["partition"], row["key"], row["value"]) for row in read) == [
        (0, None, b'{"customer":"b","id":7}'),
        (1, b"k1", b'{"customer":"a","amount":1.5}'),
    ]


def test_columns_of_a_typed_key_are_not_those_of_the_value(log: Path) -> None:
    keyed = {**ORDERS, "key.format": "string", "value.schema": "customer string"}
    open_cluster(str(log)).create_topic("keyed", 1, configs=keyed)
    write_rows(log, "key string, customer string", [{"key": "k", "customer": "a"}], topic="keyed")
    assert values(log, subscribe="keyed") == [b'{"customer":"a"}']
    with pytest.raises(InvalidRecordError, match="column key_string is not in it"):
        writer(log, {"customer": StringType(), "key_string": StringType()}, "keyed")


EVENTS = {"value.format": "json", "value.schema": "timestamp timestamp, value double, key string, offset bigint, a int"}


def test_fields_named_like_columns_of_a_record_are_given_with_their_prefix(log: Path) -> None:
    open_cluster(str(log)).create_topic("events", 1, configs=EVENTS)
    columns = "key string, VALUE_Value double, value_key string, value_offset bigint, a int"
    row: dict[str, object] = {"key": "k", "VALUE_Value": 1.5, "value_key": "of the value", "value_offset": 7, "a": 1}
    write_rows(log, columns, [row], topic="events")
    read = read_rows(log, "key binary, value binary", subscribe="events")
    assert [tuple(row.values()) for row in read] == [(b"k", b'{"value":1.5,"key":"of the value","offset":7,"a":1}')]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"a": IntegerType(), "timestamp": TimestampType()}, "rename the column to value_timestamp, or add a column"),
        ({"a": IntegerType(), "Key": StringType()}, "'key', whose column is value_key: rename the column"),
        ({"timestamp": TimestampType()}, "rename the column to value_timestamp"),
        ({"value": DoubleType()}, "rename the column to value_value"),
        ({"value": StringType(), "a": IntegerType()}, "rename the column to value_value"),
        ({"a": IntegerType(), "offset": LongType()}, "the field offset is the column value_offset; rename it"),
    ],
)
def test_a_column_that_could_be_the_records_or_a_field_of_its_value_is_refused(
    log: Path, columns: dict[str, DataType], reason: str
) -> None:
    open_cluster(str(log)).create_topic("events", 1, configs=EVENTS)
    with pytest.raises(InvalidRecordError, match=reason):
        writer(log, columns, "events")


def test_values_with_a_key_are_written_as_they_are_to_a_topic_with_a_field_value(log: Path) -> None:
    open_cluster(str(log)).create_topic("events", 1, configs=EVENTS)
    write_rows(log, "key string, value string", [{"key": "k", "value": "no json"}], topic="events")
    both: dict[str, object] = {"value": "a copy", "value_value": 1.0, "a": 1}
    write_rows(log, "value string, value_value double, a int", [both], topic="events")
    assert values(log, subscribe="events") == [b"no json", b"a copy"]


def test_values_of_another_format_are_not_made_of_columns(log: Path) -> None:
    open_cluster(str(log)).create_topic("texts", 1, configs={"value.format": "string"})
    with pytest.raises(InvalidRecordError, match=r"only as JSON, and value\.format of topic 'texts' is string"):
        writer(log, {"string": StringType()}, "texts")


def test_columns_may_be_missing_of_a_smaller_type_and_in_another_case(log: Path) -> None:
    write_rows(log, "ID int, Customer string", [{"ID": 1, "Customer": "a"}], topic="orders", includeTimestamp="false")
    assert values(log, subscribe="orders") == [b'{"customer":"a","id":1}']


def test_large_batches_are_written_in_parts(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_rows, "MAX_ROW_BYTES", 10)
    rows = [{"customer": str(number)} for number in range(5)]
    write_rows(log, "customer string", rows, topic="orders")
    assert sorted(values(log, subscribe="orders")) == [b'{"customer":"%d"}' % number for number in range(5)]


def test_rows_with_a_value_are_written_as_they_are(log: Path) -> None:
    write_rows(log, "value string, customer string", [{"value": "no json", "customer": "a"}], topic="orders")
    assert values(log, subscribe="orders") == [b"no json"]


def test_a_null_in_a_required_column_fails_the_write(log: Path) -> None:
    with pytest.raises(InvalidRecordError, match="field 'customer' cannot be written: it is NOT NULL"):
        write_job(log, TYPED, [batches(TYPED, [{"customer": "a"}, {"amount": 1.0}])], topic="orders")
    assert values(log, subscribe="orders") == []


def writer(log: Path, columns: Mapping[str, DataType], topic: str = "orders") -> SparklogWriter:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])
    return SparklogWriter(sink_options({"path": str(log), "topic": topic}), schema)


CUSTOMER: dict[str, DataType] = {"customer": StringType()}


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({}, r"neither .* of topic 'orders'; their columns are none \(schema: customer string NOT NULL, amount double"),
        ({**CUSTOMER, "amout": DoubleType()}, "column amout is not in it; did you mean amount[?] "),
        ({"key": StringType()}, "neither a column value nor .*; their columns are key"),
        ({**CUSTOMER, "offset": LongType()}, "column offset is not in it; leave it out, or add it to value.schema"),
        ({"amount": DoubleType()}, "customer is NOT NULL, and the rows do not have it"),
        ({**CUSTOMER, "amount": StringType()}, "amount is string in the rows and double in the schema; cast it"),
        ({**CUSTOMER, "id": TimestampNTZType()}, "id is timestamp_ntz in the rows and bigint in the schema"),
        ({**CUSTOMER, "partition": StringType()}, "column partition must be int"),
    ],
)
def test_rows_that_do_not_fit_the_schema_are_refused_before_any_is_written(
    log: Path, columns: dict[str, DataType], reason: str
) -> None:
    with pytest.raises(InvalidRecordError, match=reason):
        writer(log, columns)


def test_rows_of_a_topic_without_a_schema_need_a_value(log: Path) -> None:
    reason = r"the rows have no column value; their columns are customer\. Give them one, or"
    with pytest.raises(InvalidRecordError, match=f"{reason} let topic 'plain' have value.format=json"):
        writer(log, CUSTOMER, "plain")
    with pytest.raises(InvalidRecordError, match=f"{reason} create topic 'plian', which does not exist"):
        writer(log, CUSTOMER, "plian")
    with pytest.raises(InvalidRecordError, match=f"{reason} name with option topic a topic"):
        writer(log, CUSTOMER, "")


NESTED = "c struct<a: int, b: array<tinyint>> NOT NULL, m map<string, decimal(9,2)>"


@pytest.mark.parametrize(
    ("column", "kind", "reason"),
    [
        ("c", StructType([StructField("A", ByteType()), StructField("b", ArrayType(ByteType()))]), ""),
        ("c", StructType([StructField("a", NullType())]), ""),
        ("c", StructType([StructField("x", ByteType())]), "field c.x is not in it"),
        ("c", StructType([StructField("a", LongType())]), "c.a is bigint in the rows and int in the schema"),
        ("c", StructType([StructField("b", ArrayType(IntegerType()))]), "c.b.element is int in the rows and tinyint"),
        ("c", StructType([StructField("a", ByteType()), StructField("A", ByteType())]), "two names in c differ only"),
        ("c", StringType(), "c is string in the rows and struct<a:int,b:array<tinyint>> in the schema"),
        ("m", MapType(StringType(), DecimalType(5, 1)), ""),
        ("m", MapType(StringType(), DecimalType(9, 1)), r"m.value is decimal\(9,1\) in the rows and decimal\(9,2\)"),
        ("m", MapType(IntegerType(), DecimalType(5, 1)), "m is map<int,decimal"),
    ],
)
def test_nested_columns_fit_by_name_and_type(log: Path, column: str, kind: DataType, reason: str) -> None:
    cluster_topic(log, NESTED)
    columns: dict[str, DataType] = {"c": StructType([StructField("a", IntegerType())]), column: kind}
    if reason:
        with pytest.raises(InvalidRecordError, match=reason):
            writer(log, columns, "nested")
    else:
        assert writer(log, columns, "nested").typed is not None


def cluster_topic(log: Path, schema: str) -> None:
    open_cluster(str(log)).create_topic("nested", 1, configs={"value.format": "json", "value.schema": schema})


def test_a_nested_row_is_written_by_the_names_of_the_schema(log: Path) -> None:
    cluster_topic(log, NESTED)
    kind = StructType([StructField("B", ArrayType(ByteType())), StructField("a", IntegerType())])
    job = writer(log, {"c": kind}, "nested")
    schema = arrow_schema(StructType([StructField("c", kind)]))
    batch = pa.RecordBatch.from_pylist([{"c": {"B": [1, None], "a": 2}}], schema=schema)
    message = across(across(job).write(iter([batch])))
    across(job).commit([message])
    assert values(log, subscribe="nested") == [b'{"c":{"a":2,"b":[1,null]}}']
