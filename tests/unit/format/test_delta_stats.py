"""Statistics of history segments, as Delta states them."""

from __future__ import annotations

import io
import json
from datetime import date, datetime, timezone

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparklog.format.delta_stats import MAX_COLUMNS, encode_stats, read_typed_stats


def test_offsets_and_times_are_exact() -> None:
    stats = json.loads(encode_stats(3, (5, 9), (0, 1_234_567), {"key": 1, "value": 0}))
    assert stats == {
        "numRecords": 3,
        "minValues": {"offset": 5, "timestamp": "1970-01-01T00:00:00.000Z"},
        "maxValues": {"offset": 9, "timestamp": "1970-01-01T00:00:01.234567Z"},
        "nullCount": {"offset": 0, "timestamp": 0, "key": 1, "value": 0},
    }


@pytest.mark.parametrize("time_us", [2**63 - 1, -(2**63), 253_402_300_800_000_000])
def test_times_that_delta_cannot_state_have_no_bounds(time_us: int) -> None:
    stats = json.loads(encode_stats(1, (0, 0), (0, time_us), {}))
    assert (stats["minValues"], stats["maxValues"]) == ({"offset": 0}, {"offset": 0})


def footer_of(table: pa.Table, row_group_size: int = 2) -> pq.FileMetaData:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=row_group_size)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata


def test_typed_columns_have_the_bounds_of_all_row_groups() -> None:
    moment = datetime(2026, 11, 1, 9, 30, tzinfo=timezone.utc)
    table = pa.table(
        {
            "whole": pa.array([3, None, 7, 1], pa.int32()),
            "number": [0.5, 2.5, None, None],
            "text": ["b", "a", "d", "c"],
            "day": [date(2026, 1, 2), None, None, date(2025, 1, 1)],
            "time": pa.array([moment, None, moment, None], pa.timestamp("us", "UTC")),
            "sure": [True, False, None, None],
            "list": [[1], [2], None, []],
            "empty": pa.nulls(4, pa.int64()),
            "long": ["x" * 33, "y", "z", None],
        }
    )
    stats = read_typed_stats(footer_of(table), table.column_names)
    assert stats.smallest == {
        "whole": 1,
        "number": 0.5,
        "text": "a",
        "day": "2025-01-01",
        "time": "2026-11-01T09:30:00.000Z",
    }
    assert stats.largest == {
        "whole": 7,
        "number": 2.5,
        "text": "d",
        "day": "2026-01-02",
        "time": "2026-11-01T09:30:00.000Z",
    }
    assert stats.null_counts == {
        "whole": 1, "number": 2, "text": 0, "day": 2, "time": 2, "sure": 2, "empty": 4, "long": 1,
    }  # fmt: skip


def test_only_the_first_columns_have_statistics() -> None:
    table = pa.table({f"c{number}": [number] for number in range(MAX_COLUMNS + 5)})
    assert len(read_typed_stats(footer_of(table), table.column_names).smallest) == MAX_COLUMNS
