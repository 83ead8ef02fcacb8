"""The maintenance forgets producers and applications that were silent for as long as the settings say, and only it."""

from __future__ import annotations

import uuid

import pytest

from sparklog import limits
from sparklog.client.records import Record, append_records
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.announcements import READERS, Announcement
from sparklog.maintenance.deletion import EXPIRED_ANNOUNCEMENTS_KEPT_MS, sweep
from sparklog.maintenance.expiry import Expired, expire
from sparklog.protocol.commits import ApplicationWrite, InitProducer
from sparklog.store.memory import MemoryStore
from sparklog.testing.clocks import ManualClock

DAY_MS = 86_400_000
NOTHING = Expired(0, 0, 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock) -> Coordinator:
    coordinator = create_cluster(MemoryStore(uuid.uuid4().hex, clock=clock), clock=clock)
    coordinator.create_topic("orders")
    return coordinator
