"""The storage fails at any step of a rebalance: once it answers again, every partition has one owner that knows it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.group_member import GroupMember
from sparklog.errors import SparklogError, StorageError
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import ERROR, LOST_ANSWER, OUTAGE, UNAVAILABLE, Call, Fault, FaultyStore
from sparklog.types import TopicPartition
from tests.sample import chosen

PARTITIONS = {TopicPartition("t", number) for number in range(4)}
ASSIGNORS = ["range", "cooperative-sticky"]


class Driven:
    """A member, and the partitions that its caller reads according to its assignment."""

    def __init__(self, coordinator: Coordinator, assignor: str) -> None:
        self.member = GroupMember(coordinator, "g", assignors=[assignor], session_timeout_ms=6_000, host="here")
        self.reads: set[TopicPartition] = set()

    def drive(self) -> None:
        self.member.beat()
        change = self.member.reconcile()
        self.reads -= change.lost | change.revoked
        try:
            if change.to_acknowledge:
                self.member.acknowledge()
        finally:
            self.reads |= change.assigned
            if not self.member.joined:
                self.member.join(["t"])


def rebalance(assignor: str, fault: Fault | None) -> tuple[FaultyStore, Driven, Driven]:
    """Let a second member join; the storage fails at a step of the first member's reaction."""
    inner, clock = MemoryStore(uuid.uuid4().hex), ManualClock()
    create_cluster(inner, clock=clock).create_topic("t", len(PARTITIONS))
    store = FaultyStore(inner)
    first, second = (Driven(open_cluster(s, clock=clock), assignor) for s in (store, inner))
    for _ in range(3):
        first.drive()
    assert first.reads == PARTITIONS
    second.drive()
    store.reset_counts()
    if fault is not None:
        store.inject(fault)
    with suppress(SparklogError):
        first.drive()
    return store, first, second


@pytest.mark.sampled
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_rebalance_completes_after_a_fault_at_any_step_of_a_revocation(assignor: str) -> None:
    steps = len(rebalance(assignor, None)[0].calls)
    assert steps > 5
    kinds = (ERROR, UNAVAILABLE, LOST_ANSWER, OUTAGE)
    for fault in chosen(Fault(step, kind) for step in range(steps) for kind in kinds):
        store, first, second = rebalance(assignor, fault)
        store.reopen()
        for _ in range(5):
            first.drive()
            second.drive()
        reads = (len(first.reads), len(second.reads), first.reads | second.reads)
        assert reads == (2, 2, PARTITIONS), f"{fault}: {store.calls[fault.step]}"


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_consumer_whose_acknowledgement_failed_ends_with_its_own_partitions(assignor: str, automatic: bool) -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    create_cluster(inner).create_topic("t", len(PARTITIONS))
    failures = iter([True, True])

    def before(step: int, call: Call) -> None:
        if rebalancing and call.operation == "put_if_absent" and "commits" in call.key and next(failures, False):
            raise StorageError("injected", path=call.key)

    rebalancing = False
    first = consumer(open_cluster(FaultyStore(inner, before=before)), assignor, automatic)
    until(lambda: first.assignment() == PARTITIONS, first)
    rebalancing = True
    second = consumer(open_cluster(inner), assignor, automatic)
    until(lambda: len(first.assignment()) == len(second.assignment()) == 2, first, second)
    assert first.assignment() | second.assignment() == PARTITIONS
    assert next(failures, None) is None
    first.close()
    second.close()


def consumer(cluster: Coordinator, assignor: str, automatic: bool) -> Consumer:
    return Consumer(
        "t",
        cluster=cluster,
        group_id="g",
        enable_auto_commit=automatic,
        partition_assignment_strategy=[assignor],
        session_timeout_ms=6_000,
    )


def until(done: Callable[[], bool], *consumers: Consumer) -> None:
    for _ in range(100):
        for member in consumers:
            with suppress(StorageError):
                member.poll(timeout_ms=20)
        if done():
            return
    raise AssertionError(f"assignments: {[member.assignment() for member in consumers]}")
