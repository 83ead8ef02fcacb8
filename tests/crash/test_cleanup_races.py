"""Writers, readers and clean-ups race while commits are removed almost at once: nothing acknowledged is lost, and
nothing is there twice."""

from __future__ import annotations

import random
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from functools import partial

import pytest

from sparklog import limits
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import IndeterminateCommitError
from sparklog.log import elapsed
from sparklog.log.commits import cleanup, commit_log
from sparklog.log.layout import COMMITS, read_boundary
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from tests.cluster.maintenance.logs import Written, append, records

SECONDS = 4.0


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A cluster that keeps a commit for 200 ms, and where 100 ms without a read count as long."""
    for name, value in {
        "CHECKPOINT_INTERVAL_COMMITS": 10,
        "COMMITS_REMOVED_INLINE": 20,
        "MIN_COMMIT_AGE_MS": 200,
        "MIN_COMMITS_KEPT": 0,
        "MIN_CHECKPOINT_AGE_MS": 300,
    }.items():
        monkeypatch.setattr(limits, name, value)
    monkeypatch.setattr(elapsed, "AWAY_SECONDS", 0.1)
    monkeypatch.setattr(commit_log, "_REBASE_AFTER_COMMITS", 40)
    store = MemoryStore(uuid.uuid4().hex)
    coordinator = create_cluster(store)
    coordinator.create_topic("orders")
    coordinator.submit(
        partial(
            alter_configs, topic="", changes={"metadata.max.retention.bytes": "0", "metadata.max.retention.ms": "0"}
        )
    )
    return store


def values(coordinator: Coordinator) -> list[bytes | None]:
    return [record.value for record in records(coordinator, "orders")]


def test_racing_writers_lose_nothing_to_clean_ups(store: MemoryStore) -> None:
    seed = random.randrange(2**32)
    until = time.monotonic() + SECONDS
    acknowledged: list[bytes] = []
    errors: list[str] = []

    def write(name: int) -> None:
        chance = random.Random(seed + name)
        coordinator = open_cluster(store)
        number = 0
        while time.monotonic() < until:
            value = b"%d-%d" % (name, number)
            number += 1
            try:
                append(coordinator, "orders", [Written(value=value)])
            except IndeterminateCommitError:
                continue  # nobody was told what became of it
            acknowledged.append(value)
            if chance.random() < 0.05:
                time.sleep(chance.random() * 0.6)
            if chance.random() < 0.05:
                values(coordinator)

    def clean() -> None:
        coordinator = open_cluster(store)
        while time.monotonic() < until:
            cleanup.clean_up(store, coordinator.log.clock, coordinator.refresh().configs)
            time.sleep(0.05)

    def noting_errors(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except Exception:
                errors.append(traceback.format_exc())

        return run

    works = [*(lambda name=name: write(name) for name in range(4)), clean, clean]
    threads = [threading.Thread(target=noting_errors(work)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, f"seed {seed}: {errors[0]}"
    found = values(open_cluster(store))
    assert len(found) == len(set(found)), f"seed {seed}: a record twice"
    assert set(acknowledged) <= set(found), f"seed {seed}: an acknowledged record is lost"
    assert read_boundary(store) > 10
    assert len(list(store.list(COMMITS))) < len(acknowledged)
