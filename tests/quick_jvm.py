"""Options of the JVMs that tests start.

They end too soon for optimising compilation or parallel garbage collection to pay, and load Spark's classes from the
archive of scripts/jvm_archive.sh where there is one.
"""

from __future__ import annotations

import sys
from pathlib import Path

_ARCHIVE = Path(sys.prefix, "spark.jsa")
WITHOUT_ARCHIVE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM in a container, which does not see this environment: a missing archive costs it its own."""
OPTIONS = WITHOUT_ARCHIVE
if _ARCHIVE.exists() and " " not in str(_ARCHIVE):
    OPTIONS += f" -XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable -Xlog:all=error:stderr"
LAUNCHERS = {"SPARK_SUBMIT_OPTS": OPTIONS, "SPARK_LAUNCHER_OPTS": OPTIONS}
"""Variables for spark-submit, the JVM that it starts, and the driver in it."""
EXECUTORS = {"spark.executor.extraJavaOptions": OPTIONS}
"""Settings for executors in processes of their own."""
