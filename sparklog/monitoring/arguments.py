"""The arguments of users for a system table, for Python, Spark and the command line.

    selection = parse_selection("lag", now_ms, group="billing", since="6h")

Rules: pure. Every message names the argument and its value. An argument that a table has no column for, or that does
not apply to it, is refused: to ignore it would show rows that were not asked for.
Not for: reading tables (``system_tables``).
"""

from __future__ import annotations

import contextlib
import re
from datetime import datetime, timedelta, timezone

from sparklog.errors import InvalidConfigurationError
from sparklog.errors.suggestions import did_you_mean
from sparklog.monitoring.schemas import TABLES
from sparklog.monitoring.system_tables import MINUTE_MS, RowSelection
from sparklog.types import whole

Time = str | int | datetime
"""A moment: a datetime with a time zone, its text, ms since the epoch, or how long ago, such as ``90m``."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_AGO = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_MS = 2**62


def parse_selection(
    table: str,
    now_ms: int,
    *,
    since: Time | None = None,
    until: Time | None = None,
    topic: str | None = None,
    partition: int | None = None,
    group: str | None = None,
    step: str | int | None = None,
    orphans: bool = False,
) -> RowSelection:
    """Return what these arguments select of a table. Raises InvalidConfigurationError, which names the argument."""
    schema = TABLES[check_table(table)].schema
    for name, value in (("topic", topic), ("partition", partition), ("group", group)):
        if value is not None and name not in schema.names:
            raise _invalid(name, value, f"table {table} has no column {name}")
    for name, time in (("since", since), ("until", until)):
        if time is not None and not TABLES[table].is_of_commits:
            raise _invalid(name, time, f"table {table} shows what there is now")
    if step is not None and table != "lag":
        raise _invalid("step", step, f"table {table} has no steps, only lag has")
    if orphans and table != "storage":
        raise _invalid("orphans", orphans, f"table {table} has no orphans, only storage has")
    if step is not None and since is None:
        raise _invalid("step", step, "it divides the time since a moment: give since as well")
    given, partition = partition, whole(partition)
    if given is not None and (partition is None or not 0 <= partition < 2**31):
        raise _invalid("partition", given, "give a number from 0 to 2147483647")
    since_ms = None if since is None else parse_time("since", since, now_ms)
    until_ms = None if until is None else parse_time("until", until, now_ms)
    if since_ms is not None and since_ms >= (now_ms if until_ms is None else until_ms):
        raise _invalid("since", since, "it is not before until" if until_ms is not None else "it is not in the past")
    step_ms = MINUTE_MS if step is None else parse_step(step)
    return RowSelection(topic, partition, group, since_ms, until_ms, step_ms, orphans=orphans)


def check_table(name: str) -> str:
    """Return the name of a system table. Raises InvalidConfigurationError for an unknown one."""
    if name not in TABLES:
        raise InvalidConfigurationError(
            f"unknown system table {name!r}{did_you_mean(name, TABLES)}; the tables are {', '.join(TABLES)}",
            config="table",
        )
    return name


def parse_time(name: str, time: Time, now_ms: int) -> int:
    """Return a moment as ms since the epoch. Raises InvalidConfigurationError, which calls it ``name``."""
    given = time
    if isinstance(time, str):
        time = time.strip()
        ago = _AGO.fullmatch(time)
        if ago:
            return now_ms - int(ago[1]) * _UNITS_MS[ago[2]]
        if _NUMBER.fullmatch(time):
            return int(time)
        with contextlib.suppress(ValueError):
            time = datetime.fromisoformat(time[:-1] + "+00:00" if time.endswith("Z") else time)
    if (number := whole(time)) is not None and abs(number) < _LONGEST_MS:
        return number
    if not isinstance(time, datetime):
        raise _invalid(
            name, given, "give a time such as 2026-11-01T09:30:00Z, ms since 1970, or how long ago, such as 90m"
        )
    if time.tzinfo is None:
        raise _invalid(name, given, "it has no time zone; add one, as in 2026-11-01T09:30:00Z")
    return (time - _EPOCH) // timedelta(milliseconds=1)


def parse_step(step: str | int) -> int:
    """Return a step in ms. Raises InvalidConfigurationError."""
    value: object = step
    if isinstance(step, str):
        text = step.strip()
        duration = _AGO.fullmatch(text)
        if duration:
            value = int(duration[1]) * _UNITS_MS[duration[2]]
        elif _NUMBER.fullmatch(text):
            value = int(text)
    number = whole(value)
    if number is None or not 1 <= number < _LONGEST_MS:
        raise _invalid("step", step, "give a number of ms, or a duration such as 10s or 5m")
    return number


def _invalid(name: str, value: object, why: str) -> InvalidConfigurationError:
    shown = repr(value) if isinstance(value, str) else str(value)
    return InvalidConfigurationError(f"invalid {name} {shown[:200]}: {why}", config=name)
