"""Arrays built from their buffers equal those that Arrow builds from the same values."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.format.plain_arrays import (
    binary_column,
    headers_array,
    null_scalar,
    plain_scalar,
    timestamp_array,
    timestamp_scalar,
)
from sparklog.format.schema import HEADERS_TYPE, TIMESTAMP_TYPE

VALUES = st.none() | st.binary(max_size=20)
HEADERS = st.none() | st.lists(st.tuples(st.text(max_size=9), VALUES), max_size=4)


@given(st.lists(VALUES, max_size=40))
def test_a_column_of_bytes(values: list[bytes | None]) -> None:
    found = binary_column(values)
    found.array.validate(full=True)
    assert found.array.equals(pa.array(values, pa.binary()))
    lengths = [end - begin for begin, end in zip(found.offsets, found.offsets[1:], strict=False)]
    assert lengths == [len(value or b"") for value in values]
    assert [values[row] for row in found.missing] == [None] * values.count(None)


@given(st.lists(HEADERS, max_size=40))
def test_a_column_of_headers(rows: list[list[tuple[str, bytes | None]] | None]) -> None:
    found = headers_array(rows)
    found.validate(full=True)
    cells = [None if row is None else [{"key": name, "value": value} for name, value in row] for row in rows]
    assert found.equals(pa.array(cells, HEADERS_TYPE))


@given(st.lists(st.integers(-(2**62), 2**62), max_size=40))
def test_a_column_of_times(stamps: list[int]) -> None:
    assert timestamp_array(stamps).equals(pa.array(stamps, TIMESTAMP_TYPE))


@given(st.text(max_size=9), st.integers(-(2**31), 2**31 - 1))
def test_scalars(text: str, number: int) -> None:
    for value, kind in ((text, pa.string()), (number, pa.int32()), (number, pa.int64())):
        assert plain_scalar(value, kind).equals(pa.scalar(value, kind))
    assert timestamp_scalar(number).equals(pa.scalar(number, TIMESTAMP_TYPE))
    assert null_scalar(HEADERS_TYPE).equals(pa.scalar(None, HEADERS_TYPE))


IN_A_TASK = """
import sys
import pyarrow as pa
from sparklog.client.scan.scan import ROW_TYPES
from sparklog.format.plain_arrays import binary_column, headers_array, timestamp_array
from sparklog.log.records.batches import RowBuilder
from sparklog.log.records.records import Records
from sparklog.protocol.plan.partitioner import partition_keys, split_by_partition
from sparklog.spark.sink.conversion import Converter
from sparklog.types import CREATE_TIME

keys = binary_column([b"a", b"b"]).array
split_by_partition(partition_keys(keys, 4), 4)
rows = pa.RecordBatch.from_arrays([keys, keys], names=["key", "value"])
stored = Converter(["key", "value"], True).convert(rows, 1).records
stored = stored.append_column("headers", headers_array([(), None]))
columns = list(ROW_TYPES)
schema = pa.schema([pa.field(name, ROW_TYPES[name]) for name in columns])
built = RowBuilder(schema, columns, "t", 0).build(Records(7, stored, CREATE_TIME))
print(built.num_rows, "pandas" in sys.modules)
"""


def test_records_become_rows_and_rows_records_without_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", IN_A_TASK], capture_output=True, text=True)
    assert done.stdout.split() == ["2", "False"], done.stderr
