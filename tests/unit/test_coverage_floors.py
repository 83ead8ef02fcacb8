"""The floors of coverage: every part of the package has one, and less than it is found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("coverage", reason="coverage is part of the extra dev")

from scripts import coverage_floors
from scripts.coverage_floors import FLOORS, MODULES, TOGETHER, Floor, breaches, covered, part_of, totals

PACKAGE = Path(__file__).resolve().parents[2] / "sparklog"


def counts(lines: int, covered_lines: int, branches: int, covered_branches: int) -> Counter[str]:
    return Counter(
        num_statements=lines, covered_lines=covered_lines, num_branches=branches, covered_branches=covered_branches
    )


def full() -> dict[str, Counter[str]]:
    return {part: counts(100, 100, 10, 10) for part in (*FLOORS, *TOGETHER)}


def test_every_part_of_the_package_has_a_floor() -> None:
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert sorted([*FLOORS, *TOGETHER]) == sorted([*packages, MODULES])


def test_files_are_summed_by_part() -> None:
    summary = {"num_statements": 2, "covered_lines": 1, "num_branches": 4, "covered_branches": 3, "percent": "50"}
    files = {name: {"summary": summary} for name in ("sparklog/ids.py", "sparklog/log/a.py", "sparklog/log/b/c.py")}
    assert totals(files) == {MODULES: counts(2, 1, 4, 3), "log": counts(4, 2, 8, 6)}
    assert part_of("sparklog/spark/source/reader.py") == "spark"
    assert covered(counts(2, 1, 4, 3)) == Floor(50.0, 75.0)
    assert covered(counts(0, 0, 0, 0)) == Floor(100.0, 100.0)


def test_what_is_covered_wholly_passes() -> None:
    assert list(breaches(full())) == []


@pytest.mark.parametrize("less", [counts(100, 1, 10, 10), counts(100, 100, 10, 0)], ids=["lines", "branches"])
def test_less_than_a_floor_is_found(less: Counter[str]) -> None:
    (breach,) = breaches({**full(), "delta": less})
    assert breach.startswith("too little of delta")


def test_less_than_the_floor_together_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage_floors, "FLOORS", {part: Floor(0, 0) for part in FLOORS})
    (breach,) = breaches({**full(), "log": counts(1000, 900, 10, 10)})
    assert breach.startswith("too little of those of TOGETHER")


def test_a_part_without_a_floor_and_one_that_was_not_measured_are_found() -> None:
    measured = {**full(), "added": counts(1, 1, 0, 0)}
    del measured["delta"]
    added, missing = breaches(measured)
    assert added == "added has no floor in scripts/coverage_floors.py"
    assert missing == "delta has a floor and was not measured"
