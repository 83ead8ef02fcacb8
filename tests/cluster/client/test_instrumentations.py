"""Instrumentations for kafka-python wrap methods and read private attributes; both work here."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.records import ConsumerRecord
from sparklog.client.producer.producer import Producer
from sparklog.errors import IllegalStateError
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.cluster.client.consumers import Cluster, at, together, until


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(uuid.uuid4().hex)


@pytest.fixture
def wrapped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """``Consumer.__next__`` in a wrapper that records the offsets."""
    original, seen = Consumer.__next__, []

    def traced(consumer: Consumer) -> ConsumerRecord:
        record = original(consumer)
        seen.append(record.offset)
        return record

    monkeypatch.setattr(Consumer, "__next__", traced)
    return seen


def test_a_loop_calls_a_wrapped_next(cluster: Cluster, wrapped: list[int]) -> None:
    cluster.write(0, b"a", b"b", b"c")
    with cluster.consumer("orders", consumer_timeout_ms=500) as consumer:
        assert [record.value for record in consumer] == [b"a", b"b", b"c"]
    assert wrapped == [0, 1, 2]


def test_a_loop_calls_next_of_a_subclass(cluster: Cluster) -> None:
    class Upper(Consumer):
        def __next__(self) -> Any:
            return super().__next__().value.upper()

    cluster.write(0, b"a")
    arguments: dict[str, Any] = {"auto_offset_reset": "earliest", "consumer_timeout_ms": 500}
    with Upper("orders", cluster=cluster.coordinator(), **arguments) as consumer:
        assert list[Any](consumer) == [b"A"]


def test_the_partition_of_a_record_is_known_before_it_is_committed(cluster: Cluster) -> None:
    with Producer(cluster=cluster.coordinator(), linger_ms=60_000) as producer:
        future = producer.send("orders", b"v", partition=1)
        produced: Any = future._produce_future
        assert produced.topic_partition == TopicPartition("orders", 1)
        assert not future.is_done


def test_a_producer_has_no_controller_and_a_consumer_has_its_topics(cluster: Cluster) -> None:
    with Producer(cluster=cluster.coordinator()) as producer, cluster.consumer("orders") as consumer:
        assert producer._metadata.controller is None
        assert consumer._subscription.subscription == {"orders"}
    with cluster.consumer() as consumer:
        assert consumer._subscription.subscription is None


class RecordingListener:
    """A listener whose methods are coroutines."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", revoked))

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append(("assigned", assigned))


def test_coroutines_of_a_listener_have_finished_when_poll_returns(cluster: Cluster) -> None:
    listener = RecordingListener()
    with cluster.consumer(group_id="g") as consumer:
        consumer.subscribe(["orders"], listener=listener)
        until(lambda: listener.calls, together(consumer))
        assert listener.calls == [("assigned", {at(0), at(1)})]
    assert listener.calls[1:] == [("revoked", {at(0), at(1)})]


def test_coroutines_of_a_listener_run_within_a_running_event_loop(cluster: Cluster) -> None:
    import asyncio

    listener = RecordingListener()

    async def program() -> None:
        with cluster.consumer(group_id="g") as consumer:
            consumer.subscribe(["orders"], listener=listener)
            until(lambda: listener.calls, together(consumer))

    asyncio.run(program())
    assert [name for name, _ in listener.calls] == ["assigned", "revoked"]


def test_a_coroutine_of_a_listener_commits_within_a_running_event_loop(cluster: Cluster) -> None:
    import asyncio

    class Committing(RecordingListener):
        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            consumer.commit({at(0): OffsetAndMetadata(1)})
            await super().on_partitions_revoked(revoked)

    listener = Committing()
    cluster.write(0, b"a")
    consumer = Consumer(cluster=cluster.coordinator(), group_id="g", enable_auto_commit=False)

    async def program() -> None:
        consumer.subscribe(["orders"], listener=listener)
        until(lambda: listener.calls, together(consumer))
        consumer.close()

    asyncio.run(program())
    assert [name for name, _ in listener.calls] == ["assigned", "revoked"]
    assert cluster.admin.refresh().committed("g", "orders", 0).offset == 1  # type: ignore[union-attr]


def test_a_coroutine_of_a_listener_closes_the_consumer_within_a_running_event_loop(cluster: Cluster) -> None:
    import asyncio

    class Closing(RecordingListener):
        async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
            await super().on_partitions_assigned(assigned)
            consumer.close()

        async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
            await super().on_partitions_revoked(revoked)
            consumer.close()  # once more, while it is being closed

    listener = Closing()
    consumer = Consumer(cluster=cluster.coordinator(), group_id="g")

    async def program() -> None:
        consumer.subscribe(["orders"], listener=listener)
        with pytest.raises(IllegalStateError, match="closed"):
            until(lambda: False, together(consumer))

    program_thread = threading.Thread(target=asyncio.run, args=(program(),), daemon=True)
    program_thread.start()
    program_thread.join(60)
    assert not program_thread.is_alive()
    assert [name for name, _ in listener.calls] == ["assigned", "revoked"]
