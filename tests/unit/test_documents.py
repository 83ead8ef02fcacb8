"""Links in the documents point to existing files and headings of the project."""

from __future__ import annotations

import re
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *PAGES]
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
CODE = re.compile(r"^(```.*?^```$)|^(?: {4}.*\n)+|`[^`\n]+`", re.MULTILINE | re.DOTALL)
INDEX = ROOT / "docs" / "README.md"


def prose(document: Path) -> str:
    return CODE.sub("", document.read_text(encoding="utf-8"))


@lru_cache
def anchors(document: Path) -> set[str]:
    """The anchors that a code host generates for headings: lower case, without punctuation, dashes for spaces."""
    counts: dict[str, int] = {}
    result = set()
    for heading in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.M | re.S), re.M):
        name = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        count = counts[name] = counts.get(name, -1) + 1
        result.add(f"{name}-{count}" if count else name)
    return result


def broken(document: Path) -> list[str]:
    wrong = []
    for link in LINK.findall(prose(document)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        if not target.exists() or (anchor and anchor not in anchors(target)):
            wrong.append(link)
    return wrong


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_are_valid(document: Path) -> None:
    assert broken(document) == []


def test_a_broken_link_is_reported(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("# One two\n\n[a](#one-two) [b](#three) [c](b.md) `[d](e.md)` [f](https://example.org)\n")
    assert broken(document) == ["#three", "b.md"]


def test_the_index_names_every_document() -> None:
    named = {(INDEX.parent / link.partition("#")[0]).resolve() for link in LINK.findall(INDEX.read_text())}
    listed = subprocess.run(["git", "ls-files", "docs/*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    every = {(ROOT / name).resolve() for name in listed.stdout.split()} - {INDEX}
    assert {str(path.relative_to(ROOT)) for path in every - named if path.parent.name != "decisions"} == set()
