"""Reads chosen.toml, the list of intended differences."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # a dependency of pytest

CHOSEN = Path(__file__).with_name("chosen.toml")


class Choice(NamedTuple):
    case: str
    """The id of a case, or ``case/part`` for one of its parts."""
    row: str
    """The id of the row in docs/differences.md that explains it."""
    reason: str


def read_chosen(path: Path = CHOSEN) -> dict[str, Choice]:
    """Return label -> choice. Raise ``ValueError`` if an entry has no row or no reason, or is listed twice."""
    choices: dict[str, Choice] = {}
    for entry in tomllib.loads(path.read_text()).get("difference", []):
        for label in entry["cases"]:
            if label in choices:
                raise ValueError(f"{label} is listed twice")
            if not entry.get("row") or not entry.get("reason", "").strip():
                raise ValueError(f"{label} has no row or no reason")
            choices[label] = Choice(label, entry["row"], entry["reason"])
    return choices
