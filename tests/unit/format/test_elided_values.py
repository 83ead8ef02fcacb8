"""Values that typed columns state are elided of a history segment, and come back byte for byte or not at all."""

from __future__ import annotations

import io
import json
import re
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sparklog.errors import CorruptIndexError, CorruptRecordError, UnsupportedVersionError
from sparklog.format import codecs, schema
from sparklog.format.checksum import crc32c
from sparklog.format.index import BatchProducer, decode_index, encode_index
from sparklog.format.index_rebuild import rebuild_index, vouches_for, with_lengths_of
from sparklog.format.json_texts import encode_objects
from sparklog.format.parquet.rebuild import rebuild_history_index
from sparklog.format.parquet.writer import ParquetSegmentWriter
from sparklog.records.json_values import JsonWriter
from sparklog.schema.languages.ddl import VALUE_KEPT, SchemaField, SchemaType, find_breaking_change, parse_ddl
from sparklog.schema.typed_columns import arrow_type, typed_fields
from sparklog.schema.values.typed_values import ValueReader
from tests.sample import chosen, examples
from tests.unit.format.parquet_files import StoredFile, records_of
from tests.unit.format.test_typed_pages import DDL, rows
from tests.unit.records.test_json_values import fields as random_fields
from tests.unit.records.test_json_values import rows_of

SCHEMA = parse_ddl(DDL)


class File(StoredFile):
    """A history segment in memory that leaves out values, with one row group for each list of values."""

    def __init__(
        self,
        groups: list[list[bytes | None]],
        codec: str = codecs.ZSTD,
        fields: tuple[SchemaField, ...] = SCHEMA,
        typed: list[dict[str, pa.Array]] | None = None,
    ) -> None:
        self.groups = groups
        reader = ValueReader(fields)
        sink = io.BytesIO()
        columns = (*typed_fields(fields), *(pa.field(name, pa.bool_()) for name in ("_unfit", VALUE_KEPT)))
        writer = ParquetSegmentWriter(sink, base_offset=0, codec=codec, typed=columns, value_fields=fields)
        for number, values in enumerate(groups):
            found = typed[number] if typed else reader.columns(pa.array(values, pa.binary()))
            writer.write(records_of(values), {**found, VALUE_KEPT: pa.array([True] * len(values))})
        index_bytes = writer.finish()
        self.stats = json.loads(writer.stats)
        super().__init__(sink.getvalue(), index_bytes)

    def values(self) -> list[list[bytes | None]]:
        reader = self.reader()
        return [reader.read(number, ["value"]).column(0).to_pylist() for number in range(len(self.groups))]

    def kept(self) -> list[bool]:
        return pq.read_table(io.BytesIO(self.data))[VALUE_KEPT].to_pylist()


def encode(row: Any) -> bytes:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode()


def in_order(row: dict[str, Any]) -> dict[str, Any]:
    return {field.name: row[field.name] for field in SCHEMA if field.name in row}


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "number", "x"]), inner),
    max_leaves=5,
)
VALUES = st.one_of(
    rows.map(in_order).map(encode),
    rows.map(encode),
    rows.map(lambda row: json.dumps(row).encode()),
    rows.map(in_order).map(encode).map(lambda text: b"\0\0\0\0\1" + text),
    st.tuples(rows.map(in_order).map(encode), st.integers(0, 10**6), st.integers(0, 255)).map(
        lambda each: each[0][: each[1] % len(each[0])] + bytes([each[2]]) + each[0][each[1] % len(each[0]) + 1 :]
    ),
    ANY_JSON.map(encode),
    st.dictionaries(st.sampled_from([field.name for field in SCHEMA]), ANY_JSON, max_size=3).map(in_order).map(encode),
    st.binary(max_size=20),
    st.none(),
)
HOSTILE: list[bytes | None] = [
    b'{"text":"a","text":"b"}', b'{"text":null}', b'{"text":"\\u0041"}', b'{"text":"\\/"}', b'{"text":"\x7f"}',
    b'{"number":-0}', b'{"number":1.0}', b'{"double":1}', b'{"double":1.0}', b'{"double":-0.0}', b'{"double":1e5}',
    b'{"double":100000.00000000000000001}', b'{"real":0.1}', b'{"real":0.10000000149011612}', b'{"double":1e-400}',
    b'{"price":1.5}', b'{"price":1.500}', b'{"price":"1.500"}', b'{"day":"2026-11-01"}', b'{"day":"0001-01-01"}',
    b'{"at":"2026-11-01T10:00:00Z"}', b'{"at":"2026-11-01T10:00:00.000000Z"}', b'{"at":"2026-11-01T10:00:00+00:00"}',
    b'{"raw":"/w=="}', b'{"raw":"/x=="}', b'{"counts":{"a":1,"a":2}}', b'{"counts":{}}', b'{"texts":[]}',
    b'{"texts":[null]}', b'{"nested":{}}', b'{"nested":{"a":null}}', b"{}", b"{} ", b" {}", b"{}\n", b"", b"null", None,
    b'{"absent":"x"}', b'{"text":"\\n\\u001f\\b"}', b'{"text":"\\u000a"}', b'{"text":"\\ud83d\\ude00"}',
    '{"text":"\U0001f600\u2028"}'.encode(), b'{"text":"\xff"}', b'{"Text":"a"}', b'{"text":"a","x":1}', b"[]",
]  # fmt: skip


@settings(deadline=None, max_examples=examples(100))
@example([HOSTILE, HOSTILE[::-1]], codecs.ZSTD)
@given(st.lists(st.lists(VALUES, min_size=1, max_size=12), min_size=1, max_size=2), st.sampled_from(codecs.CODECS))
def test_all_values_come_back_byte_for_byte(groups: list[list[bytes | None]], codec: str) -> None:
    file = File(groups, codec)
    assert file.values() == groups
    reader = file.reader()
    assert reader.read(0).column("value").to_pylist() == groups[0]
    reader.check_file()
    stored = pq.read_table(io.BytesIO(file.data))["value"].to_pylist()
    values = [value for group in groups for value in group]
    for value, bytes_stored, is_kept in zip(values, stored, file.kept(), strict=True):
        assert bytes_stored == (value if is_kept else None)
        assert is_kept or value is not None
    assert file.stats["nullCount"]["value"] == stored.count(None)
    assert [entry.null_values for entry in file.index.entries] == [group.count(None) for group in groups]


ELIDED = [
    b"{}",
    b'{"text":"a \\"b\\" \\\\ \\n\\t\\u001f \xc3\xa9","truth":true,"tiny":-1,"big":9223372036854775807}',
    b'{"real":0.1,"double":1.0}',
    b'{"double":1e+16}',
    b'{"double":1e-05}',
    b'{"double":-0.0}',
    b'{"double":1234567890123.5}',
    b'{"price":1.500,"day":"2026-11-01","at":"2026-11-01T10:00:00.000000Z","raw":"/w=="}',
    b'{"texts":["a",null],"counts":{"k":1,"l":null},"nested":{"b":[{"c":"x","d":1.5},null]}}',
    b'{"texts":[],"counts":{},"nested":{}}',
]


def test_values_as_sparklog_writes_them_are_elided() -> None:
    """These texts are part of the format: files of history depend on each byte of them."""
    file = File([list(ELIDED)])
    assert file.kept() == [False] * len(ELIDED)
    assert file.values() == [ELIDED]
    kept = [b'{"double":1}', b'{"text":null}', b"{ }", b'{"truth":true,"text":"a"}', None, b"no json"]
    assert File([kept]).kept() == [True] * len(kept)


def test_the_texts_of_the_smallest_and_largest_values_are_fixed_too() -> None:
    fields = parse_ddl("a decimal(9,9), b decimal(38,0), day date, at timestamp, real float")
    values: list[bytes | None] = [
        b'{"a":1E-9}',
        b'{"a":0E-9}',
        b'{"a":0.000001000}',
        b'{"a":-0.500000000,"b":12345678901234567890123456789012345678}',
        b'{"day":"0001-01-01","at":"0001-01-01T00:00:00.000001Z"}',
        b'{"day":"9999-12-31","at":"9999-12-31T23:59:59.999999Z"}',
        b'{"real":1e-45}',
        b'{"real":16777216.0}',
    ]
    file = File([values], fields=fields)
    assert file.values() == [values]
    assert not any(file.kept())


def test_zeros_keep_their_sign_and_texts_their_repetitions() -> None:
    values: list[bytes | None] = [b'{"text":"x","double":-0.0}', b'{"text":"x","double":0.0}', b'{"real":-0.0}'] * 5000
    file = File([values])
    assert file.values() == [values]
    assert not any(file.kept())


def test_required_fields_and_fields_of_only_some_rows_are_elided() -> None:
    fields = parse_ddl("id int NOT NULL, place struct<city: string NOT NULL>")
    values = [b'{"id":1}', b'{"id":2,"place":{"city":"x"}}', b"{}", None]
    file = File([values], fields=fields)
    assert file.kept() == [False, False, True, True]
    assert file.values() == [values]


@pytest.mark.sampled
@pytest.mark.parametrize("codec", [codecs.NONE, codecs.ZSTD])
def test_no_flipped_bit_of_the_file_or_the_index_changes_a_value(codec: str) -> None:
    values = [*ELIDED, None, b"no json"]
    file = File([values], codec)
    summary, entry = file.index.summary, file.index.entry(0)
    typed = range(entry.position, entry.position + entry.metadata_length)
    for position in chosen(range(len(file.data))):
        file.data[position] ^= 1 << position % 8
        if position in typed or position >= summary.footer_position:
            with pytest.raises(CorruptRecordError, match=r"x\.parquet"):
                file.values()
        else:  # other columns of the records, or the values
            with suppress(CorruptRecordError):
                assert file.values() == [values]
        file.data[position] ^= 1 << position % 8
    intact = file.index_bytes
    for position in chosen(range(len(intact))):
        file.index_bytes = intact[:position] + bytes([intact[position] ^ 1 << position % 8]) + intact[position + 1 :]
        with pytest.raises((CorruptIndexError, UnsupportedVersionError)):
            file.values()


def test_values_that_are_restored_otherwise_than_they_were_are_an_error() -> None:
    """The typed columns of other values, all checksums of the file right: as a changed rule would make."""
    file, other = File([[b'{"number":1}']], codecs.NONE), File([[b'{"number":2}']], codecs.NONE)
    sums = [file.index.value_sum(0)]
    other_index = other.index
    other.index_bytes = encode_index(other_index.summary, other_index.entries, sums)
    with pytest.raises(CorruptRecordError, match=r"x\.parquet: record batch 0 .* its values have 12 bytes"):
        other.values()


def test_older_readers_refuse_the_file() -> None:
    """They know the flags 1 to 8, and refuse others (``test_index``)."""
    assert File([[b"{}"]]).index_bytes[10] == 1 + 2 + 8 + 16


@pytest.mark.sampled
def test_no_forged_file_ends_the_process_or_is_believed() -> None:
    random = Random(11)
    values = [*ELIDED, None]
    file = File([values], codecs.NONE)
    before, intact = bytes(file.data), file.index_bytes
    found = decode_index(intact, "x.index")
    entry, summary = found.entry(0), found.summary
    typed = range(entry.position, entry.position + entry.metadata_length)
    for part in chosen([range(summary.footer_position, len(before) - 8)] * 200 + [typed] * 200):
        for _ in range(random.randint(1, 3)):
            file.data[random.choice(part)] = random.randrange(256)
        sums = {
            "metadata_crc32c": crc32c(bytes(file.data[typed.start : typed.stop])),
        }
        forged = summary._replace(footer_crc32c=crc32c(bytes(file.data[summary.footer_position :])))
        file.index_bytes = encode_index(forged, [entry._replace(**sums)], [found.value_sum(0)])
        try:
            assert file.values() == [values]
            file.reader().check_file()
        except CorruptRecordError:
            pass
        file.data[:] = before


def test_an_index_is_rebuilt_from_the_file() -> None:
    values = [*ELIDED, None, b"no json", *HOSTILE]
    file = File([values, values[::-1]])
    rebuilt = rebuild_history_index(
        file.read_at, len(file.data), "x.parquet", lambda number, row: BatchProducer(), 0, False
    )
    before, after = decode_index(file.index_bytes, "x.index"), decode_index(rebuilt, "x.index")
    assert after.summary == before.summary
    assert [after.value_sum(number) for number in (0, 1)] == [before.value_sum(number) for number in (0, 1)]
    file.index_bytes = rebuilt
    assert file.values() == [values, values[::-1]]


@pytest.mark.parametrize("batches", [1, 2, 20])
def test_a_damaged_index_vouches_for_the_file(batches: int) -> None:
    file = File([[b'{"text":"%d"}' % number] for number in range(batches)])
    rebuilt = rebuild_index(file.read_at, len(file.data), "x.parquet", lambda number, row: BatchProducer())
    sums = len(rebuilt) - 4 - 8 * batches
    for position, vouches in ((20, True), (sums, True), (sums + 4, False), (len(rebuilt) - 1, True)):
        damaged = bytearray(file.index_bytes)
        damaged[position] ^= 1
        assert vouches_for(bytes(damaged), rebuilt) == vouches, position
    assert rebuilt != file.index_bytes
    damaged = bytearray(file.index_bytes)
    damaged[sums + 4] ^= 1
    assert with_lengths_of(bytes(damaged), rebuilt) == file.index_bytes


def test_a_text_does_not_depend_on_the_other_rows() -> None:
    reader = ValueReader(SCHEMA)
    fitting = [value for value in ELIDED if value]
    columns = reader.columns(pa.array(fitting, pa.binary()))
    for number in range(len(fitting)):
        one = {name: column.slice(number, 1) for name, column in columns.items()}
        assert encode_objects(SCHEMA, one, 1).cast(pa.binary()).to_pylist() == [fitting[number]]


def test_records_are_read_without_typed_columns_if_their_values_are_not_asked_for() -> None:
    file = File([list(ELIDED)])
    entry = file.index.entry(0)
    file.data[entry.position] ^= 1
    assert file.reader().read(0, [schema.TIMESTAMP]).num_rows == len(ELIDED)


@settings(max_examples=examples(30))
@given(st.data())
def test_all_typed_rows_are_elided(data: st.DataObject) -> None:
    fields = data.draw(random_fields(2))
    some = data.draw(st.lists(rows_of(fields), min_size=1, max_size=4))
    columns = {field.name: pa.array([row[field.name] for row in some], arrow_type(field.type)) for field in fields}
    values = JsonWriter(fields).values(columns, len(some)).to_pylist()
    file = File([values], fields=fields)
    assert file.values() == [values]
    assert file.kept() == [False] * len(values)


TOKENS = [
    b"null", b"-0", b"-0.0", b"1.0", b"1e0", b"0.10", b"1E+5", b"1e400", b"1e-400", b"NaN", b"0E-9", b"1E-9", b"1e16",
    b"123456789012345678901234567890", b"16777217", b"3.4028235677973366e38", b"true", b"[]", b"{}", b"[null]",
    b'{"":null}', b'{"f0":null,"f0":1}', b'""', b'"\\u0041"', b'"\\ud800"', b'"\\ud83d\\ude00"', b'"\\u001F"',
    b'"\x7f"',
    b'"0000-01-01"', b'"10000-01-01"', b'"2026-11-01"', b'"2026-11-01T23:59:60Z"', b'"2026-11-01T10:00:00.000000Z"',
    b'"2026-11-01 10:00:00.123456789+14:00"', b'"9999-12-31T23:59:59.9999999Z"', b'"AA=="', b'"AB=="', b" ", b",", b'"',
    b"\\", b"\xc3", b"\0\0\0\0\1",
]  # fmt: skip
"""What stands in a value instead of something else, or beside it."""


def edit(value: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """Put each text in place of so many of the parts of a value, from one on."""
    parts = re.findall(rb'"(?:[^"\\]|\\.)*"|[-+.\w]+|.', value, re.DOTALL)
    for at, count, text in edits:
        start = at % (len(parts) + 1)
        parts[start : start + count] = [text]
    return b"".join(parts)


EDITS = st.lists(st.tuples(st.integers(0, 100), st.integers(0, 2), st.sampled_from(TOKENS)), max_size=2)


@settings(deadline=None, max_examples=examples(60))
@given(st.data())
def test_any_values_of_any_schema_come_back_and_so_do_their_columns(data: st.DataObject) -> None:
    fields = data.draw(random_fields(2))
    some = data.draw(st.lists(rows_of(fields), min_size=1, max_size=3))
    columns = {field.name: pa.array([row[field.name] for row in some], arrow_type(field.type)) for field in fields}
    exact = JsonWriter(fields).values(columns, len(some)).to_pylist()
    values = [None, *(edit(value, data.draw(EDITS)) for value in [*exact, *exact])]
    reader = ValueReader(fields)
    expected = reader.columns(pa.array(values, pa.binary()))
    assert [bool(reader.find_misfit(value)) for value in values] == expected["_unfit"].to_pylist()
    file = File([values, values[::-1]], fields=fields)
    assert file.values() == [values, values[::-1]]
    found = file.reader().read_typed(0, typed_fields(fields))
    assert all(column.equals(expected[name]) for name, column in found.items())


def later(fields: tuple[SchemaField, ...], in_map: bool = False) -> st.SearchStrategy[tuple[SchemaField, ...]]:
    """Return a schema that these fields may become: in any order, with wider numbers, and with more fields."""
    changed = st.tuples(*(later_type(field.type, in_map).map(partial(SchemaField, field.name)) for field in fields))
    more = st.just(()) if in_map else st.sampled_from([(), parse_ddl("more struct<x: array<int>>")])
    return st.tuples(changed, more).flatmap(lambda parts: st.permutations(sum(parts, ()))).map(tuple)


def later_type(kind: SchemaType, in_map: bool) -> st.SearchStrategy[SchemaType]:
    if kind.name == "struct":
        return later(kind.fields, in_map).map(lambda fields: SchemaType("struct", fields=fields))
    if kind.element is not None:
        element = later_type(kind.element, in_map or kind.name == "map")
        return element.map(lambda inner: SchemaType(kind.name, element=inner))
    return st.sampled_from([kind, SchemaType("bigint")]) if kind.name == "tinyint" else st.just(kind)


@settings(deadline=None, max_examples=examples(60))
@given(st.data())
def test_columns_of_a_file_are_read_by_any_later_schema(data: st.DataObject) -> None:
    before = data.draw(random_fields(2))
    after = data.draw(later(before))
    assert not find_breaking_change(before, after)
    some = data.draw(st.lists(rows_of(before), min_size=1, max_size=3))
    columns = {field.name: pa.array([row[field.name] for row in some], arrow_type(field.type)) for field in before}
    values = [None, *JsonWriter(before).values(columns, len(some)).to_pylist()]
    found = File([values], fields=before).reader().read_typed(0, typed_fields(after))
    expected = ValueReader(after).columns(pa.array(values, pa.binary()))
    assert all(column.equals(expected[name]) for name, column in found.items())
