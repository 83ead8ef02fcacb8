"""Stale offsets are not committed: those of a topic that was created again since, or of an earlier membership."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import CommitFailedError, IllegalGenerationError, UnknownMemberIdError
from sparklog.types import OffsetAndMetadata
from tests.cluster.client.consumers import Cluster, at, read, together, until, values

OLD, NEW = [b"old"] * 10, [b"new"] * 20


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    created = Cluster(request.node.name)
    created.admin.create_topic("out", 1)
    created.write(0, *OLD)
    return created


def create_again(cluster: Cluster) -> None:
    delete_topic(cluster.admin, "orders")
    cluster.admin.create_topic("orders", 2)
    cluster.write(0, *NEW)


@contextmanager
def assigned(cluster: Cluster, **configs: Any) -> Iterator[Consumer]:
    with cluster.consumer(group_id="g", **{"enable_auto_commit": False, **configs}) as consumer:
        consumer.assign([at(0)])
        yield consumer


def read_by_the_group(cluster: Cluster, count: int) -> list[Any]:
    with assigned(cluster) as consumer:
        return values(read(consumer, count))


@contextmanager
def transaction(cluster: Cluster) -> Iterator[Producer]:
    with Producer(cluster=cluster.coordinator(), transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("out", b"result")
        yield producer


def results(cluster: Cluster) -> int:
    return cluster.admin.refresh().partition("out", 0).high_watermark


@pytest.mark.parametrize("last", ["close", "commit", "commit of an offset"])
def test_a_consumer_with_assigned_partitions_commits_no_offset_of_the_former_topic(cluster: Cluster, last: str) -> None:
    with assigned(cluster, enable_auto_commit=last == "close") as consumer:
        assert len(read(consumer, len(OLD))) == len(OLD)
        create_again(cluster)
        if last == "commit":
            with suppress(CommitFailedError):  # unless the consumer has read already that the topic is another
                consumer.commit()
        if last == "commit of an offset":
            with pytest.raises(CommitFailedError, match="the topic was deleted and created again"):
                consumer.commit({at(0): OffsetAndMetadata(len(OLD))})
    assert read_by_the_group(cluster, len(NEW)) == NEW


def test_a_position_that_was_found_but_not_read_from_is_one_of_its_topic(cluster: Cluster) -> None:
    with assigned(cluster, auto_offset_reset="latest", enable_auto_commit=True) as consumer:
        assert consumer.position(at(0)) == len(OLD)
        create_again(cluster)
    assert read_by_the_group(cluster, len(NEW)) == NEW


def test_a_consumer_goes_on_with_the_new_topic_and_commits_its_offsets(cluster: Cluster) -> None:
    with assigned(cluster) as consumer:
        read(consumer, len(OLD))
        create_again(cluster)
        assert values(read(consumer, len(NEW))) == NEW
        consumer.commit()
    assert cluster.admin.refresh().committed("g", "orders", 0).offset == len(NEW)  # type: ignore[union-attr]


@pytest.mark.parametrize("copied", [False, True])
def test_a_transaction_commits_no_offset_of_the_former_topic(cluster: Cluster, copied: bool) -> None:
    with assigned(cluster) as consumer, transaction(cluster) as producer:
        read(consumer, len(OLD))
        metadata = consumer.group_metadata()
        create_again(cluster)
        metadata = pickle.loads(pickle.dumps(metadata)) if copied else metadata
        producer.send_offsets_to_transaction({at(0): OffsetAndMetadata(len(OLD))}, metadata)
        with pytest.raises(CommitFailedError, match="the topic was deleted and created again"):
            producer.commit_transaction()
        producer.abort_transaction()
    assert results(cluster) == 0
    assert read_by_the_group(cluster, len(NEW)) == NEW


def test_offsets_of_an_open_transaction_stay_those_of_the_former_topic(cluster: Cluster) -> None:
    with assigned(cluster) as consumer, transaction(cluster) as producer:
        read(consumer, len(OLD))
        producer.send_offsets_to_transaction({at(0): OffsetAndMetadata(len(OLD))}, consumer.group_metadata())
        create_again(cluster)
        read(consumer, len(NEW))
        producer.send_offsets_to_transaction({at(1): OffsetAndMetadata(0)}, consumer.group_metadata())
        with pytest.raises(CommitFailedError, match="the topic was deleted and created again"):
            producer.commit_transaction()
        producer.abort_transaction()
    assert read_by_the_group(cluster, len(NEW)) == NEW


def test_a_consumer_that_has_left_its_group_is_fenced_in_a_transaction(cluster: Cluster) -> None:
    configs: dict[str, Any] = {"group_id": "g", "max_poll_interval_ms": 100, "heartbeat_interval_ms": 20}
    with cluster.consumer("orders", **configs) as slow, transaction(cluster) as producer:
        read(slow, len(OLD))
        membership = slow.group_metadata()
        until(lambda: not cluster.admin.refresh().groups["g"].members)  # it polls too late
        with cluster.consumer("orders", group_id="g") as other:
            read(other, len(OLD))
            other.commit()
        assert slow.group_metadata()[:3] == membership[:3]
        producer.send_offsets_to_transaction({at(0): OffsetAndMetadata(5)}, slow.group_metadata())
        with pytest.raises(UnknownMemberIdError):
            producer.commit_transaction()
        producer.abort_transaction()
    assert results(cluster) == 0
    assert cluster.admin.refresh().committed("g", "orders", 0).offset == len(OLD)  # type: ignore[union-attr]


def test_a_consumer_that_has_unsubscribed_is_a_program_without_membership(cluster: Cluster) -> None:
    with cluster.consumer("orders", group_id="g") as consumer, transaction(cluster) as producer:
        read(consumer, len(OLD))
        consumer.unsubscribe()
        consumer.assign([at(0)])
        producer.send_offsets_to_transaction({at(0): OffsetAndMetadata(len(OLD))}, consumer.group_metadata())
        producer.commit_transaction()
    assert results(cluster) == 1


def test_offsets_added_before_a_rebalance_are_not_committed_with_those_after_it(cluster: Cluster) -> None:
    with cluster.consumer("orders", group_id="g") as first, transaction(cluster) as producer:
        read(first, len(OLD))
        producer.send_offsets_to_transaction({at(0): OffsetAndMetadata(len(OLD))}, first.group_metadata())
        with cluster.consumer("orders", group_id="g") as second:
            until(lambda: len(second.assignment()) == 1, together(first, second))
        until(lambda: len(first.assignment()) == 2, together(first))
        producer.send_offsets_to_transaction({at(1): OffsetAndMetadata(0)}, first.group_metadata())
        with pytest.raises(IllegalGenerationError):
            producer.commit_transaction()
        producer.abort_transaction()
    assert results(cluster) == 0
