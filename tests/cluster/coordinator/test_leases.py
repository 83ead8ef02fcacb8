"""Leases: which members are silent to which watcher, and how many reads that takes."""

from __future__ import annotations

import uuid

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator.leases import Lease, LeaseWatch, MemberWatch, lease_key
from sparklog.store.base import validate_key
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import FaultyStore


class Ring:
    """Members of one group with their leases, and the watch of one of them."""

    def __init__(self, name: str, *members: str) -> None:
        self.clock = ManualClock()
        self.store = FaultyStore(MemoryStore(name))
        self.leases = {member: Lease(self.store, self.clock, "g", member) for member in members}
        self.timeouts = dict.fromkeys(members, 10_000)
        self.watch = MemberWatch(self.store, self.clock, "g")

    def beat(self, *silent: str) -> None:
        self.clock.advance(3)
        for member, lease in self.leases.items():
            if member not in silent:
                lease.renew()

    def look(self, me: str = "a") -> list[str]:
        return self.watch.look(self.timeouts, me)

    def reads(self) -> int:
        count = self.store.counts["get"]
        self.store.reset_counts()
        return count


def test_a_healthy_group_costs_one_read_per_check(request: pytest.FixtureRequest) -> None:
    ring = Ring(request.node.name, "a", "b", "c", "d")
    for _ in range(5):
        ring.beat()
        assert ring.look() == []
        assert ring.reads() == 1


def test_a_silent_member_is_detected_after_its_session_timeout(request: pytest.FixtureRequest) -> None:
    ring = Ring(request.node.name, "a", "b", "c")
    ring.beat()
    ring.look()
    silent = []
    for _ in range(4):
        ring.beat("b")
        silent.append(ring.look())
    assert silent == [[], [], [], ["b"]]


def test_members_that_die_together_are_detected_within_one_session_timeout(request: pytest.FixtureRequest) -> None:
    members = [f"m{number:02d}" for number in range(20)]
    ring = Ring(request.node.name, *members)
    ring.beat()
    ring.look("m00")
    for _ in range(4):
        ring.beat(*members[1:])
        silent = ring.look("m00")
    assert silent == ["m01"]
    ring.beat(*members[1:])
    assert ring.look("m00") == members[1:]


def test_a_member_that_never_wrote_a_lease_is_silent(request: pytest.FixtureRequest) -> None:
    ring = Ring(request.node.name, "a", "b")
    for _ in range(5):
        ring.beat("b")
        silent = ring.look()
    assert silent == ["b"]


def test_a_stalled_member_restarts_its_watch(request: pytest.FixtureRequest) -> None:
    ring = Ring(request.node.name, "a", "b")
    ring.beat()
    ring.look()
    ring.clock.advance(60)
    assert ring.look() == []


def test_the_time_that_reads_take_does_not_count_as_silence() -> None:
    """The process may be stopped while a response is in transit: the response was true before that."""
    clock, store = ManualClock(), MemoryStore(uuid.uuid4().hex)
    slow = FaultyStore(store, before=lambda step, call: clock.advance(60 * (call.operation == "get")))
    watch = LeaseWatch(slow, clock)
    assert watch.unchanged_seconds("leases/controller") is None
    clock.advance(1)
    assert watch.unchanged_seconds("leases/controller") == 1
    assert watch.unchanged_seconds("leases/controller") == 61


def test_each_member_has_its_own_timeout(request: pytest.FixtureRequest) -> None:
    ring = Ring(request.node.name, "a", "b", "c")
    ring.timeouts["b"] = 60_000
    ring.beat()
    ring.look()
    for _ in range(6):
        ring.beat("b", "c")
        silent = ring.look()
    assert silent == ["c"]


def test_a_watcher_outside_the_group_watches_every_member(request: pytest.FixtureRequest) -> None:
    ring = Ring(request.node.name, "a", "b", "c")
    ring.beat()
    ring.look("")
    for _ in range(4):
        ring.beat("a", "c")
        silent = ring.look("")
    assert silent == ["a", "c"]


@pytest.mark.parametrize("name", [".", "..", ".tmp-x", ".lock", "a/b", "ä" * 200, "?:\\", "x" * 900, "%2E"])
def test_any_group_and_member_has_a_key(name: str) -> None:
    validate_key(lease_key(name, name))
    assert lease_key(name, "m") != lease_key(f"{name}x", "m")
