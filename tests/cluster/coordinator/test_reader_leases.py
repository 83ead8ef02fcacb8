"""Readers hold leases on the version they read; the leases cost little and block nobody."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.reader_leases import (
    CLOCK_SLACK_MS,
    READERS,
    UNREADABLE_MS,
    ReaderLease,
    read_reader_leases,
    take_reader_lease,
)
from sparklog.errors import CorruptMetadataError, StoragePermissionError
from sparklog.ids import SeededIds
from sparklog.maintenance.gc.sweep import remove_expired_reader_leases
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.testing.faulty_store import FaultyStore

NOW_MS = 1_700_000_000_000
TTL_MS = 600_000


@pytest.fixture
def store(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Store]:
    yield MemoryStore(request.node.name, clock)
    forget_space(request.node.name)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_MS)


@pytest.fixture
def cluster(store: Store, clock: ManualClock) -> Coordinator:
    return create_cluster(store, clock=clock, ids=SeededIds(7))


def versions(store: Store, now_ms: int) -> list[int]:
    return sorted(lease.version for lease in read_reader_leases(store, now_ms).valid)


def test_a_reader_lease_counts_until_it_expires_or_is_closed(store: Store, clock: ManualClock) -> None:
    first = ReaderLease("a", 4, TTL_MS).renewed(store, clock)
    second = ReaderLease("b", 9, TTL_MS).renewed(store, clock)
    assert versions(store, NOW_MS) == [4, 9]
    second.close(store)
    second.close(store)
    assert versions(store, first.until_ms + CLOCK_SLACK_MS) == [4]
    assert versions(store, first.until_ms + CLOCK_SLACK_MS + 1) == []


def test_a_lease_is_renewed_once_half_of_its_time_has_passed(store: Store, clock: ManualClock) -> None:
    first = ReaderLease("a", 4, TTL_MS).renewed(store, clock)
    clock.sleep(TTL_MS / 2000)
    assert first.kept(store, clock) is first
    clock.sleep(1)
    renewed = first.kept(store, clock)
    assert renewed.until_ms == clock.now_ms() + TTL_MS
    assert versions(store, renewed.until_ms) == [4]


def test_a_lease_is_renewed_once_for_all_tasks(store: Store, clock: ManualClock) -> None:
    planned = ReaderLease("a", 4, TTL_MS).renewed(store, clock)
    tasks = [pickle.loads(pickle.dumps(planned)) for _ in range(5)]
    counting = FaultyStore(store)
    clock.sleep(TTL_MS / 2000 + 1)
    leases = [task.kept(counting, clock) for task in tasks]
    assert counting.counts["put"] == 1
    assert {lease.until_ms for lease in leases} == {clock.now_ms() + TTL_MS}
    assert not any(lease.is_due(clock.now_ms()) for lease in leases)


def test_a_removed_lease_is_stored_again(store: Store, clock: ManualClock) -> None:
    planned = ReaderLease("a", 4, TTL_MS).renewed(store, clock)
    planned.close(store)
    clock.sleep(TTL_MS)
    planned.kept(store, clock)
    assert versions(store, clock.now_ms()) == [4]


def test_a_damaged_lease_counts_for_every_version_for_a_while(store: Store, clock: ManualClock) -> None:
    store.put(f"{READERS}a", b'{"version":')
    (info,) = store.list(READERS)
    assert versions(store, info.modified_ms + UNREADABLE_MS) == [-1]
    assert versions(store, info.modified_ms + UNREADABLE_MS + 1) == []
    with pytest.raises(CorruptMetadataError, match="delete it"):
        ReaderLease("a", 4, TTL_MS).kept(store, clock)


def test_reads_of_a_process_share_a_lease(cluster: Coordinator, store: Store, clock: ManualClock) -> None:
    first = take_reader_lease(cluster, 3, TTL_MS)
    assert first is not None
    assert all(take_reader_lease(cluster, version, TTL_MS) == first for version in (3, 4, 100))
    assert versions(store, clock.now_ms()) == [3]
    assert take_reader_lease(cluster, 2, TTL_MS) != first
    assert versions(store, clock.now_ms()) == [2, 3]
    clock.sleep(TTL_MS / 2000 + 1)
    assert take_reader_lease(cluster, 50, TTL_MS) not in (first, None)
    assert versions(store, clock.now_ms()) == [2, 3, 50]


def test_a_reader_that_may_not_write_takes_no_lease_and_rarely_retries(
    cluster: Coordinator, store: Store, clock: ManualClock
) -> None:
    readonly = FaultyStore(store, before=_refuse)
    reader = open_cluster(readonly, clock=clock)
    assert [take_reader_lease(reader, version, TTL_MS + 1) for version in (3, 4, 5)] == [None] * 3
    assert readonly.counts["put"] <= 1
    clock.sleep(TTL_MS)
    assert take_reader_lease(reader, 6, TTL_MS + 1) is None
    assert versions(store, clock.now_ms()) == []


def _refuse(step: int, call: object) -> None:
    if getattr(call, "operation", "") == "put":
        raise StoragePermissionError("read-only")


def test_an_unreadable_lease_is_removed_once_it_no_longer_counts(
    cluster: Coordinator, store: Store, clock: ManualClock
) -> None:
    damaged, newer, stray = (READERS + name for name in ("damaged", "newer", ".DS_Store"))
    store.put(damaged, b"{")
    store.put(newer, b'{"format":99}')
    store.put(stray, b"?")
    written_ms = store.info(damaged).modified_ms
    counts_until = written_ms + UNREADABLE_MS
    assert versions(store, counts_until) == [-1, -1, -1]
    assert [lease.key for lease in read_reader_leases(store, counts_until).expired] == []
    assert remove_expired_reader_leases(store, counts_until, 0) == 0
    assert remove_expired_reader_leases(store, counts_until + 1, 0) == 1
    assert [info.key for info in store.list(READERS)] == [stray, newer]
