"""Clusters, records and consumers for the tests of ``Consumer``. Real threads, bounded waits, no sleeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.records import ConsumerRecord
from sparklog.clock import SystemClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore
from sparklog.testing.records import Record, append_records
from sparklog.types import TopicPartition

WAIT_SECONDS = 20.0
"""How long a test waits for a condition before it fails."""


class Cluster:
    """A cluster in memory, with a separate coordinator for each consumer, as in separate processes."""

    def __init__(self, name: str, partitions: int = 2, store: Store | None = None) -> None:
        self.store = store or MemoryStore(name)
        self.admin = create_cluster(self.store)
        self.admin.create_topic("orders", partitions)

    def coordinator(self) -> Coordinator:
        return open_cluster(self.store)

    def write(self, partition: int, *values: bytes | None, topic: str = "orders", **more: Any) -> None:
        records = [Record(value=value, partition=partition, **more) for value in values]
        append_records(self.admin, topic, records)

    @contextmanager
    def consumer(self, *topics: str, **configs: Any) -> Iterator[Consumer]:
        configs = {"auto_offset_reset": "earliest", "tail_backoff_max_ms": 5, "heartbeat_interval_ms": 200, **configs}
        with Consumer(*topics, cluster=self.coordinator(), **configs) as consumer:
            yield consumer


def at(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, partition)


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Poll until ``count`` records have arrived; return them in order."""
    records: list[ConsumerRecord] = []
    until(lambda: len(records) >= count, lambda: records.extend(flat(consumer.poll(50))))
    return records


def flat(polled: dict[TopicPartition, list[ConsumerRecord]]) -> list[ConsumerRecord]:
    return [record for records in polled.values() for record in records]


def values(records: Sequence[ConsumerRecord]) -> list[Any]:
    return [record.value for record in records]


def until(done: Callable[[], object], step: Callable[[], object] = lambda: None) -> None:
    """Repeat ``step`` until ``done`` returns true; fail after a timeout."""
    clock = SystemClock()
    deadline = clock.monotonic() + WAIT_SECONDS
    while not done():
        assert clock.monotonic() < deadline, "timed out"
        step()


def together(*consumers: Consumer) -> Callable[[], object]:
    """A step that polls every consumer."""
    return lambda: [consumer.poll(5) for consumer in consumers]
