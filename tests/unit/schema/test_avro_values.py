"""Typed columns are read from values in Avro: what fits, what does not, and what each becomes."""

from __future__ import annotations

import builtins
import json
import tracemalloc
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import RecordListTooLargeError
from sparklog.schema.languages.ddl import UNFIT
from sparklog.schema.languages.record_schema import parse_schema
from sparklog.schema.typed_columns import typed_fields
from sparklog.schema.values import avro_values, decoded_values
from sparklog.schema.values.avro_values import AvroReader

Field = dict[str, Any]


def record(*fields: Field, name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> Field:
    return {"name": name, "type": kind, **more}


def logical(name: str, kind: str, /, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


LINE = record(field("sku", "string"), field("count", ["null", "int"]), name="Line")
ORDER = record(
    field("text", "string"),
    field("whole", "int"),
    field("large", ["null", "long"]),
    field("number", ["float", "null"]),
    field("exact", "double"),
    field("sure", "boolean"),
    field("raw", "bytes"),
    field("state", {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}),
    field("hash", {"type": "fixed", "name": "Hash", "size": 4}),
    field("day", logical("date", "int")),
    field("placed", logical("timestamp-millis", "long")),
    field("paid", ["null", logical("timestamp-micros", "long")]),
    field("money", logical("decimal", "bytes", precision=6, scale=2)),
    field("total", logical("decimal", "fixed", name="Total", size=20, precision=38, scale=4)),
    field("id", logical("uuid", "string")),
    field("lines", {"type": "array", "items": LINE}),
    field("tags", {"type": "map", "values": ["null", logical("date", "int")]}),
    field("first", ["null", "Line"]),
)
NOON = datetime(2026, 11, 1, 12, 0, 0, 250_000, tzinfo=timezone.utc)
VALUE = {
    "text": "a\0ü",
    "whole": -(2**31),
    "large": 2**62,
    "number": 0.5,
    "exact": 0.1,
    "sure": True,
    "raw": b"\xff",
    "state": "PAID",
    "hash": b"abcd",
    "day": date(2026, 11, 1),
    "placed": NOON,
    "paid": NOON + timedelta(microseconds=1),
    "money": Decimal("-1234.56"),
    "total": Decimal("1234567890123456789012345678901234.5678"),
    "id": "0f0e",
    "lines": [{"sku": "x", "count": 1}, {"sku": "", "count": None}],
    "tags": {"a": date(1, 1, 1), "b": None},
    "first": {"sku": "y", "count": 3},
}
NULLS = {
    **VALUE,
    "lines": [],
    "tags": {},
    **dict.fromkeys(("large", "number", "paid", "first")),
}


def encode(value: Any, schema: dict[str, Any] = ORDER) -> bytes:
    sink = BytesIO()
    with_units = dict(value)
    fastavro.schemaless_writer(sink, fastavro.parse_schema(schema), with_units)
    return sink.getvalue()


def read(values: list[bytes | None], *schemas: dict[str, Any]) -> list[dict[str, Any]]:
    """Read values by these schemas, the newest first."""
    texts = [json.dumps(schema) for schema in schemas or (ORDER,)]
    columns = AvroReader(texts).columns(pa.array(values, pa.binary()))
    expected = [(one.name, one.type) for one in typed_fields(parse_schema(texts[0]).fields)]
    assert [(name, array.type) for name, array in columns.items()] == [*expected, (UNFIT, pa.bool_())]
    for array in columns.values():
        array.validate(full=True)
    return pa.table(columns).to_pylist(maps_as_pydicts="strict")


def test_a_value_that_fits_has_its_fields_in_the_columns() -> None:
    assert read([encode(VALUE), encode(NULLS), None]) == [
        {**VALUE, UNFIT: False},
        {**NULLS, UNFIT: False},
        {**dict.fromkeys(VALUE), UNFIT: False},
    ]


def test_a_uuid_of_fixed_bytes_is_text() -> None:
    schema = record(field("id", logical("uuid", "fixed", name="U", size=16)))
    assert read([bytes(range(16))], schema)[0]["id"] == "00010203-0405-0607-0809-0a0b0c0d0e0f"


LARGE = 2**40
SMALL = record(field("a", "int"), field("b", "string"))
"""``02 02 78`` is 1 and "x"."""


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", r"`\$\.a`"),
        (b"\x02", r"at byte 1 .* - at `\$\.b`"),
        (b"\x02\x04x", r"`\$\.b`"),
        (b"\x02\x02xy", "1 bytes follow its last field"),
        (b"\x02\x02\xff", r"utf-8.* - at `\$\.b`"),
        (b"\x02\x06\xed\xa0\x80", r"utf-8.* - at `\$\.b`"),
        (b"\x02\x01xyz", r"`\$\.b`"),
        (b"\x02\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01xyz", r"`\$\.b`"),
        (b"\x80\x80\x80\x80\x80\x01\x00", r"`\$\.a`"),
        (b"\xff" * 100, r"`\$\.a`"),
        (b'{"a":1,"b":"x"}', "at `|follow"),
        (b"\0\0\0\0\x07\x02\x04x", r"`\$\.b`"),
        (b"\xc3\x01", "at `|follow"),
        (b"\xc3\x01" + bytes(8) + b"\x02\x02x", "at `|follow"),
    ],
)
def test_a_value_that_does_not_fit_is_marked_and_leaves_its_neighbours_alone(value: bytes, reason: str) -> None:
    before, unfit, after = read([b"\x02\x02x", value, b"\x04\x02y"], SMALL)
    assert unfit == {"a": None, "b": None, UNFIT: True}
    assert (before["a"], after["b"], before[UNFIT], after[UNFIT]) == (1, "y", False, False)
    reader = AvroReader([json.dumps(SMALL)])
    with pytest.raises(ValueError, match=reason):
        raise ValueError(reader.find_misfit(value))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x04"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, b"\x01"),
        (["null", "int"], b"\x04\x02"),
        (logical("date", "int"), b"\xfe\xff\xff\xff\x0f"),
        (logical("timestamp-millis", "long"), b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (logical("timestamp-micros", "long"), b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        (logical("decimal", "bytes", precision=2), b"\x04\x00\x64"),
        (logical("decimal", "bytes", precision=2), b"\x04\xff\x9c"),
        ({"type": "array", "items": logical("decimal", "bytes", precision=2)}, b"\x02\x04\x00\x64\x00"),
        ({"type": "array", "items": "int"}, b"\x02\xfe\xff\xff\xff\xff\x0f\x00"),
    ],
)
def test_values_out_of_the_range_of_their_type_do_not_fit(kind: Any, value: bytes) -> None:
    schema = record(field("a", kind))
    assert read([value, None], schema) == [{"a": None, UNFIT: True}, {"a": None, UNFIT: False}]
    assert AvroReader([json.dumps(schema)]).find_misfit(value)


def test_a_decimal_of_any_length_costs_no_more_than_reading_it() -> None:
    schema = record(field("a", logical("decimal", "bytes", precision=38)))
    digits = b"\0" * 1_000_000 + b"\x05"
    length = encode({"b": digits}, record(field("b", "bytes")))
    assert read([length], schema)[0]["a"] == Decimal(5)
    large = encode({"b": b"\x7f" * 8_000_000}, record(field("b", "bytes")))
    assert read([large], schema) == [{"a": None, UNFIT: True}]


@pytest.mark.parametrize("prefix", [b"", b"\0\0\0\x04\xd2"])
def test_values_with_the_prefix_of_a_registry_and_without_are_read(prefix: bytes) -> None:
    assert read([prefix + encode(VALUE)]) == [{**VALUE, UNFIT: False}]


def test_a_value_that_begins_with_zero_is_no_prefix_if_it_does_not_fit_after_it() -> None:
    schema = record(field("a", ["null", "int"]), field("b", "string"))
    assert read([encode({"a": None, "b": "abcdefgh"}, schema)], schema)[0] == {"a": None, "b": "abcdefgh", UNFIT: False}


def test_a_value_that_fits_with_a_prefix_and_without_has_one_if_its_id_is_likely() -> None:
    schema = record(field("a", {"type": "array", "items": ["null", "long"]}), field("b", "bytes"))
    two_ways = b"\0\x0a\0\0\1\0\0"
    assert read([two_ways], schema)[0] == {"a": [], "b": b"\0\0\1\0\0", UNFIT: False}
    other = record(field("a", "bytes"), field("n", "long"), field("b", "bytes"))
    likely = b"\0\0\x0a\0\7" + b"\0\0\0"
    assert read([likely], other)[0] == {"a": b"", "n": 0, "b": b"", UNFIT: False}
    large_id = b"\0\1\0\0\0" + encode({"a": [1], "b": b"x"}, schema)
    assert read([large_id], schema)[0] == {"a": [1], "b": b"x", UNFIT: False}


def test_a_single_object_is_read_by_the_schema_of_its_fingerprint() -> None:
    older, newer = record(field("a", "long"), field("b", "long")), record(field("b", "long"), field("a", "long"))
    values: list[bytes | None] = []
    for schema in (older, newer):
        canonical = fastavro.schema.to_parsing_canonical_form(fastavro.parse_schema(schema))
        mark = bytes.fromhex(fastavro.schema.fingerprint(canonical, "CRC-64-AVRO"))
        values.append(b"\xc3\x01" + mark + encode({"a": 1, "b": 2}, schema))
    assert read(values, newer, older) == [{"b": 2, "a": 1, UNFIT: False}] * 2


def test_the_fingerprint_of_a_single_object_is_the_one_of_avros_specification() -> None:
    schema = record(field("a", "int"), name="R")
    found = AvroReader([json.dumps(schema)])
    empty, table = 0xC15D213AA4D7A795, []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (empty if byte & 1 else 0)
        table.append(byte)
    total = empty
    for byte in b'{"name":"R","type":"record","fields":[{"name":"a","type":"int"}]}':
        total = total >> 8 ^ table[(total ^ byte) & 255]
    single = b"\xc3\x01" + total.to_bytes(8, "little") + b"\x02"
    assert found.columns(pa.array([single, b"\xc3\x01" + bytes(8) + b"\x02"]))[UNFIT].to_pylist() == [False, True]


def test_values_of_earlier_schemas_are_read_into_the_newest() -> None:
    line = record(field("sku", "string"), field("count", "int"), name="Line")
    wider = record(field("sku", "string"), field("count", "long"), field("note", "string", default="-"), name="Line")
    oldest = record(field("id", "int"), field("line", line))
    newest = record(
        field("id", "long"),
        field("line", wider),
        field("more", ["null", "string"]),
        field("tags", {"type": "map", "values": "bytes"}, default={"k": "\u00ff"}),
        field("lines", {"type": "array", "items": "Line"}, default=[{"sku": "d", "count": 1}]),
        field("state", {"type": "enum", "name": "S", "symbols": ["A"]}, default="A"),
        field("day", logical("date", "int"), default=1),
    )
    value = encode({"id": 7, "line": {"sku": "s", "count": 3}}, oldest)
    (row,) = read([b"\0\0\0\0\x01" + value], newest, oldest)
    assert row == {
        "id": 7,
        "line": {"sku": "s", "count": 3, "note": "-"},
        "more": None,
        "tags": {"k": b"\xff"},
        "lines": [{"sku": "d", "count": 1, "note": "-"}],
        "state": "A",
        "day": date(1970, 1, 2),
        UNFIT: False,
    }
    assert read([value], newest)[0][UNFIT]


def test_a_value_without_a_field_that_has_no_default_does_not_fit() -> None:
    oldest, newest = record(field("a", "int")), record(field("a", "int"), field("b", "string"))
    reader = AvroReader([json.dumps(newest), json.dumps(oldest)])
    assert reader.columns(pa.array([b"\x02"]))[UNFIT].to_pylist() == [True]
    wrong = record(field("a", "int"), field("b", logical("date", "int"), default="x"))
    assert read([b"\x02"], wrong, oldest) == [{"a": None, "b": None, UNFIT: True}]


def test_schemas_that_cannot_be_read_into_the_newest_are_not_tried() -> None:
    assert read([b"\x02x"], record(field("a", "int")), record(field("a", "string")))[0][UNFIT]
    reader = AvroReader([json.dumps(record(field("a", "int"))), "a int", ""])
    assert reader.columns(pa.array([b"\x02"]))["a"].to_pylist() == [1]


ITEMS = record(field("l", {"type": "array", "items": record(*(field(f"f{n}", ["null", "int"]) for n in range(3)))}))
ITEMS["fields"][0]["type"]["items"]["name"] = "Item"


def items(count: int) -> bytes:
    return encode({"l": [dict.fromkeys(("f0", "f1", "f2"))] * count}, ITEMS)


def test_lists_that_take_too_much_memory_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoded_values, "MAX_ELEMENT_BYTES", 1000)
    assert [row[UNFIT] for row in read([items(count) for count in (1, 100, 2)], ITEMS)] == [False, True, False]
    monkeypatch.setattr(decoded_values, "MAX_ELEMENT_BYTES", 10**9)
    monkeypatch.setattr(avro_values, "MAX_OBJECT_BYTES", 10_000)
    assert [row[UNFIT] for row in read([items(count) for count in (1, 100, 2)], ITEMS)] == [False, True, False]
    reason = AvroReader([json.dumps(ITEMS)]).find_misfit(items(100))
    assert "its lists could take too much memory" in reason


def test_many_values_are_read_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_values, "READ_BYTES", 10)
    values: list[bytes | None] = [encode({"a": number, "b": "x" * (number % 7)}, SMALL) for number in range(100)]
    values[50] = b"\xff"
    rows = read(values, SMALL)
    assert [row["a"] for row in rows] == [*range(50), None, *range(51, 100)]
    with pytest.raises(RecordListTooLargeError, match="read fewer at a time"):
        AvroReader([json.dumps(SMALL)]).columns(pa.array(values), max_bytes=500)


def test_large_and_empty_columns_have_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read([], SMALL) == []
    monkeypatch.setattr(avro_values, "MAX_VALUE_BYTES", 20)
    assert [row[UNFIT] for row in read([encode({"a": 1, "b": "x" * n}, SMALL) for n in (5, 50)], SMALL)] == [
        False,
        True,
    ]


def test_decoding_hostile_lists_takes_a_bounded_part_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_values, "MAX_OBJECT_BYTES", 4_000_000)
    nested = {"type": "array", "items": {"type": "array", "items": {"type": "map", "values": ["null", "int"]}}}
    schema = record(field("n", nested), field("l", ITEMS["fields"][0]["type"]))
    reader = AvroReader([json.dumps(schema)])
    most = reader._writers[0].most_bytes  # noqa: SLF001
    count = most - 12
    long = encode({"n": count}, record(field("n", "long")))
    empty_lists = long + bytes(count) + b"\0\0"
    tracemalloc.start()
    assert not reader.find_misfit(empty_lists)
    structs = (most - 12) // 3
    reader.find_misfit(b"\0" + encode({"n": structs}, record(field("n", "long"))) + bytes(3 * structs) + b"\0")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 4_000_000


@given(st.binary(max_size=60), st.booleans(), st.integers(0, 200))
def test_any_bytes_are_read_or_marked_and_both_ways_agree(noise: bytes, cut: bool, at: int) -> None:
    whole = encode(VALUE)
    value = whole[:at] + noise + (b"" if cut else whole[at:])
    (row,) = read([value])
    assert row[UNFIT] == bool(AvroReader([json.dumps(ORDER)]).find_misfit(value))
    if row[UNFIT]:
        assert {row[name] for name in VALUE if name != "lines"} == {None}


LEAVES = {
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=8),
    "bytes": st.binary(max_size=8),
    "boolean": st.booleans(),
}


def nest(kind: Any, values: st.SearchStrategy[Any]) -> list[tuple[Any, st.SearchStrategy[Any]]]:
    return [
        (kind, values),
        (["null", kind], st.none() | values),
        ({"type": "array", "items": ["null", kind]}, st.lists(st.none() | values, max_size=3)),
        ({"type": "map", "values": kind}, st.dictionaries(st.text(max_size=3), values, max_size=3)),
    ]


@given(st.data(), st.sampled_from([each for kind, values in LEAVES.items() for each in nest(kind, values)]))
def test_what_fastavro_writes_is_read_back(data: st.DataObject, chosen: tuple[Any, st.SearchStrategy[Any]]) -> None:
    kind, values = chosen
    inner = record(field("b", kind), name="Inner")
    schema = record(field("mark", "string"), field("a", kind), field("s", ["null", inner]))
    value = {
        "mark": "no prefix",
        "a": data.draw(values),
        "s": data.draw(st.none() | st.fixed_dictionaries({"b": values})),
    }
    assert read([encode(value, schema)], schema) == [{**value, UNFIT: False}]


def test_without_fastavro_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *args: Any, **more: Any) -> Any:
        if name.startswith("fastavro"):
            raise ImportError(name)
        return original(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'sparklog\[avro\]'"):
        AvroReader([json.dumps(SMALL)])


INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": ["null", "int"]}]}
MIDDLE = {"type": "record", "name": "Middle", "fields": [{"name": "y", "type": ["null", INNER]}]}


@pytest.mark.parametrize(
    ("items", "element"),
    [
        (["null", INNER], b"\2\0"),
        (["null", MIDDLE], b"\2\2\0"),
        (["null", {"type": "map", "values": "int"}], b"\2\0"),
        ({"type": "map", "values": "int"}, b"\0"),
        (logical("decimal", "bytes", precision=38), b"\2\1"),
        (["null", logical("decimal", "bytes", precision=38)], b"\2\0"),
    ],
    ids=["records", "records in records", "maps or null", "maps", "decimals", "decimals or null"],
)
def test_lists_of_any_elements_take_a_bounded_part_of_memory(
    monkeypatch: pytest.MonkeyPatch, items: object, element: bytes
) -> None:
    monkeypatch.setattr(avro_values, "MAX_OBJECT_BYTES", 4_000_000)
    reader = AvroReader([json.dumps(record(field("l", {"type": "array", "items": items})))])
    count = (reader._writers[0].most_bytes - 12) // len(element)  # noqa: SLF001
    value = encode({"n": count}, record(field("n", "long"))) + element * count + b"\0"
    tracemalloc.start()
    assert not reader.find_misfit(value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.5 * 4_000_000
