"""A maintenance task reads each segment from the first intact replica, and distinguishes a lost file from a storage
that is unavailable."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    CorruptIndexError,
    DataLossError,
    SparklogError,
    StorageError,
    StorageUnavailableError,
    UnsupportedStoreError,
)
from sparklog.ids import RandomIds
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.maintenance.replicas.file_copies import CopyTask, FileToCopy, copy_files
from sparklog.maintenance.segments.files import ReplicaStores, Source
from sparklog.maintenance.segments.merge import MergeTask, Target, merge_segments
from sparklog.protocol.segments import Segment
from sparklog.store.base import Store
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.log.replicated import append_copies, copies, replicated_cluster
from tests.cluster.log.rewriting import rewrite
from tests.cluster.log.test_fetch import batch_of


@pytest.fixture
def coordinator(tmp_path: Path) -> Coordinator:
    """Brokers 0 and 1 hold four records of topic t in one segment."""
    coordinator = replicated_cluster(tmp_path, 2)
    append_copies(coordinator, [10, 20], [30, 40])
    return coordinator


def segments_of(coordinator: Coordinator) -> Sequence[Segment]:
    coordinator.refresh()
    return list(coordinator.segments("t").partition(0))


def failing(store: Store, error: SparklogError) -> Store:
    def fail(step: int, call: Call) -> None:
        raise error

    return FaultyStore(store, before=fail)


def merge(coordinator: Coordinator, **changed: Store) -> str:
    """The path of the file that a merge misses, or "" after a merge. ``changed`` are stores by name (``broker_0``)."""
    stores = dict(copies(coordinator))
    reading = {**stores, **{int(name.removeprefix("broker_")): store for name, store in changed.items()}}
    writing = tuple(set(stores) - {int(name[-1]) for name in changed})
    replicas = ReplicaStores(reading, (0, 1), writing, clock=ManualClock())
    target = Target("t", 0, coordinator.state.version, RandomIds())
    return merge_segments(MergeTask(0, segments_of(coordinator), replicas, target, True)).missing


def test_a_replica_on_an_unsupported_storage_is_skipped(coordinator: Coordinator) -> None:
    broken = failing(coordinator.store, UnsupportedStoreError("HDFS does not survive a fork"))
    assert merge(coordinator, broker_0=broken) == ""


def test_a_file_that_no_replica_has_is_missing(coordinator: Coordinator) -> None:
    [segment] = segments_of(coordinator)
    for _, store in copies(coordinator):
        store.delete(segment.path)
    assert segment.path in merge(coordinator)


def test_a_file_that_an_unavailable_replica_may_have_is_not_lost(coordinator: Coordinator) -> None:
    [segment] = segments_of(coordinator)
    coordinator.store.delete(segment.path)
    away = failing(coordinator.store_of(1), StorageUnavailableError("broker 1 does not answer"))
    with pytest.raises(StorageUnavailableError, match="broker 1 does not answer"):
        merge(coordinator, broker_1=away)


def test_a_single_replica_that_fails_raises_its_own_error(coordinator: Coordinator) -> None:
    [segment] = segments_of(coordinator)
    away = failing(coordinator.store, StorageError("out of order"))
    with pytest.raises(StorageError, match=r"^out of order"):
        _ = Source("t", segment, ReplicaStores({0: away}, (0,), (0,), clock=ManualClock())).index
    coordinator.store.delete(segment.index_path)
    with pytest.raises(DataLossError, match="missing"):
        _ = Source("t", segment, ReplicaStores({0: coordinator.store}, (0,), (0,))).index


def test_a_copy_without_explicit_offsets_is_skipped_if_the_commit_implies_them(coordinator: Coordinator) -> None:
    """Same batches and rows, but no explicit offsets: the records would get wrong ones."""
    append_copies(coordinator, [50, 60])
    rewrite(coordinator, keep={0, 3, 5}.__contains__, copies=copies(coordinator))
    [segment] = segments_of(coordinator)
    assert segment.has_gaps
    wrong = SegmentFileWriter(coordinator.store, segment.path)
    wrong.start_run(RunTarget("t", coordinator.state.topic("t").topic_id, 0))
    wrong.write(batch_of([10, 40, 60], 0))
    wrong.finish()
    stores = dict(copies(coordinator))
    source = Source("t", segment, ReplicaStores(stores, (0, 1), (0, 1)))
    assert source.read(0, ["offset"]).column(0).to_pylist() == [0, 3, 5]
    with pytest.raises(CorruptIndexError, match="no explicit offsets"):
        _ = Source("t", segment, ReplicaStores({0: stores[0]}, (0,), (0,))).index


def test_a_file_is_copied_from_the_next_source_if_one_is_on_an_unsupported_storage(
    coordinator: Coordinator, tmp_path: Path
) -> None:
    [segment] = segments_of(coordinator)
    broken = failing(coordinator.store, UnsupportedStoreError("HDFS does not survive a fork"))
    stores = {0: broken, 1: coordinator.store_of(1), 2: open_store(str(tmp_path / "new"))}
    result = copy_files(CopyTask(2, stores, [FileToCopy(segment.path, (0, 1), segment.size_bytes)]))
    assert (result.copied, result.failed) == ([segment.path], [])
    assert stores[2].get(segment.path) == stores[1].get(segment.path)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs the open files of a process")
def test_a_task_without_memory_leaves_no_file_open(coordinator: Coordinator, tmp_path: Path) -> None:
    def fail(step: int, call: Call) -> None:
        if call.operation == "read_at" and open_files(tmp_path, ".log"):
            raise MemoryError

    store = FaultyStore(coordinator.store, before=fail)
    replicas = ReplicaStores({0: store}, (0,), (0,), clock=ManualClock())
    task = MergeTask(
        0, segments_of(coordinator), replicas, Target("t", 0, coordinator.state.version, RandomIds()), True
    )
    with pytest.raises(MemoryError) as raised:
        merge_segments(task)
    assert raised.value.__traceback__  # it holds the frames of the task, and what they refer to
    assert open_files(tmp_path, ".log") == set()


def open_files(folder: Path, ending: str) -> set[str]:
    """The files below a folder that this process has open or mapped."""
    opened = {os.path.realpath(each) for each in Path("/proc/self/fd").iterdir()}
    mapped = {line.rpartition(" ")[2] for line in Path("/proc/self/maps").read_text().splitlines()}
    return {path for path in opened | mapped if path.startswith(str(folder)) and path.endswith(ending)}
