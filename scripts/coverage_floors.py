"""Compare what a test run has covered of each part of the package with the floors below; exit with 1 where it is less.

Reads .coverage (``make coverage``). The whole package is measured: a part without a floor is an error, so that a new
one gets its own. Raise the floors as holes are closed, never lower them. A path that only a process of its own runs
does not count, nor what needs Spark or a server of a storage: the floors of those parts say how much is left to other
suites.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import coverage


class Floor(NamedTuple):
    """Percent of the lines, and of the branches."""

    lines: float
    branches: float


COUNTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")

MODULES = "modules"
"""The part that is made of the modules beside the packages: ``sparklog/clock.py`` and others."""

FLOORS: Mapping[str, Floor] = {
    "delta": Floor(99.5, 98.0),
    "errors": Floor(99.5, 99.0),
    "jobs": Floor(99.0, 50.0),
    "kafka": Floor(72.0, 0.0),
    "records": Floor(99.0, 97.5),
    "schema": Floor(99.0, 97.5),
    "spark": Floor(81.5, 74.5),
    "store": Floor(81.5, 61.5),
    "testing": Floor(93.8, 93.3),
    MODULES: Floor(92.0, 72.0),
}
"""Parts that are not in TOGETHER."""

TOGETHER = (
    "cli", "client", "config", "coordinator", "format", "log", "maintenance", "monitoring", "protocol", "ui",
)  # fmt: skip
"""Parts whose every path tests/unit and tests/cluster can reach: they have one floor together."""

FLOOR_TOGETHER = Floor(97.0, 92.8)


def part_of(path: str) -> str:
    """Return the part of the package that a measured file belongs to."""
    parts = PurePath(path).parts
    inside = parts[parts.index("sparklog") + 1 :]
    return inside[0] if len(inside) > 1 else MODULES


def totals(files: Mapping[str, Mapping[str, Any]]) -> dict[str, Counter[str]]:
    """Return the counts of each part, summed over its files."""
    counts: dict[str, Counter[str]] = {}
    for path, measured in files.items():
        summary = {name: measured["summary"][name] for name in COUNTS}
        counts.setdefault(part_of(path), Counter()).update(summary)
    return counts


def covered(counts: Mapping[str, float]) -> Floor:
    """Return which percent is covered; of nothing, everything is."""
    lines, branches = counts["num_statements"], counts["num_branches"]
    return Floor(
        100 * counts["covered_lines"] / lines if lines else 100.0,
        100 * counts["covered_branches"] / branches if branches else 100.0,
    )


def breaches(counts: Mapping[str, Counter[str]]) -> Iterable[str]:
    """Compare every part, and those that have a floor together; yield what is wrong."""
    for part in sorted(counts.keys() - FLOORS.keys() - set(TOGETHER)):
        yield f"{part} has no floor in scripts/coverage_floors.py"
    for part in sorted({*FLOORS, *TOGETHER} - counts.keys()):
        yield f"{part} has a floor and was not measured"
    compared = {part: (covered(counts[part]), floor) for part, floor in FLOORS.items() if part in counts}
    together = sum((counts[part] for part in TOGETHER if part in counts), Counter[str]())
    compared["those of TOGETHER"] = covered(together), FLOOR_TOGETHER
    for part, (share, floor) in compared.items():
        print(
            f"coverage of {part}: {share.lines:.2f} % of the lines, {share.branches:.2f} % of the branches; "
            f"the floors are {floor.lines} and {floor.branches}"
        )
        if share.lines < floor.lines or share.branches < floor.branches:
            yield f"too little of {part}; `python -m coverage report -m` names the lines without a test"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        measured = coverage.Coverage()
        measured.load()
        measured.json_report(outfile=str(report))
        files = json.loads(report.read_text())["files"]
    found = list(breaches(totals(files)))
    for breach in found:
        print(f"coverage: {breach}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
