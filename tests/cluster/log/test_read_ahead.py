"""A reader reaches the end of the log even if it is slower than the writers, and reads several commits at a time."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import StorageUnavailableError
from sparklog.log import parallel
from sparklog.log.commits import commit_files
from sparklog.log.settings import LogSettings
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore


class RoundTrips:
    """Counts consecutive requests of a store; those of one ``each`` count as one."""

    def __init__(self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.after_each: Callable[[], None] = lambda: None
        self._together = 0
        self.store = _Remote(store, before=self._before)
        for module in (commit_files, parallel):
            monkeypatch.setattr(module, "map_parallel", self._each)

    def _before(self, number: int, call: Call) -> None:
        if not self._together:
            self.count += 1
            self._let_others_work()

    def _let_others_work(self) -> None:
        self._together += 1
        self.after_each()
        self._together -= 1

    def _each(self, function: Callable[[Any], Any], items: Iterable[Any], at_a_time: int = 16) -> list[Any]:
        self.count += not self._together
        self._together += 1
        try:
            answers = [function(item) for item in items]
        finally:
            self._together -= 1
        if not self._together:
            self._let_others_work()
        return answers


class _Remote(FaultyStore):
    @property
    def parallel_requests(self) -> int:
        return 16


def commit(coordinator: Coordinator, times: int) -> None:
    for number in range(times):
        coordinator.submit(partial(alter_configs, topic="", changes={"num.partitions": str(number % 7 + 1)}))


def test_a_reader_1_000_commits_behind_takes_at_most_30_round_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    writer = create_cluster(store)
    trips = RoundTrips(store, monkeypatch)
    reader = open_cluster(trips.store)
    commit(writer, 1000)
    trips.count = 0
    assert reader.refresh() == writer.state
    assert trips.count <= 30


def test_a_reader_1_000_commits_behind_without_a_checkpoint_takes_at_most_30_round_trips(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    writer = create_cluster(store, settings=LogSettings(checkpoint_interval_commits=10_000))
    trips = RoundTrips(store, monkeypatch)
    reader = open_cluster(trips.store)
    commit(writer, 1000)
    trips.count = 0
    assert reader.refresh() == writer.state
    assert trips.count <= 30


@pytest.mark.parametrize("commits_in_a_round_trip", [2, 10, 40])
def test_a_reader_slower_than_the_writer_reaches_the_end(
    commits_in_a_round_trip: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    writer = create_cluster(store)
    commit(writer, 150)
    trips = RoundTrips(store, monkeypatch)

    def write_commits() -> None:
        assert trips.count < 60, "the reader did not reach the end"
        commit(writer, commits_in_a_round_trip)

    trips.after_each = write_commits
    begun_at = writer.state.version
    reader = open_cluster(trips.store)
    assert reader.state.version >= begun_at
    trips.count = 0
    begun_at = writer.state.version
    assert reader.refresh().version >= begun_at


def test_a_refresh_with_nothing_new_is_one_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    create_cluster(store)
    trips = RoundTrips(store, monkeypatch)
    reader = open_cluster(trips.store)
    trips.count = 0
    reader.refresh()
    assert trips.count == 1


def test_a_commit_is_three_round_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    create_cluster(store)
    trips = RoundTrips(store, monkeypatch)
    writer = open_cluster(trips.store)
    commit(writer, 1)
    trips.count = 0
    commit(writer, 1)
    assert trips.count == 3


def test_a_storage_too_slow_to_reach_the_end_is_an_error() -> None:
    clock = ManualClock()
    store = MemoryStore(uuid.uuid4().hex)
    writer = create_cluster(store)
    slow = False

    def pass_time(number: int, call: Call) -> None:
        if slow:
            clock.advance(10)
            commit(writer, 3)

    reader = open_cluster(FaultyStore(store, before=pass_time), clock=clock)
    slow = True
    with pytest.raises(StorageUnavailableError, match="was not reached"):
        reader.refresh()
    slow = False
    assert reader.refresh() == writer.state
