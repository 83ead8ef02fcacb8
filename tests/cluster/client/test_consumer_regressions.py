"""Rare cases in which records came twice or never, or commits stopped."""

from __future__ import annotations

import pytest

from sparklog.coordinator.topic_deletion import delete_topic
from tests.cluster.client.consumers import Cluster, at, flat, read, until


class Registry:
    """A deserializer that fails for a while, as one that calls a service may."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error
        self.broken = True

    def __call__(self, value: bytes) -> bytes:
        if value == b"3" and self.broken:
            raise self.error("no answer")
        return value


def cluster_of_six(request: pytest.FixtureRequest) -> Cluster:
    cluster = Cluster(request.node.name, 1)
    cluster.write(0, *(b"%d" % number for number in range(6)))
    return cluster


@pytest.mark.parametrize("taken", [1, 3])
def test_records_come_once_after_a_failed_deserializer_recovers(request: pytest.FixtureRequest, taken: int) -> None:
    registry = Registry(ValueError)
    with cluster_of_six(request).consumer("orders", value_deserializer=registry) as consumer:
        seen = [next(consumer).offset for _ in range(taken)]
        if taken == 3:
            with pytest.raises(ValueError):
                next(consumer)
        registry.broken = False
        seen += [record.offset for record in read(consumer, 6 - taken)]
        seen += [record.offset for record in flat(consumer.poll(100))]
        assert seen == list(range(6))


@pytest.mark.parametrize("iterate", [True, False])
def test_an_interrupt_during_deserialization_skips_no_records(request: pytest.FixtureRequest, iterate: bool) -> None:
    registry = Registry(KeyboardInterrupt)
    with cluster_of_six(request).consumer("orders", value_deserializer=registry) as consumer:
        with pytest.raises(KeyboardInterrupt):
            until(lambda: False, lambda: next(consumer) if iterate else consumer.poll(50))
        registry.broken = False
        assert [record.offset for record in read(consumer, 6)] == list(range(6))


def test_a_deleted_topic_does_not_stop_automatic_commits_of_the_others(request: pytest.FixtureRequest) -> None:
    cluster = Cluster(request.node.name, 1)
    cluster.admin.create_topic("gone")
    cluster.write(0, b"a")
    cluster.write(0, b"b", topic="gone")
    with cluster.consumer(group_id="g", auto_commit_interval_ms=1) as consumer:
        consumer.assign([at(0), at(0, "gone")])
        read(consumer, 2)
        delete_topic(cluster.admin, "gone")
        cluster.write(0, b"c")
        read(consumer, 1)
        until(lambda: consumer.committed(at(0)) == 2, lambda: consumer.poll(10))


def test_a_time_limit_that_ends_in_a_deserializer_comes_out_of_the_poll(request: pytest.FixtureRequest) -> None:
    """The handler of an alarm raises an Exception, as a deserializer does; but the record is sound."""
    limits = [TimeoutError("the time limit of a task")]

    def deserialize(value: bytes) -> bytes:
        if value.endswith(b"3") and limits:
            raise limits.pop()
        return value

    with cluster_of_six(request).consumer("orders", value_deserializer=deserialize) as consumer:
        with pytest.raises(TimeoutError, match="time limit of a task"):
            read(consumer, 6)
        assert [record.offset for record in read(consumer, 6)] == list(range(6))
