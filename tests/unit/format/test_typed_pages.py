"""Typed columns of a history segment: read one by one, and nothing damaged or forged is returned."""

from __future__ import annotations

import io
import json
from functools import cache
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog import limits
from sparklog.errors import CorruptRecordError
from sparklog.format import codecs
from sparklog.format.checksum import crc32c
from sparklog.format.index import NO_PRODUCER, encode_index
from sparklog.format.index_rebuild import rebuild_index
from sparklog.format.parquet import typed_reader
from sparklog.format.parquet.delta_stats import decode_bounds
from sparklog.format.parquet.pages import read_footer
from sparklog.format.parquet.writer import ParquetSegmentWriter
from sparklog.schema.languages.ddl import SchemaField, parse_ddl
from sparklog.schema.languages.record_schema import PartSchema, RecordSchema
from sparklog.schema.typed_columns import typed_fields
from sparklog.schema.values.typed_records import record_reader
from sparklog.schema.values.typed_values import ValueReader
from tests.sample import examples
from tests.unit.format.parquet_files import StoredFile, records_of
from tests.unit.schema.test_avro_values import encode

DDL = (
    "text string, truth boolean, tiny tinyint, small smallint, number int, big bigint, real float, double double, "
    "price decimal(18, 3), day date, at timestamp, raw binary, texts array<string>, counts map<string, int>, "
    "nested struct<a: int, b: array<struct<c: string, d: decimal(5, 1)>>>, absent string"
)
SCHEMA = parse_ddl(DDL)
FIELDS = typed_fields(RecordSchema(PartSchema("json", (DDL,))).columns)

numbers = {"tiny": 8, "small": 16, "number": 32, "big": 64}
rows = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(max_size=50),
        "truth": st.booleans(),
        **{name: st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for name, bits in numbers.items()},
        "real": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "double": st.floats(allow_nan=False, allow_infinity=False),
        "price": st.decimals(-(10**14), 10**14, places=3).map(str),
        "day": st.dates().map(str),
        "at": st.datetimes().map(lambda time: time.isoformat() + "Z"),
        "texts": st.lists(st.none() | st.text(max_size=3), max_size=3),
        "counts": st.dictionaries(st.text(max_size=3), st.none() | st.integers(0, 9), max_size=3),
        "nested": st.fixed_dictionaries({}, optional={"a": st.integers(0, 9), "b": st.lists(st.just({"c": "x"}))}),
    },
)


class File(StoredFile):
    """A history segment in memory, with one row group for each list of values."""

    def __init__(
        self, groups: list[list[bytes | None]], codec: str = codecs.ZSTD, schema: tuple[SchemaField, ...] = SCHEMA
    ) -> None:
        sink = io.BytesIO()
        fields = (*typed_fields(schema), pa.field("_unfit", pa.bool_()))
        writer = ParquetSegmentWriter(sink, base_offset=0, codec=codec, typed=fields)
        reader = ValueReader(schema)
        self.typed = [reader.columns(pa.array(values, pa.binary())) for values in groups]
        for values, typed in zip(groups, self.typed, strict=True):
            writer.write(records_of(values), typed)
        index_bytes = writer.finish()
        self.stats = writer.stats
        super().__init__(sink.getvalue(), index_bytes)
        self.asked: list[tuple[int, int]] = []

    def read_at(self, position: int, size: int) -> pa.Buffer:
        self.asked.append((position, size))
        return super().read_at(position, size)

    def sign_footer(self) -> None:
        """Make the index fit the footer, as whoever forges a file would."""
        summary = self.index.summary
        footer = crc32c(bytes(self.data[summary.footer_position :]))
        self.index_bytes = encode_index(summary._replace(footer_crc32c=footer), self.index.entries)


@pytest.mark.parametrize("element", ["boolean", "int", "string", ["null", "boolean"]], ids=str)
def test_lists_whose_elements_take_a_byte_are_read_also_by_a_rebuilt_index(element: Any) -> None:
    array = {"type": "array", "items": element}
    written = {"type": "record", "name": "order", "fields": [{"name": "a", "type": array}]}
    schema_read = RecordSchema(PartSchema("avro", (json.dumps(written),)))
    items = [{"boolean": True, "int": 1, "string": ""}.get(str(element))] * 20_000
    batch = records_of([encode({"a": items}, written)])
    fields = typed_fields(schema_read.columns)
    sink = io.BytesIO()
    writer = ParquetSegmentWriter(sink, base_offset=0, typed=fields)
    writer.write(batch, record_reader(schema_read).columns(batch.column("key"), batch.column("value")))
    index = writer.finish()
    file = StoredFile(sink.getvalue(), index)
    assert file.reader().read_typed(0, fields)["a"].to_pylist() == [items]
    file.index_bytes = rebuild_index(file.read_at, len(file.data), "x.parquet", lambda *_: NO_PRODUCER)
    assert file.reader().read_typed(0, fields)["a"].to_pylist() == [items]


def test_bounds_of_no_columns_read_nothing() -> None:
    file = File([sample()])
    assert file.reader().typed_bounds(0, ()) == {}
    assert not file.asked


@cache
def sample() -> list[bytes | None]:
    values: list[bytes | None] = [None, b"no json", b"{}"]
    for number in range(30):
        row = {
            "text": f"text {number % 4}",
            "truth": number % 2 == 0,
            "number": number,
            "price": f"{number}.125",
            "at": "2026-11-01T10:00:00Z",
            "texts": ["a", None] * (number % 3),
            "counts": {"k": number},
            "nested": {"a": 1, "b": [{"c": "x", "d": 1.5}]},
        }
        values.append(json.dumps(row).encode())
    return values


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.lists(rows, min_size=1, max_size=8), min_size=1, max_size=2), st.sampled_from(codecs.CODECS))
def test_typed_columns_are_read_back_and_lie_within_their_bounds(groups: list[list[Any]], codec: str) -> None:
    file = File([[json.dumps(row).encode() for row in group] for group in groups], codec)
    reader = file.reader()
    of_file = decode_bounds(file.stats, FIELDS)
    for number, expected in enumerate(file.typed):
        found = reader.read_typed(number, FIELDS)
        assert {name: array.to_pylist() for name, array in found.items()} == {
            name: array.to_pylist() for name, array in expected.items()
        }
        for bounds in (reader.typed_bounds(number, FIELDS), of_file):
            for name, column in bounds.items():
                values = [value for value in expected[name].to_pylist() if value is not None]
                assert column.may_be_null or len(values) == len(expected[name])
                if column.smallest is None or column.largest is None:
                    assert not values
                else:
                    least, most = column.smallest.as_py(), column.largest.as_py()
                    assert all(least <= value <= most for value in values)


@pytest.mark.parametrize("name", ["text", "number", "counts", "_unfit"])
def test_one_column_is_read_without_the_bytes_of_the_others(name: str) -> None:
    file = File([sample(), sample()])
    (field,) = [field for field in FIELDS if field.name == name]
    assert file.reader().read_typed(1, [field])[name].equals(file.typed[1][name])
    footer = file.index.summary.footer
    group = read_footer(pa.py_buffer(bytes(file.data[footer.position :]))).groups[1]
    expected = [(column.position, column.length) for column in group.columns if column.root == name]
    assert [asked for asked in file.asked if asked[0] != footer.position] == expected


def test_columns_that_a_file_does_not_have_are_null() -> None:
    reader = File([sample()]).reader()
    field = pa.field("later", pa.int32())
    assert reader.read_typed(0, [field])["later"].null_count == len(sample())
    assert reader.typed_bounds(0, [field])["later"].smallest is None


WIDER = {
    "tiny": pa.int16(),
    "number": pa.int64(),
    "real": pa.float64(),
    "price": pa.decimal128(25, 5),
    "counts": pa.map_(pa.string(), pa.int64()),
}


@pytest.mark.parametrize("name", WIDER)
def test_a_column_of_a_narrower_type_is_widened(name: str) -> None:
    file = File([[*sample(), json.dumps({"tiny": -3, "real": 0.5}).encode()]])
    field = pa.field(name, WIDER[name])
    reader = file.reader()
    expected = file.typed[0][name].cast(field.type)
    assert reader.read_typed(0, [field])[name].equals(expected)
    bounds = reader.typed_bounds(0, [field]).get(name)
    if name in ("tiny", "number", "price"):
        values = [value for value in expected.to_pylist() if value is not None]
        assert bounds is not None
        assert (bounds.smallest, bounds.largest) == tuple(pa.scalar(bound(values), field.type) for bound in (min, max))
    else:
        assert bounds is None


WIDER_STRUCTS = [
    "struct<a: int, more: string, b: array<struct<c: string, d: decimal(5, 1), e: array<int>>>>",
    "struct<b: array<struct<d: decimal(5, 1), c: string>>, a: int>",
    "struct<first: struct<x: int>, b: array<struct<x: map<string, int>, d: decimal(5, 1), c: string>>, a: bigint>",
]


@pytest.mark.parametrize("kind", WIDER_STRUCTS)
def test_fields_that_structs_got_later_are_null_wherever_they_stand(kind: str) -> None:
    rows = [
        {"nested": {"a": 1, "b": [{"c": "x"}, None, {"d": 1.5}]}}, {"nested": {"b": []}}, {"nested": {}}, {},
        {"nested": {"a": 2}},
    ]  # fmt: skip
    values: list[bytes | None] = [json.dumps(row).encode() for row in rows]
    schema = parse_ddl(f"nested {kind}")
    (field,) = typed_fields(schema)
    assert (
        File([values])
        .reader()
        .read_typed(0, [field])["nested"]
        .equals(ValueReader(schema).columns(pa.array(values))["nested"])
    )


CHANGED = [
    ("map<string, struct<a: int, b: string>>", "map<string, struct<b: string, a: bigint>>", b'{"k":{"a":1},"l":null}'),
    ("array<struct<x: int>>", "array<struct<x: bigint, y: int>>", b'[{"x":1},null,{}]'),
    ("array<array<tinyint>>", "array<array<bigint>>", b"[[1,null],null,[]]"),
]


@pytest.mark.parametrize(("before", "after", "value"), CHANGED)
def test_lists_and_maps_are_read_by_a_later_schema(before: str, after: str, value: bytes) -> None:
    values: list[bytes | None] = [b'{"m":%s}' % value, b"{}", None, b'{"m":%s}' % (value[:1] + value[-1:]), b'{"m":5}']
    written, wanted = (parse_ddl(f"m {kind}") for kind in (before, after))
    (field,) = typed_fields(wanted)
    found = File([values], schema=written).reader().read_typed(0, [field])["m"]
    assert found.equals(ValueReader(wanted).columns(pa.array(values))["m"])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("number", pa.string()),
        ("number", pa.int16()),
        ("text", pa.int32()),
        ("price", pa.decimal128(17, 3)),
        ("day", pa.int64()),
        ("texts", pa.list_(pa.int32())),
        ("nested", pa.struct([pa.field("a", pa.int32())])),
        ("nested", pa.int32()),
        ("nested", pa.map_(pa.string(), pa.int32())),
        ("counts", pa.struct([pa.field("key_value", pa.int32())])),
        ("text", pa.struct([pa.field("a", pa.int32())])),
        ("text", pa.list_(pa.int32())),
    ],
)
def test_a_column_of_another_type_is_an_error(name: str, kind: pa.DataType) -> None:
    reader = File([sample()]).reader()
    with pytest.raises(CorruptRecordError, match=rf"x\.parquet.*{name}.*if the topic's schema has changed.*again"):
        reader.read_typed(0, [pa.field(name, kind)])


def test_columns_with_any_encoding_of_parquets_writer_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    arrows = pq.ParquetWriter

    def write_otherwise(*arguments: Any, **options: Any) -> pq.ParquetWriter:
        if "column_encoding" in options:
            dictionaries = ["texts.list.element", "nested.b.list.element.c", "nested.a", "counts.key_value.key"]
            whole = ["number", "big", "price", "at", "counts.key_value.value"]
            encodings = {**options["column_encoding"], **dict.fromkeys(whole, "DELTA_BINARY_PACKED")}
            options["column_encoding"] = {name: code for name, code in encodings.items() if name not in dictionaries}
            options["use_dictionary"] = dictionaries
            options["store_decimal_as_integer"] = True
        return arrows(*arguments, **options)

    monkeypatch.setattr(pq, "ParquetWriter", write_otherwise)
    file = File([sample()])
    found = file.reader().read_typed(0, FIELDS)
    assert {name: array.to_pylist() for name, array in found.items()} == {
        name: array.to_pylist() for name, array in file.typed[0].items()
    }
    for name, column in file.reader().typed_bounds(0, FIELDS).items():
        assert column.smallest is None or column.smallest.as_py() == pc.min(file.typed[0][name]).as_py()
    (texts,) = [field for field in FIELDS if field.name == "texts"]
    longer = File([[json.dumps({"texts": ["x" * 1000] * 9}).encode()]]).reader()
    monkeypatch.setattr(typed_reader, "MAX_BATCH_BYTES", 3000)
    with pytest.raises(CorruptRecordError, match=r"texts\.list\.element takes 9000 bytes"):
        longer.read_typed(0, [texts])


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.ZSTD])
def test_no_flipped_bit_of_a_typed_column_is_returned(codec: str) -> None:
    file = File([sample()], codec)
    footer = file.index.summary.footer
    columns = read_footer(pa.py_buffer(bytes(file.data[footer.position :]))).groups[0].columns
    typed = [column for column in columns if column.root in file.typed[0]]
    for column in typed:
        (field,) = [field for field in FIELDS if field.name == column.root]
        for position in range(column.position, column.position + column.length):
            bit = 1 << position % 8
            file.data[position] ^= bit
            try:  # a header also has statistics, which are not used
                found = file.reader().read_typed(0, [field])
            except CorruptRecordError:
                pass
            else:
                assert found[field.name].equals(file.typed[0][field.name])
            file.data[position] ^= bit


def test_a_damaged_footer_and_a_truncated_file_are_errors() -> None:
    file = File([sample()])
    position = file.index.summary.footer_position
    file.data[position + 40] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum of its footer"):
        file.reader().read_typed(0, FIELDS[:1])
    file = File([sample()])
    footer = bytes(file.data[position:])
    file.data[100:] = footer
    with pytest.raises(CorruptRecordError):
        file.reader().read_typed(0, FIELDS)


def test_no_forged_footer_ends_the_process_or_is_believed() -> None:
    random = Random(7)
    file = File([sample()[:8]])
    before = bytes(file.data)
    position = file.index.summary.footer_position
    for _ in range(100):
        for _ in range(random.randint(1, 3)):
            file.data[random.randrange(position, len(file.data) - 8)] = random.randrange(256)
        file.sign_footer()
        for field in FIELDS:
            try:
                found = file.reader().read_typed(0, [field])
                file.reader().typed_bounds(0, [field])
            except CorruptRecordError:
                continue
            assert len(found[field.name]) == 8
        file.data[:] = before


def test_a_dictionary_cannot_expand_to_more_than_a_batch_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[bytes | None] = [json.dumps({"text": "x" * 1000}).encode()] * 1000
    file = File([values])
    assert len(file.data) < 50_000
    field = FIELDS[0]
    assert file.reader().read_typed(0, [field])["text"].equals(file.typed[0]["text"])
    monkeypatch.setattr(typed_reader, "MAX_BATCH_BYTES", 900_000)
    with pytest.raises(CorruptRecordError, match="1000000 bytes, over the limit"):
        file.reader().read_typed(0, [field])
    monkeypatch.setattr(typed_reader, "MAX_BATCH_BYTES", 1_001_000)
    assert file.reader().read_typed(0, [field])["text"].equals(file.typed[0]["text"])
    assert limits.MAX_BATCH_BYTES > 1_001_000
