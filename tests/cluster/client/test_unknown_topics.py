"""A consumer that names what does not exist says so, once in a while."""

from __future__ import annotations

import logging

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.unknown_topics import REPEAT_SECONDS
from sparklog.clock import ManualClock
from sparklog.coordinator import open_cluster
from sparklog.types import TopicPartition
from tests.cluster.client.consumers import Cluster, read


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(request.node.name)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one.getMessage() for one in caplog.records if "UNKNOWN_TOPIC_OR_PARTITION" in one.getMessage()]
    caplog.clear()
    return found


@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_misspelt_topic_is_named_with_the_cluster(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, group_id: str | None
) -> None:
    with cluster.consumer("orderz", "orders", group_id=group_id) as consumer:
        consumer.poll()
        (warning,) = warnings(caplog)
        assert ": orderz;" in warning
        assert cluster.store.root in warning
        assert ("group g" in warning) == (group_id is not None)
        consumer.poll()
        assert warnings(caplog) == []
        cluster.admin.create_topic("orderz")
        cluster.write(0, b"v", topic="orderz")
        assert [record.value for record in read(consumer, 1)] == [b"v"]
        assert warnings(caplog) == []


def test_it_is_said_again_after_a_while(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    with Consumer("orderz", cluster=open_cluster(cluster.store, clock=clock)) as consumer:
        consumer.poll()
        assert len(warnings(caplog)) == 1
        clock.advance(REPEAT_SECONDS - 1)
        consumer.poll()
        assert warnings(caplog) == []
        clock.advance(1)
        consumer.poll()
        assert len(warnings(caplog)) == 1


def test_an_assigned_partition_that_is_not_there_is_named(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with cluster.consumer() as consumer:
        consumer.assign([TopicPartition("orders", 7), TopicPartition("orders", 0), TopicPartition("nope", 0)])
        consumer.poll()
        (warning,) = warnings(caplog)
        assert ": nope, orders-7;" in warning


def test_nothing_is_said_of_topics_that_are_there_or_of_patterns(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster.consumer("orders", "__consumer_offsets") as consumer, cluster.consumer() as other:
        consumer.poll()
        other.subscribe(pattern="nothing.*")
        other.poll()
    assert warnings(caplog) == []


def test_the_offsets_topic_is_nothing_that_a_group_could_read(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with cluster.consumer("__consumer_offsets", group_id="g") as consumer:
        consumer.poll()
    (said,) = [record.getMessage() for record in caplog.records]
    assert "no group has offsets in it" in said
    assert "creates" not in said
