"""The environment of programs that start their own Spark."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_ARCHIVE = Path(sys.prefix, "spark.jsa")
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
if _ARCHIVE.exists() and " " not in str(_ARCHIVE):  # of scripts/jvm_archive.sh
    _QUICK += f" -XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"
QUICK_JVM = {"SPARK_SUBMIT_OPTS": _QUICK, "SPARK_LAUNCHER_OPTS": _QUICK}
"""Test programs are too short for optimising compilation or parallel garbage collection to pay."""
QUICK_EXECUTORS = {"spark.executor.extraJavaOptions": _QUICK}
"""The same for executors in processes of their own."""


def clean_environment(**more: str) -> dict[str, str]:
    """Return this process's environment without its own Spark's variables, and with ``more``."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return {**inherited, **QUICK_JVM, "SPARK_LOCAL_IP": "127.0.0.1", **more}
