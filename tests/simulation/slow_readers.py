"""Readers whose requests take several times as long as those of steady writers: open, refresh and commit must finish.

The check is of time: an operation may take as long as a number of the reader's own requests, however fast others write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import CommitConflictError, IndeterminateCommitError
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.settings import LogSettings
from sparklog.protocol.commits import Run
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.testing.faulty_store import FaultyStore
from tests.simulation.scheduler import Simulation

T = TypeVar("T")

WRITERS = 3
APPENDS = 70
WRITER_SECONDS = 0.015
REQUESTS = 40
"""The limit for one operation, in request times of the reader."""

COMMIT_REQUESTS = 200
"""The same for a commit, which may lose to others repeatedly."""


class RemoteStore(MemoryStore):
    """Allows parallel requests, as an object storage does."""

    parallel_requests = 16


SETTINGS = LogSettings(checkpoint_interval_commits=50)


class SlowReaders:
    """One run: steady writers, a slow reader and a slow writer. ``slow`` are the operations that took too long."""

    def __init__(self, seed: int, settings: LogSettings = SETTINGS) -> None:
        self.settings = settings
        self.simulation = Simulation(seed)
        self.name = f"slow-readers-{seed}"
        self.store = RemoteStore(self.name, self.simulation)
        self.latency = WRITER_SECONDS * self.simulation.random.uniform(3, 10)
        self.writing = WRITERS
        self.slow: list[str] = []
        self.looks = 0
        cluster = create_cluster(self.store, clock=self.simulation, ids=self.simulation.ids(), settings=settings)
        cluster.create_topic("t")
        for number in range(WRITERS):
            self.simulation.spawn(f"w{number}", lambda number=number: self.write(number))  # type: ignore[misc]
        self.simulation.spawn("reader", self.follow)
        self.simulation.spawn("slow-writer", self.write_slowly)

    def run(self) -> list[str]:
        try:
            self.simulation.run()
        finally:
            forget_space(self.name)
        return self.slow

    def open(self, latency: float) -> Coordinator:
        store: FaultyStore = self.simulation.store(self.store, {}, latency=latency)
        return Coordinator(CommitLog.open(store, self.simulation, self.simulation.ids(), settings=self.settings))

    def write(self, number: int) -> None:
        try:
            coordinator = self.open(WRITER_SECONDS)
            for count in range(APPENDS):
                append(coordinator, f"w{number}-{count}")
        finally:
            self.writing -= 1

    def follow(self) -> None:
        coordinator = self.within("open", REQUESTS, lambda: self.open(self.latency))
        while self.writing:
            self.within("refresh", REQUESTS, coordinator.refresh)
            self.looks += 1
            self.simulation.sleep(self.simulation.random.choice([0, 0.5, 2.0]))

    def write_slowly(self) -> None:
        coordinator = self.open(self.latency)
        for count in range(2):
            self.simulation.sleep(self.simulation.random.uniform(0, 2))
            self.within("commit", COMMIT_REQUESTS, lambda count=count: append(coordinator, f"slow-{count}"))  # type: ignore[misc]

    def within(self, what: str, requests: int, action: Callable[[], T]) -> T:
        start = self.simulation.monotonic()
        result = action()
        took = (self.simulation.monotonic() - start) / self.latency
        if took > requests:
            self.slow.append(f"{what} took the time of {took:.0f} requests, of {self.latency * 1000:.0f} ms each")
        return result


def append(coordinator: Coordinator, path: str) -> None:
    run = Run(path=f"{path}.log", batches=1, records=1, size_bytes=1, min_timestamp_us=0, max_timestamp_us=0)
    while True:
        try:
            coordinator.append(AppendRequest(appends=[PartitionAppend(topic="t", topic_id="", partition=0, run=run)]))
            return
        except (CommitConflictError, IndeterminateCommitError):
            continue
