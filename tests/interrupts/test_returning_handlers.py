"""A signal handler that calls the client that it interrupts, and returns: each record whose future succeeds is in the
log once, with its own key and headers; no call waits for the one it interrupts, and the client works afterwards.
"""

from __future__ import annotations

import gc
import random
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from sparklog.client.consumer.consumer import Consumer
from sparklog.client.producer import transactions
from sparklog.client.producer.futures import FutureRecordMetadata
from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.errors import IllegalStateError, InvalidTxnStateError, KafkaTimeoutError, SparklogError
from sparklog.protocol.decide.append import AppendRequest
from sparklog.testing.faulty_store import SimulatedInterrupt
from sparklog.testing.interrupts import count_points, interrupt
from tests.crash.copies import copy_of
from tests.interrupts.test_interrupts import (
    FIRST,
    OLD,
    SAMPLE,
    TRANSACTION,
    WAIT,
    Record,
    built,
    consumer_of,
    in_transaction,
    read_values,
    stored,
)

Call = Callable[[], object]

LONG_MS = 60_000
"""ms that no test waits."""


class Client:
    """A producer, and what became of each record that was given to it."""

    def __init__(self, linger_ms: float) -> None:
        self.linger_ms = linger_ms
        self.cluster = open_cluster(copy_of(built()))
        self.producer = Producer(cluster=self.cluster, linger_ms=linger_ms)
        self.sent: list[tuple[Record, FutureRecordMetadata]] = []
        self.refused: list[SparklogError] = []

    def send(self, value: bytes, key: bytes | None = None, header: bytes | None = None) -> None:
        headers = () if header is None else (("name", header),)
        record = (value, key, headers)
        try:
            self.sent.append((record, self.producer.send("t", value, key=key, headers=list(headers))))
        except SparklogError as error:
            self.refused.append(error)

    def check(self, is_closed: bool) -> None:
        """Check the log: it has what was accepted. Once a handler has closed the producer, records are refused."""
        if self.linger_ms < LONG_MS:
            for _, future in self.sent:
                future.get(WAIT)  # no later call wakes the sender
        for number in range(3):
            self.send(b"after %d" % number, b"k%d" % number)
        assert is_closed or not self.refused
        assert all("closed" in str(error) for error in self.refused)
        self.producer.close(WAIT)
        records = stored(self.cluster)
        offsets = [future.get(WAIT).offset for _, future in self.sent]
        first = len(OLD)
        assert sorted(offsets) == list(range(first, first + len(records)))
        assert [records[offset - first] for offset in offsets] == [record for record, _ in self.sent]
        assert is_closed or offsets[-3:] == sorted(offsets)[-3:], "sent later, and earlier in the log"
        assert (
            self.producer.metrics()["producer-metrics"]["buffer-available-bytes"]
            == self.producer.config["buffer_memory"]
        )


def send_first(client: Client) -> Call:
    return lambda: client.send(b"one", b"k", b"header")


def send_into_a_batch(client: Client) -> Call:
    """Its records had no key yet."""
    client.send(b"before")
    return lambda: client.send(b"one", b"k", b"header")


def send_again(client: Client) -> Call:
    """Into a batch in which sends were interrupted at every point."""
    point = 0
    while interrupt(lambda: client.send(b"main"), point, lambda: client.send(b"other", b"its key")):
        point += 1
    return lambda: client.send(b"one", b"k", b"header")


def flush(client: Client) -> Call:
    client.send(b"before", b"k")
    return lambda: client.producer.flush(WAIT)


def close(client: Client) -> Call:
    client.send(b"before", b"k")
    return lambda: client.producer.close(WAIT)


def flush_at_once(client: Client) -> None:
    """Its records are still the interrupted call's to wait for."""
    with suppress(KafkaTimeoutError):
        client.producer.flush(0)


CALLS = {"first send": send_first, "send": send_into_a_batch, "send again": send_again, "flush": flush, "close": close}
HANDLERS: dict[str, Callable[[Client], object]] = {
    "send": lambda client: client.send(b"handler", header=b"handler's"),
    "flush": lambda client: client.producer.flush(WAIT),
    "flush at once": flush_at_once,
    "send, flush": lambda client: (client.send(b"handler", b"its key"), client.producer.flush(WAIT)),
    "close": lambda client: client.producer.close(WAIT),
}


def run(name: str, handler: str, point: int) -> bool:
    client = Client(5 if point % 2 else LONG_MS)
    call = CALLS[name](client)
    try:
        interrupted = interrupt(call, point, lambda: HANDLERS[handler](client))
        client.check(is_closed="close" in (handler, name))
    except BaseException as error:
        raise AssertionError(f"a handler called {handler} at point {point} of {name}: {error!r}") from error
    return interrupted


def points(name: str) -> Iterator[int]:
    client = Client(LONG_MS)
    yield from range(count_points(CALLS[name](client)))
    with suppress(SparklogError):
        client.producer.close(WAIT)


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("name", CALLS)
def test_a_handler_may_call_the_producer_anywhere(name: str, handler: str) -> None:
    all_points = list(points(name))
    for point in sorted(random.Random(name + handler).sample(all_points, min(SAMPLE, len(all_points)))):
        run(name, handler, point)


@pytest.mark.faults
@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("name", CALLS)
def test_a_handler_may_call_the_producer_at_every_line(name: str, handler: str) -> None:
    for point in points(name):
        run(name, handler, point)


# -- consumers


def members(cluster: Coordinator) -> int:
    group = open_cluster(cluster.store).state.groups.get("g")
    return 0 if group is None else len(group.members)


def run_closed_poll(point: int) -> None:
    """A handler closes a consumer in its first poll: the member leaves for good, and no record is passed over."""
    cluster = open_cluster(copy_of(built()))
    consumer = consumer_of(cluster)
    got: list[bytes | None] = []

    def poll() -> None:
        with suppress(IllegalStateError):
            for records in consumer.poll(timeout_ms=5_000).values():
                got.extend(record.value for record in records)

    try:
        interrupt(poll, point, consumer.close)
        consumer.close()
        committed = open_cluster(cluster.store).state.committed("g", "t", 0)
        assert (0 if committed is None else committed.offset) <= len(got)
        assert not members(cluster)
        for thread in threading.enumerate():
            if thread.name.startswith("sparklog-consumer"):
                thread.join(WAIT)
                assert not thread.is_alive(), thread
        assert not members(cluster)
    except BaseException as error:
        raise AssertionError(f"a handler closed the consumer at point {point} of poll: {error!r}") from error


def poll_points() -> list[int]:
    consumer = consumer_of(open_cluster(copy_of(built())))
    count = count_points(lambda: consumer.poll(timeout_ms=5_000))
    consumer.close()
    return list(range(count))


def test_a_handler_may_close_a_consumer_anywhere_in_a_poll() -> None:
    for point in random.Random("close").sample(poll_points(), SAMPLE):
        run_closed_poll(point)


@pytest.mark.faults
def test_a_handler_may_close_a_consumer_at_every_line_of_a_poll() -> None:
    for point in poll_points():
        run_closed_poll(point)


CONSUMER_CALLS: dict[str, Callable[[Consumer], object]] = {
    "commit": lambda consumer: consumer.commit(),
    "commit_async": lambda consumer: consumer.commit_async(),
    "position": lambda consumer: consumer.position(FIRST),
    "pause": lambda consumer: (consumer.pause(FIRST), consumer.resume(FIRST)),
}


TAKES: dict[str, Callable[[Consumer], list[bytes | None]]] = {
    "poll": lambda consumer: [each.value for records in consumer.poll(5_000).values() for each in records],
    "poll_batches": lambda consumer: [
        value for batches in consumer.poll_batches(5_000, 2) for value in batches.batch.column("value").to_pylist()
    ],
    "next": lambda consumer: [next(consumer).value],
}
"""Calls that return records: at most two."""


class Taking:
    """A consumer of a group, at the first record, that a handler interrupts as it takes records."""

    def __init__(self, take: str, name: str) -> None:
        self.take, self.call = TAKES[take], CONSUMER_CALLS[name]
        self.consumer = consumer_of(open_cluster(copy_of(built())), max_poll_records=2)
        assert read_values(self.consumer, 1) == OLD[:2]

    def rewind(self) -> None:
        self.consumer.seek(FIRST, 0)
        self.consumer.commit()

    def count_points(self) -> int:
        self.rewind()
        return count_points(lambda: self.take(self.consumer))

    def run(self, point: int) -> bool:
        """Take the records once, also if a handler calls the consumer at this point: return whether one did."""
        self.rewind()
        got: list[bytes | None] = []

        def call() -> None:
            self.call(self.consumer)
            assert (self.consumer.committed(FIRST) or 0) == 0

        interrupted = interrupt(lambda: got.extend(self.take(self.consumer)), point, call)
        got += read_values(self.consumer, len(OLD) - len(got))
        assert got == OLD, f"point {point}"
        return interrupted


@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize("name", CONSUMER_CALLS)
def test_a_call_while_records_are_taken_returns_no_record_twice(take: str, name: str) -> None:
    """By a handler at any point, and what it commits are no records that the caller has not got."""
    taking = Taking(take, name)
    count = taking.count_points()
    for point in {*random.Random(name).sample(range(count), SAMPLE // 2), *range(count - SAMPLE // 2, count + 10)}:
        taking.run(point)
    taking.consumer.close()


@pytest.mark.faults
@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize("name", CONSUMER_CALLS)
def test_a_call_at_every_line_while_records_are_taken_returns_no_record_twice(take: str, name: str) -> None:
    taking, point = Taking(take, name), 0
    while taking.run(point):
        point += 1
    taking.consumer.close()


@pytest.mark.parametrize("name", CONSUMER_CALLS)
def test_a_deserializer_may_call_the_consumer(name: str) -> None:
    cluster = open_cluster(copy_of(built()))

    def deserialize(value: bytes) -> bytes:
        CONSUMER_CALLS[name](consumer)
        return value

    consumer = consumer_of(cluster, max_poll_records=2, value_deserializer=deserialize)
    assert read_values(consumer, len(OLD)) == OLD
    assert consumer.poll(timeout_ms=100) == {}
    consumer.close()


def test_a_deserializer_may_not_poll() -> None:
    cluster = open_cluster(copy_of(built()))
    consumers: list[Consumer] = []
    consumers.append(consumer := consumer_of(cluster, value_deserializer=lambda value: consumers[0].poll()))
    with pytest.raises(IllegalStateError, match="are being taken"):
        read_values(consumer, 1)
    consumer.close()


# -- transactions


def run_in_step(step: str, point: int, handler: Callable[[Producer], object]) -> None:
    cluster = open_cluster(copy_of(built()))
    producer, steps = in_transaction(cluster, step)
    is_committed = False
    try:
        with suppress(InvalidTxnStateError, IllegalStateError):
            interrupt(steps[step], point, lambda: handler(producer))
            is_committed = step == "commit"
        producer.close(WAIT)
        records = stored(cluster)
        assert records or not is_committed
        assert records in ([], TRANSACTION)
        assert (open_cluster(cluster.store).state.committed("g", "t", 0) is not None) == bool(records)
    except BaseException as error:
        raise AssertionError(f"a handler at point {point} of {step}: {error!r}") from error


def abort(producer: Producer) -> None:
    with suppress(InvalidTxnStateError):
        producer.abort_transaction()


@pytest.mark.parametrize("step", ["send 1", "offsets", "commit"])
@pytest.mark.parametrize("handler", [abort, Producer.flush, Producer.close], ids=["abort", "flush", "close"])
def test_a_handler_may_call_a_transactional_producer(step: str, handler: Callable[[Producer], object]) -> None:
    """It waits for no step that waits for what it has interrupted; the transaction is whole or absent."""
    producer, steps = in_transaction(open_cluster(copy_of(built())), step)
    points = range(count_points(steps[step]))
    producer.close(WAIT)
    for point in random.Random(step).sample(points, min(SAMPLE, len(points))):
        run_in_step(step, point, handler)


def test_a_commit_of_nothing_that_was_interrupted_after_it_ended_may_be_repeated() -> None:
    producer, steps = in_transaction(open_cluster(copy_of(built())), "begin")

    def interrupt_after_the_step() -> None:
        producer.flush(WAIT)  # a step that comes after the commit, if that is queued
        raise SimulatedInterrupt

    point, is_interrupted = 0, True
    while is_interrupted:
        steps["begin"]()
        try:
            is_interrupted = interrupt(steps["commit"], point, interrupt_after_the_step)
        except SimulatedInterrupt:
            producer.commit_transaction()
        point += 1
    producer.close(WAIT)


def test_a_step_in_a_callback_says_so_at_once() -> None:
    producer, steps = in_transaction(open_cluster(copy_of(built())), "begin")
    errors: list[BaseException] = []

    def call_steps(_: object) -> None:
        for call in (producer.commit_transaction, producer.abort_transaction, producer.begin_transaction):
            with pytest.raises(IllegalStateError, match="in a callback") as raised:
                call()
            errors.append(raised.value)
        with pytest.raises(IllegalStateError, match="in a callback"):
            producer.flush(WAIT)
        producer.close(0)

    steps["begin"]()
    future = producer.send("t", b"v", partition=0).add_callback(call_steps)
    producer.commit_transaction()
    assert future.succeeded()
    assert len(errors) == 3


def test_a_producer_collected_in_the_middle_of_its_commit_deletes_no_committed_file() -> None:
    """Its own thread collects it, just before the commit is requested."""
    cluster = open_cluster(copy_of(built()))
    producer, steps = in_transaction(cluster, "commit")
    commit_began, collect = threading.Event(), threading.Event()
    request = AppendRequest

    def collecting(**arguments: Any) -> Any:
        commit_began.set()
        assert collect.wait(WAIT)
        gc.collect()
        return request(**arguments)

    class Given(Exception):
        """The program gives the producer up."""

    def give_up(*_: object) -> None:
        raise Given

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transactions, "AppendRequest", collecting)
        cycle: list[object] = [producer]
        cycle.append(cycle)
        before, main = signal.signal(signal.SIGUSR1, give_up), threading.get_ident()
        alarm = threading.Thread(target=lambda: (commit_began.wait(WAIT), signal.pthread_kill(main, signal.SIGUSR1)))
        alarm.start()
        try:
            with pytest.raises(Given):
                producer.commit_transaction()
        finally:
            signal.signal(signal.SIGUSR1, before)
            alarm.join(WAIT)
        thread = next(each for each in threading.enumerate() if each.name == "sparklog-transactions")
        collected = weakref.ref(producer)
        del producer, steps, cycle
        collect.set()
        thread.join(WAIT)
    assert collected() is None
    assert stored(cluster) == TRANSACTION


def test_a_dropped_transactional_producer_with_callbacks_is_collected() -> None:
    producer, steps = in_transaction(open_cluster(copy_of(built())), "send 0")
    producer.send("t", b"v", partition=0).add_both(partial(print, producer))
    producer.flush()
    thread = next(each for each in threading.enumerate() if each.name == "sparklog-transactions")
    collected = weakref.ref(producer)
    del producer, steps
    until = time.monotonic() + WAIT
    while collected() is not None and time.monotonic() < until:  # its thread may not be done with the callback yet
        gc.collect()
        time.sleep(0.01)
    assert collected() is None
    thread.join(WAIT)
    assert not thread.is_alive()
