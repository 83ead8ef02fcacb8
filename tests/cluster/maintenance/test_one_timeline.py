"""Maintenance was suspended while the root was restored from a copy and its clients removed the commits that it knew.
It continues from a checkpoint that nothing links to what it read, and commits nothing of what it found before."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from sparklog.coordinator import Coordinator, create_cluster, kept_reading, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.one_timeline import in_one_timeline
from sparklog.errors import StorageUnavailableError, UnlinkedHistoryError
from sparklog.log.records.fetch import Fetcher
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.state import State
from sparklog.store.memory import MemoryStore
from sparklog.testing.records import Record, append_records
from tests.cluster.client.test_producer_restored_roots import pass_by
from tests.cluster.log.test_replaced_root import restore, take_snapshot

JOBS: dict[str, tuple[Callable[[Coordinator], object], dict[str, str]]] = {
    "roll": (lambda cluster: roll(cluster, InProcess()), {}),
    "compaction": (
        lambda cluster: compact(cluster, InProcess()),
        {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"},
    ),
    "retention": (retain, {"retention.ms": "1", "segment.ms": "1"}),
    "replication": (lambda cluster: replicate(cluster, InProcess()), {}),
}


def append(cluster: Coordinator, name: str, count: int, acks: int = -1) -> None:
    for number in range(count):
        append_records(cluster, "orders", [Record(key=b"%d" % number, value=f"{name}{number}".encode())], acks=acks)


def values(cluster: Coordinator, broker: int | None = None) -> list[bytes | None]:
    partition = cluster.state.partition("orders", 0)
    segments = cluster.segments("orders").partition(0)
    fetcher = Fetcher(cluster.store_of if broker is None else lambda _: cluster.store_of(broker))
    parts = fetcher.read("orders", segments, partition.log_start_offset, partition.log_end_offset, ["value"])
    return [value for part in parts for value in part.batch.column(0).to_pylist()]


@pytest.mark.parametrize("name", JOBS)
def test_a_job_that_was_suspended_before_its_commit_commits_nothing_in_another_timeline(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, configs = JOBS[name]
    store = MemoryStore(uuid.uuid4().hex)
    cluster = create_cluster(store)
    for broker in (1, 2):
        add_broker(cluster, f"memory://{uuid.uuid4().hex}", broker)
    for topic in ("orders", "t"):
        cluster.create_topic(topic, configs=configs, assignment=[[1, 2]])
    cluster.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "1000"}))
    append(cluster, "base", 2)
    if name == "replication":
        append(cluster, "base", 1, acks=1)  # behind at broker 2
    snapshot = take_snapshot(store)
    append(cluster, "old", 8, acks=1 if name == "replication" else -1)
    real, acknowledged = cluster.submit, list[bytes | None]()

    def suspended(decide: Any, others: int = 0, histories: Sequence[int | None] = ()) -> Any:
        if not acknowledged:
            restore(store, snapshot)
            append(open_cluster(store), "new", 8, acks=1 if name == "replication" else -1)
            pass_by(store)
            acknowledged.extend(values(open_cluster(store)))
        return real(decide, others, histories)

    monkeypatch.setattr(cluster, "submit", suspended)
    with pytest.raises(UnlinkedHistoryError):
        work(cluster)
    assert b"new7" in acknowledged
    opened = open_cluster(store)
    assert values(opened) == acknowledged
    for broker in opened.state.partition("orders", 0).isr:
        assert values(opened, broker) == acknowledged


def test_a_work_that_was_suspended_concerns_nobody_else_who_shares_its_log() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    cluster = create_cluster(store)
    cluster.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "1000"}))
    for topic in ("orders", "t"):
        cluster.create_topic(topic)

    @in_one_timeline
    def work(coordinator: Coordinator) -> None:
        coordinator.refresh()
        append(open_cluster(store), "other", 8)
        pass_by(store)
        assert cluster.refresh().partition("orders", 0).log_end_offset == 8  # an election, say
        append(cluster, "mine", 1)
        with pytest.raises(UnlinkedHistoryError):
            coordinator.refresh()
        with pytest.raises(UnlinkedHistoryError):
            append(coordinator, "found before", 1)
        raise LookupError

    with pytest.raises(LookupError):
        work(cluster)
    assert values(cluster)[-1] == b"mine0"


def test_the_log_is_read_while_a_work_is_busy_with_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the commits that it knew are removed on a busy cluster, and nothing that it found counts any more."""
    monkeypatch.setattr(kept_reading, "SECONDS", 0.001)
    cluster = create_cluster(f"memory://{uuid.uuid4().hex}")
    cluster.create_topic("orders")
    other, read = open_cluster(cluster.store), threading.Event()
    failures = [StorageUnavailableError("not now")]
    refresh = cluster.refresh

    def refresh_and_tell() -> State:
        if failures and threading.current_thread() is not threading.main_thread():
            raise failures.pop()
        if refresh().version == other.state.version:
            read.set()
        return cluster.state

    @in_one_timeline
    def work(coordinator: Coordinator) -> None:
        coordinator.refresh()
        append(other, "other", 1)
        read.clear()
        assert read.wait(60)

    monkeypatch.setattr(cluster, "refresh", refresh_and_tell)
    work(cluster)
    assert not failures


def test_a_work_is_done_if_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    cluster = create_cluster(f"memory://{uuid.uuid4().hex}")
    assert in_one_timeline(lambda coordinator: coordinator.refresh().version)(cluster) == 0
