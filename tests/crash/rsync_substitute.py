"""What docs/backup.md uses of rsync, for machines without it:

    rsync -a [--include PATTERN] [--exclude PATTERN] SOURCE... TARGET

Like rsync it ends with 24, once all else is copied, if a file vanishes meanwhile, and copies what has another size or
time. ``$RSYNC_VANISHES`` is the path of a file that vanishes when it is its turn.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

VANISHED = 24
"""rsync's exit code."""

vanished: list[Path] = []


Rules = Sequence[tuple[str, str]]
"""``include`` or ``exclude``, and a pattern: the first that fits decides."""


def including(pattern: str) -> tuple[str, str]:
    return "include", pattern


def excluding(pattern: str) -> tuple[str, str]:
    return "exclude", pattern


def is_excluded(path: Path, is_folder: bool, rules: Rules) -> bool:
    """A pattern with ``/`` before it is the path below the source, any other a name at any depth; one with ``/`` behind
    it fits folders alone."""
    for kind, pattern in rules:
        name = f"/{path}" if pattern.startswith("/") else path.name
        if (is_folder or not pattern.endswith("/")) and fnmatch.fnmatch(name, pattern.rstrip("/")):
            return kind == "exclude"
    return False


def copy(source: Path, target: Path, below: Path, rules: Rules) -> None:
    if is_excluded(below, source.is_dir(), rules):
        return
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for child in sorted(source.iterdir()):
            copy(child, target / child.name, below / child.name, rules)
        return
    if str(source) == os.environ.get("RSYNC_VANISHES"):
        source.unlink(missing_ok=True)
    try:
        found = source.stat()
        if target.exists() and (target.stat().st_size, target.stat().st_mtime) == (found.st_size, found.st_mtime):
            return
        shutil.copy2(source, target)
    except FileNotFoundError:
        vanished.append(source)


def sources(names: Sequence[str], is_missing_ok: bool) -> Iterator[tuple[Path, bool]]:
    for name in names:
        if Path(name).exists() or not is_missing_ok:
            yield Path(name), name.endswith("/")


if __name__ == "__main__":
    options = argparse.ArgumentParser(allow_abbrev=False)
    options.add_argument("-a", action="store_true", required=True)
    options.add_argument("--ignore-missing-args", action="store_true")
    options.add_argument("--include", action="append", dest="rules", default=[], type=including)
    options.add_argument("--exclude", action="append", dest="rules", default=[], type=excluding)
    options.add_argument("paths", nargs="+")
    given = options.parse_args()
    *names, target = given.paths
    for source, is_content in sources(names, given.ignore_missing_args):
        if is_content:
            Path(target).mkdir(exist_ok=True)
            for child in sorted(source.iterdir()):
                copy(child, Path(target, child.name), Path(child.name), given.rules)
        else:
            Path(target).mkdir(exist_ok=True)
            copy(source, Path(target, source.name), Path(source.name), given.rules)
    sys.exit(VANISHED if vanished else 0)
