"""A Spark session that has what sparklog needs, on one machine and on clusters.

    spark = sparklog_session()                                  # local[*]
    spark = sparklog_session("yarn", archive="env.tar.gz")      # ships a Python environment to the executors

Most of it is Python: Spark runs the Python named by ``PYSPARK_PYTHON`` for the planner beside the driver and for the
executors alike, by default whatever ``python3`` is. The other settings are those of ``conf/``, where each is explained.

Rules: what the user passes as ``config`` comes last and wins. A setting of the JVM, such as memory, has no effect on a
session that runs already. Not for: spark-submit, which takes ``conf/*.conf``.
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

ARCHIVE_NAME = "env"
"""Where an archive is unpacked, below the working directory of driver and executors."""
WORKER_MIB = 400
"""MiB outside the JVM's heap for the Python worker of one core."""
BASE_OVERHEAD_MIB = 384
"""MiB outside the heap that the JVM itself wants: Spark's default minimum."""

LOW_LATENCY = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
"""What shortens small jobs and micro-batches on one machine. ``conf/spark-local.conf`` says why and by how much."""


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
    """A session with sparklog registered: the running one if there is one, else a new one with these settings.

    ``master`` is a Spark master: ``local[2]``, ``spark://...``, ``yarn``, ``k8s://...``. ``python`` is the interpreter
    of planner and executors, see ``python_of``. ``archive`` is a packed environment that executors unpack. ``py_files``
    are zips for executors that have the dependencies but not sparklog (``make dist``). Raises InvalidRequestError where
    there is no Java.
    """
    os.environ["PYSPARK_PYTHON"] = python_of(master, python, archive, os.environ)
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
    """There is a Java for Spark to run. Raises InvalidRequestError, which says which Java Spark needs."""
    home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin") if home else environment.get("PATH"))
    if java is None:
        where = f"JAVA_HOME is {home}, and there is no bin/java in it" if home else "there is none in the PATH"
        raise InvalidRequestError(
            f"Spark needs Java 17 or later, and {where}: install a JDK or JRE (openjdk-17-jre-headless, say), and set "
            "JAVA_HOME to its folder"
        )


@contextmanager
def python_path() -> Iterator[None]:
    """Let the JVM that is started meanwhile start its Python processes half a second faster (``startup``)."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.path.dirname(startup.__file__), before]))
    try:
        yield
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before


def python_of(master: str, python: str | None, archive: str | None, environment: Mapping[str, str]) -> str:
    """The interpreter for planner and executors: ``python``, that of the archive, ``PYSPARK_PYTHON``, or this one.

    On one machine it is always this one unless ``python`` says otherwise. On a cluster the path has to exist on the
    driver's machine and on the executors'.
    """
    if python:
        return python
    if is_local(master):
        return sys.executable
    if archive:
        return f"./{ARCHIVE_NAME}/bin/python"
    return environment.get("PYSPARK_PYTHON") or sys.executable


def is_local(master: str) -> bool:
    """Whether driver and executors are on this machine: ``local``, ``local[n]``, ``local-cluster[...]``."""
    return master.startswith("local")


def settings(
    master: str, archive: str | None = None, py_files: Sequence[str] = (), executor_cores: int = 2
) -> dict[str, str]:
    """Spark's settings for a master. Memory is for ``executor_cores`` tasks at a time in each executor."""
    found = {
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "2g",
    }
    if is_local(master):
        found["spark.driver.host"] = found["spark.driver.bindAddress"] = "127.0.0.1"
        found["spark.sql.shuffle.partitions"] = "8"
        found |= LOW_LATENCY
        return _with_files(found, archive, py_files)
    found["spark.executor.memory"] = "2g"
    found["spark.executor.cores"] = str(executor_cores)
    found["spark.executor.memoryOverhead"] = f"{BASE_OVERHEAD_MIB + WORKER_MIB * executor_cores}m"
    return _with_files(found, archive, py_files)


def _with_files(found: dict[str, str], archive: str | None, py_files: Sequence[str]) -> dict[str, str]:
    if archive:
        found["spark.archives"] = f"{archive}#{ARCHIVE_NAME}"
    if py_files:
        found["spark.submit.pyFiles"] = ",".join(py_files)
    return found
