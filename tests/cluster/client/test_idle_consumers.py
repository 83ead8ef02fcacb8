"""Offsets of a consumer that waits at the end of its partitions do not expire under it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets, expire_offsets
from sparklog.store.memory import MemoryStore
from sparklog.testing.records import Record, append_records
from sparklog.types import OffsetAndMetadata, TopicPartition

DAY = 86_400
PARTITION = TopicPartition("orders", 0)


class Log:
    """A topic with records, and a clock that all its processes share."""

    def __init__(self, name: str) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(name)
        self.cluster = create_cluster(self.store, clock=self.clock)
        self.cluster.create_topic("orders")
        self.write(b"a", b"b")

    def write(self, *values: bytes) -> None:
        append_records(self.cluster, "orders", [Record(value=value) for value in values])

    @contextmanager
    def consumer(self) -> Iterator[Consumer]:
        with Consumer(cluster=open_cluster(self.store, clock=self.clock), group_id="g") as consumer:
            consumer.assign([PARTITION])
            yield consumer

    def wait(self, consumer: Consumer, days: int) -> None:
        """Poll once a day for this many days, and expire offsets after each poll."""
        for _ in range(days):
            self.clock.advance(DAY)
            consumer.poll(0)
            consumer.commit({})  # waits for the automatic commit that the poll has begun
            expire(self.cluster)

    @property
    def committed(self) -> int | None:
        found = self.cluster.refresh().committed("g", *PARTITION)
        return None if found is None else found.offset


def expire(cluster: Coordinator) -> None:
    cluster.submit(partial(expire_offsets, now_ms=cluster.log.clock.now_ms()))


@pytest.fixture
def log(request: pytest.FixtureRequest) -> Log:
    return Log(request.node.name)


def test_the_offset_of_a_consumer_that_waits_for_longer_than_offsets_are_kept_stays(log: Log) -> None:
    with log.consumer() as consumer:
        consumer.seek(PARTITION, 2)
        log.wait(consumer, 30)
        assert log.committed == 2
    log.clock.advance(3 * DAY)
    expire(log.cluster)
    log.write(b"c")
    with log.consumer() as consumer:
        assert [record.value for records in consumer.poll(1000).values() for record in records] == [b"c"]


def test_an_offset_that_was_committed_long_before_the_consumer_started_stays(log: Log) -> None:
    with log.consumer() as consumer:
        consumer.seek(PARTITION, 2)
    assert log.committed == 2
    log.clock.advance(6 * DAY)
    with log.consumer() as consumer:
        log.wait(consumer, 3)
        assert log.committed == 2


def test_few_commits_keep_an_offset(log: Log) -> None:
    with log.consumer() as consumer:
        consumer.seek(PARTITION, 2)
        log.wait(consumer, 1)
        before = log.cluster.refresh().version
        log.wait(consumer, 14)
        assert log.cluster.refresh().version - before <= 4


def test_an_offset_that_an_operator_has_set_is_not_overwritten_by_a_consumer_that_waits(log: Log) -> None:
    with log.consumer() as consumer:
        consumer.seek(PARTITION, 2)
        log.wait(consumer, 1)
        commit = GroupCommit(group="g", offsets={PARTITION: OffsetAndMetadata(0, "", None)})
        log.cluster.submit(partial(commit_group_offsets, commit=commit))
        log.wait(consumer, 6)
        assert log.committed == 0
    assert log.committed == 0
