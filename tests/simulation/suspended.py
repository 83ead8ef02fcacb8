"""Machines that are suspended with a clean-up and writers on them, for longer than commits are kept.

This tests all detection of suspension: a resumed clean-up could set the boundary back, and a resumed writer could
create a version that was removed in between. Acknowledged records must exist at the end.
"""

from __future__ import annotations

import random
from contextlib import suppress
from functools import partial

from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import (
    CommitConflictError,
    CorruptMetadataError,
    IndeterminateCommitError,
    RootReplacedError,
    StorageError,
)
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.layout import BOUNDARY_KEY, COMMITS
from sparklog.log.settings import LogSettings
from sparklog.protocol.commits import Run
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.testing.faulty_store import Call
from tests.simulation.scheduler import Machine, Simulation

SETTINGS = LogSettings(checkpoint_interval_commits=3, min_commits_kept=0)
"""Many checkpoints; commits are removed as soon as they are old enough."""

APPENDS = 14
CONFIGS = {"metadata.max.retention.ms": "0"}
SLEEP_SECONDS = (200.0, 3000.0)
"""How long a machine is suspended: commits are kept for 600 s."""

SLEEP_RATES = {BOUNDARY_KEY: 0.3, COMMITS: 0.05}
"""The probability that a machine is suspended before it writes such an object."""

LINGER_RATE = 0.3
"""The probability that a writer is delayed before it creates a commit, so that its machine is suspended meanwhile."""


class SuspendedWorld:
    """One run. ``findings`` are acknowledged but missing appends; ``late`` counts detected stale commits."""

    def __init__(self, seed: int) -> None:
        self.simulation = Simulation(seed)
        self.random: random.Random = self.simulation.random
        self.name = f"suspended-{seed}"
        self.store = MemoryStore(self.name, self.simulation)
        self.writing = 0
        self.late = 0
        self.acknowledged: dict[str, int] = {}
        self.findings: list[str] = []
        cluster = create_cluster(self.store, clock=self.simulation, ids=self.simulation.ids(), settings=SETTINGS)
        cluster.create_topic("t")
        cluster.submit(partial(alter_configs, topic="", changes=CONFIGS))
        for number in range(2):
            machine = self.simulation.machine()
            for name in (f"w{number}a", f"w{number}b"):
                self.writing += 1
                self.simulation.spawn(name, lambda name=name: self.write(name), machine)  # type: ignore[misc]
            self.simulation.spawn(f"c{number}", self.clean, machine)

    def open(self) -> Coordinator:
        store = self.simulation.store(self.store, {}, self._stop)
        return Coordinator(CommitLog.open(store, self.simulation.clock, self.simulation.ids(), settings=SETTINGS))

    def _stop(self, call: Call) -> float:
        if call.operation not in ("put", "put_if_absent"):
            return 0.0
        kind = COMMITS if call.key.startswith(COMMITS) else call.key
        machine = self.simulation.clock
        if isinstance(machine, Machine) and self.random.random() < SLEEP_RATES.get(kind, 0):
            machine.suspend(self.random.uniform(*SLEEP_SECONDS))
        if kind == COMMITS and self.random.random() < LINGER_RATE:
            return self.random.uniform(0, 200)
        return 0.0

    def write(self, name: str) -> None:
        try:
            coordinator = self.open()
            for count in range(APPENDS):
                self.simulation.sleep(self.random.choice([1, 50, 300]))
                path = f"{name}-{count}.log"
                while True:
                    try:
                        self.acknowledged[path] = append(coordinator, path)
                        break
                    except (IndeterminateCommitError, RootReplacedError):
                        self.late += 1  # outcome unknown, so not acknowledged
                        coordinator = self.open()
                        break
                    except (CommitConflictError, StorageError):
                        continue
        finally:
            self.writing -= 1

    def clean(self) -> None:
        coordinator = self.open()
        while self.writing:
            self.simulation.sleep(self.random.uniform(0, 200))
            try:
                clean_up(coordinator.store, coordinator.log.expiry_clock, coordinator.refresh().configs, SETTINGS)
            except RootReplacedError:
                coordinator = self.open()

    def check(self) -> None:
        """Check what a process reads that opens the cluster after the run."""
        try:
            coordinator = open_cluster(self.store)
            stored = {segment.path: segment.base_offset for segment in coordinator.segments("t").partition(0)}
        except CorruptMetadataError as error:
            self.findings.append(f"the log cannot be read: {error}")
            return
        for path, offset in self.acknowledged.items():
            if stored.get(path) != offset:
                self.findings.append(f"{path} was acknowledged at {offset}, and is at {stored.get(path)}")


def append(coordinator: Coordinator, path: str) -> int:
    run = Run(path=path, batches=1, records=1, size_bytes=1, min_timestamp_us=0, max_timestamp_us=0)
    request = AppendRequest(appends=[PartitionAppend(topic="t", topic_id="", partition=0, run=run)])
    return coordinator.append(request).appended[0].base_offset


def simulate(seed: int, strict: bool = True) -> SuspendedWorld:
    """Run and check the simulation. ``strict``: no process may fail."""
    world = SuspendedWorld(seed)
    try:
        if strict:
            world.simulation.run()
        else:
            with suppress(AssertionError):
                world.simulation.run()
        world.check()
    finally:
        forget_space(world.name)
    return world
