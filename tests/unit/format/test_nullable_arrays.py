"""Arrays from buffers are those that Arrow makes of the same values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.format.nullable_arrays import nullable_array, text_array

TEXTS = st.text(max_size=4)
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.timestamp("ms", "UTC"), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXTS),
    (pa.list_(pa.int32()), st.lists(st.integers(0, 9), max_size=3)),
    (pa.list_(pa.string()), st.lists(TEXTS, max_size=3)),
    (pa.map_(pa.string(), pa.string()), st.lists(st.tuples(TEXTS, TEXTS), max_size=3)),
]


@given(st.data())
def test_values_and_nulls_come_back(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(KINDS))
    given_values = data.draw(st.lists(st.none() | values, max_size=20))
    array = nullable_array(given_values, kind)
    array.validate(full=True)
    assert array.type == kind
    assert array.equals(pa.array(given_values, kind))
    assert array.null_count == given_values.count(None)


@given(st.lists(st.none() | st.sampled_from(["a", "b", ""]), max_size=20))
def test_a_repeated_text_is_stored_once(texts: list[str | None]) -> None:
    array = text_array(texts)
    array.validate(full=True)
    assert array.to_pylist() == texts
    assert len(array.dictionary) == len(set(texts))
    assert array.dictionary_decode().null_count == texts.count(None)


def test_a_value_beyond_its_type_is_an_error() -> None:
    with pytest.raises(OverflowError):
        nullable_array([2**40, None], pa.int32())
    with pytest.raises(TypeError):
        nullable_array(["x"], pa.int64())
