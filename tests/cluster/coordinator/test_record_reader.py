"""Records are read to the end while the segments, the replicas and the topic change during the read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.clock import SystemClock
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.record_reader import RecordReader
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    DataLossError,
    OffsetOutOfRangeError,
    RootReplacedError,
    StorageError,
    StorageUnavailableError,
)
from sparklog.ids import RandomIds
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.records.records import Records
from sparklog.protocol.commits import commit_key
from sparklog.protocol.decide.append import Begun
from sparklog.store.base import Store
from sparklog.testing.faulty_store import CountingStore, FaultyStore
from tests.cluster.log.replicated import append_copies, copies, replicated_cluster
from tests.cluster.log.rewriting import delete_files, drop_segments, rewrite


@pytest.fixture
def cluster(tmp_path: Path) -> Coordinator:
    """Brokers 0 and 1 hold three segments of two records each."""
    coordinator = replicated_cluster(tmp_path, 2)
    for start in (10, 30, 50):
        append_copies(coordinator, [start, start + 10])
    return coordinator


def delete_everywhere(cluster: Coordinator, paths: list[str]) -> None:
    for _, store in copies(cluster):
        delete_files(store, paths)


def read(reader: RecordReader, cluster: Coordinator, start: int = 0) -> Iterator[Records]:
    return (records for _, records in reader.read("t", 0, start, 6, ["value"], cluster.state))


def offsets(batches: Iterator[Records]) -> list[int]:
    return [offset for records in batches for offset in records.all_offsets()]


def test_a_range_is_read_partly_from_replaced_and_partly_from_new_files(cluster: Coordinator) -> None:
    reader = RecordReader(lambda: open_cluster(cluster.store.root))
    reading = read(reader, cluster)
    assert list(next(reading).all_offsets()) == [0, 1]
    delete_everywhere(cluster, rewrite(cluster, copies=copies(cluster)))
    assert offsets(reading) == [2, 3, 4, 5]
    reader.close()


def test_records_deleted_before_they_are_read_are_out_of_range(cluster: Coordinator) -> None:
    reader = RecordReader(lambda: open_cluster(cluster.store.root))
    reading = read(reader, cluster)
    next(reading)
    delete_everywhere(cluster, drop_segments(cluster, 2))
    with pytest.raises(OffsetOutOfRangeError, match="the log starts at 4 now") as raised:
        next(reading)
    assert raised.value.end_offset == 4
    reader.close()


def test_a_listed_file_that_no_replica_has_is_lost(cluster: Coordinator) -> None:
    reader = RecordReader(lambda: cluster)
    delete_everywhere(cluster, [cluster.segments("t").partition(0)[1].path])
    reading = read(reader, cluster)
    assert list(next(reading).all_offsets()) == [0, 1]
    with pytest.raises(DataLossError):
        next(reading)
    reader.close()


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_range_is_not_read_on_in_a_root_that_was_restored_since(cluster: Coordinator, goes_on: bool) -> None:
    """Neither in an executor, which opens it for the first time. The same offsets may be other records there."""
    segments, state = list(cluster.segments("t").partition(0)), cluster.state
    planned, topic_id = Begun(state.version, state.digest), state.topic("t").topic_id
    reader = RecordReader(lambda: open_cluster(cluster.store.root), stores=dict(copies(cluster)), replicas=(0, 1))
    reading = reader.read_segments("t", topic_id, 0, planned, segments, 0, 6, ["value"])
    next(reading)
    for version in range(state.version - 1, state.version + 1):  # two appends
        cluster.store.delete(commit_key(version))
    delete_everywhere(cluster, [segment.path for segment in segments[1:]])
    if goes_on:
        for start in (100, 200):
            append_copies(open_cluster(cluster.store.root), [start, start + 10])
    with pytest.raises(RootReplacedError):
        next(reading)
    reader.close()


@pytest.mark.parametrize("recreated", [False, True])
def test_a_topic_deleted_during_a_read_is_readable_as_long_as_its_files_exist(
    cluster: Coordinator, recreated: bool
) -> None:
    reader = RecordReader(lambda: cluster)
    cluster.create_topic("u", partitions=2)
    reading = read(reader, cluster)
    next(reading)
    delete_topic(cluster, "t")
    if recreated:
        cluster.create_topic("t", partitions=1)
    assert offsets(reading) == [2, 3, 4, 5]
    reader.close()


@pytest.mark.parametrize("opens", [False, True])
def test_a_missing_file_is_not_called_lost_if_the_newest_list_cannot_be_read(cluster: Coordinator, opens: bool) -> None:
    """A reader with the stores of a plan opens the cluster only when a file is missing."""
    segments = list(cluster.segments("t").partition(0))
    topic_id = cluster.state.topic("t").topic_id
    stores: dict[int, Store] = dict(copies(cluster))

    def fail(step: int, call: object) -> None:
        if not opens or step >= steps_to_open:
            raise StorageUnavailableError("the root does not answer")

    def open_unavailable() -> Coordinator:
        root = FaultyStore(cluster.store, before=fail)
        return Coordinator(CommitLog.open(root, SystemClock(), RandomIds()))

    counting = CountingStore(cluster.store)
    CommitLog.open(counting, SystemClock(), RandomIds())
    steps_to_open = len(counting.calls)

    reader = RecordReader(open_unavailable, stores=stores, replicas=(0, 1))
    reading = reader.read_segments(
        "t", topic_id, 0, Begun(cluster.state.version, cluster.state.digest), segments, 0, 6, ["value"]
    )
    next(reading)
    delete_everywhere(cluster, [segments[1].path])
    with pytest.raises(StorageError) as raised:
        next(reading)
    assert isinstance(raised.value.__cause__, DataLossError)
    reader.close()
