"""Maintenance: rolling, retention, compaction, replication, garbage collection, fsck, and the loop that runs them.

Each job is a plan (decided in ``protocol``), tasks that write files, and one commit. The caller passes in a task
runner: this process, a pool of processes (``runner``), or Spark (``sparklog.spark.jobs.runner``).

Rules: reads and writes work without any of this running; a job that is killed at any step leaves only files that are
not part of the log; no pyspark.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sparklog.maintenance.fsck.check import Scope, check_cluster
    from sparklog.maintenance.fsck.repair import repair_cluster
    from sparklog.maintenance.runner import ProcessPool

__all__ = ["ProcessPool", "Scope", "check_cluster", "repair_cluster"]

_MODULES = {
    "ProcessPool": "runner",
    "Scope": "fsck.check",
    "check_cluster": "fsck.check",
    "repair_cluster": "fsck.repair",
}

if not TYPE_CHECKING:  # a task of one kind of maintenance does not load the others

    def __getattr__(name):
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)

    def __dir__():
        return __all__
