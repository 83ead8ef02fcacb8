"""Programs that run while a storage location is lost: a producer that records what was acknowledged, a consumer that
keeps what it read, and the final check."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import SystemClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.controller import Controller
from sparklog.errors import SparklogError
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.types import TopicPartition

TOPIC = "orders"
WAIT_SECONDS = 60.0


class Scene:
    """A cluster whose topic has two partitions on brokers 1 and 2, one led by each, with a producer and a
    consumer. Each has its own coordinator, as in separate processes.

    """

    def __init__(
        self, root: str, locations: Sequence[str], storage_options: Mapping[str, object] | None = None
    ) -> None:
        self.root, self.options = root, storage_options
        self.cluster = create_cluster(root, storage_options)
        for location in locations:
            add_broker(self.cluster, location)
        self.cluster.create_topic(TOPIC, assignment=[[1, 2], [2, 1]])
        self.controller = Controller(self.cluster)
        self.controller.check()
        self.acknowledged: dict[int, list[bytes]] = {0: [], 1: []}
        self.read: dict[int, list[bytes]] = {0: [], 1: []}
        self.failures: list[BaseException] = []
        self.refused: list[BaseException] = []
        self._stop = threading.Event()
        self._producing = True
        self._clock = SystemClock()

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=self._guard, args=(work,)) for work in (self._produce, self._consume)]
        for thread in threads:
            thread.start()
        try:
            yield
            self.more_acknowledged()
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(WAIT_SECONDS)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.failures.append(error)
            self._stop.set()

    def _produce(self) -> None:
        try:
            self._send_until_stopped()
        finally:
            self._producing = False

    def _send_until_stopped(self) -> None:
        with Producer(cluster=open_cluster(self.root, self.options), acks="all", linger_ms=0) as producer:
            number = 0
            while not self._stop.is_set():
                partition, value = number % 2, b"%d" % number
                try:
                    producer.send(TOPIC, value, partition=partition).get(30)
                except SparklogError as error:
                    self.refused.append(error)
                    self._stop.wait(0.05)
                else:
                    self.acknowledged[partition].append(value)
                number += 1

    def _consume(self) -> None:
        with Consumer(cluster=open_cluster(self.root, self.options)) as consumer:
            partitions = [TopicPartition(TOPIC, number) for number in (0, 1)]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            while True:
                done = self._stop.is_set() and not self._producing
                for partition, records in consumer.poll(50).items():
                    self.read[partition.partition] += [record.value for record in records]
                ends = consumer.end_offsets(partitions)
                if done and all(consumer.position(partition) == end for partition, end in ends.items()):
                    return

    def until(self, holds: Callable[[], bool], what: str) -> float:
        """Wait until ``holds`` returns true; return the seconds it took."""
        start = self._clock.monotonic()
        while not holds():
            assert not self.failures, f"waiting for {what}: {self.failures!r}"
            assert self._clock.monotonic() - start < WAIT_SECONDS, (
                f"no {what} within {WAIT_SECONDS} s; refused: {self.refused[-3:]}"
            )
            self._clock.sleep(0.01)
        return self._clock.monotonic() - start

    def more_acknowledged(self, count: int = 10) -> float:
        """Wait until that many more records of each partition are acknowledged."""
        wanted = {number: len(values) + count for number, values in self.acknowledged.items()}
        return self.until(
            lambda: all(len(self.acknowledged[number]) >= least for number, least in wanted.items()),
            "acknowledged records",
        )

    def more_read(self, count: int = 10) -> float:
        wanted = {number: len(values) + count for number, values in self.read.items()}
        return self.until(lambda: all(len(self.read[number]) >= least for number, least in wanted.items()), "records")

    def in_sync(self) -> list[tuple[int, ...]]:
        return [partition.isr for partition in self.cluster.refresh().topic(TOPIC).partitions]

    def leaders(self) -> list[int]:
        return [partition.leader for partition in self.cluster.refresh().topic(TOPIC).partitions]

    def catch_up(self) -> None:
        """Run what the maintenance loop runs until every replica is in sync."""

        def all_in_sync() -> bool:
            self.controller.check()
            replicate(self.cluster, InProcess())
            return all(set(isr) == {1, 2} for isr in self.in_sync())

        self.until(all_in_sync, "replicas in sync")

    def check_nothing_lost(self) -> None:
        """Check that every acknowledged record is stored once and in order, and was read."""
        assert self.failures == []
        assert not self.refused, self.refused[:3]
        for number in (0, 1):
            stored = self.stored(number)
            assert self.read[number] == stored
            kept = [value for value in stored if value in set(self.acknowledged[number])]
            assert kept == self.acknowledged[number]

    def stored(self, number: int) -> list[bytes | None]:
        """Return the records of a partition, from any replica."""
        cluster: Coordinator = open_cluster(self.root, self.options)
        state = cluster.refresh()
        partition = state.partition(TOPIC, number)
        with LogReader(cluster) as reader:
            records = reader.records(TOPIC, number, partition.log_start_offset, partition.log_end_offset, state)
            return [record.value for record in records]
