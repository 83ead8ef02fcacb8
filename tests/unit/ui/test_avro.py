"""Keys and values in Avro as JSON: by their topic's schema, within bounds, whatever the bytes and the schema."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from fastavro.schema import fingerprint, to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st

from sparklog.schema.languages.record_schema import PartSchema
from sparklog.schema.values.wire_format import SINGLE_OBJECT
from sparklog.ui.views import avro
from sparklog.ui.views.avro import MAX_AVRO_BYTES, MAX_FILTERED_BYTES, PAGE_SECONDS, AvroPart
from sparklog.ui.views.record_filter import parse_record_filter
from sparklog.ui.views.records import Content, describe_bytes
from tests.shown_cluster import CONTROL, ENDLESS_NOTES, OVERRIDE, PAYMENT, encode_payment

SCHEMA = json.dumps(PAYMENT)


def part(*schemas: str, format: str = "avro") -> AvroPart:
    return AvroPart("value", PartSchema(format, schemas or (SCHEMA,)), lambda: 0.0)


def describe(value: bytes, form: str = "auto", characters: int = 2000, schemas: Sequence[str] = ()) -> Content:
    return describe_bytes(value, len(value), form, characters, avro=part(*schemas))


def encode(schema: dict[str, Any], value: object) -> bytes:
    encoded = BytesIO()
    schemaless_writer(encoded, parse_schema(schema), value)
    return encoded.getvalue()


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields)}


@pytest.mark.parametrize("prefix", [b"", b"\0\0\0\0\7"])
@pytest.mark.parametrize("form", ["auto", "avro"])
def test_a_value_with_a_schema_is_shown_as_its_fields(prefix: bytes, form: str) -> None:
    content = describe(prefix + encode_payment("anna", 5, ["a", "b"]), form)
    assert (content.kind, content.problem) == ("Avro", "")
    assert content.text == '{"payer": "anna", "cents": 5, "notes": ["a", "b"], "paid": "2026-11-01"}'


def test_a_single_object_and_a_value_of_an_earlier_version_are_read() -> None:
    earlier = record({"name": "payer", "type": "string"})
    newer = record({"name": "payer", "type": "string"}, {"name": "cents", "type": ["null", "long"], "default": None})
    value = encode(earlier, {"payer": "anna"})
    schemas = [json.dumps(newer), json.dumps(earlier)]
    written_by = bytes.fromhex(fingerprint(to_parsing_canonical_form(earlier), "CRC-64-AVRO"))
    for each in (value, SINGLE_OBJECT + written_by + value):
        assert json.loads(describe(each, schemas=schemas).text) == {"payer": "anna", "cents": None}


def test_other_types_are_shown_as_in_the_typed_columns() -> None:
    schema = record(
        {"name": "money", "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}},
        {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "raw", "type": "bytes"},
        {"name": "number", "type": "double"},
        {"name": "none", "type": {"type": "array", "items": "int"}},
        {"name": "tags", "type": {"type": "map", "values": record({"name": "n", "type": "int"}) | {"name": "T"}}},
    )
    plain = json.loads(json.dumps(schema).replace('"logicalType"', '"was"'))
    values = {"money": b"\x04\xd2", "placed": 1500, "raw": b"\xff", "none": [], "tags": {"a": {"n": 1}}}
    value = encode(plain, {**values, "number": float("nan")})
    assert describe(value, schemas=[json.dumps(schema)]).text == (
        '{"money": 12.34, "placed": "1970-01-01T00:00:01.500000Z", "raw": "/w==", "number": "nan", "none": [], '
        '"tags": {"a": {"n": 1}}}'
    )
    indented = part(json.dumps(schema)).text(value, len(value), 2000, 2)
    assert '\n  "tags": {\n    "a": {\n      "n": 1\n    }\n  }\n}' in indented
    assert json.loads(indented)["none"] == []


@pytest.mark.parametrize("value", [b"no payment", ENDLESS_NOTES, b"\0", encode_payment("anna", 5) + b"x"])
def test_a_value_that_does_not_fit_is_hex_with_the_reason(value: bytes) -> None:
    content = describe(value)
    assert content.kind == "hex"
    assert content.problem.startswith("not shown as Avro: it does not fit the schema: ")
    assert describe(value, "text").problem == ""


@pytest.mark.parametrize("format", ["none", "json", "string"])
def test_without_an_avro_schema_that_is_said_and_the_value_shown_otherwise(format: str) -> None:
    untyped = AvroPart("value", PartSchema(format, ()), lambda: 0.0)
    content = describe_bytes(b'{"a": 1}', 8, "avro", avro=untyped)
    assert (content.kind, content.problem) == (
        "JSON",
        "not shown as Avro: the topic has no Avro schema for its values",
    )
    assert describe_bytes(b'{"a": 1}', 8, "auto", avro=untyped) == Content("JSON", '{"a": 1}', "8 B")


def test_null_and_empty_values_are_not_read_as_avro() -> None:
    assert [describe_bytes(value, 0, "avro", avro=part()).kind for value in (None, b"")] == ["null", "empty"]


def test_what_does_not_print_is_escaped_as_json_does() -> None:
    content = describe(encode_payment(OVERRIDE, 1, [CONTROL, "\x7f\U000e0001"]))
    assert content.text.isprintable()
    assert json.loads(content.text)["notes"] == [CONTROL, "\x7f\U000e0001"]


def test_a_large_value_and_one_that_is_not_whole_are_not_decoded() -> None:
    large = encode_payment("x" * MAX_AVRO_BYTES, 1)
    assert describe(large).problem == "not shown as Avro: it has 256 KiB, and here at most 256 KiB are read as Avro"
    cut = describe_bytes(b"\x02x", 2**26, "avro", avro=part())
    assert (cut.kind, cut.problem) == ("hex", "not shown as Avro: it has 64 MiB, and here at most 2 B are read as Avro")


def test_a_page_reads_avro_for_so_long() -> None:
    seconds = iter(range(100))
    page = AvroPart("value", PartSchema("avro", (SCHEMA,)), lambda: next(seconds) * PAGE_SECONDS / 4)
    value = encode_payment("anna", 1)
    shown = [describe_bytes(value, len(value), "auto", avro=page) for _ in range(6)]
    assert [content.kind for content in shown] == ["Avro"] * 4 + ["hex"] * 2
    assert shown[5].problem == "not shown as Avro: reading those before it took 1 s; look at the record alone"


def test_lists_of_fields_with_long_names_take_neither_memory_nor_time() -> None:
    schema = record(
        {
            "name": "a",
            "type": {"type": "array", "items": record({"name": "n" * 30_000, "type": "boolean"}) | {"name": "E"}},
        }
    )
    value = b"\xc0\x9a\x0c" + b"\1" * 100_000 + b"\0"
    page = part(json.dumps(schema))
    tracemalloc.start()
    try:
        content = describe_bytes(value, len(value), "auto", 256 * 1024, 2, page)
        assert tracemalloc.get_traced_memory()[1] < 150 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert (content.kind, content.cut) == ("Avro", "the beginning of 97.7 KiB")
    assert len(content.text) == 256 * 1024


@given(st.binary(max_size=300), st.integers(1, 50))
def test_whatever_the_bytes_what_is_shown_is_bounded_and_printable(value: bytes, characters: int) -> None:
    text = describe(value, "avro", characters).text
    assert text.replace("\n", "").isprintable()
    assert len(text) <= 12 * 16 * characters


def test_fields_of_avro_are_found_by_a_filter() -> None:
    documents = part().documents
    for field, expected in (
        ("cents > 4", True),
        ("cents > 5", False),
        ("paid = 2026-11-01", True),
        ("notes.1 = b", True),
    ):
        wanted = parse_record_filter("", "", "", field, documents)
        assert wanted.admits_value(encode_payment("anna", 5, ["a", "b"])) is expected
        large = encode_payment("x" * MAX_FILTERED_BYTES, 5, ["a", "b"])
        others = (None, b"", b"no payment", ENDLESS_NOTES, b'{"cents": 5}', large)
        assert not any(map(wanted.admits_value, others))
    assert part().documents == documents
    assert part(format="none").documents is None


def test_without_fastavro_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(schemas: tuple[str, ...]) -> None:
        raise ModuleNotFoundError("reading values in Avro needs fastavro")

    monkeypatch.setattr(avro, "AvroReader", fail)
    content = describe(b"\2", "avro", schemas=[json.dumps(record({"name": "alone", "type": "int"}))])
    assert content.problem == "not shown as Avro: reading values in Avro needs fastavro"
