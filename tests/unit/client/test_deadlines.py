"""Calls of the clients return in time when the storage never answers: each call below waits on a blocked request."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sparklog.client.admin import AdminClient
from sparklog.client.admin_types import ConfigResource, NewTopic
from sparklog.client.consumer import Consumer
from sparklog.client.producer import Producer
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import KafkaTimeoutError
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.types import OffsetAndMetadata, TopicPartition

PATIENCE_SECONDS = 20
"""How long a call that has a tenth of a second may take on a busy machine before it counts as one that hangs."""

PLACE = TopicPartition("t", 0)


class Blocked:
    """A cluster whose storage answers until ``block``, and then no call until ``unblock``."""

    def __init__(self) -> None:
        self._answers = threading.Event()
        self._answers.set()
        store = MemoryStore(uuid.uuid4().hex)
        create_cluster(store).create_topic("t")
        self.store = FaultyStore(store, before=self._wait)
        self.coordinator: Coordinator = open_cluster(self.store)

    def _wait(self, step: int, call: Call) -> None:
        self._answers.wait()

    def block(self) -> None:
        self._answers.clear()

    def unblock(self) -> None:
        self._answers.set()


@pytest.fixture
def blocked() -> Iterator[Blocked]:
    cluster = Blocked()
    yield cluster
    cluster.unblock()


def in_time(action: Callable[[], Any]) -> Any:
    """What it returns or raises. Fails where it hangs."""
    threads = ThreadPoolExecutor(1)
    try:
        return threads.submit(action).result(PATIENCE_SECONDS)
    finally:
        threads.shutdown(wait=False)


PRODUCER_CALLS: list[Callable[[Producer], Any]] = [
    lambda producer: producer.send("other", b"v"),
    lambda producer: producer.partitions_for("other"),
    lambda producer: (producer.send("t", b"v"), producer.flush(0.1)),
    lambda producer: producer.send("t", b"v").get(0.1),
]


@pytest.mark.parametrize("call", PRODUCER_CALLS)
def test_a_producers_call_ends_in_time(blocked: Blocked, call: Callable[[Producer], Any]) -> None:
    producer = Producer(cluster=blocked.coordinator, max_block_ms=100)
    producer.send("t", b"v").get(PATIENCE_SECONDS)
    blocked.block()
    try:
        with pytest.raises(KafkaTimeoutError):
            in_time(lambda: call(producer))
        in_time(lambda: producer.close(0.1))
    finally:
        blocked.unblock()


def test_old_metadata_are_not_waited_for_longer_than_max_block(blocked: Blocked) -> None:
    producer = Producer(cluster=blocked.coordinator, max_block_ms=100, metadata_max_age_ms=0, batch_size=1)
    producer.send("t", b"v").get(PATIENCE_SECONDS)
    blocked.block()
    try:
        with pytest.raises(KafkaTimeoutError):
            in_time(lambda: producer.send("t", b"v"))
        in_time(lambda: producer.close(0))
    finally:
        blocked.unblock()


def test_a_transaction_is_flushed_and_closed_in_time(blocked: Blocked) -> None:
    producer = Producer(cluster=blocked.coordinator, max_block_ms=100, transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("t", b"v")
    blocked.block()
    try:
        with pytest.raises(KafkaTimeoutError):
            in_time(lambda: producer.flush(0.1))
        in_time(lambda: producer.close(0.1))
    finally:
        blocked.unblock()
    with pytest.raises(KafkaTimeoutError):
        future.get(PATIENCE_SECONDS)


CONSUMER_CALLS: list[Callable[[Consumer], Any]] = [
    lambda consumer: consumer.commit({PLACE: OffsetAndMetadata(1)}, timeout_ms=100),
    lambda consumer: consumer.committed(PLACE, timeout_ms=100),
    lambda consumer: consumer.beginning_offsets([PLACE], timeout_ms=100),
    lambda consumer: consumer.end_offsets([PLACE], timeout_ms=100),
    lambda consumer: consumer.offsets_for_times({PLACE: 0}, timeout_ms=100),
    lambda consumer: consumer.topics(timeout_ms=100),
    lambda consumer: consumer.partitions_for_topic("t", timeout_ms=100),
    lambda consumer: (consumer.seek_to_end(PLACE), consumer.position(PLACE, timeout_ms=100)),
]


@pytest.mark.parametrize("subscribed", [False, True])
@pytest.mark.parametrize("call", CONSUMER_CALLS)
def test_a_consumers_call_ends_in_time(blocked: Blocked, call: Callable[[Consumer], Any], subscribed: bool) -> None:
    consumer = Consumer(cluster=blocked.coordinator, group_id="g", default_api_timeout_ms=100)
    if subscribed:
        consumer.subscribe(["t"])
        while not consumer.assignment():
            consumer.poll(10)
    else:
        consumer.assign([PLACE])
        consumer.poll()
    blocked.block()
    try:
        with pytest.raises(KafkaTimeoutError):
            in_time(lambda: call(consumer))
        in_time(lambda: consumer.close(timeout_ms=100))
    finally:
        blocked.unblock()


@pytest.mark.parametrize("assigned", [False, True])
def test_a_poll_without_a_group_ends_in_time(blocked: Blocked, assigned: bool) -> None:
    consumer = Consumer(cluster=blocked.coordinator)
    if assigned:
        consumer.assign([PLACE])
    else:
        consumer.subscribe(["t"])
    blocked.block()
    try:
        assert in_time(lambda: consumer.poll(100)) == {}
        assert in_time(lambda: consumer.poll(100)) == {}
        in_time(lambda: consumer.close(timeout_ms=100))
    finally:
        blocked.unblock()


def test_a_poll_in_a_group_that_has_nothing_to_do_but_read_ends_in_time(blocked: Blocked) -> None:
    consumer = Consumer("t", cluster=blocked.coordinator, group_id="g")
    while not consumer.assignment():
        consumer.poll(10)
    consumer.poll(10)
    blocked.block()
    try:
        assert in_time(lambda: consumer.poll(100)) == {}
        in_time(lambda: consumer.close(timeout_ms=100))
    finally:
        blocked.unblock()


def test_who_gives_up_again_and_again_makes_no_crowd_of_threads(blocked: Blocked) -> None:
    consumer = Consumer(cluster=blocked.coordinator)
    consumer.assign([PLACE])
    blocked.block()
    before = threading.active_count()
    try:
        for _ in range(5):
            with pytest.raises(KafkaTimeoutError):
                consumer.topics(timeout_ms=1)
        assert threading.active_count() <= before + 1
    finally:
        blocked.unblock()
    assert consumer.topics() == {"t"}
    consumer.close()


ADMIN_CALLS: list[Callable[[AdminClient], Any]] = [
    lambda admin: admin.list_topics(),
    lambda admin: admin.create_topics([NewTopic("other", 1, 1)]),
    lambda admin: admin.delete_topics(["t"]),
    lambda admin: admin.describe_configs([ConfigResource("topic", "t")]),
    lambda admin: admin.list_groups(),
    lambda admin: admin.list_consumer_groups(),
    lambda admin: admin.alter_group_offsets("g", {PLACE: OffsetAndMetadata(0)}),
    lambda admin: admin.describe_cluster(),
    lambda admin: admin.list_transactions(),
    lambda admin: admin.describe_log_dirs(),
]


@pytest.mark.parametrize("call", ADMIN_CALLS)
def test_an_admin_clients_call_ends_in_time(blocked: Blocked, call: Callable[[AdminClient], Any]) -> None:
    admin = AdminClient(cluster=blocked.coordinator, request_timeout_ms=100)
    blocked.block()
    try:
        with pytest.raises(KafkaTimeoutError, match=r"AdminClient\.\w+\(\) had no answer"):
            in_time(lambda: call(admin))
    finally:
        blocked.unblock()


def test_a_timeout_of_an_admin_clients_call_comes_before_that_of_the_client(blocked: Blocked) -> None:
    admin = AdminClient(cluster=blocked.coordinator, request_timeout_ms=10**9)
    blocked.block()
    try:
        with pytest.raises(KafkaTimeoutError):
            in_time(lambda: admin.create_partitions({"t": 2}, timeout_ms=100))
    finally:
        blocked.unblock()


def test_a_consumer_unsubscribes_in_time_and_is_of_use_afterwards(blocked: Blocked) -> None:
    consumer = Consumer("t", cluster=blocked.coordinator, group_id="g", request_timeout_ms=100, fetch_max_wait_ms=10)
    while not consumer.assignment():
        consumer.poll(10)
    blocked.block()
    try:
        in_time(consumer.unsubscribe)
        assert consumer.assignment() == set()
    finally:
        blocked.unblock()
    consumer.subscribe(["t"])
    while not consumer.assignment():
        consumer.poll(10)
    consumer.close()


def test_a_call_after_one_that_timed_out_is_answered_with_what_there_is_by_then(blocked: Blocked) -> None:
    with Consumer(cluster=blocked.coordinator, group_id="g") as consumer:
        blocked.block()
        with pytest.raises(KafkaTimeoutError):
            consumer.committed(PLACE, timeout_ms=10)
        blocked.unblock()
        for thread in threading.enumerate():
            if thread.name == "sparklog-call":  # the one that nobody waits for any more
                thread.join(PATIENCE_SECONDS)
        with Consumer(cluster=open_cluster(blocked.store), group_id="g") as other:
            other.assign([PLACE])
            other.commit({PLACE: OffsetAndMetadata(7)})
        assert consumer.committed(PLACE) == 7
