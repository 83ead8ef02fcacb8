"""A consumer logs a warning about topics that do not exist, at most once per interval."""

from __future__ import annotations

import logging

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.unknown_topics import REPEAT_SECONDS
from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock
from sparklog.coordinator import open_cluster
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.topics import NewTopic
from sparklog.types import TopicPartition
from tests.cluster.client.consumers import Cluster, read


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster(request.node.name)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records if "UNKNOWN_TOPIC_OR_PARTITION" in record.getMessage()]
    caplog.clear()
    return messages


@pytest.mark.parametrize("group_id", [None, "g"])
def test_the_warning_names_the_misspelt_topic_and_the_cluster(
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


def test_the_warning_is_repeated_after_an_interval(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
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


def test_the_warning_names_missing_assigned_partitions(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with cluster.consumer() as consumer:
        consumer.assign([TopicPartition("orders", 7), TopicPartition("orders", 0), TopicPartition("nope", 0)])
        consumer.poll()
        (warning,) = warnings(caplog)
        assert ": nope, orders-7;" in warning


def test_existing_topics_and_patterns_cause_no_warning(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    with cluster.consumer("orders", "__consumer_offsets") as consumer, cluster.consumer() as other:
        consumer.poll()
        other.subscribe(pattern="nothing.*")
        other.poll()
    assert warnings(caplog) == []


def test_a_group_that_subscribes_to_the_offsets_topic_gets_a_warning(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with cluster.consumer("__consumer_offsets", group_id="g") as consumer:
        consumer.poll()
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "no group has offsets in it" in warning
    assert "creates" not in warning


def test_a_topic_that_a_send_creates_is_named_once_by_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster("a_topic_that_a_send_creates")
    with Producer(cluster=cluster.coordinator()) as producer:
        for _ in range(3):
            producer.send("ordres", b"v")
        producer.send("orders", b"v")
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert "topic 'ordres' did not exist and was created with 1 partition," in warnings[0]


def test_a_topic_that_a_write_creates_is_named_by_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = Cluster("a_topic_that_a_write_creates").coordinator()
    coordinator.append(
        AppendRequest(
            appends=[], new_topics=[NewTopic(name="ordres", topic_id=coordinator.log.ids.topic_id(), partitions=3)]
        )
    )
    assert "topic 'ordres' did not exist and was created with 3 partitions" in caplog.text
    caplog.clear()
    coordinator.append(
        AppendRequest(
            appends=[], new_topics=[NewTopic(name="ordres", topic_id=coordinator.log.ids.topic_id(), partitions=3)]
        )
    )
    assert caplog.text == ""
