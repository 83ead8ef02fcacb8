"""From a remote storage, tasks prefetch several small files in parallel; the results are the same."""

from __future__ import annotations

import itertools
import threading

import pytest

from sparklog.coordinator import open_cluster
from sparklog.errors import CorruptRecordError, DataLossError
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.roll import roll
from sparklog.store.memory import MemoryStore
from sparklog.testing.clusters import Cluster, cluster
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.maintenance.logs import Written, append, live, records

COMPACT = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"}


@pytest.fixture(autouse=True)
def _far_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "parallel_requests", 8)


def small_files(c: Cluster, count: int = 40) -> None:
    for number in range(count):
        append(c.coordinator, "t", [Written(b"k%d" % (number % 7), b"%d" % number, number)])


def test_a_roll_of_prefetched_files_gives_the_same_result() -> None:
    with cluster() as c:
        c.create_topic("t")
        small_files(c)
        append(c.coordinator, "t", [Written(b"large", b"x" * 5_000_000, 50)])
        small_files(c, 10)
        before = records(c.coordinator, "t")
        assert roll(c.coordinator, InProcess()).files_out > 0
        assert records(c.coordinator, "t") == before


def test_a_compaction_of_prefetched_files_gives_the_same_result() -> None:
    with cluster() as c:
        c.create_topic("t", configs=COMPACT)
        small_files(c)
        assert compact(c.coordinator, InProcess()).records_removed == 32
        assert [record.offset for record in records(c.coordinator, "t")] == [32, 33, 34, 35, 36, 37, 38, 39]


def test_files_are_fetched_in_parallel_with_one_request_each() -> None:
    with cluster() as c:
        c.create_topic("t")
        small_files(c)
        together = threading.Barrier(4, timeout=300)
        arrivals = itertools.count()

        def meet(step: int, call: Call) -> None:
            """Let the first four requests wait for each other. Later ones are not sure to find others."""
            if call.operation == "get_range" and next(arrivals) < together.parties:
                together.wait()

        store = FaultyStore(c.coordinator.store, before=meet)
        roll(open_cluster(store), InProcess())
        assert not together.broken
        assert store.counts["get_range"] == 40
        assert store.counts["open_input"] == 0


def test_a_damaged_or_missing_prefetched_file_is_detected() -> None:
    with cluster() as c:
        c.create_topic("t")
        small_files(c)
        path = live(c.coordinator, "t")[20].path
        content = c.coordinator.store.get(path)
        c.coordinator.store.put(path, content[: len(content) // 2] + bytes(len(content) - len(content) // 2))
        with pytest.raises(CorruptRecordError):
            roll(c.coordinator, InProcess())
        c.coordinator.store.delete(path)
        with pytest.raises(DataLossError):
            roll(c.coordinator, InProcess())
        c.coordinator.store.put(path, content)
        assert roll(c.coordinator, InProcess()).files_in == 40
