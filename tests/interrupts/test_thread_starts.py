"""A thread cannot be started, once ("can't start new thread"): one call fails, or does without, and then all work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import NewTopic
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer.producer import Producer
from sparklog.client.scan.scan import scan
from sparklog.clock import SystemClock
from sparklog.coordinator import Coordinator, kept_reading, open_cluster
from sparklog.errors import SparklogError
from sparklog.log.background import BackgroundTask
from sparklog.monitoring.exporter.collector import Collector
from sparklog.testing.faulty_store import SimulatedInterrupt
from sparklog.testing.interrupts import count_points, interrupt
from sparklog.types import OffsetAndMetadata
from sparklog.ui.follower import ClusterFollower
from tests.crash.copies import copy_of
from tests.interrupts.test_interrupts import FIRST, OLD, WAIT, built, read_values, stored

Scenario = Callable[[Coordinator], None]


class Starts:
    """Counts the starts of threads; that of number ``failing`` fails."""

    def __init__(self, failing: int) -> None:
        self.failing = failing
        self.count = 0


@contextmanager
def failing_start(number: int) -> Iterator[Starts]:
    starts, start = Starts(number), threading.Thread.start

    def fail_once(thread: threading.Thread) -> None:
        number, starts.count = starts.count, starts.count + 1
        if number == starts.failing:
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail_once)
        yield starts


def call(action: Callable[[], Any]) -> Any:
    """Return the result of the call, at the second attempt if no thread could be started for the first."""
    try:
        return action()
    except SparklogError as error:
        if "can't start new thread" not in str(error):
            raise
        return action()


def produce(cluster: Coordinator) -> None:
    producer = Producer(cluster=cluster, linger_ms=0)
    futures = [call(lambda: producer.send("t", b"a")), call(lambda: producer.send("t", b"b"))]
    call(lambda: producer.flush(WAIT))
    assert [future.get(WAIT).offset for future in futures] == [len(OLD), len(OLD) + 1]
    call(lambda: producer.close(WAIT))
    assert [value for value, _, _ in stored(cluster)] == [b"a", b"b"]


def transact(cluster: Coordinator) -> None:
    producer = Producer(cluster=cluster, transactional_id="tx")
    call(producer.init_transactions)
    call(producer.begin_transaction)
    future = call(lambda: producer.send("t", b"a", partition=0))
    call(lambda: producer.send_offsets_to_transaction({FIRST: OffsetAndMetadata(1, "", -1)}, "g"))
    call(producer.commit_transaction)
    assert future.get(WAIT).offset == len(OLD)
    call(lambda: producer.close(WAIT))
    assert [value for value, _, _ in stored(cluster)] == [b"a"]


def consume(cluster: Coordinator) -> None:
    consumer = Consumer("t", cluster=cluster, group_id="g", auto_offset_reset="earliest", heartbeat_interval_ms=50)
    assert call(lambda: read_values(consumer, len(OLD))) == OLD
    call(consumer.commit_async)
    call(consumer.commit)
    names = {thread.name for thread in threading.enumerate()}
    assert {"sparklog-consumer-fetch", "sparklog-consumer-heartbeat"} <= names
    call(lambda: consumer.offsets_for_times({FIRST: 0}))
    call(consumer.close)
    state = open_cluster(cluster.store).state
    assert state.committed("g", "t", 0).offset == len(OLD)  # type: ignore[union-attr]
    assert not state.groups["g"].members


def administer(cluster: Coordinator) -> None:
    admin = AdminClient(cluster=cluster)
    call(lambda: admin.create_topics([NewTopic("new", 1, 1)]))
    assert set(call(admin.list_topics)) == {"t", "new"}
    call(admin.close)
    assert call(lambda: scan("t", cluster=cluster).to_arrow()).num_rows == len(OLD)


def export(cluster: Coordinator) -> None:
    class Metrics:
        unread_commits = 0

        def read(self) -> str:
            return "value 1\n"

    class Ticking(SystemClock):
        seconds = 0.0

        def monotonic(self) -> float:
            self.seconds += 10.0
            return self.seconds

    collector = Collector(Metrics(), Ticking())
    texts = [collector.scrape(wait_seconds=1e6).decode() for _ in range(3)]
    assert "value 1" in texts[-1]
    assert "sparklog_up 1" in texts[-1]


def show(cluster: Coordinator) -> None:
    follower = ClusterFollower("log", cluster, patience=WAIT)
    for _ in range(3):
        try:
            rows = follower.read("commits")
        except RuntimeError:
            rows = follower.read("commits")
        assert rows.num_rows


def work_in_background(cluster: Coordinator) -> None:
    done: list[int] = []
    task = BackgroundTask("work", lambda: done.append(1))
    for number in range(3):
        task.request()
        task.wait()
        assert len(done) == number + 1


SCENARIOS = [produce, transact, consume, administer, export, show, work_in_background]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_a_thread_that_cannot_be_started_fails_one_call(scenario: Scenario) -> None:
    with failing_start(-1) as starts:
        scenario(open_cluster(copy_of(built())))
    assert starts.count
    for number in range(starts.count):
        with failing_start(number):
            scenario(open_cluster(copy_of(built())))


def test_an_interrupted_start_leaves_no_thread_that_reads_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_reading, "SECONDS", 0.01)
    cluster = open_cluster(copy_of(built()))

    def read() -> None:
        with kept_reading.keep_reading(cluster):
            pass

    def started() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "sparklog-kept-reading"}

    before = started()
    for point in range(count_points(read)):
        with suppress(SimulatedInterrupt):
            interrupt(read, point)
    for thread in started() - before:
        thread.join(WAIT)
    assert started() <= before
