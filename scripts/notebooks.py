"""Run the notebooks from top to bottom and store their outputs in them, as they are committed.

    make notebook-outputs        (python scripts/notebooks.py [NOTEBOOK ...])

Output without information is removed: times of cells, progress bars, and the lines that Spark's JVM prints when it
starts, which name the machine. A notebook whose run fails, or writes anything else to standard error, is not changed:
readers should not see warnings and tracebacks.

Rules: only ``execute`` imports Jupyter, so that tests can compare outputs without it. The notebook records the source
of its outputs (``outputs_of``: a digest for each cell), so that an edit without a run is detected. The output of a cell
tagged ``varies`` depends on time; the tests do not compare its text.

Not for: reading notebooks (``make notebook`` opens them).
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
VARIES = "varies"
CELL_SECONDS = 300
WIDGET = "application/vnd.jupyter.widget-view+json"

_SPARK_START = re.compile(
    "|".join(
        (
            r"WARNING: Using incubator modules: .*",
            r"Using Spark's default log4j profile: .*",
            r"Setting default log level to \"WARN\"\.",
            r"To adjust logging level use .*",
            r"Setting Spark log level to \"ERROR\"\.",
            r".* WARN Utils: (Your hostname, .*|Set SPARK_LOCAL_IP .*)",
            r".* WARN NativeCodeLoader: .*",
        )
    )
)
_ROOT = re.compile(r"\broot=[^\s>]+")  # shown shortened where it is long
_SCRATCH = re.compile(r"[^\s=]*sparklog-notebook-\w+")
_CLUSTER_ID = re.compile(r"\bid=[\w-]{22}")
_MILLISECONDS = re.compile(r"\b\d{13}\b")


def source_of(cell: dict[str, Any]) -> str:
    """A cell's source: a file has it as lines, Jupyter as one text."""
    return "".join(cell["source"])


def digests(notebook: dict[str, Any]) -> dict[str, str]:
    """A digest of each code cell's source, by the cell's id."""
    return {
        cell["id"]: hashlib.sha256(source_of(cell).encode()).hexdigest()[:16]
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    }


def shown(cell: dict[str, Any]) -> dict[str, str]:
    """What a cell shows: its text by kind (``stdout``, ``stderr``, ``result``, ``display``), normalised."""
    found: dict[str, str] = {}
    for output in cell["outputs"]:
        kind = output["output_type"]
        if kind == "stream":
            name, text = output["name"], output["text"]
        elif kind == "error":
            name, text = "error", output["evalue"]
        else:
            name, text = ("result" if kind == "execute_result" else "display"), output["data"].get("text/plain", "")
        found[name] = found.get(name, "") + "".join(text)
    return {name: normalised(text) for name, text in found.items()}


def normalised(text: str) -> str:
    """Text without what differs from run to run: folders, ids, times, and how lines are broken."""
    text = _ROOT.sub("root=ROOT", text)
    text = _SCRATCH.sub("FOLDER", text)
    text = _CLUSTER_ID.sub("id=ID", text)
    text = _MILLISECONDS.sub("TIME", text)
    return "".join(text.split())


def clean(notebook: dict[str, Any]) -> None:
    """Take out of a notebook that was run what says nothing, and note of which source its outputs are."""
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["metadata"].pop("execution", None)
            cell["outputs"] = [output for output in cell["outputs"] if not _says_nothing(output)]
    metadata = notebook["metadata"]
    metadata.pop("widgets", None)
    metadata["language_info"] = {"name": "python"}
    metadata["outputs_of"] = digests(notebook)


def _says_nothing(output: dict[str, Any]) -> bool:
    if output["output_type"] == "stream" and output["name"] == "stderr":
        lines = [line for line in "".join(output["text"]).splitlines() if not _SPARK_START.fullmatch(line.strip())]
        output["text"] = "\n".join(lines)
        return not output["text"].strip()
    return WIDGET in output.get("data", {})


def complaints(notebook: dict[str, Any]) -> list[str]:
    """What a run wrote to standard error, with the cell."""
    return [
        f"cell {cell['id']}: {''.join(output['text'])}"
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
        if output["output_type"] == "stream" and output["name"] == "stderr"
    ]


def execute(path: Path) -> list[str]:
    """Run a notebook, and write it with its outputs unless there are complaints, which are returned."""
    from nbclient import NotebookClient

    nbformat: Any = importlib.import_module("nbformat")  # its functions have no types
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory(prefix="sparklog-notebooks-") as folder:
        NotebookClient(notebook, timeout=CELL_SECONDS, resources={"metadata": {"path": folder}}).execute()
    clean(notebook)
    found = complaints(notebook)
    if not found:
        nbformat.write(notebook, path)
    return found


def main() -> int:
    names = sys.argv[1:] or sorted(str(path) for path in NOTEBOOKS.glob("*.ipynb"))
    failed = 0
    for name in names:
        found = execute(Path(name))
        failed += bool(found)
        outputs = sum(
            len(cell.get("outputs", ())) for cell in json.loads(Path(name).read_text(encoding="utf-8"))["cells"]
        )
        print(f"{name}: {'left as it was' if found else f'{outputs} outputs written'}")
        for complaint in found:
            print(f"  {complaint.rstrip()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
