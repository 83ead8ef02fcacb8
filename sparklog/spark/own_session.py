"""Prepare a Spark session for ``format("sparklog")``: register the source, and check that its Python has sparklog.

Rules: runs in the user's process; of a session of Spark Connect it only registers the source, since its server has the
rest. Not for: settings (``session``).
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import subprocess
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrameWriter, SparkSession

from sparklog.errors import InvalidRequestError
from sparklog.spark.data_source import SparklogDataSource
from sparklog.spark.versions.api import has_unix_sockets
from sparklog.store.process_local import ProcessTable

logger = logging.getLogger(__name__)

UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
"""Set when a session is made, and never later."""
PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark plans a read again for each query only if it has a filter to push down (``api.read``)."""

ALREADY_EXISTS = "DATA_SOURCE_ALREADY_EXISTS"
"""Spark's condition for a second registration."""

DEFAULT_MODE = "ErrorIfExists"
"""The save mode of a writer without one."""

LONGEST_START_SECONDS = 60
"""Timeout of the Python process that checks whether sparklog can be imported."""
_WITHOUT_SPARKLOG = 3
_LOOKS_FOR_SPARKLOG = (
    f"import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('sparklog') else {_WITHOUT_SPARKLOG})"
)

_registered: ProcessTable[str, bool] = ProcessTable()


def register_source(spark: SparkSession) -> None:
    """Register the source with a session that lacks it: Spark warns about a second registration.

    Raises InvalidRequestError if Spark's Python processes have no sparklog.
    """
    if spark.conf.get(PUSH_DOWN, None) is None:
        spark.conf.set(PUSH_DOWN, "true")
    if is_connect(spark):
        _prepare_connect_writers()
        if _is_new(spark.session_id):  # type: ignore[attr-defined]
            _register_with_server(spark)
        return
    _prepare_writers()
    check_python(spark)
    advise_unix_sockets(spark.sparkContext.getConf().get(UNIX_SOCKETS))
    if not _java(spark).sessionState().dataSourceManager().dataSourceExists(SparklogDataSource.name()):
        spark.dataSource.register(SparklogDataSource)


def _register_with_server(spark: SparkSession) -> None:
    """Register the source with a server of Spark Connect. One of Spark 4.0 refuses what it has found itself."""
    try:
        spark.dataSource.register(SparklogDataSource)
    except PySparkException as error:
        if error.getCondition() != ALREADY_EXISTS:
            raise


@functools.cache
def advise_unix_sockets(setting: str | None) -> None:
    """Say once in this process what a session whose setting this is would gain by another one; nothing if it is set."""
    if setting is None and has_unix_sockets():
        logger.warning(
            "each task of this session waits up to 40 ms for a TCP acknowledgement between the JVM and Python: make "
            "the session with %s=true, or by sparklog.spark.session.sparklog_session(); =false keeps it, without this "
            "line",
            UNIX_SOCKETS,
        )


def activate(spark: SparkSession) -> None:
    """Make this the active session of the calling thread: Spark looks up a writer's source in it, and threads started
    by Python have none."""
    if _java(spark) is not None:
        spark._jvm.SparkSession.setActiveSession(_java(spark))  # type: ignore[union-attr]


def is_connect(spark: SparkSession) -> bool:
    """Return whether this is a session of Spark Connect, which has no JVM, context, RDDs or accumulators here."""
    return _java(spark) is None


def _java(spark: SparkSession) -> Any:
    return getattr(spark, "_jsparkSession", None)


def _is_new(name: str) -> bool:
    with _registered.held:
        names = _registered.entries
        is_new = name not in names
        names[name] = True
    return is_new


# -- writes in Spark's own words


def _prepare_writers() -> None:
    """Have ``df.write.format("sparklog")`` do two things that Spark does for its own sources only.

    It activates the DataFrame's session in the calling thread: Spark looks up a writer's source there, and fails with
    DATA_SOURCE_NOT_FOUND if there is none, as in threads of a ThreadPoolExecutor. And it appends if no mode was set,
    as Spark's Kafka sink does: Spark refuses its default mode for sources in Python.
    """
    choose_format = DataFrameWriter.format
    if hasattr(choose_format, "prepares_writers"):
        return

    @functools.wraps(choose_format)
    def choose(self: DataFrameWriter, source: str) -> DataFrameWriter:
        if str(source).lower() != SparklogDataSource.name():
            return choose_format(self, source)
        activate(self._spark)
        writer = choose_format(self, source)
        return writer.mode("append") if writer._jwrite.curmode().name() == DEFAULT_MODE else writer

    choose.prepares_writers = True  # type: ignore[attr-defined]
    DataFrameWriter.format = choose  # type: ignore[method-assign]


def _prepare_connect_writers() -> None:
    """Have ``df.write.format("sparklog")`` of Spark Connect append if no mode was set, too."""
    from pyspark.sql.connect.readwriter import DataFrameWriter as ConnectWriter  # needs grpcio, as its sessions do

    choose_format = ConnectWriter.format
    if hasattr(choose_format, "prepares_writers"):
        return

    @functools.wraps(choose_format)
    def choose(self: Any, source: str) -> Any:
        writer = choose_format(self, source)
        is_undecided = str(source).lower() == SparklogDataSource.name() and writer._write.mode is None
        return writer.mode("append") if is_undecided else writer

    choose.prepares_writers = True  # type: ignore[attr-defined]
    ConnectWriter.format = choose  # type: ignore[method-assign]


# -- the Python of planner and workers


def check_python(spark: SparkSession) -> None:
    """Check that Spark's Python processes have sparklog, as far as this machine can tell. Runs once for each Python.

    Raises InvalidRequestError, which says what to set.
    """
    context = spark.sparkContext
    python = context.pythonExec
    if not _is_new(f"python {python}"):
        return
    is_shipped = any(spark.conf.get(name, "") for name in ("spark.submit.pyFiles", "spark.archives"))
    if not is_shipped and not has_sparklog(python, str(context.master).startswith("local")):
        with _registered.held:
            names = _registered.entries
            names.pop(f"python {python}", None)
        raise InvalidRequestError(
            f"Spark starts its Python processes with {python!r}, which has no sparklog; this program runs "
            f"{sys.executable}. Set PYSPARK_PYTHON={sys.executable} (or spark.pyspark.python) before "
            "the session is made, or make it with sparklog.spark.session.sparklog_session()"
        )


def has_sparklog(python: str, is_local: bool) -> bool:
    """Return whether this Python can import sparklog; True if that cannot be determined.

    An interpreter that is missing on this machine may exist on the executors, but not with a local master.
    """
    path = shutil.which(python)
    if path is None:
        return not is_local
    if os.path.dirname(os.path.abspath(path)) == os.path.dirname(os.path.abspath(sys.executable)):
        return True
    try:
        process = subprocess.run(
            [path, "-c", _LOOKS_FOR_SPARKLOG], capture_output=True, timeout=LONGEST_START_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return True
    return process.returncode != _WITHOUT_SPARKLOG
