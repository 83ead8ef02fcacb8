"""Tools for testing programs that use sparklog, and sparklog itself. Nothing else in the package imports them.

``cluster`` starts a cluster for the duration of a test; ``FaultyStore`` is a storage that fails on demand;
``OperationLog`` records the operations of a process, and ``check`` reports violations in such a history.
``create_cluster`` and ``open_cluster`` take a store, such as ``MemoryStore``. See docs/testing.md. Not for production.
"""

from sparklog.coordinator import create_cluster, open_cluster
from sparklog.store.memory import MemoryStore
from sparklog.testing.checks import assert_clean, check
from sparklog.testing.clusters import Cluster, cluster
from sparklog.testing.faulty_store import (
    CountingStore,
    Fault,
    FaultyStore,
    SimulatedCrash,
    SimulatedInterrupt,
    every_crash,
    every_outcome,
)
from sparklog.testing.findings import Finding
from sparklog.testing.history import POLL, READ, SEND, History, OperationLog, Read, Write
from sparklog.testing.records import Record, append_records

__all__ = [
    "POLL",
    "READ",
    "SEND",
    "Cluster",
    "CountingStore",
    "Fault",
    "FaultyStore",
    "Finding",
    "History",
    "MemoryStore",
    "OperationLog",
    "Read",
    "Record",
    "SimulatedCrash",
    "SimulatedInterrupt",
    "Write",
    "append_records",
    "assert_clean",
    "check",
    "cluster",
    "create_cluster",
    "every_crash",
    "every_outcome",
    "open_cluster",
]
