"""Create a Spark session with the settings that sparklog needs, on one machine and on clusters.

    spark = sparklog_session()                                  # local[*]
    spark = sparklog_session("yarn", archive="env.tar.gz")      # ships a Python environment to the executors

The main one is Python: Spark runs the interpreter named by ``PYSPARK_PYTHON``, by default ``python3``, both for the
planner beside the driver and for the executors. The other settings are those of ``conf/``, where each is explained.

Rules: the user's ``config`` is applied last and wins. A setting of the JVM, such as memory, has no effect on a running
session. Not for: spark-submit, which takes ``conf/*.conf``.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

from pyspark.sql import SparkSession

from sparklog.errors import InvalidRequestError
from sparklog.spark import startup
from sparklog.spark.api import register
from sparklog.spark.versions.api import checkpoint_file_manager

ARCHIVE_NAME = "env"
"""Folder into which an archive is unpacked, in the working directory of driver and executors."""
WORKER_MIB = 400
"""MiB outside the JVM's heap for the Python worker of one core."""
BASE_OVERHEAD_MIB = 384
"""MiB outside the heap for the JVM itself: Spark's default minimum."""

LOW_LATENCY = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": checkpoint_file_manager(),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
"""Settings that speed up small jobs and micro-batches on one machine; ``conf/spark-local.conf`` gives the reasons and
the measured effect."""


def sparklog_session(
    master: str = "local[*]",
    app_name: str = "sparklog",
    *,
    python: str | None = None,
    archive: str | None = None,
    py_files: Sequence[str] = (),
    executor_cores: int = 2,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return a session with sparklog registered: the running one if there is one, else a new one with these settings.

    ``master`` is a Spark master: ``local[2]``, ``spark://...``, ``yarn``, ``k8s://...``. ``python`` is the interpreter
    of planner and executors, see ``choose_python``. ``archive`` is a packed environment that executors unpack.
    ``py_files`` are zips for executors that have the dependencies but not sparklog (``make dist``). Raises
    InvalidRequestError if there is no Java.
    """
    os.environ["PYSPARK_PYTHON"] = choose_python(master, python, archive, os.environ)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if SparkSession.getActiveSession() is None:
        check_java(os.environ)
    builder = SparkSession.Builder().master(master).appName(app_name)
    for name, value in {**settings(master, archive, py_files, executor_cores), **(config or {})}.items():
        builder = builder.config(name, value)
    with python_path() if is_local(master) else nullcontext():
        spark = builder.getOrCreate()
    register(spark)
    return spark


def check_java(environment: Mapping[str, str]) -> None:
    """Check that Spark can find a Java. Raises InvalidRequestError, which names the version that Spark needs."""
    home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin") if home else environment.get("PATH"))
    if java is None:
        problem = f"JAVA_HOME is {home}, which has no bin/java" if home else "there is no java in the PATH"
        raise InvalidRequestError(
            f"Spark needs Java 17 or later, but {problem}: install a JDK or JRE, such as openjdk-17-jre-headless, and "
            "set JAVA_HOME to its folder"
        )


@contextmanager
def python_path() -> Iterator[None]:
    """Have a JVM that is started within the block start its Python processes half a second faster (``startup``)."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.path.dirname(startup.__file__), before]))
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def choose_python(master: str, python: str | None, archive: str | None, environment: Mapping[str, str]) -> str:
    """Return the interpreter for planner and executors: ``python``, that of the archive, ``PYSPARK_PYTHON``, or this
    one.

    With a local master it is this one unless ``python`` is given. On a cluster the path must exist on the driver's
    machine and on the executors'.
    """
    if python:
        return python
    if is_local(master):
        return sys.executable
    if archive:
        return f"./{ARCHIVE_NAME}/bin/python"
    return environment.get("PYSPARK_PYTHON") or sys.executable


def is_local(master: str) -> bool:
    """Return whether driver and executors are on this machine: ``local``, ``local[n]``, ``local-cluster[...]``."""
    return master.startswith("local")


def settings(
    master: str, archive: str | None = None, py_files: Sequence[str] = (), executor_cores: int = 2
) -> dict[str, str]:
    """Return Spark's settings for a master. Memory is sized for ``executor_cores`` concurrent tasks per executor."""
    config = {
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "2g",
        "spark.ui.showConsoleProgress": "false",
    }
    if is_local(master):
        config["spark.driver.host"] = config["spark.driver.bindAddress"] = "127.0.0.1"
        config["spark.sql.shuffle.partitions"] = "8"
        config |= LOW_LATENCY
    else:
        config["spark.executor.memory"] = "2g"
        config["spark.executor.cores"] = str(executor_cores)
        config["spark.executor.memoryOverhead"] = f"{BASE_OVERHEAD_MIB + WORKER_MIB * executor_cores}m"
    if archive:
        config["spark.archives"] = f"{archive}#{ARCHIVE_NAME}"
    if py_files:
        config["spark.submit.pyFiles"] = ",".join(py_files)
    return config
