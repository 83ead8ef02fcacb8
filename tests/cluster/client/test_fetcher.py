"""Reading ahead: memory bounds, errors, and the cost of waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from sparklog.client.consumer.config import consumer_config
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.fetcher import BUSY_CHECK_SECONDS, ReadAhead
from sparklog.client.consumer.metrics import ConsumerMetrics
from sparklog.client.consumer.offsets_topic import ConsumerReader
from sparklog.client.consumer.subscription_state import Subscription
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.one_timeline import CoordinatorOfOneTimeline
from sparklog.errors import CorruptRecordError, DataLossError, OffsetOutOfRangeError, UnlinkedHistoryError
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.client.consumers import Cluster, at, read, until, values


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    return Cluster("", store=FaultyStore(MemoryStore(request.node.name)))


def read_ahead(coordinator: Coordinator, **arguments: object) -> ReadAhead:
    config, _ = consumer_config({"cluster": coordinator, **arguments})
    metrics = ConsumerMetrics(coordinator.log.clock, Subscription(), config)
    return ReadAhead(coordinator, ConsumerReader(coordinator), config, metrics)


@contextmanager
def reading(cluster: Cluster, **more: object) -> Iterator[ReadAhead]:
    defaults = {
        "max_partition_fetch_bytes": 2**20,
        "fetch_max_bytes": 2**25,
        "tail_backoff_ms": 1,
        "tail_backoff_max_ms": 5,
    }
    ahead = read_ahead(cluster.coordinator(), **{**defaults, **more})
    try:
        yield ahead
    finally:
        ahead.close()


def buffered(ahead: ReadAhead) -> list[int]:
    """The number of buffered batches of each partition."""
    return [len(stream.chunks) for stream in ahead.streams.values()]


def test_read_ahead_stays_within_its_bounds(cluster: Cluster) -> None:
    for _ in range(20):
        for partition in (0, 1):
            cluster.write(partition, b"x" * 1000)
    with reading(cluster, max_partition_fetch_bytes=3000, fetch_max_bytes=5000) as ahead:
        ahead.read_from(at(0), 0)
        ahead.read_from(at(1), 0)
        ahead.start()
        until(lambda: ahead.buffered_bytes >= 5000)
        assert ahead.buffered_bytes < 5000 + 1100
        assert max(buffered(ahead)) <= 3
        taken = ahead.take(None)
        assert len(taken) == sum(1 for _ in taken) >= 5
        until(lambda: ahead.buffered_bytes >= 5000)


def test_records_given_back_are_taken_first(cluster: Cluster) -> None:
    cluster.write(0, b"a", b"b", b"c")
    with reading(cluster) as ahead:
        ahead.read_from(at(0), 0)
        ahead.start()
        until(lambda: buffered(ahead) == [1])
        (taken,) = ahead.take(2)
        assert taken.batches.end_offset == 2
        ahead.give_back(taken, 1)
        assert [chunk.batches.base_offset for chunk in ahead.take(None)] == [1, 2]
        assert ahead.buffered_bytes == 0
        ahead.read_from(at(0), 3)
        ahead.give_back(taken, 0)
        assert ahead.take(None) == []


def test_paused_and_forgotten_partitions_are_not_handed_out(cluster: Cluster) -> None:
    cluster.write(0, b"a")
    with reading(cluster) as ahead:
        ahead.read_from(at(0), 0)
        ahead.start()
        until(lambda: buffered(ahead) == [1])
        ahead.pause(at(0), True)
        assert ahead.take(None) == []
        ahead.forget(at(0))
        ahead.pause(at(0), False)
        assert ahead.take(None) == []
        assert ahead.buffered_bytes == 0


def test_paused_partitions_do_not_take_the_room_of_the_others(cluster: Cluster) -> None:
    for partition in (0, 1):
        for _ in range(10):
            cluster.write(partition, b"x" * 1000)
    with reading(cluster, max_partition_fetch_bytes=5000, fetch_max_bytes=5000) as ahead:
        ahead.read_from(at(0), 0)
        ahead.start()
        until(lambda: ahead.buffered_bytes >= 5000)
        ahead.pause(at(0), True)
        ahead.read_from(at(1), 0)
        taken: list[int] = []
        until(
            lambda: len(taken) == 10, lambda: taken.extend(chunk.stream.topic_partition[1] for chunk in ahead.take(1))
        )
        assert set(taken) == {1}
        assert len(ahead.streams[at(0)].chunks) >= 5, "what a paused partition has stays buffered"


def test_an_offset_out_of_range_is_raised_and_other_partitions_continue(cluster: Cluster) -> None:
    cluster.write(1, b"a")
    with reading(cluster) as ahead:
        ahead.read_from(at(0), 5)
        ahead.read_from(at(1), 0)
        ahead.start()
        until(lambda: buffered(ahead) == [0, 1])
        assert [chunk.stream.topic_partition for chunk in ahead.take(None)] == [at(1)]
        with pytest.raises(OffsetOutOfRangeError, match="orders-0"):
            until(lambda: False, lambda: ahead.take(None))


def test_corruption_is_raised_after_the_records_before_it_and_in_every_poll(cluster: Cluster) -> None:
    cluster.write(0, b"a", b"b")
    cluster.write(0, b"c")
    segment = cluster.admin.segments("orders").partition(0)[1]
    whole = cluster.store.get(segment.path)
    cluster.store.put(segment.path, whole.replace(b"c", b"d", 1))
    damaged = bytes(a ^ (i % 7 == 3) for i, a in enumerate(whole))
    cluster.store.put(segment.path, damaged)
    with cluster.consumer("orders") as consumer:
        assert values(read(consumer, 2)) == [b"a", b"b"]
        for _ in range(2):
            with pytest.raises(CorruptRecordError):
                read(consumer, 1)
        cluster.store.put(segment.path, whole)


def test_a_lost_file_raises_data_loss_and_a_seek_skips_it(cluster: Cluster) -> None:
    cluster.write(0, b"a")
    cluster.store.delete(cluster.admin.segments("orders").partition(0)[0].path)
    cluster.write(0, b"b")
    with cluster.consumer("orders") as consumer:
        with pytest.raises(DataLossError) as caught:
            read(consumer, 1)
        assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 0, 0)
        consumer.seek(at(0), 1)
        assert values(read(consumer, 1)) == [b"b"]


def test_a_check_that_finds_nothing_new_usually_costs_one_request(cluster: Cluster) -> None:
    assert isinstance(cluster.store, FaultyStore)
    with reading(cluster) as ahead:
        ahead.start()
        cluster.store.reset_counts()
        before = ahead.checks
        until(lambda: ahead.checks >= before + 40)
        requests, checks = sum(cluster.store.counts.values()), ahead.checks - before
    assert requests <= checks * 1.2 + 2


class SlowReads:
    """A storage on which each read of a file takes a second of a clock, and ``at_read`` runs before the fourth one;
    ``slow_check`` is what a request for the next commit takes. ``versions`` are those known at each read."""

    def __init__(self, cluster: Cluster, at_read: Callable[[], object], slow_check: float = 0.0) -> None:
        self.clock = ManualClock()
        self.versions: list[int] = []
        self._at_read = at_read
        self._slow_check = slow_check
        store = FaultyStore(cluster.store, before=self._before)
        self._is_open = False
        self.coordinator = open_cluster(store, clock=self.clock)
        self._is_open = True

    def _before(self, step: int, call: Call) -> None:
        if self._is_open and call.operation == "read_at":
            self.versions.append(self.coordinator.state.version)
            self.clock.advance(1.0)
            if len(self.versions) == 4:
                self._at_read()
        elif self._is_open and call.operation == "info":
            self.clock.advance(self._slow_check)

    def read_all(self, batches: int) -> ReadAhead:
        """Read this many stored batches of a partition; return what has read them, closed."""
        ahead = read_ahead(self.coordinator)
        ahead.read_from(at(0), 0)
        ahead.start()
        until(lambda: buffered(ahead) == [batches])
        ahead.close()
        return ahead


def test_a_backlog_does_not_keep_new_commits_from_being_read(cluster: Cluster) -> None:
    """It may take longer to read than commits are kept."""
    for _ in range(40):
        cluster.write(0, b"x")
    slow = SlowReads(cluster, at_read=partial(cluster.admin.create_topic, "another"))
    before, ahead = slow.coordinator.state.version, slow.read_all(40)
    assert slow.versions[:3] == [before] * 3
    assert set(slow.versions[8:]) == {before + 1}
    assert 40 / BUSY_CHECK_SECONDS - 2 <= ahead.checks <= 40 / BUSY_CHECK_SECONDS + 2


def test_a_slow_root_takes_a_tenth_of_the_time_of_reading_a_backlog(cluster: Cluster) -> None:
    for _ in range(40):
        cluster.write(0, b"x")
    slow = SlowReads(cluster, at_read=lambda: None, slow_check=2.0)
    ahead = slow.read_all(40)
    assert 2 <= ahead.checks <= 40 / 18 + 2


def test_other_work_of_the_process_in_another_timeline_does_not_end_the_reading(cluster: Cluster) -> None:
    coordinator = cluster.coordinator()
    work = CoordinatorOfOneTimeline(coordinator)
    coordinator.log.unlinked_jumps += 1  # as after a pause for longer than commits are kept
    ahead = read_ahead(coordinator, tail_backoff_max_ms=5)
    ahead.read_from(at(0), 0)
    ahead.start()
    for count in (1, 2):
        cluster.write(0, b"a")
        with pytest.raises(UnlinkedHistoryError):
            work.refresh()
        until(lambda count=count: buffered(ahead) == [count])  # type: ignore[misc]
    assert len(ahead.take(None)) == 2
    ahead.close()


def test_consumers_that_share_a_coordinator_share_its_checks(cluster: Cluster) -> None:
    coordinator = cluster.coordinator()
    several = [read_ahead(coordinator, tail_backoff_ms=20, tail_backoff_max_ms=20) for _ in range(5)]
    try:
        for ahead in several:
            ahead.start()
        started = coordinator.log.clock.monotonic()
        until(lambda: sum(ahead.checks for ahead in several) >= 20)
        elapsed = coordinator.log.clock.monotonic() - started
        assert sum(ahead.checks for ahead in several) <= elapsed / 0.018 + 2
    finally:
        for ahead in several:
            ahead.close()


def test_an_unexpected_error_in_the_fetch_thread_is_raised_by_poll(
    cluster: Cluster,
) -> None:
    def fail(step: int, call: Call) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise ZeroDivisionError("in the thread")

    coordinator = open_cluster(FaultyStore(cluster.store, before=fail))
    with Consumer("orders", cluster=coordinator) as consumer, pytest.raises(ZeroDivisionError):
        until(lambda: False, lambda: consumer.poll(1000))
