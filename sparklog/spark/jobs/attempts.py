"""May a cluster manager run a driver's program a second time, and what do its attempts have in common?

YARN runs the driver of cluster mode again when its container dies, twice in all by default; on Kubernetes operators,
Jobs and schedulers do. A program that was killed after its commit writes a second time then, unless its writes are
numbered (``txnAppId``) by something that its attempts share. On YARN that is the id of the application. On Kubernetes
it is only for restarts of one driver pod, since a new submission gets another id. (Spark's standalone manager takes
programs in Python in client mode alone, and runs none again.)

Rules: settings are a function from a name and a default to a text, as ``spark.conf.get``.
Not for: tasks, whose attempts never show.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

Settings = Callable[[str, str], str]

_warned = threading.Event()


def settings_of(spark: SparkSession) -> Settings:
    """What the session says of its cluster manager."""

    def setting(name: str, default: str) -> str:
        return spark.conf.get(name, default) or default

    return setting


def repeated_by(setting: Settings) -> str:
    """Who may run this program again after it was killed; empty where nobody does by himself."""
    master = setting("spark.master", "")
    in_cluster = setting("spark.submit.deployMode", "client") == "cluster"
    if master == "yarn" and in_cluster and setting("spark.yarn.maxAppAttempts", "") != "1":
        return "YARN, as spark.yarn.maxAppAttempts is not 1"
    if master.startswith("k8s://"):
        return "Kubernetes, by an operator, a Job or a scheduler"
    return ""


def shared_application(setting: Settings) -> str:
    """The application id that a second attempt of this very submission has too; empty where there is none."""
    master = setting("spark.master", "")
    in_cluster = setting("spark.submit.deployMode", "client") == "cluster"
    if master == "yarn" or (master.startswith("k8s://") and in_cluster):
        return setting("spark.app.id", "")
    return ""


def warn_of_second_attempt(setting: Settings) -> None:
    """Say once in this process that a write without a number may happen twice, where that can be."""
    who = "" if _warned.is_set() else repeated_by(setting)
    if who:
        _warned.set()
        logger.warning(
            "this write is not numbered: if the driver is killed after its commit and the program run again (%s), it "
            "writes a second time; give sparklog.write txn_app_id and txn_version (options txnAppId and txnVersion)",
            who,
        )
