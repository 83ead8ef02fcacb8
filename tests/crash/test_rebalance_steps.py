"""The storage fails at any step of a rebalance: once it answers again, every partition has one owner that knows it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.membership import GroupMember
from sparklog.errors import SparklogError, StorageError
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import ERROR, LOST_ANSWER, OUTAGE, UNAVAILABLE, Call, Fault, FaultyStore
from sparklog.types import TopicPartition

PARTITIONS = {TopicPartition("t", number) for number in range(4)}
ASSIGNORS = ["range", "cooperative-sticky"]


class Driven:
    """A member, and what its caller reads by what it was told."""

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
    """The second member joins; the storage fails at a step of what the first one does about it."""
    inner, clock = MemoryStore(uuid.uuid4().hex), ManualClock()
    create_cluster(inner, clock=clock).create_topic("t", len(PARTITIONS))
    store = FaultyStore(inner)
    one, two = (Driven(open_cluster(s, clock=clock), assignor) for s in (store, inner))
    for _ in range(3):
        one.drive()
    assert one.reads == PARTITIONS
    two.drive()
    store.reset_counts()
    if fault is not None:
        store.inject(fault)
    with suppress(SparklogError):
        one.drive()
    return store, one, two


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_fault_at_any_step_of_giving_up_leaves_a_rebalance_that_ends(assignor: str) -> None:
    steps = len(rebalance(assignor, None)[0].calls)
    assert steps > 5
    for step in range(steps):
        for kind in (ERROR, UNAVAILABLE, LOST_ANSWER, OUTAGE):
            store, one, two = rebalance(assignor, Fault(step, kind))
            store.reopen()
            for _ in range(5):
                one.drive()
                two.drive()
            found = (len(one.reads), len(two.reads), one.reads | two.reads)
            assert found == (2, 2, PARTITIONS), f"{kind} at step {step}: {store.calls[step]}"


@pytest.mark.parametrize("automatic", [True, False])
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_consumer_whose_acknowledgement_failed_gives_up_and_gets_what_is_its_own(
    assignor: str, automatic: bool
) -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    create_cluster(inner).create_topic("t", len(PARTITIONS))
    failures = iter([True, True])

    def before(step: int, call: Call) -> None:
        if rebalancing and call.operation == "put_if_absent" and "commits" in call.key and next(failures, False):
            raise StorageError("injected", path=call.key)

    rebalancing = False
    one = consumer(open_cluster(FaultyStore(inner, before=before)), assignor, automatic)
    until(lambda: one.assignment() == PARTITIONS, one)
    rebalancing = True
    two = consumer(open_cluster(inner), assignor, automatic)
    until(lambda: len(one.assignment()) == len(two.assignment()) == 2, one, two)
    assert one.assignment() | two.assignment() == PARTITIONS
    assert next(failures, None) is None
    one.close()
    two.close()


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
        for one in consumers:
            with suppress(StorageError):
                one.poll(timeout_ms=20)
        if done():
            return
    raise AssertionError(f"they own {[one.assignment() for one in consumers]}")
