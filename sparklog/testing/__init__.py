"""Tools for testing programs that use sparklog, and sparklog itself. Nothing else in the package imports them.

``cluster`` starts a cluster for the duration of a test; ``FaultyStore`` is a storage that fails on demand;
``OperationLog`` records the operations of a process, and ``check`` reports violations in such a history. See
docs/testing.md. Not for production.
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
