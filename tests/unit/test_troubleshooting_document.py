"""Every message quoted in docs/troubleshooting.md exists in the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(
    r"^\| (`.+?`) \| .*\S.* \| .*\S.* \|$", (ROOT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE
)
OF_SPARK = {"[DATA_SOURCE_NOT_FOUND]", "[UNSUPPORTED_DATA_SOURCE_SAVE_MODE]", "does not support Update mode"}
HOLE = "…"


@lru_cache
def messages() -> str:
    """All texts of the package, one per line, with ``…`` for filled-in values."""
    found: set[str] = set()
    for path in (ROOT / "sparklog").rglob("*.py"):
        found.update(texts(ast.parse(path.read_text(encoding="utf-8"))))
    return "\n".join(found)


def texts(tree: ast.AST) -> Iterator[str]:
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield re.sub(r"%[sdr]", HOLE, node.value)


def test_the_document_has_messages() -> None:
    assert len(ROWS) >= 40


@pytest.mark.parametrize("quoted", [row.strip("`") for row in ROWS])
def test_a_message_is_in_the_code(quoted: str) -> None:
    assert quoted in OF_SPARK or quoted in messages()


def test_docstrings_are_not_messages() -> None:
    assert (
        list(texts(ast.parse('def f():\n    """Not this."""\n    raise E(f"but {x} this", "and " "%s")'))).count(
            "Not this."
        )
        == 0
    )
