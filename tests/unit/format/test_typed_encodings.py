"""The typed columns of a history segment are encoded by what they hold, and every reader reads them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.format import schema
from sparklog.format.parquet.writer import ParquetSegmentWriter

ROWS = 5000
RANDOM = Random(14)
START = datetime(2026, 11, 1, tzinfo=timezone.utc)

COLUMNS: dict[str, pa.Array] = {
    "tiny": pa.array([RANDOM.randrange(-128, 128) for _ in range(ROWS)], pa.int8()),
    "small": pa.array([RANDOM.choice([None, -32768, 32767]) for _ in range(ROWS)], pa.int16()),
    "whole": pa.array([RANDOM.randrange(-999, 1000) for _ in range(ROWS)], pa.int32()),
    "counted": pa.array(range(2**62, 2**62 + ROWS), pa.int64()),
    "store": pa.array([RANDOM.choice([1, 2**40, -(2**63), 2**63 - 1]) for _ in range(ROWS)], pa.int64()),
    "price": pa.array([RANDOM.random() for _ in range(ROWS)], pa.float64()),
    "rate": pa.array([RANDOM.choice([0.1, 0.7, None]) for _ in range(ROWS)], pa.float32()),
    "day": pa.array([date(1, 1, 1) + timedelta(number * 7) for number in range(ROWS)], pa.date32()),
    "placed": pa.array([START + timedelta(0, number, number) for number in range(ROWS)], pa.timestamp("us", "UTC")),
    "cents": pa.array([Decimal(RANDOM.randrange(-99999, 99999)).scaleb(-2) for _ in range(ROWS)], pa.decimal128(5, 2)),
    "long": pa.array([Decimal(number).scaleb(-3) for number in range(ROWS)], pa.decimal128(18, 3)),
    "huge": pa.array([Decimal(10**37 + number) for number in range(ROWS)], pa.decimal128(38, 0)),
    "city": pa.array([RANDOM.choice(["Oslo", "Bergen", "", None]) for _ in range(ROWS)], pa.string()),
    "sure": pa.array([RANDOM.choice([True, False, None]) for _ in range(ROWS)], pa.bool_()),
    "absent": pa.nulls(ROWS, pa.int64()),
    "lines": pa.array(
        [[{"item": RANDOM.randrange(9**9), "size": RANDOM.choice("SML")}] * (number % 3) for number in range(ROWS)],
        pa.list_(pa.struct([("item", pa.int64()), ("size", pa.string())])),
    ),
}


def write(groups: Sequence[dict[str, pa.Array]]) -> bytes:
    """Write row groups of these typed columns."""
    sink = io.BytesIO()
    typed = [pa.field(name, column.type) for name, column in groups[0].items()]
    writer = ParquetSegmentWriter(sink, base_offset=0, typed=typed)
    for columns in groups:
        rows = len(next(iter(columns.values())))
        fields = schema.record_schema()
        content: dict[str, Any] = {
            schema.KEY: pa.nulls(rows, pa.binary()),
            schema.VALUE: pa.array([b"{}"] * rows),
            schema.TIMESTAMP: pa.array([0] * rows, schema.TIMESTAMP_TYPE),
            schema.HEADERS: pa.nulls(rows, schema.HEADERS_TYPE),
        }
        batch = pa.RecordBatch.from_arrays([content[field.name] for field in fields], schema=fields)
        writer.write(batch, columns)
    writer.finish()
    return sink.getvalue()


def encodings(data: bytes) -> dict[str, tuple[str, ...]]:
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return {column.path_in_schema: column.encodings for column in columns}


@pytest.mark.parametrize(
    ("column", "encoding"),
    [
        ("whole", "DELTA_BINARY_PACKED"),
        ("counted", "DELTA_BINARY_PACKED"),
        ("placed", "DELTA_BINARY_PACKED"),
        ("cents", "DELTA_BINARY_PACKED"),
        ("store", "RLE_DICTIONARY"),
        ("small", "RLE_DICTIONARY"),
        ("city", "RLE_DICTIONARY"),
        ("rate", "RLE_DICTIONARY"),
        ("price", "PLAIN"),
        ("lines.list.element.item", "DELTA_BINARY_PACKED"),
        ("lines.list.element.size", "RLE_DICTIONARY"),
    ],
)
def test_values_that_repeat_have_a_dictionary_and_whole_numbers_that_do_not_are_differences(
    column: str, encoding: str
) -> None:
    found = encodings(write([COLUMNS]))[column]
    assert encoding in found
    assert ("RLE_DICTIONARY" in found) == (encoding == "RLE_DICTIONARY")


def test_parquet_readers_read_all_types(tmp_path: Path) -> None:
    """Spark and delta-rs are asked in the tests of tables."""
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    path = tmp_path / "x.parquet"
    path.write_bytes(write([COLUMNS, {name: column.slice(7, 100) for name, column in COLUMNS.items()}]))
    expected = pa.Table.from_pydict(
        {name: column.to_pylist() + column.slice(7, 100).to_pylist() for name, column in COLUMNS.items()},
        schema=pa.schema([(name, column.type) for name, column in COLUMNS.items()]),
    )
    assert pq.read_table(path, columns=list(COLUMNS)).equals(expected)
    assert polars.read_parquet(path, columns=list(COLUMNS)).to_dicts() == expected.to_pylist()
    with duckdb.connect() as connection:
        rows = connection.sql(f"SELECT {', '.join(COLUMNS)} FROM '{path}'").to_arrow_table()
    assert rows.to_pylist() == expected.to_pylist()


def test_later_row_groups_may_hold_other_values_than_the_first() -> None:
    other = pa.array([str(number) * 50 for number in range(ROWS)])
    data = write([{"city": COLUMNS["city"]}, {"city": other}, {"city": pa.nulls(ROWS, pa.string())}])
    expected = [*COLUMNS["city"].to_pylist(), *other.to_pylist(), *[None] * ROWS]
    assert pq.read_table(io.BytesIO(data)).column("city").to_pylist() == expected


def test_a_file_without_records_keeps_its_typed_columns() -> None:
    sink = io.BytesIO()
    ParquetSegmentWriter(sink, base_offset=0, typed=[pa.field("whole", pa.int32())]).finish()
    assert pq.read_table(io.BytesIO(sink.getvalue())).schema.field("whole").type == pa.int32()
