"""Maintenance removes producers and applications that were idle for longer than the settings allow, and no others."""

from __future__ import annotations

import uuid
from functools import partial

import pytest

from sparklog import limits
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.reader_leases import READERS, ReaderLease
from sparklog.log.commits.cleanup import newest_version_before
from sparklog.maintenance.gc import expired_ids
from sparklog.maintenance.gc.expired_ids import ExpiryResult, expire
from sparklog.maintenance.gc.sweep import EXPIRED_LEASES_KEPT_MS, sweep
from sparklog.protocol.commits import Action, InitProducer, Run
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend, decide_append
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.producers import init_producer
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore

DAY_MS = 86_400_000
NOTHING = ExpiryResult(0, 0, 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(clock: ManualClock) -> Coordinator:
    coordinator = create_cluster(MemoryStore(uuid.uuid4().hex, clock=clock), clock=clock)
    coordinator.create_topic("orders")
    return coordinator


def commit_as_each_kind(cluster: Coordinator) -> None:
    """Commit with a transactional id, with an idempotent producer of a partition, and as an application."""
    cluster.submit(partial(init_producer, transactional_id="billing"))
    state = cluster.state
    append = decide_append(
        state,
        AppendRequest(
            appends=[
                PartitionAppend(
                    topic="orders",
                    topic_id=state.topics["orders"].topic_id,
                    partition=0,
                    run=named_run(),
                    producer_id=900,
                    producer_epoch=0,
                    base_sequence=0,
                )
            ],
            application="job",
            application_version=1,
        ),
    )
    cluster.submit(lambda newest: append)


def named_run() -> Run:
    return Run(path="orders-0/x.log", batches=1, records=3, size_bytes=9, min_timestamp_us=1, max_timestamp_us=2)


def counts(cluster: Coordinator) -> tuple[int, int, int]:
    state = cluster.refresh()
    return len(state.producers), len(state.partition("orders", 0).producers), len(state.applications)


def test_each_kind_expires_after_its_own_time(cluster: Coordinator, clock: ManualClock) -> None:
    commit_as_each_kind(cluster)
    assert expire(cluster) == NOTHING
    clock.advance(1.1 * DAY_MS / 1000)
    cluster.submit(
        partial(alter_configs, topic="", changes={"num.partitions": "2"})
    )  # the log's time advances with its commits
    assert expire(cluster) == ExpiryResult(0, 1, 0)
    clock.advance(7 * DAY_MS / 1000)
    cluster.submit(partial(alter_configs, topic="", changes={"num.partitions": "3"}))
    assert expire(cluster) == ExpiryResult(1, 0, 0)
    assert counts(cluster) == (0, 0, 1)


def test_applications_expire_only_if_configured(cluster: Coordinator, clock: ManualClock) -> None:
    commit_as_each_kind(cluster)
    clock.advance(1000 * DAY_MS / 1000)
    cluster.submit(partial(alter_configs, topic="", changes={"application.id.expiration.ms": str(30 * DAY_MS)}))
    assert expire(cluster).applications == 1
    assert counts(cluster)[2] == 0


def test_an_application_that_wrote_recently_is_kept(cluster: Coordinator, clock: ManualClock) -> None:
    cluster.submit(partial(alter_configs, topic="", changes={"application.id.expiration.ms": str(30 * DAY_MS)}))
    clock.advance(20 * DAY_MS / 1000)
    commit_as_each_kind(cluster)
    clock.advance(20 * DAY_MS / 1000)
    cluster.submit(partial(alter_configs, topic="", changes={"num.partitions": "2"}))
    assert expire(cluster).applications == 0


def test_no_application_is_forgotten_whose_expiration_is_raised_meanwhile(
    cluster: Coordinator, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_as_each_kind(cluster)
    clock.advance(40 * DAY_MS / 1000)
    configs = partial(alter_configs, topic="")
    cluster.submit(partial(configs, changes={"application.id.expiration.ms": str(30 * DAY_MS)}))

    def find_late(store: Store, version: int, time_ms: int) -> int:
        found = newest_version_before(store, version, time_ms)
        cluster.submit(partial(configs, changes={"application.id.expiration.ms": "-1"}))
        return found

    monkeypatch.setattr(expired_ids, "newest_version_before", find_late)
    assert expire(cluster).applications == 0
    assert counts(cluster)[2] == 1


def test_many_producers_are_forgotten_in_several_commits(cluster: Coordinator, clock: ManualClock) -> None:
    first, count = cluster.state.next_producer_id, 2 * limits.MAX_FORGOTTEN_PER_COMMIT + 1
    many: list[Action] = [
        InitProducer(producer_id=first + number, producer_epoch=0, transactional_id=f"id-{number}")
        for number in range(count)
    ]
    cluster.submit(lambda state: Decision(many, None))
    clock.advance(8 * DAY_MS / 1000)
    cluster.submit(partial(alter_configs, topic="", changes={"num.partitions": "2"}))
    before = cluster.state.version
    assert expire(cluster).transactional_ids == count
    assert cluster.state.version == before + 3


def test_a_sweep_removes_reader_leases_that_expired_long_ago_and_no_others(
    cluster: Coordinator, clock: ManualClock
) -> None:
    for number in range(30):
        ReaderLease(f"old-{number}", 1, 60_000).renewed(cluster.store, clock)
    clock.advance((EXPIRED_LEASES_KEPT_MS + 200_000) / 1000)
    ReaderLease("young", 1, 60_000).renewed(cluster.store, clock)
    cluster.submit(partial(alter_configs, topic="", changes={"num.partitions": "2"}))
    sweep(cluster)
    assert [info.key for info in cluster.store.list(READERS)] == [READERS + "young"]
