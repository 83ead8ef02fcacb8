"""Values as short texts for people: numbers, sizes, durations and times, and texts that clients chose.

    size(1_536)             # 1.5 KiB
    duration(75)            # 1 min 15 s
    shown("a\\x1b[2J", 80)   # a\\x1b[2J

Rules: pure. Times are UTC. Whatever comes from a cluster is hostile: ``shown`` and ``block`` escape what could control
a terminal, a line or the direction of writing; the templates escape HTML. Not for: layout (``templates``).
"""

from __future__ import annotations

from sparklog.clock import utc
from sparklog.types import printable

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))
NOTHING = "–"
"""Stands where there is no value."""


def number(value: float | None) -> str:
    """Return a number with its thousands separated; a fraction has at most one digit."""
    if value is None:
        return NOTHING
    return f"{value:,}" if isinstance(value, int) or (not value.is_integer() and value >= 10**15) else _fraction(value)


def _fraction(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() or abs(value) >= 100 else f"{value:,.1f}"


def size(value: float | None) -> str:
    """Return a number of bytes in the largest unit that leaves a number above one."""
    if value is None:
        return NOTHING
    unit = 0
    while value >= 1024 and unit < len(_SIZES) - 1:
        value, unit = value / 1024, unit + 1
    return f"{_fraction(float(value))} {_SIZES[unit]}"


def duration(seconds: float | None) -> str:
    """Return a duration with its two largest units."""
    if seconds is None:
        return NOTHING
    if seconds < 60:
        return f"{_fraction(float(max(seconds, 0)))} s"
    for position, (length, name) in enumerate(_UNITS):
        if seconds >= length:
            rest = int(seconds % length)
            smaller, unit = _UNITS[position + 1] if position + 1 < len(_UNITS) else (1, "s")
            parts = [f"{int(seconds // length):,} {name}"]
            return " ".join(parts + [f"{rest // smaller} {unit}"] * (rest >= smaller))
    raise AssertionError(seconds)


def time(timestamp_ms: int | None, exact: bool = False) -> str:
    """Return a time in UTC, to the second or, if ``exact``, to the millisecond."""
    if timestamp_ms is None:
        return NOTHING
    try:
        moment = utc(timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms} ms"
    return moment.isoformat(sep=" ", timespec="milliseconds" if exact else "seconds").removesuffix("+00:00")


def ago(timestamp_ms: int | None, now_ms: int) -> str:
    """Return how long ago a time was, in one unit from ten of it on."""
    if timestamp_ms is None:
        return NOTHING
    seconds = abs(now_ms - timestamp_ms) // 1000
    if seconds < 1:
        return "now"
    words = duration(seconds).split()
    about = " ".join(words[:2] if len(words[0]) > 1 else words)
    return f"{about} ago" if timestamp_ms <= now_ms else f"in {about}"


def shown(value: object, limit: int = 300) -> str:
    """Return an untrusted text on one line, cut at ``limit`` characters, with control characters escaped."""
    text = str(value)
    return printable(text) if len(text) <= limit else f"{printable(text[:limit])}…"


def block(text: str) -> str:
    """Return an untrusted text of several lines with all control characters escaped but line ends and tabs."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 topic``, ``2 topics``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
