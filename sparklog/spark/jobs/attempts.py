"""Determine whether a cluster manager may rerun a driver program, and an id that its attempts share.

YARN reruns the driver of cluster mode when its container dies, with two attempts by default; on Kubernetes operators,
Jobs and schedulers do. A program that was killed after its commit then writes a second time, unless its writes are
numbered (``txnAppId``) by an id that its attempts share. On YARN that is the application id. On Kubernetes attempts
share it only if one driver pod restarts, since a new submission gets another id. (Spark's standalone manager accepts
Python programs only in client mode, and does not rerun them.)

Rules: settings are a function from a name and a default to a text, as ``spark.conf.get``.
Not for: attempts of tasks, which are not visible outside a job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.sql import SparkSession

from sparklog.store.process_local import ProcessTable

logger = logging.getLogger(__name__)

Settings = Callable[[str, str], str]

_warned: ProcessTable[str, bool] = ProcessTable()


def settings_of(spark: SparkSession) -> Settings:
    """Return a function that reads the session's settings."""
    return lambda name, default: spark.conf.get(name, default) or default


def find_rerunner(setting: Settings) -> str:
    """Return what may rerun this program after it is killed; empty if nothing does automatically."""
    master = setting("spark.master", "")
    in_cluster = setting("spark.submit.deployMode", "client") == "cluster"
    if master == "yarn" and in_cluster and setting("spark.yarn.maxAppAttempts", "") != "1":
        return "YARN, since spark.yarn.maxAppAttempts is not 1"
    if master.startswith("k8s://"):
        return "Kubernetes, by an operator, a Job or a scheduler"
    return ""


def shared_application(setting: Settings) -> str:
    """Return the application id that all attempts of this submission share; empty if there is none."""
    master = setting("spark.master", "")
    in_cluster = setting("spark.submit.deployMode", "client") == "cluster"
    if master == "yarn" or (master.startswith("k8s://") and in_cluster):
        return setting("spark.app.id", "")
    return ""


def warn_of_second_attempt(setting: Settings) -> None:
    """Warn once in this process that an unnumbered write may happen twice, if the program may be rerun."""
    with _warned.held:
        warned = _warned.entries
        rerunner = "" if warned else find_rerunner(setting)
        if rerunner:
            warned["second attempt"] = True
    if rerunner:
        logger.warning(
            "this write is not numbered: if the driver is killed after its commit and the program is rerun (by %s), it "
            "writes a second time; pass txn_app_id and txn_version to sparklog.write (options txnAppId and txnVersion)",
            rerunner,
        )
