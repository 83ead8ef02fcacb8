"""Programs and command lines give the same answers on sparklog as on Kafka, except as listed in chosen.toml.

Kafka's answers are those of answers.json; ``make test-differential`` verifies them against a broker.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparklog.coordinator import create_cluster
from tests.differential.all_cases import CASES
from tests.differential.answers import ask, read_answers
from tests.differential.cases import Case
from tests.differential.chosen import read_chosen
from tests.differential.outcomes import same
from tests.differential.targets import Target, run_sparklog, sparklog_target

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings are not part of an answer
ANSWERS = read_answers()
CHOSEN = read_chosen()
WHOLE = {"caught", "at least"}
"""Answers with these keys are compared as a whole, not part by part."""


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Target:
    root = str(tmp_path_factory.mktemp("log") / "cluster")
    create_cluster(root)
    setting = "--entity-type brokers --entity-default --add-config auto.create.topics.enable=false"
    result = run_sparklog("configs", ["--bootstrap-server", root, "--alter", *setting.split()], b"")  # as at the broker
    assert result.code == 0, result.err
    return sparklog_target(root)


@pytest.mark.parametrize("case", list(CASES.values()), ids=list(CASES))
def test_sparklog_answers_as_kafka_does(case: Case, log: Target, tmp_path: Path) -> None:
    assert case.id in ANSWERS, "no answer is recorded: make test-differential RECORD=1"
    compare(case, ANSWERS[case.id], ask(case, log, tmp_path))


def test_answers_and_chosen_differences_belong_to_existing_cases() -> None:
    assert {label.partition("/")[0] for label in CHOSEN} <= set(CASES)
    assert set(ANSWERS) <= set(CASES)


@pytest.mark.parametrize(("heading", "of_tools"), [("kafka-python", False), ("Kafka's tools", True)])
def test_each_chosen_difference_is_documented(heading: str, of_tools: bool) -> None:
    document = (Path(__file__).parents[2] / "docs" / "differences.md").read_text()
    section = document.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = {line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")}
    listed = {choice.case: choice.row for choice in CHOSEN.values()}
    listed = {label: row for label, row in listed.items() if CASES[label.partition("/")[0]].of_tools == of_tools}
    assert len(listed) > 20
    assert {label: row for label, row in listed.items() if row not in rows} == {}


def compare(case: Case, expected: Any, answer: Any) -> None:
    """Raise AssertionError unless the answers differ exactly where chosen.toml lists a difference."""
    differing = differences(case.id, expected, answer)
    listed = {label for label in CHOSEN if label.partition("/")[0] == case.id}
    assert not set(differing) - listed, "\n".join(
        f"{label}\n  Kafka:    {json.dumps(a)}\n  sparklog: {json.dumps(b)}"
        for label, (a, b) in differing.items()
        if label not in listed
    )
    outdated = listed - set(differing)
    assert not outdated, f"listed in chosen.toml, but no longer different: {', '.join(sorted(outdated))}"


def differences(case: str, expected: Any, answer: Any) -> dict[str, tuple[Any, Any]]:
    """Return label -> the two answers; the label is the case, or ``case/part`` if both answers have the same parts."""
    if same(expected, answer):
        return {}
    if isinstance(expected, list) and isinstance(answer, list) and len(expected) == len(answer):
        parts = [(str(number), *both) for number, both in enumerate(zip(expected, answer, strict=True), 1)]
    elif (
        isinstance(expected, dict)
        and isinstance(answer, dict)
        and set(expected) == set(answer)
        and not WHOLE & set(answer)
    ):
        parts = [(name, expected[name], answer[name]) for name in expected]
    else:
        return {case: (expected, answer)}
    return {f"{case}/{name}": (a, b) for name, a, b in parts if not same(a, b)}
