"""Statistics of a history segment, as the Delta protocol states them of a file (its section "Per-file Statistics").

    {"numRecords":3,"minValues":{"offset":0,"timestamp":"2026-11-01T09:30:00.000Z"},"maxValues":{…},
     "nullCount":{"offset":0,"timestamp":0,"key":1,"value":0}}

Bounds are exact: engines answer a query for the smallest offset from them, without reading the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

import msgspec

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def encode_stats(
    records: int, offsets: tuple[int, int], timestamps_us: tuple[int, int], null_counts: Mapping[str, int]
) -> str:
    """Return the statistics as JSON. ``offsets`` and ``timestamps_us`` are the smallest and the largest value."""
    bounds = [{"offset": offset, **_time(time_us)} for offset, time_us in zip(offsets, timestamps_us, strict=True)]
    if any(len(bound) < 2 for bound in bounds):  # a bound alone could be misread
        bounds = [{"offset": offset} for offset in offsets]
    stats = {
        "numRecords": records,
        "minValues": bounds[0],
        "maxValues": bounds[1],
        "nullCount": {"offset": 0, "timestamp": 0, **null_counts},
    }
    return msgspec.json.encode(stats).decode()


def _time(time_us: int) -> dict[str, object]:
    """Return the time as ISO 8601 in UTC; nothing outside of the years that it can state."""
    try:
        time = _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return {}
    digits = "microseconds" if time_us % 1000 else "milliseconds"
    return {"timestamp": time.replace(tzinfo=None).isoformat(timespec=digits) + "Z"}
