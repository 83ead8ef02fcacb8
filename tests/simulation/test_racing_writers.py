"""Writers that race, lose answers, are refused and are killed: for any seed no record is lost or duplicated, and every
append is atomic.

The seeds of a run are printed; ``SPARKLOG_SEED=n`` reruns one; see ``seeds``.
"""

from __future__ import annotations

import time

import pytest

from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import CommitConflictError, IndeterminateCommitError, StorageError
from sparklog.ids import SeededIds
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.settings import LogSettings
from sparklog.protocol.commits import Append, Run
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import (
    CRASH_AFTER,
    CRASH_BEFORE,
    LOST_ANSWER,
    UNAVAILABLE,
    FaultyStore,
    SimulatedCrash,
)
from tests.simulation.scheduler import Simulation
from tests.simulation.seeds import name, shards

WRITERS = 4
APPENDS = 6
RATES = {UNAVAILABLE: 0.03, LOST_ANSWER: 0.05, CRASH_BEFORE: 0.01, CRASH_AFTER: 0.01}


SETTINGS = LogSettings(checkpoint_interval_commits=5)


class Writer:
    """A client that keeps (producer id, sequence) through restarts and retries an append until it knows its offset."""

    def __init__(self, simulation: Simulation, store: MemoryStore, number: int) -> None:
        self.simulation = simulation
        self.store = store
        self.number = number
        self.acknowledged: dict[str, list[tuple[int, int]]] = {}
        self.next = 0
        self.lives: list[FaultyStore] = []

    def work(self) -> None:
        while self.next < APPENDS:
            try:
                self.live()
            except (SimulatedCrash, StorageError):
                continue  # a new process takes over where the old one stopped

    def live(self) -> None:
        simulation = self.simulation
        store = simulation.store(self.store, RATES)
        self.lives.append(store)
        coordinator = Coordinator(CommitLog.open(store, simulation, simulation.ids(), settings=SETTINGS))
        while self.next < APPENDS:
            path = f"w{self.number}-{self.next}.log"
            try:
                result = coordinator.append(self.request(path))
            except (IndeterminateCommitError, CommitConflictError, StorageError):
                continue
            self.acknowledged[path] = [(a.partition, a.base_offset) for a in result.appended]
            self.next += 1

    def request(self, path: str) -> AppendRequest:
        records = 1 + self.next
        first = sum(1 + earlier for earlier in range(self.next))
        appends = [
            PartitionAppend(
                topic="t",
                topic_id="",
                partition=partition,
                run=Run(path=path, batches=1, records=records, size_bytes=1, min_timestamp_us=0, max_timestamp_us=0),
                producer_id=100 + self.number,
                producer_epoch=0,
                base_sequence=first,
            )
            for partition in (0, 1)
        ]
        return AppendRequest(appends=appends)


def simulate(seed: int) -> tuple[Simulation, MemoryStore, list[Writer]]:
    simulation = Simulation(seed)
    store = MemoryStore(f"simulation-{seed}-{time.monotonic_ns()}")
    create_cluster(store, ids=SeededIds(seed), settings=SETTINGS).create_topic("t", partitions=2)
    writers = [Writer(simulation, store, number) for number in range(WRITERS)]
    for writer in writers:
        simulation.spawn(f"writer-{writer.number}", writer.work)
    simulation.run()
    return simulation, store, writers


def check(seed: int, store: MemoryStore, writers: list[Writer]) -> None:
    coordinator = open_cluster(store)
    stored: dict[str, list[tuple[int, int]]] = {}
    for partition in (0, 1):
        end = 0
        for segment in coordinator.segments("t").partition(partition):
            assert segment.base_offset == end, f"seed {seed}: a gap or overlap at {end}"
            end = segment.end_offset
            stored.setdefault(segment.path, []).append((partition, segment.base_offset))
    acknowledged = {path: offsets for writer in writers for path, offsets in writer.acknowledged.items()}
    assert stored == acknowledged, f"seed {seed}: the log differs from the acknowledged appends"
    for commit in coordinator.log.commits(0, coordinator.state.version):
        paths = [action.run.path for action in commit.actions if isinstance(action, Append)]
        assert len(paths) in (0, 2 * len(set(paths))), f"seed {seed}: commit {commit.version} has a partial append"


@pytest.mark.parametrize("shard", shards(50), ids=name)
def test_exactly_the_acknowledged_appends_are_stored_once(shard: range, capsys: pytest.CaptureFixture[str]) -> None:
    kills = lost = 0
    for seed in shard:
        try:
            _, store, writers = simulate(seed)
            check(seed, store, writers)
        except BaseException:
            print(f"failing seed: SPARKLOG_SEED={seed}")
            raise
        injected = [fault.kind for writer in writers for store in writer.lives for fault in store.injected]
        kills += sum(kind in (CRASH_BEFORE, CRASH_AFTER) for kind in injected)
        lost += injected.count(LOST_ANSWER)
    with capsys.disabled():
        print(f"\nsimulated seeds {name(shard)}: {kills} kills, {lost} lost answers")
    if len(shard) == 1:
        return
    assert kills > 0
    assert lost > 0
