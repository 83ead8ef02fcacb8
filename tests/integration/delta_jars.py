"""Programs of tests that need delta-spark's jars: spark-submit, with conf/spark-delta.conf, which fetches them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from sparklog.spark.session import LOW_LATENCY
from tests.integration.processes import clean_environment

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
RUN_SECONDS = 420
DELTA = "4.4.0"
DELTA_SPARKS = ("4.0", "4.1", "4.2")
UNRESOLVED = ("unresolved dependency", "[download failed")
"""Messages of Ivy when jars cannot be fetched."""


def delta_settings(folder: Path) -> Path:
    """Write the settings for one machine and for Delta to one file in a folder, as the latter documents, with the
    names of this Spark (docs/compatibility.md)."""
    version = ".".join(pyspark.__version__.split(".")[:2])
    if version not in DELTA_SPARKS:
        pytest.skip(f"Delta {DELTA} has no jars for Spark {version}")
    text = "\n".join((ROOT / "conf" / name).read_text() for name in ("spark-local.conf", "spark-delta.conf"))
    manager = LOW_LATENCY["spark.sql.streaming.checkpointFileManagerClass"]
    text = re.sub(r"(?m)^(spark\.sql\.streaming\.checkpointFileManagerClass\s+).*", rf"\g<1>{manager}", text)
    joined = folder / "joined.conf"
    joined.write_text(text.replace("delta-spark_4.2_2.13", f"delta-spark_{version}_2.13"))
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
