"""Arrays built from their buffers equal those that Arrow builds from the same values."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from sparklog.format.plain_arrays import binary_column, headers_array, timestamp_array
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
