"""The notebooks run from top to bottom, each in its own process, and print their committed outputs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.notebooks import VARIES, WIDGET, clean, complaints, digests, normalised, shown
from tests.integration.sparks import needs_limits

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))

# Jupyter features that plain Python lacks: ``display``, which returns a handle, and the value of a last expression.
RUN = """
import ast, contextlib, io, json, sys

class Handle:
    updates, last_point = 0, None

    def update(self, shown):
        Handle.updates += 1
        shown.canvas.draw()
        curves = [line.get_ydata() for line in shown.axes[0].lines if line.get_label().startswith("records behind")]
        Handle.last_point = int(curves[0][-1]) if curves else None

def display(shown, display_id=None):
    outputs.append({"output_type": "display_data", "data": {"text/plain": repr(shown)}})
    return Handle()

names = {"__name__": "__main__", "display": display}
cells = []
for number, cell in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cells"]):
    if cell["cell_type"] != "code":
        continue
    outputs, printed = [], io.StringIO()
    body = ast.parse("".join(cell["source"]), f"cell {number}")
    last = body.body.pop() if body.body and isinstance(body.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(body, f"cell {number}", "exec"), names)
        value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names) if last else None
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None:
        outputs.append({"output_type": "execute_result", "data": {"text/plain": repr(value)}})
    cells.append({"id": cell["id"], "outputs": outputs})
shown = {"cells": cells, "updates": Handle.updates, "last_point": Handle.last_point}
print("END", json.dumps(shown | {name: names[name] for name in sys.argv[2:]}))
"""


def stored(notebook: str) -> dict[str, Any]:
    return dict(json.loads((NOTEBOOKS / notebook).read_text(encoding="utf-8")))


def code_cells(notebook: str) -> list[dict[str, Any]]:
    return [cell for cell in stored(notebook)["cells"] if cell["cell_type"] == "code"]


def run(notebook: str, folder: Path, *names: str) -> dict[str, Any]:
    """Run a notebook; return its cells with their outputs, and the final values of these names."""
    environment = {**os.environ, "MPLBACKEND": "Agg", "MPLCONFIGDIR": str(folder), "TMPDIR": str(folder)}
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(NOTEBOOKS / notebook), *names],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout.rpartition("END ")[2]))


def check_outputs(notebook: str, end: dict[str, Any]) -> None:
    """Check that the committed outputs match this run: the same kinds, and the same text except in cells that vary."""
    fresh = {cell["id"]: cell for cell in end["cells"]}
    for cell in code_cells(notebook):
        committed, now = shown(cell), shown(fresh[cell["id"]])
        assert committed.keys() == now.keys(), f"cell {cell['id']} of {notebook}: run `make notebook-outputs`"
        if VARIES not in cell["metadata"].get("tags", ()):
            assert committed == now, f"cell {cell['id']} of {notebook}: run `make notebook-outputs`"


@needs_limits
@pytest.mark.programs
def test_streaming_notebook_ends_with_every_late_flight_copied_once_and_no_lag(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra notebooks")
    end = run("streaming.ipynb", tmp_path, "found_late", "expected_late", "lags", "produced")

    assert end["found_late"] == end["expected_late"] > 0
    assert end["lags"][-1][1] == 0
    assert max(behind for _, behind in end["lags"]) > 0, "the plot has something to show"
    assert end["updates"] >= len(end["produced"]) == 8
    assert end["last_point"] == 0, "the plot ends at the value of the text below it"
    check_outputs("streaming.ipynb", end)


@pytest.mark.programs
def test_getting_started_notebook_shares_work_shows_lag_and_commits_transactions(tmp_path: Path) -> None:
    end = run("getting_started.ipynb", tmp_path, "read", "owned", "before", "after", "totals", "total")

    assert sum(end["read"].values()) == 20_000
    assert sorted([*end["owned"]["first"], *end["owned"]["second"]]) == [0, 1, 2, 3]
    assert set(end["before"].values()) == {0}
    assert sum(end["after"].values()) == 500
    assert len(end["totals"]) >= 1
    assert end["totals"][-1] == "500 orders, 500 in all"
    check_outputs("getting_started.ipynb", end)


@pytest.mark.programs
def test_history_notebook_shows_the_same_answer_from_the_table_and_the_topic_as_it_was(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra notebooks")
    end = run("history.ipynb", tmp_path, "seconds")

    assert {*end["seconds"]} == {"from_json", "sparklog.table"}
    check_outputs("history.ipynb", end)


@pytest.mark.programs
def test_operations_notebook_plots_the_past_and_its_rule_fires_until_the_group_reads_on(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib comes with the extra notebooks")
    end = run("operations.ipynb", tmp_path, "written", "read", "count")

    assert sum(end["written"]) == sum(end["read"]["audit"])
    assert 0 < end["count"] == sum(end["written"]) - sum(end["read"]["billing"])
    check_outputs("operations.ipynb", end)


@pytest.mark.parametrize("notebook", NAMES)
def test_outputs_are_committed_and_match_their_source(notebook: str) -> None:
    assert stored(notebook)["metadata"].get("outputs_of") == digests(stored(notebook)), "run `make notebook-outputs`"
    numbers = [cell["execution_count"] for cell in code_cells(notebook)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert any(cell["outputs"] for cell in code_cells(notebook))


@pytest.mark.parametrize("notebook", NAMES)
def test_committed_outputs_have_no_warnings_errors_or_progress_bars(notebook: str) -> None:
    for cell in code_cells(notebook):
        assert not {"stderr", "error"} & shown(cell).keys()
        assert not any(WIDGET in output.get("data", {}) for output in cell["outputs"])


def test_the_committed_lag_plot_of_the_streaming_notebook_ends_at_zero() -> None:
    cells = code_cells("streaming.ipynb")
    (plot,) = [cell for cell in cells if any("image/png" in output.get("data", {}) for output in cell["outputs"])]
    assert "24,000flightsread;0behind;" in shown(plot)["stdout"]


def test_an_edited_cell_is_detected() -> None:
    notebook = stored("getting_started.ipynb")
    next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")["source"].append("\nprint()")
    assert notebook["metadata"]["outputs_of"] != digests(notebook)


def test_cleaning_drops_spark_startup_lines_and_progress_bars_and_keeps_warnings() -> None:
    start = "26/11/22 12:15:03 WARN Utils: Your hostname, vm, resolves to a loopback address\n"
    outputs = [
        {"output_type": "stream", "name": "stderr", "text": start},
        {"output_type": "stream", "name": "stderr", "text": f"{start}option x was ignored\n"},
        {"output_type": "display_data", "data": {WIDGET: {}, "text/plain": "  0%"}},
        {"output_type": "stream", "name": "stdout", "text": "fine\n"},
    ]
    cell = {"cell_type": "code", "id": "one", "source": ["1"], "metadata": {"execution": {}}, "outputs": outputs}
    notebook: dict[str, Any] = {"cells": [cell], "metadata": {"widgets": {}}}
    clean(notebook)
    assert shown(cell) == {"stderr": "optionxwasignored", "stdout": "fine"}
    assert complaints(notebook) == ["cell one: option x was ignored"]
    assert notebook["metadata"] == {"language_info": {"name": "python"}, "outputs_of": digests(notebook)}


def test_text_is_compared_without_folders_ids_times_and_line_breaks() -> None:
    text = "<Cluster root=/tmp/sparklog-notebook-_5e/log id=E9pp3sYnTC-jK_St7pxnhA>\n at 1795349681357"
    assert normalised(text) == "<Clusterroot=ROOTid=ID>atTIME"
