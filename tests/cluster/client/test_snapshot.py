"""``sparklog.snapshot``: all topics at one version of the cluster."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest

import sparklog
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import (
    InvalidConfigurationError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.settings import LogSettings
from sparklog.protocol.decide.topics import create_partitions
from sparklog.store.memory import MemoryStore
from sparklog.testing.clusters import Cluster, cluster
from sparklog.testing.records import Record, append_records
from tests.cluster.maintenance.logs import Written, append


def send(c: Cluster, topic: str, value: bytes) -> None:
    append_records(c.coordinator, topic, [Record(value=value)])


@pytest.fixture
def shop() -> Iterator[Cluster]:
    with cluster(topics={"orders": 1, "customers": 2}) as c:
        send(c, "orders", b"o0")
        send(c, "customers", b"c0")
        yield c


def values(taken: sparklog.Snapshot, topic: str) -> list[bytes]:
    found: list[bytes] = taken.scan(topic, columns=["value"]).to_arrow()["value"].to_pylist()
    return found


def test_topics_of_a_snapshot_stay_at_one_version(shop: Cluster) -> None:
    taken = sparklog.snapshot(shop.bootstrap_servers)
    for _ in range(3):
        send(shop, "orders", b"later")
        send(shop, "customers", b"later")
    shop.create_topic("later")
    assert (values(taken, "orders"), values(taken, "customers")) == ([b"o0"], [b"c0"])
    assert taken.topics == ("customers", "orders")
    assert sparklog.snapshot(shop.bootstrap_servers).topics == ("customers", "later", "orders")
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'later' did not exist at version"):
        taken.scan("later")
    assert f"version={taken.version} topics=2" in repr(taken)


def test_a_snapshot_can_be_taken_again_by_version_and_time(shop: Cluster) -> None:
    first = sparklog.snapshot(shop.bootstrap_servers)
    for _ in range(5):
        send(shop, "orders", b"later")
    again = sparklog.snapshot(shop.bootstrap_servers, version=first.version)
    assert (again.version, again.timestamp, again.topics) == (first.version, first.timestamp, first.topics)
    assert values(again, "orders") == [b"o0"]
    assert first.timestamp is not None
    at_time = sparklog.snapshot(shop.bootstrap_servers, as_of=first.timestamp)
    assert at_time.timestamp == first.timestamp
    assert at_time.version >= first.version
    long_from_now = datetime.now(timezone.utc) + timedelta(days=9)
    assert sparklog.snapshot(shop.bootstrap_servers, as_of=long_from_now).version == first.version + 5


def test_a_snapshot_takes_an_open_cluster_and_options_of_a_scan(shop: Cluster) -> None:
    taken = sparklog.snapshot(cluster=shop.coordinator)
    send(shop, "orders", b"later")
    scanned = taken.scan("orders", columns=["offset", "value"], filter=[("value", "=", b"o0")])
    assert scanned.to_arrow().to_pylist() == [{"offset": 0, "value": b"o0"}]
    with pytest.raises(OffsetOutOfRangeError):
        taken.scan("orders", start={0: 2})


def test_a_topic_that_was_created_again_is_another_one(shop: Cluster) -> None:
    taken = sparklog.snapshot(shop.bootstrap_servers)
    delete_topic(shop.coordinator, "orders")
    with pytest.raises(UnknownTopicOrPartitionError):
        taken.scan("orders")
    shop.create_topic("orders")
    send(shop, "orders", b"new")
    with pytest.raises(UnknownTopicOrPartitionError, match="did not exist at version"):
        taken.scan("orders")
    assert sparklog.snapshot(shop.bootstrap_servers, version=taken.version).topics == ("customers",)


def test_wrong_versions_are_refused(shop: Cluster) -> None:
    root, newest = shop.bootstrap_servers, shop.coordinator.refresh().version
    with pytest.raises(InvalidRequestError, match=r"invalid version '3': give a whole number"):
        sparklog.snapshot(root, version="3")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match=r"invalid as_of '2026-11-01': give a datetime with a time zone"):
        sparklog.snapshot(root, as_of="2026-11-01")  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match=f"version {newest + 1} does not exist: the newest of"):
        sparklog.snapshot(root, version=newest + 1)
    with pytest.raises(InvalidConfigurationError, match=r"snapshot\(as_of=1\): give version or as_of, not both"):
        sparklog.snapshot(root, version=1, as_of=1)
    with pytest.raises(InvalidConfigurationError, match=r"snapshot\(as_of=.*no time zone"):
        sparklog.snapshot(root, as_of=datetime(2026, 1, 1))


def test_a_version_beyond_the_retention_of_commits_is_refused() -> None:
    clock = ManualClock()
    log = create_cluster(MemoryStore(uuid.uuid4().hex, clock), clock=clock, settings=LogSettings(min_commits_kept=0))
    log.create_topic("orders", 1)

    def send_and_note(value: bytes) -> sparklog.Snapshot:
        append_records(log, "orders", [Record(value=value)])
        return sparklog.snapshot(cluster=log)

    before, last_removed = send_and_note(b"a"), send_and_note(b"b")
    log.log.write_checkpoint()
    clock.advance(8 * 86_400)
    assert clean_up(log.store, clock, {}, log.log.settings).boundary == last_removed.version
    send_and_note(b"c")
    with pytest.raises(InvalidRequestError, match=r"too long ago.*metadata\.max\.retention\.ms"):
        before.scan("orders")
    with pytest.raises(InvalidRequestError, match=f"version {before.version} is too long ago"):
        sparklog.snapshot(cluster=log, version=before.version)
    with pytest.raises(InvalidRequestError, match="too long ago"):
        sparklog.scan("orders", cluster=log, version=before.version)
    assert values(last_removed, "orders") == [b"a", b"b"]
    again = sparklog.snapshot(cluster=log, version=last_removed.version)
    assert (again.timestamp, again.topics) == (None, ("orders",))


def test_after_a_reset_of_the_time_the_newest_version_of_a_time_is_shown() -> None:
    """The clock was a month ahead for half of the records."""
    clock = ManualClock()
    log = create_cluster(MemoryStore(uuid.uuid4().hex, clock), clock=clock)
    log.create_topic("orders", 1)

    def send_hourly(count: int) -> list[sparklog.Snapshot]:
        taken: list[sparklog.Snapshot] = []
        for _ in range(count):
            append_records(log, "orders", [Record(value=b"v")])
            taken.append(sparklog.snapshot(cluster=log))
            clock.advance(3600)
        return taken

    before = send_hourly(3)
    present_ms = clock.now_ms()
    clock.set_ms(present_ms + 30 * 86_400_000)
    send_hourly(10)
    clock.set_ms(present_ms)
    assert sparklog.AdminClient(cluster=log).reset_time() > 0
    for taken in before + send_hourly(7):
        assert taken.timestamp is not None
        for as_of in (taken.timestamp, taken.timestamp + timedelta(minutes=59)):
            assert sparklog.snapshot(cluster=log, as_of=as_of).version == taken.version


def test_partitions_that_were_added_twice_since_are_not_in_an_older_version(shop: Cluster) -> None:
    before = shop.coordinator.refresh().version
    for total in (3, 4):
        shop.coordinator.submit(partial(create_partitions, topic="orders", total=total))
        for number in range(2):
            append(shop.coordinator, "orders", [Written(b"k", b"later")], partition=number)
    assert sparklog.scan("orders", cluster=shop.coordinator, version=before).end_offsets == {0: 1}
