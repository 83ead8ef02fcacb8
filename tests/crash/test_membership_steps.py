"""A member is killed, or its storage fails, at every step: the others own all partitions within a session timeout,
offsets that were acknowledged are committed, and a retry completes as if nothing had failed.
"""

from __future__ import annotations

import uuid
from contextlib import suppress

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.coordinator.group_member import GroupMember
from sparklog.errors import SparklogError
from sparklog.ids import SeededIds
from sparklog.protocol.group.rebalance import held_partitions, list_partitions
from sparklog.protocol.state import State
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import (
    ERROR,
    FULL,
    LOST_ANSWER,
    UNAVAILABLE,
    Fault,
    FaultyStore,
    SimulatedCrash,
    every_crash,
)
from sparklog.types import TopicPartition
from tests.sample import chosen

ALL = frozenset(TopicPartition("orders", number) for number in range(4))


class Run:
    """A member that may be killed, one that stays, and their log."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(uuid.uuid4().hex, self.clock)
        create_cluster(self.store, clock=self.clock, ids=SeededIds(0)).create_topic("orders", 4)
        self.faulty = FaultyStore(self.store)
        self.acknowledged_offsets: dict[tuple[str, int], int] = {}
        self.stays = self.member(FaultyStore(self.store), 1)
        self.stays.join(["orders"])
        self.stays.reconcile()
        self.dies = self.member(self.faulty, 2)

    def member(self, store: FaultyStore, seed: int) -> GroupMember:
        coordinator = open_cluster(store, clock=self.clock, ids=SeededIds(seed))
        return GroupMember(coordinator, "g", assignors=("cooperative-sticky",), session_timeout_ms=10_000)

    def hand_over(self) -> None:
        """Let the staying member revoke the partitions that are assigned to the other."""
        self.stays.coordinator.refresh()
        if self.stays.reconcile().to_acknowledge:
            self.stays.acknowledge()
            self.stays.reconcile()

    def commit(self, offset: int) -> None:
        offsets = {(partition.topic, partition.partition): offset for partition in self.dies.owned}
        self.dies.commit(offsets)
        self.acknowledged_offsets.update(offsets)

    def check(self, state: State) -> None:
        """Check that no partition has two owners, and that acknowledged offsets are committed."""
        group = state.groups["g"]
        owned = [partition for member in group.members.values() for partition in held_partitions(member)]
        assert len(owned) == len(set(owned))
        committed = {(entry.topic, entry.partition): entry.offset for entry in group.offsets.values()}
        assert all(committed.get(partition, -1) >= offset for partition, offset in self.acknowledged_offsets.items())


def live(run: Run) -> None:
    """Run everything a member does: join, read with others, commit, revoke, expire no member, leave."""
    run.dies.join(["orders"])
    run.hand_over()
    run.dies.beat()
    run.dies.reconcile()
    run.commit(1)
    run.clock.advance(3)
    run.stays.beat()
    run.dies.beat()
    run.commit(2)
    run.stays.join(["orders", "audit"])  # a rebalance in which nothing moves
    run.commit(3)
    run.dies.coordinator.refresh()
    run.dies.reconcile()
    third = run.member(FaultyStore(run.store), 3)
    third.join(["orders"])
    run.hand_over()
    run.dies.coordinator.refresh()
    change = run.dies.reconcile()
    if change.to_acknowledge:
        last = {(partition.topic, partition.partition): 4 for partition in change.revoked}
        run.dies.acknowledge(last)
        run.acknowledged_offsets.update(last)
    third.leave()
    run.dies.leave()


def steps() -> list[Fault]:
    run = Run()
    run.faulty.reset_counts()
    live(run)
    crashes = list(every_crash(run.faulty.calls))
    count = len(run.faulty.calls)
    return crashes + [Fault(step, kind) for step in range(count) for kind in (ERROR, UNAVAILABLE, LOST_ANSWER, FULL)]


def test_enough_steps_are_tested() -> None:
    assert len(steps()) > 150


def run_with(fault: Fault) -> Run:
    run = Run()
    run.faulty.reset_counts()
    run.faulty.inject(fault)
    return run


def survive(run: Run) -> None:
    """The remaining member expires members without heartbeats, and owns everything at the end."""
    for _ in range(12):
        run.clock.advance(3)
        run.stays.beat()
        change = run.stays.reconcile()
        if change.to_acknowledge:
            run.stays.acknowledge()
        run.check(run.stays.coordinator.state)
    group = run.stays.coordinator.state.groups["g"]
    assert set(group.members) == {run.stays.member_id}
    assert set(list_partitions(group.members[run.stays.member_id].assigned)) == ALL
    assert run.stays.owned == ALL


@pytest.mark.sampled
def test_the_remaining_member_owns_all_partitions_after_a_failure_at_any_step() -> None:
    for fault in chosen(steps()):
        run = run_with(fault)
        with suppress(SimulatedCrash, SparklogError):
            live(run)
        survive(run)


@pytest.mark.sampled
def test_a_member_recovers_after_a_storage_failure_at_any_step() -> None:
    for fault in chosen(steps()):
        if fault.kind.startswith("crash"):
            continue
        run = run_with(fault)
        with suppress(SparklogError):
            live(run)
        run.faulty.reopen()
        recovered = run.dies
        recovered.coordinator.refresh()
        recovered.reconcile()
        recovered.join(["orders"])
        for _ in range(12):
            run.clock.advance(3)
            for member in (run.stays, recovered):
                member.beat()
                if member.reconcile().to_acknowledge:
                    member.acknowledge()
            run.check(run.stays.coordinator.state)
        group = run.stays.coordinator.state.groups["g"]
        assert set(group.members) == {run.stays.member_id, recovered.member_id}
        assert run.stays.owned | recovered.owned == ALL
        assert len(run.stays.owned) == len(recovered.owned) == 2
