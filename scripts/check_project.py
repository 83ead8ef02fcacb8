"""Check project rules that no linter covers; print each violation as ``path:line: what`` and exit with 1.

Only tracked files are checked. Each rule is a function of one file, so that the tests can show that it works
(tests/unit/test_project_layout.py).

Rules: tests neither import nor patch private names of the package, except to seed a bug; no path of a developer's
machine and no address of a package registry in any file; no leftovers of editing; code files have at most 1000 lines
and functions at most 70; modules of the package open with a docstring, and its names have no word that the glossary
replaced; shell scripts stop at errors and parse; files with a shebang are executable.

Not for: anything that ruff, mypy or import-linter can state.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_LINES = 1000
MAX_FUNCTION_LINES = 70

# Patterns are written so that they do not match themselves.
MACHINE_PATH = re.compile(r"/(?:w[o]rk|r[o]ot|f[a]rm)/|[.]l[i]brary\b|/(?:h[o]me|U[s]ers)/[a-z][a-z0-9_-]*/")
REGISTRY = re.compile(r"https?://[a-z0-9.-]*(?:p[y]pi|p[y]thonhosted|m[a]ven|n[p]mjs|cr[a]tes[.]|pr[o]xy[.])", re.I)
LEFTOVER = re.compile(r"\b(?:T[O]DO|F[I]XME|X{3}|H[A]CK)\b|^(?:<{7}|>{7}|={7}$)|\bbreakp[o]int\(\)|\bp[d]b[.]set_trace")
PICTURE = re.compile(r'"image/png": "[^"]*"')
PRIVATE_NAME = re.compile(
    r"^ *from sparklog[.\w]* import (?:[\w, ]*\b)?_[a-z]\w*"
    r"|setattr\([^\"']*,\s*[\"']_[a-z]\w*|[\"']sparklog[.\w]*[.]_[a-z]\w*",
    re.I,
)
SEEDED_BUGS = re.compile(r"tests/(?:simulation/test_seeded_\w+|crash/test_every_outcome)[.]py")
REPLACED_WORDS = {
    "place": "partition, location or root",
    "places": "partitions or locations",
    "janitor": "controller",
    "knowledge": "state",
    "announcement": "lease",
}
"""Words of names in code that docs/glossary.md replaced, with its own."""
BINARY = {".log", ".index", ".png", ".gz", ".zip", ".snappy"}


class Breach(NamedTuple):
    path: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}"


def _matching(pattern: re.Pattern[str], what: str) -> Callable[[str, str], Iterator[Breach]]:
    def rule(path: str, text: str) -> Iterator[Breach]:
        for number, line in enumerate(text.splitlines(), 1):
            found = pattern.search(line)
            if found:
                yield Breach(path, number, f"{what}: {found.group()}")

    return rule


machine_paths = _matching(MACHINE_PATH, "path of a machine")
registry_addresses = _matching(REGISTRY, "address of a package registry")
leftovers = _matching(LEFTOVER, "left over from editing")


def private_names(path: str, text: str) -> Iterator[Breach]:
    """Besides this, ruff reports access to private attributes (SLF001)."""
    if path.startswith(("tests/", "benchmarks/")) and path.endswith(".py") and not SEEDED_BUGS.fullmatch(path):
        yield from _matching(PRIVATE_NAME, "private name of the package")(path, text)


def long_files(path: str, text: str) -> Iterator[Breach]:
    lines = text.count("\n")
    if path.endswith((".py", ".sh")) and lines > MAX_FILE_LINES:
        yield Breach(path, lines, f"{lines} lines, more than {MAX_FILE_LINES}: split it")


def long_functions(path: str, text: str) -> Iterator[Breach]:
    if not path.endswith(".py"):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                yield Breach(path, node.lineno, f"{node.name}() has {lines} lines, more than {MAX_FUNCTION_LINES}")


def modules_without_docstring(path: str, text: str) -> Iterator[Breach]:
    if (
        path.startswith(("sparklog/", "pyspark_sparklog/"))
        and path.endswith(".py")
        and text.strip()
        and not ast.get_docstring(ast.parse(text))
    ):
        yield Breach(path, 1, "opens without a docstring: its purpose, its rules, and what it is not for")


def replaced_words(path: str, text: str) -> Iterator[Breach]:
    """Names that a module gives: of functions, classes, arguments, variables and attributes."""
    if not (path.startswith("sparklog/") and path.endswith(".py")):
        return
    for line, name in _given_names(ast.parse(text)):
        for word in REPLACED_WORDS.keys() & set(name.lower().split("_")):
            yield Breach(path, line, f"{name}: the glossary says {REPLACED_WORDS[word]} for {word}")


def _given_names(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.lineno, node.name
            case ast.arg():
                yield node.lineno, node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.lineno, node.attr


def is_shell(path: str, text: str) -> bool:
    return path.endswith(".sh") or text.startswith(("#!/usr/bin/env bash", "#!/bin/bash", "#!/bin/sh"))


def careless_shell(path: str, text: str) -> Iterator[Breach]:
    if not is_shell(path, text):
        return
    if "set -euo pipefail" not in text:
        yield Breach(path, 1, "does not say: set -euo pipefail")
    parsed = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if parsed.returncode != 0:
        yield Breach(path, 1, f"bash cannot parse it: {parsed.stderr.strip()}")


def missing_run_bit(path: str, text: str, mode: str) -> Iterator[Breach]:
    """A file with a shebang is executable, and only such a file is. ``mode`` is git's, such as 100755."""
    if text.startswith("#!") != (mode == "100755"):
        yield Breach(path, 1, "shebang and run bit do not agree: git update-index --chmod=+x, or drop the shebang")


TEXT_RULES: tuple[Callable[[str, str], Iterable[Breach]], ...] = (
    machine_paths,
    registry_addresses,
    leftovers,
    private_names,
    long_files,
    long_functions,
    modules_without_docstring,
    replaced_words,
    careless_shell,
)


def tracked_files(root: Path) -> Iterator[tuple[str, str]]:
    """(mode, path) of every file in git's index that still exists."""
    command = ["git", "ls-files", "--stage", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    for entry in filter(None, listed.split("\0")):
        details, path = entry.split("\t", 1)
        if (root / path).is_file():
            yield details.split()[0], path


def without_pictures(path: str, text: str) -> str:
    """A notebook without the letters of its pictures, which may spell anything."""
    return PICTURE.sub('"image/png": ""', text) if path.endswith(".ipynb") else text


def check(root: Path) -> list[Breach]:
    breaches: list[Breach] = []
    for mode, path in tracked_files(root):
        data = (root / path).read_bytes()
        if Path(path).suffix in BINARY or b"\0" in data:
            continue
        text = without_pictures(path, data.decode("utf-8"))
        breaches.extend(missing_run_bit(path, text, mode))
        for rule in TEXT_RULES:
            breaches.extend(rule(path, text))
    return breaches


def main() -> int:
    breaches = check(ROOT)
    for breach in breaches:
        print(breach)
    print(f"{len(breaches)} breaches of the project's rules" if breaches else "the project's rules hold")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
