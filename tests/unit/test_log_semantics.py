"""Every test that docs/log-semantics.md names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "log-semantics.md"


def test_each_named_test_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT.read_text(encoding="utf-8")))
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    defined = {name for source in sources for name in re.findall(r"^def (test_\w+)\(", source, re.MULTILINE)}
    assert len(named) > 50
    assert not sorted(named - defined)


def test_each_named_file_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", DOCUMENT.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []
