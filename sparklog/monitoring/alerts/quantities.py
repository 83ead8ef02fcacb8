"""Quantities of alert rules, as they are written and shown: durations, bytes, counts.

    parse("15m", Unit.SECONDS) == 900.0
    show(900.0, Unit.SECONDS) == "15 min"

Rules: pure. Not for: moments (``monitoring.arguments``).
"""

from __future__ import annotations

import math
import re
from enum import Enum


class Unit(Enum):
    """What a number counts; its value is how the documents call it."""

    SECONDS = "a duration such as 30s, 5m, 2h or 7d"
    BYTES = "a size such as 500MB, 20GiB or 1TiB"
    COUNT = "a number of at least 0"


_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_BYTES = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgtp", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgtp", 1)},
}
_TEXT = re.compile(r"(\d{1,15}(?:\.\d{1,3})?)\s*([A-Za-z]*)", re.ASCII)
MAX_SECONDS = 10 * 365 * 86_400


def parse(given: object, unit: Unit) -> float:
    """Return a quantity of a rule in seconds, bytes, or as it is. Raises ValueError, which says what it may be."""
    number: float | None = None
    if isinstance(given, str):
        text = _TEXT.fullmatch(given.strip())
        factors = _SECONDS if unit is Unit.SECONDS else _BYTES if unit is Unit.BYTES else {}
        suffix = "" if text is None else text[2] if unit is Unit.SECONDS else text[2].lower()
        if text is not None and suffix in factors:
            number = float(text[1]) * factors[suffix]
    elif isinstance(given, int | float) and not isinstance(given, bool) and unit is not Unit.SECONDS:
        number = float(given)
    if number is None or not math.isfinite(number) or number < 0:
        raise ValueError(f"must be {unit.value}")
    if unit is Unit.SECONDS and number > MAX_SECONDS:
        raise ValueError("must be at most ten years")
    return number


def show(number: float, unit: Unit) -> str:
    """Return a quantity as people read it: ``15 min``, ``1.5 GiB``, ``12,000``."""
    if unit is Unit.SECONDS:
        return _show_seconds(number)
    if unit is Unit.BYTES:
        for name, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
            if number >= size:
                return f"{number / size:.1f} {name}"
        return f"{number:.0f} bytes"
    return f"{number:,.0f}"


def _show_seconds(number: float) -> str:
    for name, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if number >= 2 * size or number == size:
            return f"{number / size:.1f}".removesuffix(".0") + f" {name}"
    return f"{number:.1f}".removesuffix(".0") + " s"
