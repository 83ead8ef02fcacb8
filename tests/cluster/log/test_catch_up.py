"""Opening a cluster on a storage that fails intermittently."""

from __future__ import annotations

import uuid

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import StorageUnavailableError
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import UNAVAILABLE, Fault, FaultyStore


def test_a_cluster_opens_despite_failures_among_many_reads() -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    cluster = create_cluster(inner)
    for number in range(60):
        cluster.create_topic(f"t{number}")
    counted = FaultyStore(inner)
    open_cluster(counted)
    reads = len(counted.calls)
    tail = range(6, reads + 20, 4)  # every fourth read of the tail fails
    store = FaultyStore(inner, [Fault(step, UNAVAILABLE) for step in tail])
    assert open_cluster(store, clock=ManualClock()).state.version == cluster.state.version
    assert len(store.injected) > 10


def test_opening_fails_if_the_storage_fails_permanently() -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    create_cluster(inner)
    store = FaultyStore(inner, [Fault(step, UNAVAILABLE) for step in range(3, 40)])
    with pytest.raises(StorageUnavailableError):
        open_cluster(store, clock=ManualClock())
