"""Thirteen processes on a failing storage, killed and stopped at random: their history has no finding.

For 60 s with ``make test-stress``, and for half an hour with ``make test-soak`` (``SPARKLOG_SOAK_SECONDS`` sets another
length). A slow machine continues without disturbances until the required amount of work is done. The seed, which
decides the disturbances, is printed; ``SPARKLOG_SEED`` sets it.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.soak.run import Result, Soak


def soak(folder: Path, seconds: float, capsys: pytest.CaptureFixture[str]) -> Result:
    seed = int(os.environ.get("SPARKLOG_SEED", random.randrange(2**32)))
    print(f"SPARKLOG_SEED={seed}, operation logs in {folder}")
    result = Soak(folder / "run", seed).run(seconds)
    with capsys.disabled():
        print(f"\nsoak of {seconds:.0f} s, seed {seed}: {result.summary()}")
    return result


def check(result: Result) -> None:
    assert result.unfinished == []
    assert result.findings == [], "\n".join(map(str, result.findings[:10]))
    assert [value for value, times in result.copies.items() if times > 1] == [], "copied more than once"
    assert result.not_copied == [], "committed as read, but not copied"
    assert result.damage == [], "\n".join(result.damage[:10])
    assert result.problems == [], "\n".join(result.problems[:10])


@pytest.mark.stress
def test_thirteen_processes_on_a_failing_storage_lose_and_duplicate_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = soak(tmp_path, 60, capsys)
    check(result)


@pytest.mark.soak
def test_thirteen_processes_on_a_failing_storage_for_half_an_hour(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = float(os.environ.get("SPARKLOG_SOAK_SECONDS", "1800"))
    result = soak(tmp_path, seconds, capsys)
    check(result)
