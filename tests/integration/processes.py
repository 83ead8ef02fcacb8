"""The environment of programs that tests start with a Spark of their own."""

from __future__ import annotations

import os

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK_JVM = {"SPARK_SUBMIT_OPTS": _QUICK, "SPARK_LAUNCHER_OPTS": _QUICK}
"""Programs of tests end before it pays to compile their code a second time, or to collect garbage with many threads."""


def clean_environment(**more: str) -> dict[str, str]:
    """This process's environment without what its own Spark has put there, and with ``more``."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return {**ours, **QUICK_JVM, "SPARK_LOCAL_IP": "127.0.0.1", **more}
