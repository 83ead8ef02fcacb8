"""Compare what a test run has covered of the packages that pyproject.toml names with the floors below; exit with 1
where it is less.

Reads .coverage (``make coverage``). Raise the floors as holes are closed, never lower them. A path that only a process
of its own runs does not count.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import coverage

LINES = 97.0
"""percent of the lines."""
BRANCHES = 92.8
"""percent of the branches."""


def percent(totals: Mapping[str, int], covered: str, of: str) -> float:
    return 100 * totals[covered] / totals[of]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "coverage.json")
        measured = coverage.Coverage()
        measured.load()
        measured.json_report(outfile=str(report))
        totals = json.loads(report.read_text())["totals"]
    status = 0
    for name, floor, share in (
        ("lines", LINES, percent(totals, "covered_lines", "num_statements")),
        ("branches", BRANCHES, percent(totals, "covered_branches", "num_branches")),
    ):
        print(f"coverage: {share:.2f} % of the {name}; the floor is {floor} %")
        if share < floor:
            print(f"coverage: too few {name}; `python -m coverage report -m` names those without a test")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
