"""Schemas in Avro and JSON Schema: which columns they state, and what is refused with its path."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.config.topic_configs import TopicConfig, validate_topic_configs
from sparklog.errors import InvalidConfigurationError
from sparklog.schema.languages import schema_json
from sparklog.schema.languages.ddl import InvalidSchemaError, format_ddl
from sparklog.schema.languages.record_schema import PartSchema, RecordSchema, find_part_misreading, parse_schema


def ddl(schema: object) -> str:
    return format_ddl(parse_schema(json.dumps(schema)).fields)


def avro(kind: object) -> dict[str, object]:
    return {"type": "record", "name": "Order", "fields": [{"name": "a", "type": kind}]}


def logical(name: str, kind: object, /, **more: object) -> dict[str, object]:
    return {"type": kind, "logicalType": name, **more}


POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
FIXED = {"type": "fixed", "name": "F", "size": 16}


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("boolean", "boolean NOT NULL"),
        ("int", "int NOT NULL"),
        ("long", "bigint NOT NULL"),
        ("float", "float NOT NULL"),
        ("double", "double NOT NULL"),
        ("string", "string NOT NULL"),
        ("bytes", "binary NOT NULL"),
        ({"type": "string"}, "string NOT NULL"),
        ({"type": {"type": "string", "avro.java.string": "String"}}, "string NOT NULL"),
        (["null", "string"], "string"),
        (["string", {"type": "null"}], "string"),
        (["string"], "string NOT NULL"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "string NOT NULL"),
        (FIXED, "binary NOT NULL"),
        ({"type": "array", "items": ["null", "int"]}, "array<int> NOT NULL"),
        ({"type": "map", "values": POINT}, "map<string,struct<x:int NOT NULL>> NOT NULL"),
        (["null", POINT], "struct<x:int NOT NULL>"),
        (logical("date", "int"), "date NOT NULL"),
        (logical("timestamp-millis", "long"), "timestamp NOT NULL"),
        (logical("timestamp-micros", "long"), "timestamp NOT NULL"),
        (logical("uuid", "string"), "string NOT NULL"),
        ({**FIXED, "logicalType": "uuid"}, "string NOT NULL"),
        (logical("decimal", "bytes", precision=9, scale=2), "decimal(9,2) NOT NULL"),
        ({**FIXED, "logicalType": "decimal", "precision": 38}, "decimal(38,0) NOT NULL"),
    ],
)
def test_an_avro_type_is_a_column(kind: object, column: str) -> None:
    assert ddl(avro(kind)) == f"a {column}"


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("null", "null alone"),
        (["null"], "union of null and one other"),
        (["null", "int", "string"], r"union of null and one other type can be a column - at `\$\.a`"),
        ({"type": "array", "items": ["int", "string"]}, r"at `\$\.a\[\]`"),
        ({"type": "map", "values": "null"}, "null alone"),
        ("nothing", "unknown type 'nothing'"),
        ("strnig", "unknown type 'strnig'; did you mean string[?]"),
        ("array", "the type is written as an object"),
        (5, "invalid type 5"),
        ({"type": "array"}, "its type is missing"),
        ({"type": "record", "name": "Empty", "fields": []}, "without fields"),
        ({"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}, "'R' contains itself"),
        ("Order", "'Order' contains itself"),
        ({"type": "record", "name": "Order", "fields": [{"name": "r", "type": "int"}]}, "defined twice"),
        ({"type": "record", "name": "R", "fields": [{"name": "a-b", "type": "int"}]}, "invalid name 'a-b'"),
        ({"type": "record", "name": "R", "fields": [{"name": n, "type": "int"} for n in "aA"]}, "occurs twice"),
        ({"type": "record", "name": "R", "fields": [5]}, "has no name"),
        ({"type": "record", "fields": []}, "has no name"),
        ({"type": "enum", "name": "E", "symbols": []}, "list of symbols"),
        ({"type": "fixed", "name": "F", "size": 0}, "1 to"),
        ({"type": "fixed", "name": "F", "size": True}, "1 to"),
        (logical("time-millis", "int"), "logical type 'time-millis' of int"),
        (logical("timestamp-nanos", "long"), "timestamp-nanos"),
        (logical("local-timestamp-micros", "long"), "local-timestamp-micros"),
        (logical("duration", "fixed", name="D", size=12), "duration"),
        (logical("uuid", "fixed", name="D", size=12), "uuid"),
        (logical("decimal", "int", precision=4), "'decimal' of int"),
        (logical("decimal", "bytes", precision=39), "out of range"),
        (logical("decimal", "bytes", precision=4, scale=5), "out of range"),
        (logical("decimal", "bytes", precision=4, scale=-1), "out of range"),
    ],
)
def test_what_avro_states_and_no_column_can_hold_is_refused_with_its_path(kind: object, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        ddl(avro(kind))


def test_names_of_avro_types_are_found_in_their_namespace() -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "i", "type": "int"}]}
    fields = [
        {"name": "first", "type": inner},
        {"name": "again", "type": ["null", "Inner"]},
        {"name": "full", "type": {"type": "array", "items": "shop.Inner"}},
    ]
    outer = {"type": "record", "name": "Outer", "namespace": "shop", "fields": fields}
    column = "struct<i:int NOT NULL>"
    assert ddl(outer) == f"first {column} NOT NULL, again {column}, full array<{column}> NOT NULL"


def deep(kind: object, levels: int, wrap: str) -> object:
    for _ in range(levels):
        kind = {"type": "array", "items": kind} if wrap == "items" else {"type": kind}
    return kind


@pytest.mark.parametrize("wrap", ["items", "type"])
def test_avro_schemas_that_are_too_deep_or_too_wide_are_refused(wrap: str) -> None:
    with pytest.raises(InvalidSchemaError, match="deeper"):
        ddl(avro(deep("int", 100, wrap)))


def doubling(levels: int) -> dict[str, Any]:
    """A record of ``levels`` levels, of which each has the next one twice."""
    record: dict[str, Any] = avro("int")
    for level in range(levels):
        fields = [{"name": "l", "type": {**record, "name": f"R{level}"}}, {"name": "r", "type": f"R{level}"}]
        record = {"type": "record", "name": "R", "fields": fields}
    return record


def test_an_avro_schema_cannot_grow_by_its_names() -> None:
    assert ddl(doubling(1)) == "l struct<a:int NOT NULL> NOT NULL, r struct<a:int NOT NULL> NOT NULL"
    assert len(parse_schema(json.dumps(doubling(8))).fields) == 2
    with pytest.raises(InvalidSchemaError, match="1000 fields"):
        ddl(doubling(9))
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": deep("int", 9, "items")}]}
    fields = [{"name": "first", "type": inner}, {"name": "again", "type": deep("Inner", 9, "items")}]
    with pytest.raises(InvalidSchemaError, match="deeper"):
        ddl({"type": "record", "name": "R", "fields": fields})


def json_schema(part: object, **more: object) -> dict[str, object]:
    return {"type": "object", "properties": {"a": part}, **more}


@pytest.mark.parametrize(
    ("part", "column"),
    [
        ({"type": "string", "minLength": 3, "pattern": "x"}, "string"),
        ({"type": "integer", "minimum": 0}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "email"}, "string"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"type": ["null", "integer"]}, "bigint"),
        ({"anyOf": [{"type": "null"}, {"type": "number"}]}, "double"),
        ({"oneOf": [{"$ref": "#/$defs/point"}, {"type": "null"}]}, "struct<x:bigint>"),
        ({"enum": ["new", "old", None]}, "string"),
        ({"const": "order"}, "string"),
        ({"$ref": "#/$defs/point"}, "struct<x:bigint>"),
        ({"$ref": "#/$defs/a~1b%20c"}, "double"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 3}, "array<string>"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string,bigint>"),
        ({"properties": {"x": {"type": "integer"}}, "additionalProperties": False}, "struct<x:bigint>"),
    ],
)
def test_a_part_of_a_json_schema_is_a_column(part: object, column: str) -> None:
    point = {"type": "object", "properties": {"x": {"type": "integer"}}}
    definitions = {"point": point, "a/b c": {"type": "number"}}
    assert ddl(json_schema(part, **{"$defs": definitions})) == f"a {column}"


def test_a_property_is_required_if_it_is_listed_and_cannot_be_null() -> None:
    properties = {name: {"type": kind} for name, kind in (("a", "string"), ("b", ["null", "string"]), ("c", "string"))}
    schema = {"type": "object", "properties": properties, "required": ["a", "b"]}
    assert ddl(schema) == "a string NOT NULL, b string, c string"


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ({}, r"value of any type cannot be a column; give it a type - at `\$\.a`"),
        (True, "any type"),
        ({"type": ["string", "integer"]}, "only one type"),
        ({"type": "null"}, "'null' cannot be a column"),
        ({"type": {}}, "{} cannot be a column"),
        ({"type": [{}]}, "{} cannot be a column"),
        ({"type": "strnig"}, "'strnig' cannot be a column; choose from boolean, integer, "),
        ({"type": "array"}, "one schema of its items"),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}}, "one schema"),
        ({"type": "array", "items": {}}, r"any type cannot be a column; give it a type - at `\$\.a\[\]`"),
        ({"type": "object"}, "without properties"),
        ({"type": "object", "patternProperties": {}}, "without properties"),
        ({"type": "object", "properties": {"a-b": {"type": "string"}}}, "invalid name 'a-b'"),
        ({"type": "object", "properties": {"b": {"type": "string"}, "B": {"type": "string"}}}, "occurs twice"),
        ({"type": "object", "properties": {"b": {"type": "string"}}, "required": "b"}, "required is not a list"),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, "only anyOf of null and one other"),
        ({"allOf": [{"type": "string"}]}, r"allOf is not supported; give it one type - at `\$\.a`"),
        ({"enum": ["a", 1]}, "several types"),
        ({"enum": [1, 2]}, "an enum or const that is not of texts needs a type"),
        ({"$ref": "https://example.com/x"}, "not to a part of this schema"),
        ({"$ref": "#/$defs/none"}, "there is no #/.* in the schema"),
        ({"$ref": "#"}, "contains itself"),
        ({"$ref": "#/properties/a"}, "contains itself"),
    ],
)
def test_what_a_json_schema_states_and_no_column_can_hold_is_refused_with_its_path(part: object, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        ddl(json_schema(part))


def test_a_json_schema_cannot_grow_by_its_references() -> None:
    definitions: dict[str, object] = {"d0": {"type": "string"}}
    for level in range(1, 14):
        part = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"type": "object", "properties": {"l": part, "r": part}}
    with pytest.raises(InvalidSchemaError, match="1000 fields"):
        ddl(json_schema({"$ref": "#/$defs/d13"}, **{"$defs": definitions}))
    chain: dict[str, object] = {f"d{number}": {"$ref": f"#/$defs/d{number + 1}"} for number in range(900)}
    chain["d900"] = {"type": "string"}
    wide = {f"p{number}": {"$ref": "#/$defs/d0"} for number in range(3)}
    with pytest.raises(InvalidSchemaError, match="100 references"):
        ddl({"type": "object", "properties": wide, "$defs": chain})
    del chain["d90"]
    chain["d90"] = {"type": "string"}
    wide = {f"p{number}": {"$ref": "#/$defs/d0"} for number in range(900)}
    with pytest.raises(InvalidSchemaError, match="20000 parts"):
        ddl({"type": "object", "properties": wide, "$defs": chain})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ('["null"]', "not a JSON object"),
        ('"string"', "not a JSON object"),
        ('{"type":"object","properties":{"a":{"type":"number","minimum":NaN}}}', "NaN is not a JSON number"),
        ('{"type":"object","properties":{"a":{"type":"number","minimum":1e999}}}', "not JSON"),
        ('{"type":"object","properties":{"a":{"type":"string","title":"\\ud800"}}}', "not JSON"),
        ('{"type":"string"}', "object with properties"),
        ('{"type":"enum","name":"E","symbols":["A"]}', "cannot be a column"),
        ('{"a":' * 5000, "not JSON"),
        ("a int, " * 20_000, "100,000"),
    ],
)
def test_other_texts_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        parse_schema(text)


JSON_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 40), st.sampled_from(["null", "int", "string", "R", "#/$defs/a"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "name",
                    "fields",
                    "items",
                    "values",
                    "size",
                    "symbols",
                    "logicalType",
                    "default",
                    "properties",
                    "required",
                    "$ref",
                    "$defs",
                    "anyOf",
                    "enum",
                    "additionalProperties",
                    "a",
                ]
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=12,
)


def enum(*symbols: str) -> dict[str, object]:
    return {"type": "enum", "name": "E", "symbols": symbols}


def order(**kinds: object) -> dict[str, object]:
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    return {"type": "record", "name": "Order", "fields": fields}


def misreading(before: object, after: object) -> str:
    return find_part_misreading(*(PartSchema("avro", (json.dumps(schema),)) for schema in (before, after)))


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (order(a="long", b="long"), order(b="long", a="long"), "another order - at `$`"),
        (order(a=POINT), avro(POINT), ""),
        (
            avro({"type": "array", "items": {**order(x="int", y="int"), "name": "Line"}}),
            avro({"type": "array", "items": {**order(y="int", x="int"), "name": "Line"}}),
            r"another order - at `$.a[]`",
        ),
        (avro(enum("A", "B")), avro(enum("B", "A")), "other numbers"),
        (avro(enum("A", "B")), avro(enum("A")), "other numbers"),
        (avro(enum("A")), avro("string"), "enum would be read as string - at `$.a`"),
        (
            avro(logical("timestamp-millis", "long")),
            avro(logical("timestamp-micros", "long")),
            "timestamp-millis long would be read as timestamp-micros long",
        ),
        (avro("bytes"), avro(FIXED), "bytes would be read as fixed 16"),
        (avro("long"), avro(["null", "long"]), "null would be another branch"),
        (avro(["null", "long"]), avro(["long", "null"]), "null would be another branch"),
        (avro("long"), avro(["long"]), "null would be another branch"),
    ],
)
def test_changes_by_which_values_in_avro_would_be_read_as_others_are_found(
    before: object, after: object, reason: str
) -> None:
    found = misreading(before, after)
    assert reason in found
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(
    "after",
    [
        order(a="long", b="double", c=enum("A", "B")),
        order(a="int", b="float", c=enum("A"), d=["null", "int"]),
        order(z="string", a="int", b="float", y="int", c=enum("A")),
    ],
)
def test_fields_symbols_and_wider_numbers_may_be_added_to_a_schema_in_avro(after: object) -> None:
    assert misreading(order(a="int", b="float", c=enum("A")), after) == ""


@pytest.mark.parametrize("kind", [{}, [], [{}], [[]], 1])
def test_a_type_that_is_no_text_is_refused(kind: object) -> None:
    for schema in ({"type": kind}, {"type": "object", "properties": {"a": {"type": kind}}}):
        with pytest.raises(InvalidSchemaError):
            parse_schema(json.dumps(schema))


@given(JSON_VALUES, st.sampled_from(["record", "object", None]))
def test_any_json_is_a_schema_or_refused_and_its_text_is_stable(value: Any, kind: str | None) -> None:
    if isinstance(value, dict) and kind:
        value["type"] = kind
    with suppress(InvalidSchemaError):
        parsed = parse_schema(json.dumps(value, indent=1))
        assert parse_schema(parsed.text) == parsed


def test_the_stored_text_is_the_compact_json_that_was_given() -> None:
    schema = json_schema({"type": "string", "title": "Größe", "minLength": 1}, title="T")
    found = validate_topic_configs({"value.format": "json", "value.schema": json.dumps(schema, indent=2)})
    assert found["value.schema"] == json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
    assert len(found["value.schema"]) < schema_json.MAX_SCHEMA_CHARACTERS


AVRO = json.dumps(avro("int"))
JSON_SCHEMA = json.dumps(json_schema({"type": "string"}))


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({"value.schema": AVRO}, r"value\.format is none"),
        ({"key.schema": "a int"}, r"key\.format is none"),
        ({"value.format": "string", "value.schema": "a int"}, "texts have no schema"),
        ({"value.format": "json", "value.schema": AVRO}, r"an Avro schema, but value\.format=json takes DDL or a JSON"),
        ({"value.format": "avro", "value.schema": JSON_SCHEMA}, r"JSON Schema, but value\.format=avro takes an Avro"),
        ({"key.format": "avro", "key.schema": "a int"}, r"key\.schema is DDL"),
        (
            {"key.format": "json", "key.schema.validation": "true"},
            r"key\.schema\.validation=true.*: set key\.schema\.$",
        ),
        (
            {"value.format": "json", "value.schema": "Timestamp date, value_timestamp int"},
            "'value_timestamp' of the value and the field 'Timestamp' of the value are both 'value_timestamp'",
        ),
        ({"value.keep": "false"}, r"value\.keep=false requires value\.format=json with a value\.schema"),
        ({"value.keep": "false", "value.format": "json", "value.schema": "a int"}, r"and history\.format=delta"),
        ({"value.keep": "false", "value.format": "string", "history.format": "delta"}, r"value\.keep=false requires"),
        (
            {"value.format": "json", "value.schema": "KEY_id int", "key.format": "json", "key.schema": "id int"},
            "'key_id' of the key has the name of the field 'KEY_id' of the value",
        ),
        (
            {"value.format": "json", "value.schema": "key_string int", "key.format": "string"},
            "'key_string' of the key has the name",
        ),
    ],
)
def test_configs_that_do_not_go_together_are_refused(configs: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=reason):
        validate_topic_configs(configs)


def test_fields_of_the_value_named_like_other_columns_have_columns_with_a_prefix() -> None:
    names = ["partition", "offset", "Timestamp", "key", "value", "headers", "topic", "timestampType"]
    names += ["_unfit", "_key_unfit", "_value_kept"]
    schemas = {
        "DDL": ", ".join(f"{name} int" for name in [*names, "partitions"]),
        "JSON Schema": json.dumps({"type": "object", "properties": {n: {"type": "integer"} for n in names}}),
        "Avro": json.dumps({"type": "record", "name": "r", "fields": [{"name": n, "type": "int"} for n in names]}),
    }
    for language, schema in schemas.items():
        format = "avro" if language == "Avro" else "json"
        configs = {"value.format": format, "value.schema": schema, "key.format": "json", "key.schema": "value int"}
        columns = TopicConfig.resolve(validate_topic_configs(configs)).typed_schema
        others = ["partitions"] if language == "DDL" else []
        expected = [*(f"value_{name}" for name in names), *others, "_unfit", "key_value", "_key_unfit"]
        assert [column.name for column in columns] == expected, language


def test_the_columns_are_those_of_the_value_and_of_the_key_each_with_a_flag() -> None:
    configs = {
        "value.format": "avro",
        "value.schema": AVRO,
        "key.format": "json",
        "key.schema": "partition int, a string",
    }
    config = TopicConfig.resolve(validate_topic_configs(configs))
    assert [field.name for field in config.typed_schema] == ["a", "_unfit", "key_partition", "key_a", "_key_unfit"]
    texts = RecordSchema(PartSchema("string"), PartSchema("string"))
    assert [field.name for field in texts.columns] == ["value_string", "_unfit", "key_string", "_key_unfit"]
    assert TopicConfig.resolve(validate_topic_configs({"value.format": "string"})).typed_schema
    assert RecordSchema(key=PartSchema("string")).columns == texts.key_columns


def test_earlier_schemas_are_kept_once_each_where_values_need_them() -> None:
    current, earlier = json.dumps(avro("long")), json.dumps(avro("int"))
    schema = RecordSchema(PartSchema("avro", (current,)), PartSchema("json", ("a int",)))
    found = schema.with_earlier(value=(current, earlier), key=("a int, b int",))
    assert found == RecordSchema(PartSchema("avro", (current, earlier)), PartSchema("json", ("a int",)))
    assert found.columns == schema.columns
