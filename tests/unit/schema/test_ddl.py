"""Schemas in Spark's DDL: what is read, what is refused, and which changes readers of a table survive."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.config.topic_configs import TopicConfig, validate_topic_configs
from sparklog.errors import InvalidConfigurationError
from sparklog.schema.languages.ddl import (
    InvalidSchemaError,
    SchemaField,
    SchemaType,
    find_breaking_change,
    format_ddl,
    parse_ddl,
)

NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True).map("f_".__add__)
LEAVES = st.one_of(
    st.sampled_from(["string", "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date"]).map(
        SchemaType
    ),
    st.builds(
        lambda scale, more: SchemaType("decimal", max(scale + more, 1), scale), st.integers(0, 9), st.integers(0, 9)
    ),
)
TYPES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda element: SchemaType("array", element=element), inner),
        st.builds(lambda element: SchemaType("map", element=element), inner),
        st.lists(st.tuples(NAMES, inner, st.booleans()), min_size=1, max_size=3, unique_by=lambda field: field[0]).map(
            lambda fields: SchemaType("struct", fields=tuple(SchemaField(*field) for field in fields))
        ),
    ),
    max_leaves=5,
)
SCHEMAS = st.lists(
    st.builds(SchemaField, NAMES, TYPES, st.booleans()), min_size=1, max_size=5, unique_by=lambda field: field.name
)


@given(SCHEMAS)
def test_the_text_of_a_schema_is_read_as_the_same_schema(fields: list[SchemaField]) -> None:
    assert list(parse_ddl(format_ddl(fields))) == fields


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("customer STRING, amount Double", "customer string, amount double"),
        ("a long, b integer, c short, d byte, e real", "a bigint, b int, c smallint, d tinyint, e float"),
        ("`name` int NOT NULL COMMENT 'a \\' quote', b int", "name int NOT NULL, b int"),
        ("a decimal, b decimal(5), c dec(5, 2)", "a decimal(10,0), b decimal(5,0), c decimal(5,2)"),
        ("s struct<x: int, y string not null>", "s struct<x:int,y:string NOT NULL>"),
        ("m map<string, array<double>>", "m map<string,array<double>>"),
        ("größe int", "größe int"),
    ],
)
def test_sparks_other_names_and_spellings_are_read(text: str, canonical: str) -> None:
    assert format_ddl(parse_ddl(text)) == canonical


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a", "a type is missing"),
        ("a int,", "a field is missing at its end"),
        ("a int b int", "unexpected 'b'"),
        ("a int, A string", "occurs twice"),
        ("a varchar(3)", "unknown type 'varchar'"),
        ("a dubble", "unknown type 'dubble'; did you mean double[?]"),
        ("a, b int", "a type is missing before ','"),
        ("a-b int", "unexpected '-b int'"),
        ("`a.b` int", "invalid name"),
        ("a map<int,int>", "keys of a map"),
        ("a decimal(39,2)", "out of range"),
        ("a decimal(2,3)", "out of range"),
        ("a decimal(x)", "in place of a number"),
        ("a array<int", "'>' is missing"),
        ("a struct<>", "invalid name"),
        ("a int NOT", "'null' is missing"),
        ("a int COMMENT b", "single quotes"),
        ("a " + "array<" * 40 + "int" + ">" * 40, "deeper"),
        (", ".join(f"a{number} int" for number in range(1001)), "1000 fields"),
    ],
)
def test_other_texts_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchemaError, match=reason):
        parse_ddl(text)


@given(st.text(max_size=60))
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    with suppress(InvalidSchemaError):
        fields = parse_ddl(text)
        assert parse_ddl(format_ddl(fields)) == fields


NESTED = "s struct<a: int, l: array<struct<b: float>>>, m map<string, struct<c: tinyint>>"


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("a int, b string NOT NULL", "a int, b string, c double", ""),
        ("a int, b string NOT NULL", "b string, a int", ""),
        ("a int, b string NOT NULL", "a int NOT NULL, b string", ""),
        ("a int, b string NOT NULL", "a bigint, b string", ""),
        ("a int, b string NOT NULL", "a int", "no field 'b'"),
        ("a int, b string NOT NULL", "a double, b string", "'a' is int and would become double"),
        ("a int, b string NOT NULL", "A int, b string", "no field 'a'"),
        ("a tinyint, b smallint, c float", "a bigint, b int, c double", ""),
        ("a bigint", "a int", "'a' is bigint and would become int"),
        ("a date", "a timestamp", "'a' is date and would become timestamp"),
        ("a decimal(7,2)", "a decimal(9,2)", ""),
        ("a decimal(6,2)", "a decimal(7,2)", "would become decimal"),
        ("a decimal(7,2)", "a decimal(9,4)", "would become decimal"),
        ("a decimal(9,2)", "a decimal(7,2)", "would become decimal"),
        (NESTED, "s struct<a: bigint, l: array<struct<b: double>>>, m map<string, struct<c: int>>", ""),
        (NESTED, "s struct<d: int, a: int, l: array<struct<b: float, e: int>>>, m map<string, struct<c: tinyint>>", ""),
        (NESTED, NESTED.replace("c: tinyint", "c: tinyint, d: int"), "inside the map 'm' would get a field more"),
        (NESTED, NESTED.replace("b: float", "b: string"), "'s.l.b' is float and would become string"),
        (NESTED, NESTED.replace("<b: float", "<c: float"), "no field 's.l.b'"),
        ("s array<int>", "s array<array<int>>", "would become"),
        ("s array<int>", "s map<string, int>", "would become"),
    ],
)
def test_a_table_can_gain_fields_and_wider_types_but_no_field_goes_or_changes(
    before: str, after: str, reason: str
) -> None:
    found = find_breaking_change(parse_ddl(before), parse_ddl(after))
    assert re.search(reason, found), found
    assert bool(reason) == bool(found)


def test_requirements_inside_types_may_change() -> None:
    before = parse_ddl("s struct<a: int NOT NULL, b: array<map<string, struct<c: int>>>>")
    for after in (
        "s struct<a: int, b: array<map<string, struct<c: int>>>>",
        "s struct<a: int NOT NULL, b: array<map<string, struct<c: int NOT NULL>>>>",
    ):
        assert not find_breaking_change(before, parse_ddl(after))
        assert not find_breaking_change(parse_ddl(after), before)


def test_configs_keep_the_canonical_text_and_refuse_what_does_not_fit() -> None:
    configs = validate_topic_configs({"value.format": "json", "value.schema": "a INTEGER,b string"})
    assert configs["value.schema"] == "a int, b string"
    assert [field.name for field in TopicConfig.resolve(configs).typed_schema] == ["a", "b", "_unfit"]
    assert TopicConfig.resolve({}).typed_schema == ()
    with pytest.raises(InvalidConfigurationError, match=r"value\.format is none"):
        validate_topic_configs({"value.schema": "a int"})
    with pytest.raises(InvalidConfigurationError, match="requires a schema"):
        validate_topic_configs({"value.format": "json", "value.schema.validation": "true"})
    with pytest.raises(InvalidConfigurationError, match="unknown type 'nothing'"):
        validate_topic_configs({"value.format": "json", "value.schema": "a nothing"})
