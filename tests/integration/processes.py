"""The environment of programs that start their own Spark."""

from __future__ import annotations

import os

from tests import quick_jvm


def clean_environment(**more: str) -> dict[str, str]:
    """Return this process's environment without its own Spark's variables, and with ``more``."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return {**inherited, **quick_jvm.LAUNCHERS, "SPARK_LOCAL_IP": "127.0.0.1", **more}
