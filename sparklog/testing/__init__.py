"""Shipped tools for testing programs that use sparklog, and sparklog itself. Nothing in the package imports them.

``cluster`` starts a cluster for the length of a test; ``FaultyStore`` is a storage that fails; ``OperationLog`` records
what processes do, and ``check`` says what is wrong with such a record. See docs/testing.md.
"""

from sparklog.testing.checks import assert_clean, check
from sparklog.testing.clusters import Cluster, cluster
from sparklog.testing.faulty_store import CountingStore, Fault, FaultyStore
from sparklog.testing.findings import Finding
from sparklog.testing.history import History, OperationLog

__all__ = [
    "Cluster",
    "CountingStore",
    "Fault",
    "FaultyStore",
    "Finding",
    "History",
    "OperationLog",
    "assert_clean",
    "check",
    "cluster",
]
