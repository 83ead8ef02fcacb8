"""Records that one broker cannot return are read from another replica."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    CorruptionError,
    CorruptRecordError,
    DataLossError,
    StorageError,
    StorageUnavailableError,
    UnsupportedStoreError,
)
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.read_order import AVOID_SECONDS, replicas_in_sync
from sparklog.store.base import Store
from sparklog.testing.faulty_store import FaultyStore

from .replicated import append_copies, copies, replicated_cluster, values_of

VALUES = [b"value-%d" % number for number in range(4)]


@pytest.fixture
def cluster(tmp_path: Path) -> Coordinator:
    return replicated_cluster(tmp_path)


class Reads:
    """A fetcher over the brokers' stores; those in ``down`` do not answer, and ``asked`` counts requests by broker."""

    def __init__(self, cluster: Coordinator) -> None:
        self.cluster = cluster
        self.clock = ManualClock()
        self.down: set[int] = set()
        self.stores = {
            broker: FaultyStore(store, before=lambda step, call, broker=broker: self._answer(broker))  # type: ignore[misc]
            for broker, store in copies(cluster)
        }
        self.fetcher = Fetcher(self.store_of, self.in_sync, self.clock)

    def _answer(self, broker: int) -> None:
        if broker in self.down:
            raise StorageUnavailableError(f"broker {broker} does not answer")

    def store_of(self, broker: int) -> Store:
        return self.stores[broker]

    def in_sync(self, topic: str, partition: int) -> tuple[int, ...]:
        return replicas_in_sync(self.cluster.state.partition(topic, partition))

    def all(self) -> list[bytes]:
        segments = self.cluster.segments("t").partition(0)
        return values_of([records.batch for records in self.fetcher.read("t", segments, 0, 100)])

    def asked(self) -> dict[int, int]:
        """Requests by broker since the last call."""
        counted = {broker: len(store.calls) for broker, store in self.stores.items() if store.calls}
        for store in self.stores.values():
            store.calls.clear()
        return counted


def test_reads_use_the_leader_as_long_as_it_answers(cluster: Coordinator) -> None:
    append_copies(cluster, [0, 1], [2, 3])
    reads = Reads(cluster)
    assert reads.all() == VALUES
    assert list(reads.asked()) == [0]


def test_a_leader_that_does_not_answer_is_avoided_for_a_while(cluster: Coordinator) -> None:
    for first in (0, 2):
        append_copies(cluster, [first, first + 1])
    reads = Reads(cluster)
    reads.down = {0}
    assert reads.all() == VALUES
    assert reads.asked()[0] == 1
    reads.fetcher.close()
    assert reads.all() == VALUES
    assert list(reads.asked()) == [1]
    reads.down.clear()
    reads.fetcher.close()
    reads.clock.sleep(AVOID_SECONDS + 1)
    assert reads.all() == VALUES
    assert list(reads.asked()) == [0]


def test_a_leader_that_fails_during_a_read_loses_no_record(cluster: Coordinator) -> None:
    append_copies(cluster, [0], [1], [2], [3])
    reads = Reads(cluster)
    values: list[bytes] = []
    for records in reads.fetcher.read("t", cluster.segments("t").partition(0), 0, 4):
        values += values_of([records.batch])
        reads.down = {len(values) - 1}  # first broker 0, then broker 1
    assert values == VALUES


@pytest.mark.parametrize("ending", [".log", ".index"])
def test_a_file_lost_by_the_leader_is_read_from_a_follower(cluster: Coordinator, ending: str) -> None:
    path = append_copies(cluster, [0, 1], [2, 3])
    copies(cluster)[0][1].delete(path.removesuffix(".log") + ending)
    assert Reads(cluster).all() == VALUES


def flipped(data: bytes) -> bytes:
    at = data.rindex(b"value-2")
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("damage", [flipped, lambda data: data[: len(data) // 2], lambda data: b""])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 0, 1)])
def test_a_stale_or_damaged_copy_is_detected_and_another_is_used(
    cluster: Coordinator, damage: Callable[[bytes], bytes], order: tuple[int, ...]
) -> None:
    path = append_copies(cluster, [0, 1], [2, 3])
    for broker, store in copies(cluster)[:2]:
        store.put(path, damage(store.get(path)))
        store.put(path.replace(".log", ".index"), store.get(path.replace(".log", ".index"))[: 300 - broker])
    reads = Reads(cluster)
    reads.fetcher = Fetcher(reads.store_of, lambda topic, partition: order, reads.clock)
    assert reads.all() == VALUES


def test_a_copy_of_another_file_is_detected(cluster: Coordinator) -> None:
    first, second = append_copies(cluster, [0, 1]), append_copies(cluster, [2])
    leader = copies(cluster)[0][1]
    for ending in (".log", ".index"):
        leader.put(first.replace(".log", ending), leader.get(second.replace(".log", ending)))
    assert Reads(cluster).all() == VALUES[:3]


def test_records_that_no_broker_returns_are_an_error_that_names_all_brokers(cluster: Coordinator) -> None:
    path = append_copies(cluster, [0, 1], [2, 3])
    stores = dict(copies(cluster))
    stores[0].delete(path)
    stores[1].put(path, flipped(stores[1].get(path)))
    reads = Reads(cluster)
    reads.down = {2}
    with pytest.raises(StorageUnavailableError) as caught:
        reads.all()
    assert all(f"broker {broker}" in caught.value.message for broker in (0, 1, 2))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("t", 0, 0)
    stores[2].delete(path)
    reads.down.clear()
    with pytest.raises(CorruptRecordError, match=r"broker 2: .*does not exist"):
        reads.all()
    stores[1].delete(path)
    with pytest.raises(DataLossError, match=r"from any of their brokers: broker 0.*broker 1.*broker 2") as lost:
        reads.all()
    assert pickle.loads(pickle.dumps(lost.value)).message == lost.value.message


def test_a_broker_whose_location_cannot_be_opened_counts_as_failed(cluster: Coordinator) -> None:
    append_copies(cluster, [0, 1, 2, 3])
    reads = Reads(cluster)

    def store_of(broker: int) -> Store:
        if broker == 0:
            raise UnsupportedStoreError("no client for this")
        return reads.stores[broker]

    reads.fetcher = Fetcher(store_of, reads.in_sync, reads.clock)
    assert reads.all() == VALUES


def test_a_local_replica_is_preferred_to_a_remote_leader(cluster: Coordinator) -> None:
    append_copies(cluster, [0, 1, 2, 3])

    class Remote(FaultyStore):
        @property
        def is_local(self) -> bool:
            return False

    reads = Reads(cluster)
    reads.stores[0] = Remote(reads.stores[0])
    assert reads.all() == VALUES
    assert list(reads.asked()) == [1]


def test_with_a_single_replica_its_own_error_is_raised(tmp_path: Path) -> None:
    cluster = replicated_cluster(tmp_path / "single", brokers=1)
    path = append_copies(cluster, [0, 1, 2, 3])
    reads = Reads(cluster)
    reads.down = {0}
    with pytest.raises(StorageError, match=r"^broker 0 does not answer$"):
        reads.all()
    reads.down.clear()
    cluster.store.put(path, flipped(cluster.store.get(path)))
    with pytest.raises(CorruptionError, match="is damaged"):
        reads.all()
