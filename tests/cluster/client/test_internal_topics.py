"""Kafka's internal topics are refused at every entry point, because the rule is part of the protocol."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pyarrow as pa
import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import NewTopic
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import InvalidTopicError
from sparklog.protocol.commits import CreateTopic, Run
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.decide.topics import NewTopic as TopicRequest
from sparklog.protocol.decide.topics import create_partitions
from sparklog.protocol.names import INTERNAL_TOPICS
from sparklog.store.memory import MemoryStore
from sparklog.testing.records import Record, append_records

NAME = "__consumer_offsets"


@pytest.fixture(params=["absent", "real"])
def cluster(request: pytest.FixtureRequest) -> Coordinator:
    """A cluster without the topic, and one that created it before that was refused."""
    cluster = create_cluster(MemoryStore(uuid.uuid4().hex))
    if request.param == "real":
        new = CreateTopic(topic=NAME, topic_id=cluster.log.ids.topic_id(), replicas=[[0]], configs={})
        cluster.submit(lambda state: Decision([new], None))
    return open_cluster(cluster.store)


def send(cluster: Coordinator, topic: str) -> object:
    with Producer(cluster=cluster) as producer:
        return producer.send(topic, b"v").get(10)


def send_batch(cluster: Coordinator, topic: str) -> object:
    with Producer(cluster=cluster) as producer:
        return producer.send_batch(topic, pa.table({"value": [b"v"]})).get(10)


def send_in_transaction(cluster: Coordinator, topic: str) -> None:
    with Producer(cluster=cluster, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"v")
        producer.commit_transaction()


def append(cluster: Coordinator, topic: str) -> object:
    existing = cluster.state.topics.get(topic)
    run = Run(path="x", batches=1, records=1, size_bytes=1, min_timestamp_us=0, max_timestamp_us=0)
    item = PartitionAppend(topic=topic, topic_id=existing.topic_id if existing else "", partition=0, run=run)
    new = [TopicRequest(name=topic, topic_id=cluster.log.ids.topic_id())] if not existing else []
    return cluster.append(AppendRequest(appends=[item], new_topics=new))


@pytest.mark.parametrize(
    "entry",
    [
        send,
        send_batch,
        send_in_transaction,
        append,
        lambda cluster, topic: append_records(cluster, topic, [Record(value=b"v")]),
        lambda cluster, topic: cluster.create_topic(topic),
        lambda cluster, topic: cluster.submit(lambda state: create_partitions(state, topic, 3)),
        lambda cluster, topic: AdminClient(cluster=cluster).create_topics([NewTopic(topic)]),
        lambda cluster, topic: AdminClient(cluster=cluster).create_partitions({topic: 3}),
    ],
)
@pytest.mark.parametrize("topic", sorted(INTERNAL_TOPICS))
def test_an_internal_topic_is_refused_at_every_entry(
    cluster: Coordinator, entry: Callable[[Coordinator, str], object], topic: str
) -> None:
    with pytest.raises(InvalidTopicError, match="internal"):
        entry(cluster, topic)
    assert {name: topic.partitions[0].log_end_offset for name, topic in cluster.refresh().topics.items()} in (
        {},
        {NAME: 0},
    )
    with pytest.raises(InvalidTopicError, match="internal"):
        entry(cluster, topic)


def test_a_cluster_with_a_real_internal_topic_is_usable_and_can_delete_it(cluster: Coordinator) -> None:
    cluster.create_topic("t")
    send(cluster, "t")
    if NAME in cluster.state.topics:
        delete_topic(cluster, NAME)
    assert list(open_cluster(cluster.store).state.topics) == ["t"]
