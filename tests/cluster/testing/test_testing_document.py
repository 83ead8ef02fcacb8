"""Every Python block of docs/testing.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "testing.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
PREAMBLE = "import sparklog\nimport sparklog.testing\n\n"

pytest_plugins = ["pytester"]


def test_the_document_has_blocks() -> None:
    assert len(BLOCKS) >= 5


@pytest.mark.parametrize("number", [n for n, block in enumerate(BLOCKS) if "def test_" not in block])
def test_a_block_runs(number: int) -> None:
    exec(compile(PREAMBLE + BLOCKS[number], f"docs/testing.md, block {number}", "exec"), {})


@pytest.mark.parametrize("number", [n for n, block in enumerate(BLOCKS) if "def test_" in block])
def test_the_tests_of_a_block_pass(number: int, pytester: pytest.Pytester) -> None:
    pytester.makeconftest('pytest_plugins = ["sparklog.testing.fixtures"]')
    pytester.makepyfile(PREAMBLE + BLOCKS[number])
    wanted = BLOCKS[number].count("def test_")
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=wanted)
