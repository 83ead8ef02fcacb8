"""The query of a page: its parameters, read within bounds, and links to the same page with others.

    query = Query("/c/log/topics", {"q": "ord", "sort": "-bytes"})
    query.link(page=2)      # /c/log/topics?q=ord&sort=-bytes&page=2

Rules: pure. Parameters are untrusted; an invalid one raises InvalidConfigurationError, which says what is allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode

from sparklog.errors import InvalidConfigurationError
from sparklog.monitoring.arguments import parse_time

RANGES = {"15m": "15 min", "1h": "1 h", "6h": "6 h", "24h": "24 h", "7d": "7 d", "30d": "30 d"}
"""The time ranges that pages offer, with their names."""

_STEPS_MS = tuple(minutes * 60_000 for minutes in (1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1440, 10_080))
_MAX_STEPS = 120


class TimeRange(NamedTuple):
    """A range of times in ms, ``until_ms`` not included, and the step at which plots show it.

    ``since`` and ``until`` are as they were given; ``until`` is empty if the range ends now.
    """

    since_ms: int
    until_ms: int
    step_ms: int
    since: str
    until: str


class Query(NamedTuple):
    """A path with its parameters. Immutable."""

    path: str
    parameters: Mapping[str, str]

    def text(self, name: str, default: str = "", limit: int = 300) -> str:
        """Return a parameter without blanks around it. Raises InvalidConfigurationError if it is longer."""
        value = self.parameters.get(name, default).strip()
        if len(value) > limit:
            raise _invalid(name, f"it has {len(value):,} characters, and at most {limit:,} are allowed")
        return value

    def choice(self, name: str, choices: Collection[str], default: str) -> str:
        """Return a parameter that is one of ``choices``. Raises InvalidConfigurationError."""
        value = self.text(name) or default
        if value not in choices:
            raise _invalid(name, f"choose from {', '.join(choices)}")
        return value

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """Return a whole number within bounds. Raises InvalidConfigurationError."""
        text = self.text(name, limit=30)
        if not text:
            return default
        try:
            value = int(text)
        except ValueError:
            raise _invalid(name, "give a whole number") from None
        if not low <= value <= high:
            raise _invalid(name, f"give a number from {low:,} to {high:,}")
        return value

    def time_range(self, now_ms: int, default: str = "1h") -> TimeRange:
        """Return the range of ``since`` and ``until``, to whole steps. Raises InvalidConfigurationError."""
        since, until = self.text("since") or default, self.text("until")
        start = parse_time("since", since, now_ms)
        end = parse_time("until", until, now_ms) if until else now_ms
        if not 0 <= start < end:
            raise _invalid("since", "give a time before that of until")
        step = next((step for step in _STEPS_MS if end - start <= step * _MAX_STEPS), _STEPS_MS[-1])
        if end - start > step * _MAX_STEPS:
            raise _invalid("since", "the range is longer than two years")
        return TimeRange(start // step * step, end, step, since, until)

    def link(self, **changes: object) -> str:
        """Return the address of this page with other parameters; None and the empty text remove one."""
        merged = {**self.parameters, **{name: str(value) for name, value in changes.items() if value is not None}}
        kept = {name: value for name, value in merged.items() if value and changes.get(name, value) is not None}
        return self.path + (f"?{urlencode(kept)}" if kept else "")


def address(*parts: object, **parameters: object) -> str:
    """Return the address of a page from the parts of its path, which are quoted, and its parameters."""
    path = "".join(f"/{quote(str(part), safe='')}" for part in parts)
    return Query(path or "/", {}).link(**parameters)


def _invalid(name: str, reason: str) -> InvalidConfigurationError:
    return InvalidConfigurationError(f"invalid {name}: {reason}", config=name)
