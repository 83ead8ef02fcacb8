"""A reader whose list of segments is out of date gets the newest one, or the error that says what is certain."""

from __future__ import annotations

import uuid

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.newest import newest_segments
from sparklog.errors import DataLossError, OffsetOutOfRangeError, StorageError
from sparklog.log.records.ranges import Newest
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import UNAVAILABLE, Fault, FaultyStore
from tests.cluster.coordinator.helpers import append_values

CAUSE = DataLossError("a file is gone")


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore(uuid.uuid4().hex))


@pytest.fixture
def cluster(store: FaultyStore) -> Coordinator:
    coordinator = create_cluster(store, clock=ManualClock())
    coordinator.create_topic("orders")
    for value in (b"0", b"1", b"2"):
        append_values(coordinator, "orders", 0, [value])
    return coordinator


def newest(cluster: Coordinator) -> Newest:
    return newest_segments(cluster, "orders", cluster.refresh().topic("orders").topic_id, 0)


def test_the_segments_of_the_range_as_they_are_now(cluster: Coordinator) -> None:
    look_up = newest(cluster)
    append_values(cluster, "orders", 0, [b"3"])
    assert [segment.base_offset for segment in look_up(1, 4, CAUSE)] == [1, 2, 3]


def test_a_storage_that_does_not_answer_is_not_taken_for_lost_records(cluster: Coordinator, store: FaultyStore) -> None:
    look_up = newest(cluster)
    start = len(store.calls)
    store.inject(*(Fault(step, UNAVAILABLE) for step in range(start, start + 1000)))
    with pytest.raises(StorageError) as raised:
        look_up(0, 3, CAUSE)
    assert raised.value.__cause__ is CAUSE
    store.heal()
    assert len(look_up(0, 3, CAUSE)) == 3


def test_records_that_were_deleted_are_named_with_where_the_log_starts(cluster: Coordinator) -> None:
    look_up = newest(cluster)
    cluster.delete_records({("orders", 0): 2})
    with pytest.raises(OffsetOutOfRangeError, match="starts at 2 now") as raised:
        look_up(1, 3, CAUSE)
    assert raised.value.__cause__ is CAUSE
    assert len(look_up(2, 3, CAUSE)) == 1


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_was_deleted_leaves_the_readers_own_error(cluster: Coordinator, again: bool) -> None:
    look_up = newest(cluster)
    cluster.delete_topic("orders")
    if again:
        cluster.create_topic("orders")
    with pytest.raises(DataLossError) as raised:
        look_up(0, 3, CAUSE)
    assert raised.value is CAUSE
