"""Records as text, JSON, hex, CSV and JSON lines, and which of them a filter admits."""

from __future__ import annotations

import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import InvalidConfigurationError
from sparklog.ui.views.downloads import PARQUET, to_csv, to_json_lines, to_parquet
from sparklog.ui.views.record_filter import parse_record_filter
from sparklog.ui.views.records import FORMATS, FoundRecord, describe_bytes, show_record


def record(key: bytes | None, value: bytes | None) -> FoundRecord:
    headers: list[tuple[str, bytes | None]] = [("trace", b"\xff"), ("none", None)]
    return FoundRecord(0, 7, 1_790_000_000_000_000, 0, key, len(key or b""), value, len(value or b""), headers, 3)


def kind(data: bytes | None, form: str = "auto") -> str:
    return describe_bytes(data, len(data or b""), form).kind


def test_null_empty_and_tombstone_are_told_apart() -> None:
    shown = [
        show_record(record(key, value), "log", "orders", "auto", 0).value.kind
        for key, value in ((b"k", None), (None, None), (b"k", b""), (b"k", b"null"))
    ]
    assert shown == ["tombstone", "null", "empty", "text"]


def test_the_form_of_a_value_is_found() -> None:
    assert kind(b'{"a": 1}') == "JSON"
    assert kind(b'{"a": 1}', "text") == "text"
    assert kind("größe ☃".encode()) == "text"
    assert kind(b"\x00\x01\xfe") == "hex"
    assert kind(b"\xff\xfe", "text") == "text"
    assert kind(b"abc", "hex") == "hex"
    assert kind(b'{"a": ') == "text"


def test_json_that_is_too_deep_is_text() -> None:
    assert kind(b"[" * 100_000 + b"]" * 100_000) == "text"


def test_numbers_of_json_keep_their_digits() -> None:
    assert "12345678901234567890123" in describe_bytes(b'{"a":12345678901234567890123}', 29, "json").text


def test_a_value_cut_within_a_character_is_still_text() -> None:
    whole = "☃".encode() * 100
    content = describe_bytes(whole[:10], len(whole), "auto")
    assert (content.kind, content.text, content.cut) == ("text", "☃☃☃", "the beginning of 300 B")


@given(st.binary(max_size=2000), st.sampled_from(FORMATS))
def test_whatever_the_bytes_what_is_shown_is_bounded_and_printable(data: bytes, form: str) -> None:
    text = describe_bytes(data, len(data), form, characters=100).text
    assert all(character.isprintable() or character in "\n\t" for character in text)
    assert len(text) <= 12 * 16 * 100


def test_downloads_hold_what_the_records_hold() -> None:
    records = [record(b"k", b"=1+2"), record(b"\xff", None), record(b"n", b"-5"), record(None, b'a "b"\r\n,c')]
    lines = [json.loads(line) for line in to_json_lines("orders", records)]
    assert [line["key"] for line in lines] == ["k", {"base64": "/w=="}, "n", None]
    assert lines[0]["headers"] == [["trace", {"base64": "/w=="}], ["none", None]]
    rows = list(csv.DictReader(io.StringIO(b"".join(to_csv("orders", records)).decode(), newline="")))
    assert [row["value"] for row in rows] == ["'=1+2", "", "-5", 'a "b"\r\n,c']
    assert rows[1]["key"] == "base64:/w=="


def test_downloads_tell_null_and_empty_apart() -> None:
    records = [record(None, b""), record(b"", None)]
    table = pq.read_table(pa.BufferReader(b"".join(to_parquet("orders", records))))
    assert table.schema.equals(PARQUET)
    rows = table.to_pylist()
    assert [(row["key"], row["value"]) for row in rows] == [(None, b""), (b"", None)]
    assert [(row["key_bytes"], row["value_bytes"]) for row in rows] == [(None, 0), (0, None)]
    assert rows[0]["headers"] == [{"key": "trace", "value": b"\xff"}, {"key": "none", "value": None}]
    lines = list(csv.DictReader(io.StringIO(b"".join(to_csv("orders", records)).decode(), newline="")))
    assert [(line["key_bytes"], line["value_bytes"]) for line in lines] == [("", "0"), ("0", "")]


def test_a_parquet_file_of_no_records_has_its_columns() -> None:
    table = pq.read_table(pa.BufferReader(b"".join(to_parquet("orders", []))))
    assert table.schema.equals(PARQUET)
    assert len(table) == 0


def admits(value: bytes | None, field: str = "", text: str = "") -> bool:
    return parse_record_filter("", text, "", field).admits_value(value)


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("a.b > 4", True),
        ("a.b>5", False),
        ("a.b = 5", True),
        ('a.b = "5"', True),
        ("$.list.1 = y", True),
        ("list.7 = y", False),
        ("list.² = y", False),
        ("name != x", True),
        ("missing != x", False),
        ("flag = true", True),
        ("gone = null", True),
        ("name > 1000", False),
        ("name < 1000", False),
        ("name != 1000", False),
        ("digits = 7", False),
        ('digits = "7"', True),
        ("digits >= 1", False),
        ("flag > 0", False),
        ("flag != 0", False),
        ("gone < 1", False),
        ("list != 1", False),
        ('a.b > "1"', False),
        ("large = 9007199254740993", True),
        ("large = 9007199254740992", False),
        ("a.b < 1e3", True),
        ("special = nan", True),
        ("special = inf", False),
    ],
)
def test_a_field_of_json_is_compared(field: str, expected: bool) -> None:
    value = b'{"a": {"b": 5}, "list": ["x", "y"], "name": "z", "flag": true, "gone": null'
    value += b', "digits": "7", "large": 9007199254740993, "special": "nan"}'
    assert admits(value, field) == expected


def test_values_that_are_no_json_have_no_fields() -> None:
    for value in (None, b"", b"text", b"\xff", b"[" * 200_000):
        assert not admits(value, "a = 1")


def test_keys_values_and_headers_are_compared_as_bytes() -> None:
    wanted = parse_record_filter("k1", "", "trace=ab", "")
    assert wanted.admits_key(b"xk1x")
    assert not wanted.admits_key(None)
    assert wanted.admits_headers([("trace", b"xabx")])
    assert not wanted.admits_headers([("trace", b"x"), ("other", b"ab")])
    assert parse_record_filter("", "", "trace", "").admits_headers([("trace", None)])
    assert not admits(None, text="x")


@pytest.mark.parametrize("field", ["a", "= 1", "a ~ 1", ">"])
def test_an_invalid_field_is_refused(field: str) -> None:
    with pytest.raises(InvalidConfigurationError, match="invalid field"):
        parse_record_filter("", "", "", field)
