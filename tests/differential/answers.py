"""Runs cases, and reads and writes Kafka's answers in answers.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scripts.servers import kafka as broker
from tests.differential.cases import Case
from tests.differential.targets import Target, Workspace

ANSWERS = Path(__file__).with_name("answers.json")


def ask(case: Case, target: Target, folder: Path) -> Any:
    """Run the case and return its answer in the form in which the file holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    workspace = Workspace(target, case.id, folder)
    try:
        return json.loads(json.dumps(case.answer(workspace)))
    finally:
        workspace.close()


def read_answers() -> dict[str, Any]:
    cases: dict[str, Any] = json.loads(ANSWERS.read_text())["cases"] if ANSWERS.exists() else {}
    return cases


def write_answers(answers: dict[str, Any], known: set[str]) -> None:
    """Write the file with one line per case, so that a changed answer is a changed line."""
    head = {
        "made by": "make test-differential RECORD=1",
        "kafka": broker.VERSION,
        "kafka-python": broker.pinned("kafka-python", broker.REQUIREMENTS.read_text()).partition("==")[2],
    }
    lines = [f"    {json.dumps(case)}: {json.dumps(answers[case])}" for case in sorted(set(answers) & known)]
    top = "".join(f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
    ANSWERS.write_text("{\n" + top + '  "cases": {\n' + ",\n".join(lines) + "\n  }\n}\n")
