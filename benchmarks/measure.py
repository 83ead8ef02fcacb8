"""Shared parts of the benchmarks: interleaved runs, medians, figures with their targets, and profiles.

Rules: two things are compared only if their runs alternate (A B A B ...), since other load on the machine varies; a
figure is a median; its target, and whether it is met, are given with it.
"""

from __future__ import annotations

import cProfile
import pstats
import random
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "artifacts" / "benchmarks"


@dataclass(frozen=True)
class Settings:
    """Sizes and numbers of runs. ``runs`` is of each side of a comparison."""

    rows: int = 4_000_000
    runs: int = 5
    quick: bool = False


@dataclass
class Figure:
    """One line of the table. ``met`` is None for what has no target; ``samples`` are the raw measurements by side."""

    name: str
    value: str
    reference: str = ""
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
    where: str = ""
    samples: Mapping[str, list[float]] = field(default_factory=dict)


def timed(action: Callable[[], object]) -> float:
    """Seconds that ``action`` takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def interleaved(runs: int, sides: Mapping[str, Callable[[], object]], warm: int = 1) -> dict[str, list[float]]:
    """Return the seconds of each side, run alternately, after ``warm`` rounds that are not counted.

    Of more than two sides the order changes from round to round, so that none always comes after the same other. A
    side that returns a float has measured itself.
    """
    samples: dict[str, list[float]] = {name: [] for name in sides}
    order, shuffle = list(sides.items()), random.Random(1).shuffle
    for number in range(-warm, runs):
        if len(order) > 2:
            shuffle(order)
        for name, action in order:
            start = time.perf_counter()
            result = action()
            seconds = result if isinstance(result, float) else time.perf_counter() - start
            if number >= 0:
                samples[name].append(seconds)
    return samples


def median(values: list[float]) -> float:
    return statistics.median(values)


def percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def speed_ratio(samples: Mapping[str, list[float]], ours: str, reference: str) -> float:
    """How fast ``ours`` is in terms of ``reference``: 1 is as fast, 0.5 takes twice as long."""
    return median(samples[reference]) / median(samples[ours])


def spread(samples: Mapping[str, list[float]], ours: str, reference: str) -> str:
    """The range of the ratios of neighbouring runs, which says how far to trust the median."""
    ratios = [theirs / mine for mine, theirs in zip(samples[ours], samples[reference], strict=True)]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def rate(rows: int, seconds: float) -> str:
    return f"{rows / seconds / 1e6:.2f} M rows/s"


def throughput(
    name: str,
    rows: int,
    samples: Mapping[str, list[float]],
    sides: tuple[str, str],
    target: float | None = None,
    where: str = "",
) -> Figure:
    """The figure of the first of two sides against the second, for runs of so many rows."""
    ours, reference = sides
    ratio = speed_ratio(samples, ours, reference)
    return Figure(
        name,
        rate(rows, median(samples[ours])),
        f"{reference} {rate(rows, median(samples[reference]))}",
        ratio,
        f">= {target}" if target else "",
        ratio >= target if target else None,
        f"neighbouring runs {spread(samples, ours, reference)}" + (f"; {where}" if where else ""),
        samples,
    )


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.3g} ms"


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """A folder on the disk that the checkout is on (memory file systems have no fsync), removed afterwards."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=RESULTS))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def where_time_goes(action: Callable[[], object], parts: int = 5) -> str:
    """The parts of the package and the calls outside it that take most of the time, by a profile of its second run."""
    action()
    profile = cProfile.Profile()
    profile.runcall(action)
    shares: dict[str, float] = {}
    for (file, _, function), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        found = re.search(r"sparklog/(\w+)/(\w+)\.py$", file)
        built_in = re.search(r"method '?([\w.]+)", function)
        name = f"{found[1]}.{found[2]}" if found else built_in[1] if built_in else Path(file).stem
        shares[name] = shares.get(name, 0.0) + own
    total = sum(shares.values())
    largest = sorted(shares.items(), key=lambda item: -item[1])[:parts]
    return ", ".join(f"{name} {own / total:.0%}" for name, own in largest)


def print_table(figures: list[Figure]) -> None:
    """The figures as text, each with its target, and below a missed one where its time goes."""
    rows = [("figure", "measured", "reference in the same run", "ratio", "target", "")]
    for figure in figures:
        verdict = {None: "", True: "met", False: "NOT MET"}[figure.met]
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        rows.append((figure.name, figure.value, figure.reference, ratio, figure.target, verdict))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        if number and figures[number - 1].where:
            print(f"    {figures[number - 1].where}")
