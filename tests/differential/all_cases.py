"""Importing this module registers all cases."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.differential.cases import CASES, Case

__all__ = ["CASES", "Case"]

for _path in sorted(Path(__file__).parent.glob("*_cases_*.py")):
    importlib.import_module(f"tests.differential.{_path.stem}")
