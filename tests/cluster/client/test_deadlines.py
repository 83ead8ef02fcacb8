"""Client calls end by their deadlines while the storage does not answer: each call below waits on a blocked request."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import ConfigResource, NewTopic
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.subscription_state import ConsumerRebalanceListener
from sparklog.client.deadlines import InOrder
from sparklog.client.producer.producer import Producer
from sparklog.clock import Clock, ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import InvalidSessionTimeoutError, KafkaTimeoutError
from sparklog.log.layout import BOUNDARY_KEY
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from sparklog.testing.records import Record, append_records
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.cluster.client.consumers import read, together, until

TIMEOUT_SECONDS = 20
"""How long a call with a timeout of 0.1 s may take on a busy machine before it counts as hung."""

PARTITION = TopicPartition("t", 0)


class Blocked:
    """A cluster whose storage blocks every call, or those that match, between ``block`` and ``unblock``."""

    def __init__(self, partitions: int = 1, clock: Clock | None = None) -> None:
        self._answers = threading.Event()
        self._answers.set()
        self._blocks: Callable[[Call], bool] = _every
        self.call_blocked = threading.Event()
        """Set once a call has been blocked."""
        store = MemoryStore(uuid.uuid4().hex)
        self.admin = create_cluster(store, clock=clock)
        self.admin.create_topic("t", partitions)
        self.store = FaultyStore(store, before=self._wait)
        self.coordinator: Coordinator = open_cluster(self.store, clock=clock)

    def _wait(self, step: int, call: Call) -> None:
        if not self._answers.is_set() and self._blocks(call):
            self.call_blocked.set()
            self._answers.wait()

    def block(self, calls: Callable[[Call], bool] | None = None) -> None:
        self._blocks = calls or _every
        self.call_blocked.clear()
        self._answers.clear()

    def unblock(self) -> None:
        self._answers.set()


def _every(call: Call) -> bool:
    return True


def _commits(call: Call) -> bool:
    return call.operation == "put_if_absent"


def _records(call: Call) -> bool:
    """Calls to segment files."""
    return call.key.endswith((".log", ".index"))


@pytest.fixture
def blocked() -> Iterator[Blocked]:
    cluster = Blocked()
    yield cluster
    cluster.unblock()


@pytest.fixture
def two_partitions() -> Iterator[Blocked]:
    """With a topic of two partitions, one for each of two members."""
    cluster = Blocked(partitions=2)
    yield cluster
    cluster.unblock()


def in_time(action: Callable[[], Any]) -> Any:
    """Return the result of ``action`` or raise its error; fail if it hangs."""
    threads = ThreadPoolExecutor(1)
    try:
        return threads.submit(action).result(TIMEOUT_SECONDS)
    finally:
        threads.shutdown(wait=False)


@contextmanager
def consumer_of(cluster: Blocked, *topics: str, **configs: Any) -> Iterator[Consumer]:
    """A consumer that is closed after the storage is unblocked, so that a failing test ends."""
    consumer = Consumer(*topics, cluster=cluster.coordinator, **configs)
    try:
        yield consumer
    finally:
        cluster.unblock()
        consumer.close()


PRODUCER_CALLS: list[Callable[[Producer], Any]] = [
    lambda producer: producer.send("other", b"v"),
    lambda producer: producer.partitions_for("other"),
    lambda producer: (producer.send("t", b"v"), producer.flush(0.1)),
    lambda producer: producer.send("t", b"v").get(0.1),
]


@pytest.mark.parametrize("call", PRODUCER_CALLS)
def test_a_producers_call_ends_in_time(blocked: Blocked, call: Callable[[Producer], Any]) -> None:
    producer = Producer(cluster=blocked.coordinator, max_block_ms=100)
    producer.send("t", b"v").get(TIMEOUT_SECONDS)
    blocked.block()
    try:
        with pytest.raises(KafkaTimeoutError):
            in_time(lambda: call(producer))
        in_time(lambda: producer.close(0.1))
    finally:
        blocked.unblock()


def test_refreshing_old_metadata_waits_no_longer_than_max_block_ms(blocked: Blocked) -> None:
    producer = Producer(cluster=blocked.coordinator, max_block_ms=100, metadata_max_age_ms=0, batch_size=1)
    producer.send("t", b"v").get(TIMEOUT_SECONDS)
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
        future.get(TIMEOUT_SECONDS)


CONSUMER_CALLS: list[Callable[[Consumer], Any]] = [
    lambda consumer: consumer.commit({PARTITION: OffsetAndMetadata(1)}, timeout_ms=100),
    lambda consumer: consumer.committed(PARTITION, timeout_ms=100),
    lambda consumer: consumer.beginning_offsets([PARTITION], timeout_ms=100),
    lambda consumer: consumer.end_offsets([PARTITION], timeout_ms=100),
    lambda consumer: consumer.offsets_for_times({PARTITION: 0}, timeout_ms=100),
    lambda consumer: consumer.topics(timeout_ms=100),
    lambda consumer: consumer.partitions_for_topic("t", timeout_ms=100),
    lambda consumer: (consumer.seek_to_end(PARTITION), consumer.position(PARTITION, timeout_ms=100)),
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
        consumer.assign([PARTITION])
        consumer.poll()
    blocked.block()
    try:
        with pytest.raises(KafkaTimeoutError):
            in_time(lambda: call(consumer))
        in_time(lambda: consumer.close(timeout_ms=100))
    finally:
        blocked.unblock()


def test_all_that_closing_a_member_waits_for_has_one_time_limit(blocked: Blocked) -> None:
    """Each part had the whole limit: the last commit, the heartbeats, leaving, and two threads that read."""
    consumer = Consumer("t", cluster=blocked.coordinator, group_id="g", auto_offset_reset="earliest")
    while not consumer.assignment():
        consumer.poll(10)
    blocked.block()
    closing = threading.Thread(target=consumer.close, kwargs={"timeout_ms": 3_000}, daemon=True)
    try:
        closing.start()
        closing.join(3 * 3.0)
        assert not closing.is_alive()
    finally:
        blocked.unblock()


@pytest.mark.parametrize("assigned", [False, True])
def test_a_poll_without_a_group_ends_in_time(blocked: Blocked, assigned: bool) -> None:
    consumer = Consumer(cluster=blocked.coordinator)
    if assigned:
        consumer.assign([PARTITION])
    else:
        consumer.subscribe(["t"])
    blocked.block()
    try:
        assert in_time(lambda: consumer.poll(100)) == {}
        assert in_time(lambda: consumer.poll(100)) == {}
        in_time(lambda: consumer.close(timeout_ms=100))
    finally:
        blocked.unblock()


def test_a_poll_in_a_stable_group_ends_in_time(blocked: Blocked) -> None:
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


# -- in a group


class RecordingListener(ConsumerRebalanceListener):
    """Records its calls, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", revoked))

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append(("assigned", assigned))


def test_a_poll_that_joins_ends_in_time_and_the_next_one_continues_the_join(blocked: Blocked) -> None:
    listener = RecordingListener()
    with consumer_of(blocked, group_id="g") as consumer:
        consumer.subscribe(["t"], listener=listener)
        blocked.block()
        for _ in range(3):
            assert in_time(lambda: consumer.poll(100)) == {}
        assert listener.calls == []
        blocked.unblock()
        until(lambda: consumer.assignment() == {PARTITION}, lambda: consumer.poll(10))
        assert listener.calls == [("assigned", {PARTITION})]
        assert consumer.group_metadata().generation_id == 1  # it has joined once
        assert len(blocked.admin.refresh().groups["g"].members) == 1


def test_a_join_that_takes_longer_than_a_poll_completes(blocked: Blocked) -> None:
    tries: list[Call] = []
    with consumer_of(blocked, "t", group_id="g") as consumer:
        blocked.block(lambda call: _commits(call) and not tries.append(call))
        assert in_time(consumer.poll) == {}
        assert blocked.call_blocked.is_set()
        assert in_time(consumer.poll) == {}
        assert len(tries) == 1
        blocked.unblock()
        until(consumer.assignment, consumer.poll)


def test_the_error_of_a_join_is_raised_by_the_poll_after_it(blocked: Blocked) -> None:
    with consumer_of(blocked, "t", group_id="g", session_timeout_ms=4000) as consumer:
        blocked.block()
        assert in_time(consumer.poll) == {}
        blocked.unblock()
        with pytest.raises(InvalidSessionTimeoutError):
            until(consumer.assignment, consumer.poll)


def test_a_consumer_that_unsubscribes_while_joining_leaves_the_group(blocked: Blocked) -> None:
    consumer = Consumer("t", cluster=blocked.coordinator, group_id="g", request_timeout_ms=100, fetch_max_wait_ms=10)
    blocked.block(_commits)
    assert in_time(consumer.poll) == {}
    assert blocked.call_blocked.is_set()
    in_time(consumer.unsubscribe)
    assert not blocked.admin.refresh().groups
    blocked.unblock()
    until(lambda: blocked.admin.refresh().groups and not blocked.admin.state.groups["g"].members)
    consumer.subscribe(["t"])
    until(consumer.assignment, consumer.poll)
    consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_poll_in_a_rebalance_ends_in_time_and_the_next_one_continues_it(
    two_partitions: Blocked, strategy: str
) -> None:
    listener = RecordingListener()
    settings: Any = {"group_id": "g", "partition_assignment_strategy": strategy, "auto_offset_reset": "earliest"}
    append_records(two_partitions.admin, "t", [Record(value=b"v", partition=number) for number in (0, 1)])
    second = Consumer("t", cluster=open_cluster(two_partitions.store), **settings)
    with second, consumer_of(two_partitions, **settings) as first:
        first.subscribe(["t"], listener=listener)
        assert len(read(first, 2)) == 2
        second.poll()
        two_partitions.block(_commits)
        until(lambda: len(listener.calls) > 1, lambda: in_time(lambda: first.poll(10)))
        assert in_time(lambda: first.poll(100)) == {}
        two_partitions.unblock()
        until(lambda: len(first.assignment()) == len(second.assignment()) == 1, together(first, second))
        assert first.assignment() | second.assignment() == {PARTITION, TopicPartition("t", 1)}
        assert [what for what, partitions in listener.calls if partitions][:2] == ["assigned", "revoked"]
        assert sum(what == "revoked" for what, _ in listener.calls) == 1
        moved = next(iter(second.assignment()))
        assert second.committed(moved) == 1


def test_a_rebalance_waits_for_pending_commits_and_polls_end_in_time(two_partitions: Blocked) -> None:
    listener = RecordingListener()
    second = Consumer("t", cluster=open_cluster(two_partitions.store), group_id="g")
    with second, consumer_of(two_partitions, group_id="g", enable_auto_commit=False) as first:
        first.subscribe(["t"], listener=listener)
        until(first.assignment, first.poll)
        before = list(listener.calls)
        second.poll()
        two_partitions.block(_commits)
        future = first.commit_async({PARTITION: OffsetAndMetadata(0)})
        two_partitions.coordinator.refresh()
        for _ in range(2):
            assert in_time(lambda: first.poll(100)) == {}
        assert not future.is_done
        assert listener.calls == before
        two_partitions.unblock()
        until(lambda: len(first.assignment()) == len(second.assignment()) == 1, together(first, second))
        assert future.succeeded()
        assert [what for what, _ in listener.calls[len(before) :]].count("revoked") == 1


def test_a_poll_that_renews_an_overdue_lease_ends_in_time_and_returns_nothing() -> None:
    clock = ManualClock()
    blocked = Blocked(clock=clock)
    append_records(blocked.admin, "t", [Record(value=b"v", partition=0)])
    settings: Any = {"group_id": "g", "heartbeat_interval_ms": 44_000, "auto_offset_reset": "earliest"}
    consumer = Consumer("t", cluster=blocked.coordinator, **settings)
    until(lambda: consumer.highwater(PARTITION) if consumer.assignment() else 0, consumer.poll)
    consumer.seek(PARTITION, 0)
    blocked.block()
    clock.advance(46)
    try:
        assert in_time(consumer.poll) == {}
        assert in_time(consumer.poll) == {}
    finally:
        blocked.unblock()
    assert [record.value for record in read(consumer, 1)] == [b"v"]
    consumer.close()


def test_a_wakeup_ends_a_poll_of_another_thread(blocked: Blocked) -> None:
    with consumer_of(blocked, "t", group_id="g") as consumer:
        consumer.wakeup()
        assert in_time(lambda: consumer.poll(10**9)) == {}
        until(consumer.assignment, lambda: consumer.poll(10))
        blocked.block()
        threads = ThreadPoolExecutor(1)
        polling = threads.submit(lambda: consumer.poll(10**9))
        consumer.wakeup()
        assert polling.result(TIMEOUT_SECONDS) == {}
        blocked.unblock()
        threads.shutdown()


def test_another_thread_can_close_a_consumer_during_a_long_join(blocked: Blocked) -> None:
    consumer = Consumer("t", cluster=blocked.coordinator, group_id="g")
    blocked.block()
    threads = ThreadPoolExecutor(1)
    polling = threads.submit(lambda: consumer.poll(10**9))
    assert blocked.call_blocked.wait(TIMEOUT_SECONDS)
    in_time(lambda: consumer.close(timeout_ms=100))
    assert polling.result(TIMEOUT_SECONDS) == {}
    blocked.unblock()
    threads.shutdown()


def test_assign_is_not_delayed_by_the_last_commit(blocked: Blocked) -> None:
    settings: Any = {"group_id": "g", "request_timeout_ms": 100, "fetch_max_wait_ms": 10}
    consumer = Consumer(cluster=blocked.coordinator, **settings)
    consumer.assign([PARTITION])
    consumer.poll()
    blocked.block()
    in_time(lambda: consumer.assign([TopicPartition("t", 1)]))
    assert consumer.assignment() == {TopicPartition("t", 1)}
    in_time(lambda: consumer.close(timeout_ms=100))


# -- files


FILE_CALLS: list[Callable[[Consumer], Any]] = [
    lambda consumer: consumer.offsets_for_times({PARTITION: 0}, timeout_ms=100),
    lambda consumer: consumer.position(PARTITION, timeout_ms=100),
]


@pytest.mark.parametrize("call", FILE_CALLS)
def test_a_call_that_reads_files_ends_in_time(blocked: Blocked, call: Callable[[Consumer], Any]) -> None:
    append_records(blocked.admin, "t", [Record(value=b"v", partition=0)])
    consumer = Consumer(cluster=blocked.coordinator, auto_offset_reset="by_duration:PT1H")
    consumer.assign([PARTITION])
    waiting: list[Call] = []
    blocked.block(lambda call: _records(call) and not waiting.append(call))
    for _ in range(3):
        with pytest.raises(KafkaTimeoutError):
            in_time(lambda: call(consumer))
    assert blocked.call_blocked.is_set()
    assert len(waiting) == 1
    assert consumer.end_offsets([PARTITION], timeout_ms=TIMEOUT_SECONDS * 1000) == {PARTITION: 1}  # which reads no file
    blocked.unblock()
    assert consumer.position(PARTITION) == 0
    assert consumer.offsets_for_times({PARTITION: 0})[PARTITION] is not None
    in_time(consumer.close)


def test_offset_queries_of_consumer_offsets_end_in_time(blocked: Blocked) -> None:
    internal = TopicPartition("__consumer_offsets", 0)
    with consumer_of(blocked) as consumer:
        blocked.block(lambda call: call.key == BOUNDARY_KEY and threading.current_thread().name != "sparklog-call")
        for call in (consumer.beginning_offsets, consumer.end_offsets):
            with pytest.raises(KafkaTimeoutError):
                in_time(lambda call=call: call([internal], timeout_ms=100))  # type: ignore[misc]
        blocked.unblock()
        assert consumer.beginning_offsets([internal]) == {internal: 0}


def test_a_poll_that_searches_by_time_ends_in_time_and_the_next_one_continues_the_search(
    two_partitions: Blocked,
) -> None:
    for number in (0, 1):
        append_records(two_partitions.admin, "t", [Record(value=b"v", partition=number)])
    reads: list[Call] = []
    with consumer_of(two_partitions, auto_offset_reset="by_duration:PT1H") as consumer:
        consumer.assign([PARTITION, TopicPartition("t", 1)])
        two_partitions.block(lambda call: _records(call) and not reads.append(call))
        for _ in range(3):
            assert in_time(lambda: consumer.poll(10)) == {}
        assert len(reads) == 1
        two_partitions.unblock()
        assert len(read(consumer, 2)) == 2


def test_a_seek_discards_a_pending_position_lookup(blocked: Blocked) -> None:
    append_records(blocked.admin, "t", [Record(value=value, partition=0) for value in (b"a", b"b")])
    with consumer_of(blocked, auto_offset_reset="by_duration:PT1H") as consumer:
        consumer.assign([PARTITION])
        blocked.block(_records)
        assert in_time(consumer.poll) == {}
        consumer.seek(PARTITION, 1)
        blocked.unblock()
        assert [record.value for record in read(consumer, 1)] == [b"b"]
        assert consumer.position(PARTITION) == 2


def test_poll_does_not_wait_for_the_reset_of_an_out_of_range_offset_by_time(blocked: Blocked) -> None:
    append_records(blocked.admin, "t", [Record(value=b"v", partition=0)])
    with consumer_of(blocked, auto_offset_reset="by_duration:PT1H") as consumer:
        consumer.assign([PARTITION])
        consumer.seek(PARTITION, 100)
        blocked.block(_records)
        until(blocked.call_blocked.is_set, lambda: in_time(lambda: consumer.poll(10)))
        assert in_time(lambda: consumer.poll(10)) == {}
        blocked.unblock()
        assert [record.offset for record in read(consumer, 1)] == [0]


def test_repeated_timeouts_do_not_accumulate_threads(blocked: Blocked) -> None:
    consumer = Consumer(cluster=blocked.coordinator)
    consumer.assign([PARTITION])
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
    lambda admin: admin.alter_group_offsets("g", {PARTITION: OffsetAndMetadata(0)}),
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


def test_the_timeout_of_an_admin_call_overrides_that_of_the_client(blocked: Blocked) -> None:
    admin = AdminClient(cluster=blocked.coordinator, request_timeout_ms=10**9)
    blocked.block()
    try:
        with pytest.raises(KafkaTimeoutError):
            in_time(lambda: admin.create_partitions({"t": 2}, timeout_ms=100))
    finally:
        blocked.unblock()


def test_a_consumer_unsubscribes_in_time_and_stays_usable(blocked: Blocked) -> None:
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


def test_a_call_after_a_timed_out_one_returns_current_data(blocked: Blocked) -> None:
    with Consumer(cluster=blocked.coordinator, group_id="g") as consumer:
        blocked.block()
        with pytest.raises(KafkaTimeoutError):
            consumer.committed(PARTITION, timeout_ms=10)
        blocked.unblock()
        for thread in threading.enumerate():
            if thread.name == "sparklog-call":  # the call that timed out
                thread.join(TIMEOUT_SECONDS)
        with Consumer(cluster=open_cluster(blocked.store), group_id="g") as other:
            other.assign([PARTITION])
            other.commit({PARTITION: OffsetAndMetadata(7)})
        assert consumer.committed(PARTITION) == 7


def test_a_call_after_the_end_runs_after_those_before() -> None:
    """A ``close`` that was interrupted leaves its group in the background; the next one returns when that is done."""
    calls, go, order = InOrder("in-order"), threading.Event(), list[str]()

    def leave() -> None:
        assert go.wait(60)
        order.append("first")

    calls.submit(leave)
    calls.end()
    later = [calls.submit(partial(order.append, name)) for name in ("second", "third")]
    later[0].wait(0.1)  # time to run too early
    go.set()
    assert all(call.wait(60) for call in later)
    assert order == ["first", "second", "third"]
