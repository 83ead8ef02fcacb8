"""Statistics of a history segment, as the Delta protocol states them of a file (its section "Per-file Statistics").

    {"numRecords":3,"minValues":{"offset":0,"timestamp":"2026-11-01T09:30:00.000Z"},"maxValues":{…},
     "nullCount":{"offset":0,"timestamp":0,"key":1,"value":0}}

Bounds are exact: engines answer a query for the smallest offset from them, without reading the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from math import isfinite
from typing import NamedTuple

import msgspec
import pyarrow.parquet as pq

MAX_COLUMNS = 32
"""Typed columns of which statistics are kept, as by Delta."""

MAX_TEXT = 32
"""Characters up to which a text is kept as a bound, as by Delta; a longer one could not be exact."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class TypedStats(NamedTuple):
    """Statistics of the typed columns: smallest and largest values, and numbers of nulls, by column."""

    smallest: Mapping[str, object] = {}
    largest: Mapping[str, object] = {}
    null_counts: Mapping[str, int] = {}


def encode_stats(
    records: int,
    offsets: tuple[int, int],
    timestamps_us: tuple[int, int],
    null_counts: Mapping[str, int],
    typed: TypedStats = TypedStats(),  # noqa: B008
) -> str:
    """Return the statistics as JSON. ``offsets`` and ``timestamps_us`` are the smallest and the largest value."""
    bounds = [{"offset": offset, **_time(time_us)} for offset, time_us in zip(offsets, timestamps_us, strict=True)]
    if any(len(bound) < 2 for bound in bounds):  # a bound alone could be misread
        bounds = [{"offset": offset} for offset in offsets]
    stats = {
        "numRecords": records,
        "minValues": {**bounds[0], **typed.smallest},
        "maxValues": {**bounds[1], **typed.largest},
        "nullCount": {"offset": 0, "timestamp": 0, **null_counts, **typed.null_counts},
    }
    return msgspec.json.encode(stats).decode()


def read_typed_stats(footer: pq.FileMetaData, names: Sequence[str]) -> TypedStats:
    """Return the statistics of these columns from the footer of a file that was just written, of at most
    ``MAX_COLUMNS`` that are neither lists nor structs."""
    paths = footer.schema.names
    smallest: dict[str, object] = {}
    largest: dict[str, object] = {}
    null_counts: dict[str, int] = {}
    leaves = {footer.row_group(0).column(number).path_in_schema: number for number in range(len(paths))}
    for name in [name for name in names if name in leaves][:MAX_COLUMNS]:
        columns = [footer.row_group(group).column(leaves[name]) for group in range(footer.num_row_groups)]
        found = [column.statistics for column in columns]
        if any(stats is None or not stats.has_null_count for stats in found):
            continue
        null_counts[name] = sum(stats.null_count for stats in found)
        bounded = [stats for stats in found if stats.num_values]
        if not bounded or not all(stats.has_min_max for stats in bounded):
            continue
        least, most = _plain(min(stats.min for stats in bounded)), _plain(max(stats.max for stats in bounded))
        if least is not None and most is not None:
            smallest[name], largest[name] = least, most
    return TypedStats(smallest, largest, null_counts)


def _plain(value: object) -> object:
    """Return a bound as Delta states it; None for a type or a size that it does not state."""
    if isinstance(value, bool):
        return None
    if isinstance(value, datetime):
        return _time((value - _EPOCH) // timedelta(microseconds=1)).get("timestamp")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else None
    if isinstance(value, float):
        return value if isfinite(value) else None
    return value if isinstance(value, int) else None


def _time(time_us: int) -> dict[str, object]:
    """Return the time as ISO 8601 in UTC; nothing outside of the years that it can state."""
    try:
        time = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return {}
    digits = "microseconds" if time_us % 1000 else "milliseconds"
    return {"timestamp": time.replace(tzinfo=None).isoformat(timespec=digits) + "Z"}
