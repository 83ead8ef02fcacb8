"""Plots of a cluster from its system tables, one line each: figures of matplotlib (``pip install 'sparklog[plot]'``).

    sparklog.plot.lag("/data/log", "billing", since="6h")

A figure is shown by a notebook, and saved by ``figure.savefig("lag.png")``. Nothing of pyplot is used or changed.

Rules: matplotlib is imported by the first call. Everything drawn comes from ``sparklog.system``.
Not for: the numbers (``sparklog.system(root).read``).
"""

from __future__ import annotations

import importlib
import io
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sparklog.client.cluster import Cluster
from sparklog.client.config import cluster_of
from sparklog.client.system import System
from sparklog.clock import SystemClock, utc
from sparklog.errors import InvalidConfigurationError
from sparklog.monitoring.arguments import Time, parse_time
from sparklog.monitoring.commit_rows import read_rows
from sparklog.monitoring.system_tables import MINUTE_MS
from sparklog.types import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["lag", "segments", "throughput"]

Root = str | os.PathLike[str] | System | Cluster | None
"""The folder or URL of a cluster, its system tables, or an open cluster; None for the one that
SPARKLOG_BOOTSTRAP_SERVER names."""

MAX_LINES = 10
"""Topics that a plot shows with a line of their own; the others are one line."""
STEPS = 240
"""Times at which the lag is looked at, unless a step is given."""
LONGEST_NAME = 40
_COLORS = {"history": "#4878a8", "closed": "#6aa84f", "open": "#e69138"}


def lag(
    root: Root,
    group: str,
    *,
    since: Time = "6h",
    until: Time | None = None,
    topic: str | None = None,
    step: str | int | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Figure:
    """Plot how far a consumer group was behind: records above, seconds below, a line for each topic.

    ``root`` is the folder or URL of the cluster, or what ``sparklog.system`` or ``open_cluster`` returned. ``since``,
    ``until`` and ``step`` are as in ``System.read``; without a step there are some 240. The line of a topic adds up the
    records of its partitions, and shows the longest of their times.

        >>> _ = consumer.subscribe(["orders"]), consumer.poll(1000), consumer.commit()
        >>> sparklog.plot.lag(root, "billing", since="1h").axes[0].get_ylabel()
        'records behind'

    Raises:
        InvalidConfigurationError: an invalid argument; the message names it.
        ModuleNotFoundError: matplotlib is not installed.
        ClusterNotFoundError, StorageError: as ``Consumer``.
    """
    tables = _tables(root, storage_options)
    since_ms, until_ms = _range(since, until)
    every = max((until_ms - since_ms) // STEPS, 1000) if step is None else step
    end_ms = None if until is None else until_ms  # else that of the newest commit, which may be ahead of this clock
    rows = tables.read("lag", group=group, topic=topic, since=since_ms, until=end_ms, step=every)
    records: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    seconds: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for time_ms, name, behind, late in read_rows(rows, ("timestamp", "topic", "lag", "lag_seconds")):
        records[name][time_ms] += math.nan if behind is None else behind
        seconds[name][time_ms] = _longest((seconds[name][time_ms], math.nan if late is None else late))
    figure, (above, below) = _figure(f"lag of {_short(group)}", 2)
    ordered = _largest_first(records)
    _draw_lines(above, _few(records, ordered, sum), "records behind")
    _draw_lines(below, _few(seconds, ordered, _longest), "seconds behind")
    _show_range(below, since_ms, until_ms)
    return figure


def throughput(
    root: Root = None,
    topic: str | None = None,
    *,
    since: Time = "6h",
    until: Time | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Figure:
    """Plot what was added to a topic, or to each topic: records per second above, bytes per second below.

    A value is that of a minute, or of several if there would be more than some 240 of them. Arguments and errors are as
    for ``lag``.

        >>> _ = producer.send("orders", b"a").get()
        >>> [axes.get_ylabel() for axes in sparklog.plot.throughput(root, "orders", since="1h").axes]
        ['records/s', 'bytes/s']
    """
    tables = _tables(root, storage_options)
    since_ms, until_ms = _range(since, until)
    rows = tables.read("throughput", topic=topic, since=since_ms, until=None if until is None else until_ms)
    width_ms = -(-(until_ms - since_ms) // (STEPS * MINUTE_MS)) * MINUTE_MS
    times = range(since_ms // width_ms * width_ms, until_ms + 1, width_ms)
    records: dict[str, dict[int, float]] = defaultdict(lambda: dict.fromkeys(times, 0.0))
    sizes: dict[str, dict[int, float]] = defaultdict(lambda: dict.fromkeys(times, 0.0))
    for minute_ms, name, count, size in read_rows(rows, ("minute", "topic", "records", "bytes")):
        time_ms = minute_ms // width_ms * width_ms
        records[name][time_ms] = records[name].get(time_ms, 0.0) + count * 1000 / width_ms
        sizes[name][time_ms] = sizes[name].get(time_ms, 0.0) + size * 1000 / width_ms
    figure, (above, below) = _figure(f"throughput of {_short(topic) if topic else 'all topics'}", 2)
    ordered = _largest_first(records)
    _draw_lines(above, _few(records, ordered, sum), "records/s", drawstyle="steps-post")
    _draw_lines(below, *_in_unit(_few(sizes, ordered, sum)), drawstyle="steps-post")
    _show_range(below, since_ms, until_ms)
    return figure


def segments(root: Root, topic: str, *, storage_options: Mapping[str, object] | None = None) -> Figure:
    """Plot the live segments of a topic: a row for each partition, a bar from the first to the last offset of each.

    The colors tell history (Parquet), closed and open segments apart. Arguments and errors are as for ``lag``.

        >>> _ = producer.send("orders", b"a").get()
        >>> sparklog.plot.segments(root, "orders").axes[0].get_xlabel()
        'offset'

    Raises:
        UnknownTopicOrPartitionError: the topic does not exist.
    """
    rows = _tables(root, storage_options).read("segments", topic=topic)
    bars: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    names = ("partition", "base_offset", "end_offset", "closed", "history")
    partitions, total = 0, len(rows)
    for number, start, end, closed, history in read_rows(rows, names):
        kind = "history" if history else "closed" if closed else "open"
        bars[kind, number].append((start, end - start))
        partitions = max(partitions, number + 1)
    figure, (axes,) = _figure(f"segments of {_short(topic)}: {total:,}", 1, height=1.2 + 0.3 * min(partitions, 40))
    shown: set[str] = set()
    for (kind, number), spans in sorted(bars.items()):
        label = kind if kind not in shown else None
        shown.add(kind)
        axes.broken_barh(spans, (number - 0.4, 0.8), color=_COLORS[kind], edgecolor="white", linewidth=0.5, label=label)
    axes.set_xlabel("offset")
    axes.set_ylabel("partition")
    axes.set_ylim(max(partitions, 1) - 0.5, -0.5)
    axes.yaxis.get_major_locator().set_params(integer=True)
    axes.ticklabel_format(axis="x", style="plain", useOffset=False)
    if shown:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure


# -- data


def _tables(root: Root, storage_options: Mapping[str, object] | None) -> System:
    if isinstance(root, System):
        return root
    given = {"cluster": root} if isinstance(root, Cluster) else {"bootstrap_servers": root}
    return System(cluster_of("plot", {**given, "storage_options": storage_options}, "root"))


def _range(since: Time, until: Time | None) -> tuple[int, int]:
    now_ms = SystemClock().now_ms()
    until_ms = now_ms if until is None else parse_time("until", until, now_ms)
    since_ms = parse_time("since", since, now_ms)
    if since_ms >= until_ms:
        raise InvalidConfigurationError(f"invalid since {since!r}: must be before until", config="since")
    return since_ms, until_ms


_Lines = Mapping[str, Mapping[int, float]]
"""Values by name and time in ms."""


def _largest_first(lines: _Lines) -> list[str]:
    def largest(name: str) -> float:
        return max((value for value in lines[name].values() if not math.isnan(value)), default=0.0)

    return sorted(lines, key=lambda name: (-largest(name), name))


def _longest(times: Iterable[float]) -> float:
    """Return the longest of some times; NaN, which is unknown, if one of them is."""
    return max(times, key=lambda time: math.inf if math.isnan(time) else time)


def _few(lines: _Lines, ordered: list[str], add: Any) -> dict[str, dict[int, float]]:
    """Return the first of these lines by their short names; ``add`` makes one of the others."""
    few = {_short(name): dict(lines[name]) for name in ordered[:MAX_LINES]}
    others = [lines[name] for name in ordered[MAX_LINES:]]
    if others:
        times = sorted({time_ms for line in others for time_ms in line})
        few[f"{len(others)} others"] = {
            time_ms: add(line[time_ms] for line in others if time_ms in line) for time_ms in times
        }
    return few


def _in_unit(lines: _Lines) -> tuple[_Lines, str]:
    """Return lines of bytes per second in the largest unit that fits them, and how it is called."""
    largest = max((value for line in lines.values() for value in line.values()), default=0.0)
    unit, size = next(
        ((unit, size) for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)) if largest >= size),
        ("bytes", 1),
    )
    return {name: {time: value / size for time, value in line.items()} for name, line in lines.items()}, f"{unit}/s"


def _short(name: str) -> str:
    """Return a name that fits a legend, and that matplotlib does not take for mathematics."""
    text = printable(name)
    text = text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"
    return text.replace("$", r"\$")


# -- drawing


def _figure(title: str, rows: int, height: float = 4.5) -> tuple[Figure, list[Any]]:
    shown = _figure_class()(figsize=(9, height), layout="constrained")
    shown.suptitle(title, fontsize=11)
    axes = shown.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    return shown, list(axes)


def _figure_class() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ModuleNotFoundError(
            "sparklog.plot needs matplotlib, which is not installed: pip install 'sparklog[plot]'", name="matplotlib"
        ) from None

    class Plot(Figure):
        """A figure that a notebook shows, also if pyplot was never imported."""

        def _repr_png_(self) -> bytes:
            data = io.BytesIO()
            self.savefig(data, format="png", dpi=80)
            return data.getvalue()

    return Plot


def _dates() -> Any:
    return importlib.import_module("matplotlib.dates")  # its functions have no types


def _draw_lines(axes: Any, lines: _Lines, label: str, **style: Any) -> None:
    dates = _dates()
    for name, line in lines.items():
        times = sorted(line)
        style_of_point = {"marker": "."} if len(times) == 1 else {}
        # A label that begins with an underscore would be left out of the legend.
        shown = f"\u200b{name}" if name.startswith("_") else name
        values = [line[time_ms] for time_ms in times]
        axes.plot([dates.date2num(utc(time_ms)) for time_ms in times], values, label=shown, **style, **style_of_point)
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    if lines:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=8)


def _show_range(axes: Any, since_ms: int, until_ms: int) -> None:
    dates = _dates()
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    axes.set_xlim(dates.date2num(utc(since_ms)), dates.date2num(utc(until_ms)))
    axes.set_xlabel("UTC")
