"""What the documents name exists: files, headings, and imported modules and names."""

from __future__ import annotations

import importlib
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
PATH = re.compile(r"`((?:[\w.-]+/)+(?:[\w.-]+)?|[\w-]+\.py)`")
IMPORT = re.compile(r"^ *from (sparklog[\w.]*) import ([\w, ]+)$|^ *import (sparklog[\w.]*)$", re.MULTILINE)
DESIGN = [ROOT / "CONTRIBUTING.md", INDEX, *sorted((ROOT / "docs" / "decisions").glob("*.md"))]
NO_FILES = {"meta/", "client/consumer_group.py", "consume/"}
"""A cluster's folder, a former module, and a package that was rejected."""
FROM_THE_ROOT = ("sparklog/", "tests/", "docs/", "scripts/", "benchmarks/", "jobs/", "conf/")


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


@lru_cache
def project_paths() -> set[str]:
    """All ends of the paths of the project's files and folders, folders with a trailing slash."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    paths = {*listed, *(f"{folder}/" for name in listed for folder in Path(name).parents)}
    return {path[start:] for path in paths for start in (0, *(m.end() for m in re.finditer("/", path)))}


def missing_paths(text: str) -> list[str]:
    named = set(PATH.findall(text)) - NO_FILES
    return sorted(path for path in named if not {path, f"{path}/"} & project_paths())


def missing_imports(text: str) -> list[str]:
    missing = []
    for module, names, alone in IMPORT.findall(text):
        try:
            imported = importlib.import_module(module or alone)
        except ModuleNotFoundError:
            missing.append(module or alone)
            continue
        missing += [
            f"{module}.{name}" for name in names.replace(" ", "").split(",") if name and not hasattr(imported, name)
        ]
    return missing


@pytest.mark.parametrize("document", DESIGN, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_in_design_documents_exist(document: Path) -> None:
    assert missing_paths(document.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_from_the_root_exist(document: Path) -> None:
    missing = missing_paths(document.read_text(encoding="utf-8"))
    assert [path for path in missing if path.startswith(FROM_THE_ROOT)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_in_documents_exist(document: Path) -> None:
    assert missing_imports(document.read_text(encoding="utf-8")) == []


def test_missing_paths_and_imports_are_found() -> None:
    assert missing_paths("`protocol/fold.py` `protocol/no.py` `commits/` `omits/` `retry.py`") == [
        "omits/",
        "protocol/no.py",
    ]
    imports = "    from sparklog import Producer, Prod\nimport sparklog.nothing\n"
    assert missing_imports(imports) == ["sparklog.Prod", "sparklog.nothing"]
