"""Plots over time as shapes of an SVG, with their numbers as a table beside.

    plot = make_plot("Records", {minute_ms: 20.0}, time_range, number, bars=True)

Rules: pure. A plot is 1000 wide and 100 high and is stretched; labels are not part of it. Not for: which numbers there
are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sparklog.ui.views.query import TimeRange
from sparklog.ui.views.text import time

WIDTH, HEIGHT = 1000, 100


class Mark(NamedTuple):
    """A step of a plot: where its rectangle is, and its time and value as text."""

    x: float
    y: float
    width: float
    height: float
    time: str
    value: str


class Plot(NamedTuple):
    """A plot: its marks; ``line`` is the path of an area, empty for bars; the texts of its axes; the newest value."""

    title: str
    marks: list[Mark]
    line: str
    highest: str
    middle: str
    times: list[str]
    newest: str
    total: str
    is_empty: bool


def make_plot(
    title: str,
    values: Mapping[int, float],
    span: TimeRange,
    show: Callable[[float], str],
    *,
    bars: bool = False,
    unit: int = 1,
) -> Plot:
    """Return a plot of values by the times of their steps in ms. Bars show sums of a step; a line the last value.

    ``unit`` is 1024 for bytes and 60 for seconds, so that the axis ends at a number that reads well.
    """
    steps = range(span.since_ms, span.until_ms, span.step_ms)
    width = WIDTH / max(len(steps), 1)
    present = [values[step] for step in steps if step in values]
    top = _round_up(max(present, default=0), unit)
    marks = [
        _mark(index, width, step, values[step], top, show)
        for index, step in enumerate(steps)
        if step in values and not (bars and values[step] == 0)
    ]
    return Plot(
        title=title,
        marks=marks,
        line="" if bars else _area(marks),
        highest=show(top),
        middle=show(top / 2),
        times=_times(span),
        newest=show(present[-1]) if present else "",
        total=show(math.fsum(present)),
        is_empty=not present,
    )


def bins(times: Iterable[int], values: Iterable[float], step_ms: int) -> dict[int, float]:
    """Return the sums of values by the steps of their times."""
    sums: dict[int, float] = {}
    for at, value in zip(times, values, strict=True):
        step = at // step_ms * step_ms
        sums[step] = sums.get(step, 0) + value
    return sums


def _mark(index: int, width: float, step: int, value: float, top: float, show: Callable[[float], str]) -> Mark:
    height = round(HEIGHT * value / top, 2)
    return Mark(round(index * width, 2), round(HEIGHT - height, 2), round(width, 2), height, time(step), show(value))


def _area(marks: list[Mark]) -> str:
    """Return the path of the area below the values, one level step after the other."""
    if not marks:
        return ""
    points = "".join(f" L{mark.x:g} {mark.y:g} L{round(mark.x + mark.width, 2):g} {mark.y:g}" for mark in marks)
    return f"M{marks[0].x:g} {HEIGHT}{points} L{round(marks[-1].x + marks[-1].width, 2):g} {HEIGHT} Z"


def _times(span: TimeRange) -> list[str]:
    """Return the times below a plot: of a day, the first one with its date."""
    times = [time(at)[:16] for at in (span.since_ms, (span.since_ms + span.until_ms) // 2, span.until_ms)]
    is_long = span.until_ms - span.since_ms > 2 * 86_400_000
    return [each[:10] for each in times] if is_long else [times[0], *(each[11:] for each in times[1:])]


def _round_up(value: float, unit: int) -> float:
    """Return the next number that reads well in the largest power of ``unit`` below it: 1, 2 or 5 and zeros."""
    if value <= 0:
        return 1
    scale = 1.0
    while unit > 1 and value >= scale * unit and scale < float(unit) ** (2 if unit == 60 else 5):
        scale *= unit
    power = 10.0 ** math.floor(math.log10(value / scale))
    return scale * next(factor * power for factor in (1, 2, 5, 10) if factor * power * scale >= value)
