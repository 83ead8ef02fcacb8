"""A process that is suspended between its look at the log and its deletions looks again before it goes on: only the
request that was on its way deletes something at a location that another root has taken over meanwhile.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.take_over import take_over
from sparklog.errors import SparklogError, StorageError
from sparklog.maintenance.gc.recent_look import LONGEST_LOOK_SECONDS, LOOKS, RecentLook
from sparklog.maintenance.gc.surplus_replicas import remove_surplus_replicas
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.file_names import is_data_file
from sparklog.store.memory import MemoryStore
from sparklog.store.open import open_store
from sparklog.testing.faults import Call
from sparklog.testing.faulty_store import FaultyStore
from sparklog.testing.substitutes import substituted
from tests.cluster.maintenance.reassignment import reassign
from tests.cluster.maintenance.replicas import TOPIC, Replicas

DAY = 86_400.0


def prepare_retired(replicas: Replicas) -> None:
    """Small files at broker 1 that a rolled one has replaced."""
    replicas.cluster.submit(
        lambda state: alter_configs(state, TOPIC, {"file.delete.delay.ms": "0", "segment.ms": "1000"})
    )
    replicas.produce(5)
    replicas.clock.advance(3600)
    replicas.produce(1)
    roll(replicas.cluster, InProcess())
    replicas.clock.advance(3600)


def prepare_orphans(replicas: Replicas) -> None:
    """Files at broker 1 of which the log knows nothing."""
    replicas.produce(5)
    for path in replicas.disk(1).rglob("*-v*"):
        shutil.copy(path, path.with_name(path.name.replace("-v", "-v0-orphan")))
    replicas.clock.advance(8 * DAY)
    replicas.produce(1)
    replicas.clock.advance(8 * DAY)


def prepare_surplus(replicas: Replicas) -> None:
    """Copies at broker 1 of a partition that has moved to broker 2."""
    replicas.produce(5)
    reassign(replicas.cluster, {(TOPIC, 0): [2]}, InProcess())


WORK: dict[str, tuple[Callable[[Replicas], None], Callable[[Coordinator], object]]] = {
    "sweep": (prepare_retired, sweep),
    "vacuum": (prepare_orphans, lambda cluster: vacuum(cluster, dry_run=False)),
    "removal of copies": (prepare_surplus, lambda cluster: remove_surplus_replicas(cluster, 1)),
}


@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize("is_taken_over", [True, False])
def test_only_what_was_on_its_way_is_deleted_after_a_suspension(tmp_path: Path, name: str, is_taken_over: bool) -> None:
    prepare, work = WORK[name]
    replicas = Replicas(tmp_path, locations=2, assignment=[[1]])
    prepare(replicas)
    before = set(replicas.files(1))
    deletions: list[str] = []

    def suspend(step: int, call: Call) -> None:
        if call.operation == "delete" and is_data_file(call.key):
            deletions.append(call.key)
            if len(deletions) == 1:
                if is_taken_over:
                    shutil.copytree(tmp_path / "root", tmp_path / "other")
                    take_over(open_cluster(str(tmp_path / "other"), clock=replicas.clock), force=True)
                replicas.clock.advance(LONGEST_LOOK_SECONDS + 1)

    with substituted(FaultyStore(open_store(str(replicas.disk(1))), before=suspend)), suppress(SparklogError):
        work(open_cluster(replicas.cluster.store.root, clock=replicas.clock))
    deleted = before - set(replicas.files(1))
    assert len(deletions) == len(deleted) == 1 if is_taken_over else len(deleted) >= 8


@pytest.mark.parametrize("suspended", [0, 1, LOOKS - 1])
def test_a_look_in_whose_middle_the_process_was_suspended_is_repeated(suspended: int) -> None:
    """What it read before may be long out of date at its end."""
    clock, store, looks = ManualClock(), MemoryStore("looks"), 0

    def look() -> MemoryStore:
        nonlocal looks
        looks += 1
        if looks <= suspended:
            clock.advance(LONGEST_LOOK_SECONDS + 1)
        return store

    recent = RecentLook(clock, look)
    recent.delete("a", "b")
    assert looks == 1 + suspended
    clock.advance(LONGEST_LOOK_SECONDS + 1)
    recent.delete("c")
    assert looks == 2 + suspended


def test_nothing_is_deleted_if_no_look_is_quick_enough() -> None:
    clock, store = ManualClock(), MemoryStore("slow-looks")
    store.put("a", b"kept")

    def look() -> MemoryStore:
        clock.advance(LONGEST_LOOK_SECONDS + 1)
        return store

    with pytest.raises(StorageError, match="nothing more is deleted"):
        RecentLook(clock, look).delete("a")
    assert store.get("a") == b"kept"
