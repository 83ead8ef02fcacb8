"""Writers, readers and clean-ups race while commits are removed soon after they were made: no acknowledged record is
lost, and none is stored twice."""

from __future__ import annotations

import random
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from functools import partial

import pytest

from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import IndeterminateCommitError
from sparklog.log.commits import cleanup
from sparklog.log.layout import COMMITS, read_boundary
from sparklog.log.settings import LogSettings
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from tests.cluster.maintenance.logs import Written, append, records

SECONDS = 4.0


SETTINGS = LogSettings(
    checkpoint_interval_commits=10,
    commits_removed_inline=20,
    min_commit_age_ms=200,
    min_commits_kept=0,
    min_checkpoint_age_ms=300,
)
"""Commits are kept for 200 ms, so a reader that has not read for 100 ms counts as inactive."""


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore(uuid.uuid4().hex)
    coordinator = create_cluster(store, settings=SETTINGS)
    coordinator.create_topic("orders")
    coordinator.submit(
        partial(
            alter_configs, topic="", changes={"metadata.max.retention.bytes": "0", "metadata.max.retention.ms": "0"}
        )
    )
    return store


def values(coordinator: Coordinator) -> list[bytes | None]:
    return [record.value for record in records(coordinator, "orders")]


def test_racing_writers_lose_no_record_to_cleanups(store: MemoryStore) -> None:
    seed = random.randrange(2**32)
    until = time.monotonic() + SECONDS
    acknowledged: list[bytes] = []
    errors: list[str] = []

    def write(name: int) -> None:
        chance = random.Random(seed + name)
        coordinator = open_cluster(store, settings=SETTINGS)
        number = 0
        while time.monotonic() < until:
            value = b"%d-%d" % (name, number)
            number += 1
            try:
                append(coordinator, "orders", [Written(value=value)])
            except IndeterminateCommitError:
                continue  # outcome unknown
            acknowledged.append(value)
            if chance.random() < 0.05:
                time.sleep(chance.random() * 0.6)
            if chance.random() < 0.05:
                values(coordinator)

    def clean() -> None:
        coordinator = open_cluster(store, settings=SETTINGS)
        while time.monotonic() < until:
            cleanup.clean_up(store, coordinator.log.clock, coordinator.refresh().configs, SETTINGS)
            time.sleep(0.05)

    def recording_errors(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except Exception:
                errors.append(traceback.format_exc())

        return run

    jobs = [*(lambda name=name: write(name) for name in range(4)), clean, clean]
    threads = [threading.Thread(target=recording_errors(work)) for work in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, f"seed {seed}: {errors[0]}"
    stored = values(open_cluster(store))
    assert len(stored) == len(set(stored)), f"seed {seed}: a record is stored twice"
    assert set(acknowledged) <= set(stored), f"seed {seed}: an acknowledged record is lost"
    assert read_boundary(store) > 10
    assert len(list(store.list(COMMITS))) < len(acknowledged)
