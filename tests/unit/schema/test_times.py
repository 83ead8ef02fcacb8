"""The texts of times that Java, Spark and Python write are read as the times that they are."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.schema.languages.ddl import parse_ddl
from sparklog.schema.values.times import parse_time
from sparklog.schema.values.typed_values import ValueReader

NOON = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
TEXTS = {
    "1849-12-31T20:04:59.000-04:56:02": datetime(1850, 1, 1, 1, 1, 1, tzinfo=timezone.utc),
    "1800-01-01T00:53:28.123456+00:53:28": datetime(1800, 1, 1, 0, 0, 0, 123456, timezone.utc),
    "2026-11-01T12:00:00Z": NOON,
    "2026-11-01t12:00:00z": NOON,
    "2026-11-01 12:00:00": NOON,
    "2026-11-01 12:00:00.0": NOON,
    "2026-11-01T12:00": NOON,
    "2026-11-01T12:00Z": NOON,
    "2026-11-01T13:00+01": NOON,
    "2026-11-01T13:00:00+0100": NOON,
    "2026-11-01T13:00:00,000+01:00": NOON,
    "2026-11-01T13:00+01:00[Europe/Berlin]": NOON,
    "2026-11-01T12:00Z[UTC]": NOON,
    "2026-11-01 12:00:00 UTC": NOON,
    "2026-11-01 13:00:00 +0100": NOON,
    "2026-10-31T24:00:00Z": NOON - timedelta(hours=12),
    "2026-12-31T24:00": datetime(2027, 1, 1, tzinfo=timezone.utc),
    "2026-11-01T11:59:59.9999999Z": NOON,
    "2026-11-01T12:00:00.123456789Z": NOON + timedelta(microseconds=123457),
}
NO_TIMES = [
    *("", "2026-11-01", "20261101T120000Z", "2026-11-01T12Z", "2026-11-01T12:00:60Z", "2026-02-30T00:00:00Z"),
    *("2026-11-01T24:01:00Z", "+12026-11-01T12:00:00Z", "-0001-11-01T12:00:00Z", "12026-11-01T12:00:00Z"),
    *("2026-11-01T12:00[Europe/Berlin]", "2026-11-01T12:00:00 CET", "2026-11-01T12:00:00+24:00", "1793534400"),
    *("2026-11-01T12:00:00+01:60", "Sun, 01 Nov 2026 12:00:00 GMT", "2026-W44-7T12:00:00Z", "\u0662026-11-01T12:00Z"),
    *("0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "9999-12-31T24:00:00Z"),
]
READER = ValueReader(parse_ddl("time timestamp, times array<struct<at: timestamp>>, n int"))


def read(text: str) -> list[object]:
    value = b'{"time":"%b","times":[{"at":"%b"},null],"n":1}' % (text.encode(), text.encode())
    columns = READER.columns(pa.array([value, b'{"n":2}'], pa.binary()))
    assert (READER.find_misfit(value) == "") == (not columns["_unfit"][0].as_py())
    assert columns["n"][1].as_py() == 2
    nested = columns["times"][0].as_py()
    assert nested is None or nested[0]["at"] == columns["time"][0].as_py()
    return [columns["time"][0].as_py(), columns["_unfit"][0].as_py()]


@pytest.mark.parametrize(("text", "time"), TEXTS.items())
def test_texts_of_times_are_read(text: str, time: datetime) -> None:
    assert read(text) == [time, False]


@pytest.mark.parametrize("text", NO_TIMES)
def test_other_texts_do_not_fit(text: str) -> None:
    assert read(text) == [None, True]


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)), st.integers(-86399, 86399))
def test_what_python_writes_is_read_by_both_decoders(time: datetime, seconds: int) -> None:
    zoned = time.replace(tzinfo=timezone(timedelta(seconds=seconds)))
    for text in (zoned.isoformat(), str(zoned)):
        assert parse_time(text) == zoned
        assert read(text) == [zoned.astimezone(timezone.utc), False]
