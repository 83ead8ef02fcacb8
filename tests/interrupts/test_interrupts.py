"""Ctrl-C, an alarm or a soft time limit arrives at any line of a client's call: what was acknowledged is in the log
once, an interrupted record is whole or absent, the others of its batch are untouched, no lock stays behind, and every
later call works or says why not.
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, NoReturn

import pytest

from sparklog.client.admin.client import AdminClient
from sparklog.client.admin.types import NewTopic
from sparklog.client.consumer.consumer import Consumer
from sparklog.client.consumer.subscription_state import ConsumerRebalanceListener
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.client.scan.scan import scan
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import InvalidTxnStateError, KafkaError
from sparklog.protocol.decide.topics import create_partitions
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import SimulatedInterrupt
from sparklog.testing.interrupts import count_points, interrupt
from sparklog.types import OffsetAndMetadata, TopicPartition
from tests.crash.copies import copy_of

# Python drops what is raised while it disposes of a generator, be it by a signal or here.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

WAIT = 30
"""seconds. No call waits that long unless something is broken."""
SAMPLE = 60
"""points of a call that every run of the tests tries; ``make test-faults`` tries all."""
FIRST = TopicPartition("t", 0)
POINTS_OF_A_POLL = 1500
"""as many as one in a rebalance has, more or less."""
OLD = [b"old %d" % number for number in range(6)]

Call = Callable[[], object]
Steps = Generator[Call, int, None]
Scenario = Callable[[Coordinator], Steps]
"""Yields the call to interrupt, then uses the client again, checks the log, and closes it. It is told the point."""

Record = tuple[bytes | None, bytes | None, tuple[Any, ...]]


@cache
def built() -> MemoryStore:
    store = MemoryStore(uuid.uuid4().hex)
    cluster = create_cluster(store)
    cluster.create_topic("t", 1)
    with Producer(cluster=cluster) as producer:
        for value in OLD:
            producer.send("t", value).get(WAIT)
    return store


def stored(cluster: Coordinator) -> list[Record]:
    """Return the records that a fresh process reads after the first ones."""
    fresh = open_cluster(cluster.store)
    with LogReader(fresh) as reader:
        end = fresh.state.partition("t", 0).log_end_offset
        records = [(record.value, record.key, tuple(record.headers or ())) for record in reader.records("t", 0, 0, end)]
    assert [value for value, _, _ in records[: len(OLD)]] == OLD
    return records[len(OLD) :]


def in_other_thread(call: Call) -> object:
    """Return the result of the call in a thread, which a lock that stayed behind would stop."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(2 * WAIT)
    assert results, "the call ended with an error, or waits for a lock"
    return results[0]


# -- producers

INTERRUPTED: Record = (b"interrupted", b"key", (("name", b"header"),))


def check_whole(records: list[Record], acknowledged: list[Record], possible: Record = INTERRUPTED) -> None:
    assert [record for record in records if record != possible] == acknowledged
    assert records.count(possible) <= 1


def send(cluster: Coordinator) -> Steps:
    """Into an open batch, whose records had no key yet."""
    producer = Producer(cluster=cluster, linger_ms=60_000)
    before = producer.send("t", b"before")
    yield lambda: producer.send("t", INTERRUPTED[0], key=INTERRUPTED[1], headers=list(INTERRUPTED[2]))
    after = producer.send("t", b"after")
    in_other_thread(lambda: producer.flush(WAIT))
    assert before.get(WAIT).offset < after.get(WAIT).offset
    producer.close(WAIT)
    check_whole(stored(cluster), [(b"before", None, ()), (b"after", None, ())])
    assert producer.metrics()["producer-metrics"]["buffer-available-bytes"] == producer.config["buffer_memory"]


def send_first(cluster: Coordinator) -> Steps:
    """The topic is looked up, the threads are started, a batch is begun."""
    producer = Producer(cluster=cluster, linger_ms=0)
    yield lambda: producer.send("t", INTERRUPTED[0], key=INTERRUPTED[1], headers=list(INTERRUPTED[2]))
    after = [producer.send("t", b"after %d" % number, key=b"k") for number in range(3)]
    producer.flush(WAIT)
    assert all(future.succeeded() for future in after)
    producer.close(WAIT)
    check_whole(stored(cluster), [(b"after %d" % number, b"k", ()) for number in range(3)])


def flush(cluster: Coordinator) -> Steps:
    producer = Producer(cluster=cluster, linger_ms=60_000)
    futures = [producer.send("t", b"before")]
    yield lambda: producer.flush(WAIT)
    futures.append(producer.send("t", b"after"))
    producer.flush(WAIT)
    assert all(future.succeeded() for future in futures)
    producer.close(WAIT)
    check_whole(stored(cluster), [(b"before", None, ()), (b"after", None, ())])


def get(cluster: Coordinator) -> Steps:
    producer = Producer(cluster=cluster, linger_ms=5)
    future = producer.send("t", b"before")
    yield lambda: future.get(WAIT)
    assert in_other_thread(lambda: future.get(WAIT)) == future.get(WAIT)
    producer.close(WAIT)
    check_whole(stored(cluster), [(b"before", None, ())])


def close_producer(cluster: Coordinator) -> Steps:
    producer = Producer(cluster=cluster, linger_ms=60_000)
    future = producer.send("t", b"before")
    yield lambda: producer.close(WAIT)
    producer.close(WAIT)
    future.get(WAIT)
    check_whole(stored(cluster), [(b"before", None, ())])


# -- transactions

TRANSACTION: list[Record] = [(b"in 0", None, ()), (b"in 1", b"k", ())]


def in_transaction(cluster: Coordinator, upto: str) -> tuple[Producer, dict[str, Call]]:
    """Return a producer, and the steps of its transaction; those before ``upto`` are done."""
    producer = Producer(cluster=cluster, linger_ms=60_000, transactional_id="tx")
    offsets = {FIRST: OffsetAndMetadata(3, "", -1)}
    steps: dict[str, Call] = {
        "init": producer.init_transactions,
        "begin": producer.begin_transaction,
        "send 0": lambda: producer.send("t", b"in 0", partition=0),
        "flush": lambda: producer.flush(),
        "send 1": lambda: producer.send("t", b"in 1", key=b"k", partition=0),
        "offsets": lambda: producer.send_offsets_to_transaction(offsets, "g"),
        "commit": producer.commit_transaction,
    }
    for name, step in steps.items():
        if name == upto:
            break
        step()
    return producer, steps


def end_transaction(cluster: Coordinator, producer: Producer, is_committed: bool) -> None:
    """Abort what was interrupted, unless it is committed, and commit another transaction."""
    try:
        producer.abort_transaction()
    except InvalidTxnStateError as error:
        is_committed = is_committed or "it is committed" in str(error)
    else:
        assert not is_committed
    expect_transaction(cluster, producer, is_committed)


def expect_transaction(cluster: Coordinator, producer: Producer, is_committed: bool) -> None:
    assert stored(cluster) == (TRANSACTION if is_committed else [])
    committed = open_cluster(cluster.store).state.committed("g", "t", 0)
    assert (committed is not None) == is_committed
    in_other_thread(lambda: producer.begin_transaction())
    future = producer.send("t", b"next", partition=0)
    producer.commit_transaction()
    future.get(WAIT)
    producer.close(WAIT)
    assert stored(cluster) == [*(TRANSACTION if is_committed else []), (b"next", None, ())]


def init_transactions(cluster: Coordinator) -> Steps:
    producer, steps = in_transaction(cluster, "init")
    yield steps["init"]
    producer.init_transactions()
    expect_transaction(cluster, producer, False)


def aborted_at(step: str) -> Scenario:
    def scenario(cluster: Coordinator) -> Steps:
        producer, steps = in_transaction(cluster, step)
        ended: list[object] = []
        yield lambda: ended.append(steps[step]())
        end_transaction(cluster, producer, step == "commit" and bool(ended))

    return scenario


def commit_repeated(cluster: Coordinator) -> Steps:
    producer, steps = in_transaction(cluster, "commit")
    ended: list[object] = []
    yield lambda: ended.append(steps["commit"]())
    if not ended:
        producer.commit_transaction()
    with pytest.raises(InvalidTxnStateError):
        producer.commit_transaction()
    expect_transaction(cluster, producer, True)


def commit_nothing(cluster: Coordinator) -> Steps:
    """A transaction without records or offsets."""
    producer, steps = in_transaction(cluster, "send 0")
    ended: list[object] = []
    yield lambda: ended.append(steps["commit"]())
    if not ended:
        producer.commit_transaction()
    with pytest.raises(InvalidTxnStateError):
        producer.commit_transaction()
    expect_transaction(cluster, producer, False)


def abort_repeated(cluster: Coordinator) -> Steps:
    producer, _ = in_transaction(cluster, "commit")
    ended: list[object] = []
    yield lambda: ended.append(producer.abort_transaction())
    if not ended:
        producer.abort_transaction()
    expect_transaction(cluster, producer, False)


def commit_after_abort(cluster: Coordinator) -> Steps:
    """An interrupted abort publishes no part of the transaction."""
    producer, _ = in_transaction(cluster, "commit")
    yield producer.abort_transaction
    with suppress(InvalidTxnStateError):
        producer.commit_transaction()
        assert stored(cluster) == TRANSACTION
        return expect_transaction(cluster, producer, True)
    with suppress(InvalidTxnStateError):
        producer.abort_transaction()
    expect_transaction(cluster, producer, False)


def close_in_transaction(cluster: Coordinator) -> Steps:
    producer, _ = in_transaction(cluster, "commit")
    yield lambda: producer.close(WAIT)
    producer.close(WAIT)
    assert stored(cluster) == []


# -- consumers


def consumer_of(cluster: Coordinator, **more: Any) -> Consumer:
    return Consumer("t", cluster=cluster, group_id="g", auto_offset_reset="earliest", **more)


def read_values(consumer: Consumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    for _ in range(200):
        if len(values) >= count:
            break
        for records in consumer.poll(timeout_ms=200).values():
            values += [record.value for record in records]
    return values


def finish_consumer(cluster: Coordinator, consumer: Consumer, expected: list[bytes]) -> None:
    """Read on in another thread, commit, close; a next member of the group gets nothing again."""
    assert in_other_thread(lambda: read_values(consumer, len(expected))) == expected
    consumer.commit()
    in_other_thread(lambda: consumer.close())
    assert open_cluster(cluster.store).state.committed("g", "t", 0).offset == len(OLD)  # type: ignore[union-attr]
    assert not open_cluster(cluster.store).state.groups["g"].members


def interrupt_again(call: Call, point: int) -> None:
    """Interrupt the next call somewhere, too; after every other point of the first one."""
    if point % 2:
        with suppress(SimulatedInterrupt):
            interrupt(call, random.Random(point).randrange(POINTS_OF_A_POLL))


def poll_first(cluster: Coordinator) -> Steps:
    """Threads are started, and the group is joined."""
    consumer = consumer_of(cluster)
    got: list[bytes | None] = []
    yield lambda: got.extend(read_values(consumer, 1))
    finish_consumer(cluster, consumer, OLD[len(got) :])


def poll(cluster: Coordinator) -> Steps:
    consumer = consumer_of(cluster, max_poll_records=2)
    before = read_values(consumer, 1)
    assert before == OLD[: len(before)]
    got: list[bytes | None] = []
    yield lambda: got.extend(value.value for values in consumer.poll(timeout_ms=5_000).values() for value in values)
    finish_consumer(cluster, consumer, OLD[len(before) + len(got) :])


class Batch(ConsumerRebalanceListener):
    """Collects values over several polls, as of one transaction, and drops them with the partition."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.values = [] if FIRST in revoked else self.values

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        pass


def poll_in_rebalance(cluster: Coordinator) -> Steps:
    """The partition is revoked, and assigned to the same member again. The poll after the interrupted one is
    interrupted, too."""
    batch = Batch()
    group: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = Consumer(cluster=cluster, client_id="a", max_poll_records=3, **group)
    other = Consumer(cluster=open_cluster(cluster.store), client_id="b", **group)
    consumer.subscribe(["t"], listener=batch)

    def poll(seconds: float = 0.5) -> None:
        try:
            for records in consumer.poll(seconds * 1000).values():
                batch.values += [record.value for record in records]
        except KafkaError:  # the listener was interrupted, says the consumer
            batch.values.clear()

    while not batch.values:
        poll()
    other.subscribe(["t"])
    other.poll(100)
    cluster.refresh()
    interrupt_again(poll, (yield poll))
    for _ in range(200):
        if len(set(batch.values)) == len(OLD):
            break
        poll(0.1)
        other.poll(0)
    assert batch.values == OLD, batch.values
    consumer.close()
    other.close()


class FromDatabase(Batch):
    """Seeks to where the program has kept its offsets."""

    consumer: Consumer

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        for partition in assigned:
            self.consumer.seek(partition, 0)


def poll_with_offsets_elsewhere(cluster: Coordinator) -> Steps:
    listener = FromDatabase()
    consumer = listener.consumer = Consumer(cluster=cluster, group_id="g", auto_offset_reset="latest")
    consumer.subscribe(["t"], listener=listener)

    def poll() -> None:
        try:
            listener.values += [record.value for records in consumer.poll(500).values() for record in records]
        except KafkaError:
            consumer.seek_to_beginning()

    interrupt_again(poll, (yield poll))
    for _ in range(100):
        if len(listener.values) >= len(OLD):
            break
        poll()
    assert listener.values == OLD
    consumer.close()


def seek_given_up(cluster: Coordinator) -> Steps:
    """The program goes on where the consumer is."""
    consumer = Consumer(cluster=cluster, auto_offset_reset="earliest", max_poll_records=1)
    consumer.assign([FIRST])
    assert read_values(consumer, 1) == OLD[:1]
    yield lambda: consumer.seek(FIRST, 3)
    expected = OLD[consumer.position(FIRST) :]
    assert expected in (OLD[1:], OLD[3:])
    assert read_values(consumer, len(expected)) == expected
    consumer.close()


def poll_a_topic_that_has_grown(cluster: Coordinator) -> Steps:
    """Without a group; nobody commits anything later."""
    consumer = Consumer("t", cluster=cluster, auto_offset_reset="earliest")
    assert read_values(consumer, len(OLD)) == OLD
    cluster.submit(lambda state: create_partitions(state, "t", 2))
    with Producer(cluster=cluster) as producer:
        producer.send("t", b"new", partition=1)
    got: list[bytes | None] = []
    yield lambda: got.extend(value.value for values in consumer.poll(timeout_ms=500).values() for value in values)
    assert [*got, *read_values(consumer, 1 - len(got))] == [b"new"]
    consumer.close()


def resume_given_up(cluster: Coordinator) -> Steps:
    consumer = Consumer(cluster=cluster, auto_offset_reset="earliest", max_poll_records=1)
    consumer.assign([FIRST])
    assert read_values(consumer, 1) == OLD[:1]
    consumer.pause(FIRST)
    yield lambda: consumer.resume(FIRST)
    if consumer.paused():
        consumer.resume(FIRST)
    assert read_values(consumer, len(OLD) - 1) == OLD[1:]
    consumer.close()


def assign_again(cluster: Coordinator) -> Steps:
    consumer = Consumer(cluster=cluster, auto_offset_reset="earliest", max_poll_records=1)
    consumer.assign([FIRST])
    assert read_values(consumer, 1) == OLD[:1]
    cluster.create_topic("other")
    other = TopicPartition("other", 0)
    yield lambda: consumer.assign([other])
    consumer.assign([other])
    assert [consumer.poll(50) for _ in range(4)] == [{}] * 4
    consumer.close()


def iterate(cluster: Coordinator) -> Steps:
    consumer = consumer_of(cluster)
    assert next(consumer).value == OLD[0]
    got: list[bytes | None] = []
    yield lambda: got.append(next(consumer).value)
    finish_consumer(cluster, consumer, OLD[1 + len(got) :])


def iterate_in_batch(cluster: Coordinator) -> Steps:
    """The next record has been read: the call only hands it over."""
    values = [b"new %d" % number for number in range(4)]
    with Producer(cluster=cluster, linger_ms=60_000) as producer:
        for value in values:
            producer.send("t", value)
    consumer = consumer_of(cluster)
    assert [next(consumer).value for _ in range(len(OLD) + 1)] == [*OLD, values[0]]
    got: list[bytes | None] = []
    yield lambda: got.append(next(consumer).value)
    expected = values[1 + len(got) :]
    assert in_other_thread(lambda: read_values(consumer, len(expected))) == expected
    in_other_thread(lambda: consumer.close())


def commit_offsets(cluster: Coordinator) -> Steps:
    consumer = consumer_of(cluster, enable_auto_commit=False, max_poll_records=2)
    before = read_values(consumer, 1)
    yield consumer.commit
    finish_consumer(cluster, consumer, OLD[len(before) :])


def commit_async(cluster: Coordinator) -> Steps:
    consumer = consumer_of(cluster, enable_auto_commit=False, max_poll_records=2)
    before = read_values(consumer, 1)
    yield consumer.commit_async
    finish_consumer(cluster, consumer, OLD[len(before) :])


def seek(cluster: Coordinator) -> Steps:
    consumer = consumer_of(cluster)
    read_values(consumer, len(OLD))
    yield lambda: consumer.seek(FIRST, 2)
    consumer.seek(FIRST, 3)
    finish_consumer(cluster, consumer, OLD[3:])


def close_consumer(cluster: Coordinator) -> Steps:
    consumer = consumer_of(cluster)
    read_values(consumer, len(OLD))
    yield consumer.close
    in_other_thread(lambda: consumer.close())
    assert not open_cluster(cluster.store).state.groups["g"].members
    committed = open_cluster(cluster.store).state.committed("g", "t", 0)
    assert committed is not None
    assert committed.offset == len(OLD)


# -- administration, scans


def create_topics(cluster: Coordinator) -> Steps:
    admin = AdminClient(cluster=cluster)
    yield lambda: admin.create_topics([NewTopic("new", 2, 1)])
    in_other_thread(lambda: admin.create_topics([NewTopic("other", 1, 1)]))
    assert set(admin.list_topics()) <= {"t", "new", "other"}
    admin.close()


def scan_topic(cluster: Coordinator) -> Steps:
    yield lambda: scan("t", cluster=cluster).to_arrow()
    assert scan("t", cluster=cluster).to_arrow().num_rows == len(OLD)


SCENARIOS: dict[str, Scenario] = {
    "send": send,
    "send first": send_first,
    "flush": flush,
    "get": get,
    "close producer": close_producer,
    "init_transactions": init_transactions,
    **{f"{step}, then abort": aborted_at(step) for step in ("begin", "send 1", "flush", "offsets", "commit")},
    "commit, then commit": commit_repeated,
    "commit of nothing": commit_nothing,
    "abort, then abort": abort_repeated,
    "abort, then commit": commit_after_abort,
    "close in a transaction": close_in_transaction,
    "first poll": poll_first,
    "poll": poll,
    "poll in a rebalance": poll_in_rebalance,
    "poll with offsets elsewhere": poll_with_offsets_elsewhere,
    "seek, given up": seek_given_up,
    "poll a topic that has grown": poll_a_topic_that_has_grown,
    "resume, given up": resume_given_up,
    "assign again": assign_again,
    "next": iterate,
    "next of a batch": iterate_in_batch,
    "commit": commit_offsets,
    "commit_async": commit_async,
    "seek": seek,
    "close consumer": close_consumer,
    "create_topics": create_topics,
    "scan": scan_topic,
}


@contextmanager
def began(scenario: Scenario, point: int = 0) -> Iterator[Call]:
    """Yield the call to interrupt at this point, then do the rest of the scenario, which is told the point."""
    steps = scenario(open_cluster(copy_of(built())))
    yield next(steps)
    with suppress(StopIteration):
        steps.send(point)
        pytest.fail("a scenario has one call")


def count(scenario: Scenario) -> int:
    with began(scenario) as call:
        return count_points(call)


class TimeLimit(TimeoutError):
    """What the handler of an alarm usually raises that bounds a task: an Exception, and an OSError."""


def end_by_time_limit() -> NoReturn:
    raise TimeLimit


def run(scenario: Scenario, point: int, handler: Callable[[], object] | None = None) -> None:
    interrupted: str | None = None
    try:
        with began(scenario, point) as call:
            try:
                interrupt(call, point, handler)
            except (SimulatedInterrupt, TimeLimit) as error:
                interrupted = str(error)
    except BaseException as error:
        raise AssertionError(
            f"after an interrupt {interrupted or ''} at point {point} of {handler or 'Ctrl-C'}: {error!r}"
        ) from error


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_call_may_be_interrupted_anywhere(name: str) -> None:
    points = range(count(SCENARIOS[name]))
    for number, point in enumerate(sorted(random.Random(name).sample(points, min(SAMPLE, len(points))))):
        run(SCENARIOS[name], point, end_by_time_limit if number % 3 == 2 else None)


@pytest.mark.faults
@pytest.mark.parametrize("handler", [None, end_by_time_limit], ids=["Ctrl-C", "time limit"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_call_may_be_interrupted_at_every_line(name: str, handler: Callable[[], object] | None) -> None:
    for point in range(count(SCENARIOS[name])):
        run(SCENARIOS[name], point, handler)
