"""The units of conf/systemd, checked by systemd's own parser."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNITS = Path(__file__).resolve().parents[2] / "conf" / "systemd"


def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """The program's path is that of an installation; here it is one that exists."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    for unit in UNITS.iterdir():
        text = unit.read_text().replace("/opt/sparklog/venv/bin/sparklog", sys.executable)
        (tmp_path / unit.name).write_text(text)
    paths = sorted(str(path) for path in tmp_path.iterdir())
    done = subprocess.run([analyze, "verify", *paths], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
