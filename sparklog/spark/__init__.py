"""The Spark side of sparklog: a Python data source that writes and reads the log in bulk, and helpers around it.

This code runs in three kinds of processes (see ``docs/spark.md``):

    planner processes beside the driver    source, options, planning, table_options; commit and abort
    executor tasks                         reader, writer and the modules they use
    the user's process                     api, session

Rules: only this package imports pyspark; every object that Spark pickles derives from ``picklable.Picklable``;
everything except the thin classes that Spark calls works, and is tested, without Spark.
Not for: offsets, formats and commits, which all clients share (``coordinator``, ``log``).
"""

from __future__ import annotations

import importlib

from sparklog.spark.versions.required import check_spark

check_spark()

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sparklog.spark.api import read, register, write
    from sparklog.spark.group.consume import consume
    from sparklog.spark.history.table import create_view, table
    from sparklog.spark.jobs.runner import SparkTasks
    from sparklog.spark.session import sparklog_session
    from sparklog.spark.stream.foreach_batch import write_batch
    from sparklog.spark.stream.lag_listener import LagListener

__all__ = [
    "LagListener",
    "SparkTasks",
    "consume",
    "create_view",
    "read",
    "register",
    "sparklog_session",
    "table",
    "write",
    "write_batch",
]

_MODULES = {
    "LagListener": "stream.lag_listener",
    "SparkTasks": "jobs.runner",
    "consume": "group.consume",
    "create_view": "history.table",
    "read": "api",
    "register": "api",
    "sparklog_session": "session",
    "write": "api",
    "table": "history.table",
    "write_batch": "stream.foreach_batch",
}

if not TYPE_CHECKING:  # Spark's own processes import this package too and do not need the consumer

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)

    def __dir__():
        return __all__
