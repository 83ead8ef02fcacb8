"""Formats the rows of system tables as text, CSV and JSON.

Texts come from clients, so control characters in them are escaped, but in JSON, which is ASCII anyway.
Not for: the tables (``sparklog.monitoring``).
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from sparklog.cli.output.tables import table
from sparklog.clock import utc_text
from sparklog.monitoring.commit_rows import read_rows
from sparklog.types import printable

LEAST_MS, MOST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, which calendars support; records may state any time."""


def text_lines(rows: pa.Table) -> list[str]:
    """Return the rows as a table; ``-`` is null."""
    texts = [[_text(value, field.type) for value, field in zip(row, rows.schema, strict=True)] for row in _values(rows)]
    return [
        line.rstrip() for line in table([[name.upper() for name in rows.column_names], *texts], [-1] * len(rows.schema))
    ]


def csv_lines(rows: pa.Table) -> Iterator[str]:
    """Yield the rows as CSV, without line ends; null is empty, lists and maps are JSON, times are ISO 8601."""
    yield _csv_line(rows.column_names)
    for row in _values(rows):
        yield _csv_line([_csv_text(value, field.type) for value, field in zip(row, rows.schema, strict=True)])


def json_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the rows as objects; times are ms since 1970."""
    maps = [pa.types.is_map(field.type) for field in rows.schema]

    def plain(row: tuple[Any, ...]) -> list[Any]:
        return [dict(value) if is_map and value is not None else value for value, is_map in zip(row, maps, strict=True)]

    return [dict(zip(rows.column_names, plain(row), strict=True)) for row in _values(rows)]


def _values(rows: pa.Table) -> Iterator[tuple[Any, ...]]:
    """Yield the rows; times are ms, since not every one fits a calendar."""
    return read_rows(rows, rows.column_names)


def _text(value: Any, kind: pa.DataType) -> str:
    if value is None or value == "":
        return "-"
    if pa.types.is_timestamp(kind):
        return _time(value)
    if pa.types.is_map(kind):
        return ",".join(f"{name}={text}" for name, text in value) or "-"
    return ",".join(map(str, value)) or "-" if isinstance(value, list) else str(value)


def _csv_text(value: Any, kind: pa.DataType) -> str:
    if value is None:
        return ""
    if pa.types.is_timestamp(kind):
        return _time(value).replace(" UTC", "Z").replace(" ", "T")
    if pa.types.is_map(kind):
        return json.dumps(dict(value))
    return json.dumps(value) if isinstance(value, list) else printable(value)


def _time(time_ms: int) -> str:
    return utc_text(time_ms) if LEAST_MS <= time_ms <= MOST_MS else str(time_ms)


def _csv_line(values: list[str]) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()
