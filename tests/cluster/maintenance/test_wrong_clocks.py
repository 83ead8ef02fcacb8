"""A machine whose clock is off by days harms only itself: shared objects expire by the storage's time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.group_member import GroupMember
from sparklog.coordinator.reader_leases import ReaderLease
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import StoragePermissionError
from sparklog.ids import SeededIds
from sparklog.log.layout import CLOCK_KEY, COMMITS
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.loop import Loop, LoopReport
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.steps import MaintenanceContext, steps
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets, expire_offsets
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.state import State
from sparklog.store.base import BytesLike
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.testing.faulty_store import FaultyStore
from sparklog.types import OffsetAndMetadata
from tests.cluster.maintenance.logs import MINUTE_US, Written, append, live, log_files

DAY = 86_400.0
DAY_MS = 86_400_000
START_MS = 1_700_000_000_000


class Cluster:
    """A storage with its own clock, and machines whose clocks differ from it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.clock = ManualClock(START_MS)
        self.machines: list[ManualClock] = []
        self.right = create_cluster(MemoryStore(name, self.clock), clock=self.clock, ids=SeededIds(0))
        self.right.create_topic("orders", 2)

    def machine(self, ahead_ms: int) -> Coordinator:
        clock = ManualClock(self.clock.now_ms() + ahead_ms)
        self.machines.append(clock)
        store = MemoryStore(self.name, self.clock)
        return open_cluster(store, clock=clock, ids=SeededIds(len(self.machines)))

    def advance(self, seconds: float) -> None:
        for clock in (self.clock, *self.machines):
            clock.advance(seconds)

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            append(self.right, "orders", [Written(b"k", b"v", self.clock.now_ms() * 1000 // MINUTE_US)])
            self.advance(1)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    yield Cluster(request.node.name)
    forget_space(request.node.name)


class _NoTime(MemoryStore):
    """A storage that refuses to store the object that its time is read from."""

    def put(self, key: str, data: BytesLike) -> None:
        if key == CLOCK_KEY:
            raise StoragePermissionError(f"{key} may not be written", path=key)
        super().put(key, data)


def run(coordinator: Coordinator, *only: str) -> dict[str, LoopReport]:
    context = MaintenanceContext(coordinator, lambda _: InProcess())
    return {report.step: report for report in Loop(steps(context, only), coordinator.log.clock).once()}


def test_a_joining_member_does_not_expire_the_offsets_of_other_groups(cluster: Cluster) -> None:
    cluster.right.submit(
        partial(
            commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): OffsetAndMetadata(1)})
        )
    )
    for ahead in (8 * DAY_MS, 800 * DAY_MS):
        GroupMember(cluster.machine(ahead), "other").join(["orders"])
    assert cluster.right.refresh().groups["billing"].offsets


@pytest.mark.parametrize("days", [8, 800])
def test_maintenance_with_a_clock_that_is_ahead_expires_nothing(cluster: Cluster, days: int) -> None:
    cluster.right.submit(
        partial(
            commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): OffsetAndMetadata(1)})
        )
    )
    cluster.append(120)
    cluster.right.submit(partial(alter_configs, topic="orders", changes={"segment.ms": "60000"}))
    commits = len(list(cluster.right.store.list(COMMITS)))
    files = log_files(cluster.right)
    done = run(cluster.machine(days * DAY_MS), "retention", "deletion", "cleanup")
    assert [report.problems for report in done.values()] == [[], [], []]
    assert cluster.right.refresh().groups["billing"].offsets
    assert len(live(cluster.right, "orders")) == 120
    assert log_files(cluster.right) == files
    assert len(list(cluster.right.store.list(COMMITS))) == commits


def test_the_same_maintenance_expires_objects_that_are_due_by_the_storages_time(cluster: Cluster) -> None:
    cluster.right.submit(
        partial(
            commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): OffsetAndMetadata(1)})
        )
    )
    cluster.append(3)
    ahead = cluster.machine(8 * DAY_MS)
    cluster.advance(8 * DAY)
    run(ahead, "cleanup", "retention")
    assert "billing" not in cluster.right.refresh().groups
    assert live(cluster.right, "orders") == []


def test_an_idle_cluster_expires_by_the_storages_clock(cluster: Cluster) -> None:
    cluster.right.submit(
        partial(
            commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): OffsetAndMetadata(1)})
        )
    )
    cluster.advance(8 * DAY)
    run(cluster.machine(0), "cleanup")
    assert "billing" not in cluster.right.refresh().groups


@pytest.mark.parametrize("step", ["cleanup", "retention"])
def test_nothing_expires_by_a_time_of_before_the_clocks_were_set_right(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The pass is suspended since it read a time that was a month ahead."""
    cluster.append(3)
    cluster.right.submit(
        partial(
            commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): OffsetAndMetadata(1)})
        )
    )
    before, segments, right_ms = cluster.right.state.version, live(cluster.right, "orders"), cluster.clock.now_ms()
    cluster.clock.set_ms(right_ms + 30 * DAY_MS)
    submit = Coordinator.submit

    def submit_late(coordinator: Coordinator, decide: Callable[[State], Decision[Any]], *more: Any) -> Any:
        cluster.clock.set_ms(right_ms)
        return submit(coordinator, decide, *more)

    with monkeypatch.context() as patch:
        patch.setattr(Coordinator, "submit", submit_late)
        run(cluster.right, step)
    assert cluster.right.refresh().version == before
    assert live(cluster.right, "orders") == segments


def test_without_the_storages_time_that_of_the_newest_commit_is_used(cluster: Cluster) -> None:
    cluster.right.submit(
        partial(
            commit_group_offsets, commit=GroupCommit(group="billing", offsets={("orders", 0): OffsetAndMetadata(1)})
        )
    )
    store = _NoTime(cluster.name, cluster.clock)
    ahead = open_cluster(store, clock=ManualClock(START_MS + 8 * DAY_MS), ids=SeededIds(9))
    assert ahead.log.expiry_clock.now_ms() == ahead.state.timestamp_ms
    assert ahead.submit(partial(expire_offsets, now_ms=ahead.log.expiry_clock.now_ms())) == []


def test_a_sweep_with_a_clock_that_is_ahead_deletes_no_file_early(cluster: Cluster) -> None:
    cluster.append(3)
    delete_topic(cluster.right, "orders")
    files = log_files(cluster.right)
    assert files
    ahead = cluster.machine(8 * DAY_MS)
    assert sweep(ahead).files == 0
    assert log_files(cluster.right) == files
    cluster.advance(120)
    assert sweep(ahead).files == 3


def test_a_vacuum_with_a_clock_that_is_ahead_fences_no_writer(cluster: Cluster) -> None:
    cluster.append(3)
    before = cluster.right.refresh().version
    vacuum(cluster.machine(8 * DAY_MS), dry_run=False)
    assert cluster.right.refresh().writer_fence == -1
    assert cluster.right.state.version == before


@pytest.mark.parametrize("ahead_ms", [-8 * DAY_MS, 0, 8 * DAY_MS])
def test_a_reader_lease_keeps_files_for_its_time_whatever_the_readers_clock(cluster: Cluster, ahead_ms: int) -> None:
    cluster.append(3)
    reader = cluster.machine(ahead_ms)
    ReaderLease("reader", reader.refresh().version, 600_000).renewed(reader.store, reader.log.clock)
    delete_topic(cluster.right, "orders")
    cluster.advance(300)
    assert sweep(cluster.right).listings_held_by_readers == 1
    cluster.advance(600)
    assert sweep(cluster.right).files == 3


@pytest.mark.parametrize("ahead_ms", [-8 * DAY_MS, 8 * DAY_MS])
def test_a_task_renews_a_lease_from_a_machine_with_another_clock(cluster: Cluster, ahead_ms: int) -> None:
    planner = cluster.machine(ahead_ms)
    planned = ReaderLease("reader", 3, 600_000).renewed(planner.store, planner.log.clock)
    store = FaultyStore(cluster.right.store)
    renewed = planned.kept(store, cluster.clock)
    assert store.counts["put"] == 1
    assert renewed.kept(store, cluster.clock) is renewed
    assert store.counts["put"] == 1


def test_a_reader_whose_clock_is_set_back_renews_immediately(cluster: Cluster) -> None:
    machine = cluster.machine(0)
    clock = cluster.machines[0]
    lease = ReaderLease("reader", 3, 600_000).renewed(machine.store, clock)
    assert not lease.is_due(clock.now_ms())
    clock.set_ms(START_MS - DAY_MS)
    assert lease.is_due(clock.now_ms())
