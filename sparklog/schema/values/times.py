"""Reads the texts of times that Java, Spark and Python write.

    parse_time("1849-12-31T20:04:59.000-04:56:02")     # 1850-01-01 01:01:01 UTC, from Spark in New York's zone
    parse_time("2026-11-01T09:30+01:00[Europe/Berlin]")

A date, ``T`` or a blank, hours and minutes; then, each if it is there, seconds, a fraction after a point or a comma,
``Z``, ``UTC``, ``GMT`` or an offset of hours, minutes and seconds, and a region in brackets, which the offset states
already. UTC without an offset; rounded to microseconds; 24:00 is the end of the day.

Rules: pure. Not for: dates alone, numbers, names of regions without an offset: they are not times by themselves.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

_TIME = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,30}))?)?"
    r" ?(?:([Zz]|UTC|GMT)|([+-])(\d\d)(?::?(\d\d)(?::?(\d\d))?)?)?(\[[\w/+:-]{1,60}\])?",
    re.ASCII,
)


def parse_time(text: str) -> datetime:
    """Return a time in UTC. Raises ValueError if the text is not one, and OverflowError if it is outside of the years 1
    to 9999 there."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("Invalid RFC3339 encoded datetime")
    *numbers, fraction, utc, sign, hours, minutes, seconds, region = match.groups()
    year, month, day, hour, minute, second = (int(number or 0) for number in numbers)
    if region and not (utc or sign):
        raise ValueError("a time with the name of a region has no offset")
    digits = (fraction or "").ljust(7, "0")
    micros = int(digits[:6]) + (digits[6] >= "5")
    after = timedelta(microseconds=micros)
    if hour == 24 and not (minute or second or micros):
        hour, after = 0, timedelta(days=1)
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0), seconds=int(seconds or 0))
    if int(hours or 0) > 23 or int(minutes or 0) > 59 or int(seconds or 0) > 59:
        raise ValueError("a time's offset is out of range")
    begin = datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc)
    return begin + (after + offset if sign == "-" else after - offset)
