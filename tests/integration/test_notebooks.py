"""The notebooks run from top to bottom: their code cells in one namespace, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"

# What Jupyter has and a plain Python has not is ``display``, which returns a handle.
RUN = """
import json, sys

class Handle:
    updates = 0

    def update(self, shown):
        Handle.updates += 1
        shown.canvas.draw()

names = {"__name__": "__main__", "display": lambda shown, display_id=None: Handle()}
for number, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"]):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"cell {number}", "exec"), names)
print("END", json.dumps({name: names[name] for name in sys.argv[2:]} | {"updates": Handle.updates}))
"""


def run(notebook: str, folder: Path, *names: str) -> dict[str, Any]:
    """Run a notebook and return what these names of it are at the end."""
    environment = {**os.environ, "MPLBACKEND": "Agg", "MPLCONFIGDIR": str(folder), "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(NOTEBOOKS / notebook), *names],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout.rpartition("END ")[2]))


def test_streaming_notebook_ends_with_every_late_flight_copied_once_and_no_lag(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra notebooks")
    end = run("streaming.ipynb", tmp_path, "found_late", "expected_late", "lags", "produced")

    assert end["found_late"] == end["expected_late"] > 0
    assert end["lags"][-1][1] == 0
    assert max(behind for _, behind in end["lags"]) > 0, "the plot has something to show"
    assert end["updates"] >= len(end["produced"]) == 8


def test_getting_started_notebook_shares_the_work_shows_lag_and_commits_transactions(tmp_path: Path) -> None:
    end = run("getting_started.ipynb", tmp_path, "read", "owned", "before", "after", "totals", "total")

    assert sum(end["read"].values()) == 20_000
    assert sorted([*end["owned"]["first"], *end["owned"]["second"]]) == [0, 1, 2, 3]
    assert set(end["before"].values()) == {0}
    assert sum(end["after"].values()) == 500
    assert len(end["totals"]) >= 1
    assert end["totals"][-1] == "500 orders, 500 in all"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.name)
def test_notebooks_are_stored_without_outputs(path: Path) -> None:
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
