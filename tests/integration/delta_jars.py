"""Programs of tests that need delta-spark's jars: spark-submit, with conf/spark-delta.conf, which fetches them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.processes import clean_environment

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
RUN_SECONDS = 420
UNRESOLVED = ("unresolved dependency", "[download failed")
"""Messages of Ivy when jars cannot be fetched."""


def delta_settings(folder: Path) -> Path:
    """Write the settings for one machine and for Delta to one file in a folder, as the latter documents."""
    joined = folder / "joined.conf"
    joined.write_text(
        "\n".join((ROOT / "conf" / name).read_text() for name in ("spark-local.conf", "spark-delta.conf"))
    )
    return joined


def submit(settings: Path, *program: str) -> str:
    """Run a program with these settings and return its output; skip the test if the jars cannot be fetched."""
    command = [str(BIN / "spark-submit"), "--properties-file", str(settings), "--master", "local[2]"]
    quiet = ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.memory=1g"]
    quiet += ["--conf", f"spark.local.dir={settings.parent / 'spark'}"]
    done = subprocess.run(
        [*command, *quiet, *program],
        cwd=ROOT,
        env=clean_environment(PATH=f"{BIN}{os.pathsep}{os.environ['PATH']}", PYTHONPATH=str(ROOT)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    if done.returncode and any(words in done.stdout for words in UNRESOLVED):
        pytest.skip("the jars of Delta cannot be fetched from here; conf/spark-delta.conf names them")
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout
