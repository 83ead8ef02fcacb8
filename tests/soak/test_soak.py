"""Ten processes on a storage that fails, killed and stopped at random: their history has no finding.

For 60 s in every run of the tests, and for half an hour with ``pytest -m soak`` (``SPARKLOG_SOAK_SECONDS`` for another
length). The seed, which decides about the torments, is printed; ``SPARKLOG_SEED`` sets it.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.soak.run import MAINTENANCE, Result, Soak
from tests.soak.worker import KEYS, LATEST, SHORT


def soak(folder: Path, seconds: float, capsys: pytest.CaptureFixture[str]) -> Result:
    seed = int(os.environ.get("SPARKLOG_SEED", random.randrange(2**32)))
    print(f"SPARKLOG_SEED={seed}, operation logs in {folder}")
    result = Soak(folder / "run", seed).run(seconds)
    with capsys.disabled():
        print(f"\nsoak of {seconds:.0f} s, seed {seed}: {result.summary()}")
    return result


def check(result: Result) -> None:
    assert result.findings == [], "\n".join(map(str, result.findings[:10]))
    assert [value for value, times in result.copies.items() if times > 1] == [], "copied more than once"
    assert result.not_copied == [], "committed as read, and not copied"
    assert result.damage == [], "\n".join(result.damage[:10])
    assert result.problems == [], "\n".join(result.problems[:10])


def check_that_it_worked(result: Result, seconds: float) -> None:
    """A run in which nothing happens is clean too."""
    assert result.stuck == []
    for kind in ("send", "transaction", "poll", "commit_offsets", "assign"):
        done = sum(operation.outcome == "ok" for operation in result.history.of(kind))
        assert done >= {"assign": 10}.get(kind, seconds), f"only {done} of {kind} were done"
    assert len(result.copies) > seconds
    for kind in MAINTENANCE:
        assert result.actions[kind] > 0, f"maintenance committed no {kind}"
    assert result.final(SHORT).start > 0, "retention took nothing away"
    latest = result.final(LATEST)
    assert KEYS // 2 < len(latest.records) < latest.end / 2, "nothing was compacted"


def test_thirteen_processes_on_a_failing_storage_lose_double_and_tear_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = soak(tmp_path, 60, capsys)
    check(result)
    check_that_it_worked(result, 60)


@pytest.mark.soak
def test_the_same_for_half_an_hour(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seconds = float(os.environ.get("SPARKLOG_SOAK_SECONDS", "1800"))
    result = soak(tmp_path, seconds, capsys)
    check(result)
    check_that_it_worked(result, seconds)
