"""Compactions, repairs of lost files from retired ones, and appends, each within any other: the newest record of every
key stays, and a key that was deleted does not come back.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from sparklog.coordinator import Coordinator, open_cluster
from sparklog.errors import DataLossError
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.maintenance.fsck.retired_sources import RetiredSources
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.roll import roll
from sparklog.store.base import Store
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.maintenance.damaged_clusters import DamagedCluster
from tests.cluster.maintenance.logs import Written, append, live, records
from tests.cluster.maintenance.test_retired_sources import configure
from tests.sample import chosen

SEEDS = range(60)
KEYS = [b"%d" % number for number in range(8)]
STEPS = 25
DEEPEST = 2
"""How many jobs are within others, at most."""
LONGEST = 60
"""Requests of a job before another one begins within it, at most."""


class World:
    """One seed: a compacted topic, the newest value of each key, and the files that were taken away."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.cluster = DamagedCluster(folder, partitions=1)
        configure(
            self.cluster,
            cleanup_policy="compact",
            segment_ms="1",
            internal_segment_bytes=self.random.choice(["600", "3000", "1048576"]),
            min_cleanable_dirty_ratio="0",
            delete_retention_ms="0",
            file_delete_delay_ms=self.random.choice(["0", "60000", "60000", "60000"]),
        )
        self.newest: dict[bytes, bytes | None] = {}
        self.taken: dict[Path, bytes] = {}
        self.depth = 0
        self.counts: Counter[str] = Counter()

    def step(self) -> None:
        jobs: list[Callable[[], None]] = [self.put, self.compact, self.repair, self.damage, self.roll, self.sweep]
        job = self.random.choices(jobs, [8, 10, 6, 6, 2, 1])[0]
        with suppress(DataLossError):  # a file is taken away
            job()
        self.counts[job.__name__] += 1

    def put(self) -> None:
        coordinator = self.cluster.reopened()
        end = coordinator.state.partition("orders", 0).log_end_offset
        pairs = [(self.random.choice(KEYS), self.value(end + n)) for n in range(self.random.randint(1, 4))]
        append(coordinator, "orders", [Written(key, value, 1 + end) for key, value in pairs])
        self.newest.update(pairs)

    def value(self, offset: int) -> bytes | None:
        return None if self.random.random() < 0.4 else b"%d " % offset * self.random.choice([1, 1, 300])

    def overtaken(self) -> Store:
        """The root; within a job that uses it another one may run, from beginning to end."""
        at = self.random.randrange(LONGEST) if self.depth < DEEPEST and self.random.random() < 0.6 else -1

        def overtake(number: int, call: Call) -> None:
            if number == at:
                self.depth += 1
                for _ in range(self.random.randint(1, 3)):
                    self.step()
                self.depth -= 1

        return FaultyStore(self.cluster.store, before=overtake)

    def open(self) -> Coordinator:
        return open_cluster(self.overtaken())

    def compact(self) -> None:
        self.counts["records removed"] += compact(self.open(), InProcess()).records_removed

    def roll(self) -> None:
        roll(self.open(), InProcess())

    def sweep(self) -> None:
        sweep(self.open())

    def repair(self) -> None:
        check = check_cluster(self.overtaken())
        repair_cluster(check)
        self.counts["rewritten"] += sum(repair.done for repair in check.report.repairs)

    def damage(self) -> None:
        """Take the file of a segment away from which a compaction removed records."""
        check = self.cluster.check()
        sources = RetiredSources(check.store, check.metadata.state, check.stores)
        segments = live(self.cluster.reopened(), "orders")
        files = [self.cluster.file(each.path) for each in segments if sources.find("orders", each).compacted_with]
        if found := [path for path in files if path.exists()]:
            path = self.random.choice(found)
            self.taken[path] = path.read_bytes()
            path.unlink()
            self.counts["taken"] += 1
            if self.random.random() < 0.7:
                self.repair()

    def put_back(self) -> None:
        """Put back the files that are still part of the log."""
        segments = live(self.cluster.reopened(), "orders")
        for path in {self.cluster.file(segment.path) for segment in segments} & set(self.taken):
            if not path.exists():
                path.write_bytes(self.taken[path])

    def check(self) -> None:
        self.put_back()
        found = {record.key: record.value for record in records(self.cluster.reopened(), "orders")}
        for key, value in self.newest.items():
            assert found.get(key) == value, f"{key!r} is {found.get(key)!r}, and was set to {value!r}"


def simulate(seed: int, folder: Path) -> Counter[str]:
    world = World(seed, folder)
    for _ in range(STEPS):
        world.step()
        if world.random.random() < 0.2:
            world.check()
    world.depth = DEEPEST
    world.repair()
    world.check()
    for _ in range(2):
        compact(world.cluster.reopened(), InProcess())
        world.check()
    return world.counts


@pytest.mark.sampled
def test_no_order_of_compactions_and_repairs_brings_a_deleted_key_back(tmp_path: Path) -> None:
    counts = sum((simulate(seed, tmp_path / str(seed)) for seed in chosen(SEEDS)), Counter[str]())
    assert counts["records removed"]
    assert counts["rewritten"]
