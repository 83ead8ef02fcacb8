"""Either of two locations fails, or the process dies, at every step of a replicated write: acknowledged records are on
every in-sync replica, once and in order, and the ISR never names a replica that lacks a record.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock
from sparklog.coordinator import open_cluster, shared
from sparklog.errors import SparklogError
from sparklog.spark.options import sink_options
from sparklog.spark.sink.writer import SparklogWriter
from sparklog.store.memory import forget_space
from sparklog.testing.faulty_store import (
    CRASH_AFTER,
    CRASH_BEFORE,
    ERROR,
    FULL,
    LOST_ANSWER,
    OUTAGE,
    UNAVAILABLE,
    WRITES,
    Fault,
    SimulatedCrash,
)
from sparklog.testing.records import Record, append_records
from tests.cluster.spark.helpers import batches, schema_of
from tests.crash.worlds import SPARK_PATH, opened
from tests.replicated import Brokers, brokers
from tests.sample import chosen

WAIT = 60
"""seconds. No test waits that long unless something is broken."""

DDL = "value string, partition int"
PARTITIONS = 2
ROUNDS = 3
Sent = dict[bytes, bool]
"""Whether each value was acknowledged."""

Write = Callable[[Brokers], Sent]
Spaces = Callable[[], str]
"""Returns an address in memory that is new at each call."""


@pytest.fixture
def spaces() -> Iterator[Spaces]:
    names: list[str] = []

    def new() -> str:
        names.append(uuid.uuid4().hex)
        return f"memory://{names[-1]}"

    yield new
    for name in names:
        forget_space(name)


def value(partition: int, number: int) -> bytes:
    return b"%d-%d" % (partition, number)


def produce(cluster: Brokers) -> Sent:
    """Three commits of a record for each partition; partition 0 is led by broker 0 and partition 1 by broker 1."""
    futures = {}
    with suppress(SparklogError, SimulatedCrash), Producer(
        cluster=cluster.coordinator, linger_ms=60_000, retry_backoff_ms=0
    ) as producer:  # fmt: skip
        for number in range(ROUNDS):
            for partition in range(PARTITIONS):
                futures[value(partition, number)] = producer.send("t", value(partition, number), partition=partition)
            producer.flush(WAIT)
    return {sent: future.succeeded() for sent, future in futures.items()}


def transact(cluster: Brokers) -> Sent:
    """One transaction per round; all but the first write their records to files before the end."""
    futures = {}
    with suppress(SparklogError, SimulatedCrash), Producer(
        cluster=cluster.coordinator, transactional_id="tx", retry_backoff_ms=0
    ) as producer:  # fmt: skip
        producer.init_transactions()
        for number in range(ROUNDS):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                futures[value(partition, number)] = producer.send("t", value(partition, number), partition=partition)
                if number:
                    producer.flush()
            producer.commit_transaction()
    return {sent: future.succeeded() for sent, future in futures.items()}


def call(cluster: Brokers) -> Sent:
    """Three calls, each with one record per partition; a failed call is not retried."""
    sent: Sent = {}
    with suppress(SparklogError, SimulatedCrash):
        for number in range(ROUNDS):
            values = [value(partition, number) for partition in range(PARTITIONS)]
            sent.update(dict.fromkeys(values, False))
            records = [Record(value=data, partition=partition) for partition, data in enumerate(values)]
            append_records(cluster.coordinator, "t", records)
            sent.update(dict.fromkeys(values, True))
    return sent


def job(cluster: Brokers) -> Sent:
    """Three Spark jobs as Spark runs them, each with one row per partition; a failed job is not retried."""
    sent: Sent = {}
    with suppress(SparklogError, SimulatedCrash), pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "open_store", lambda url, options: opened(url, cluster.stores[0], options))
        patch.setattr(shared, "open_cluster", lambda store, options: open_cluster(store, options, ManualClock()))
        for number in range(ROUNDS):
            values = [value(partition, number) for partition in range(PARTITIONS)]
            sent.update(dict.fromkeys(values, False))
            rows = [{"value": data.decode(), "partition": partition} for partition, data in enumerate(values)]
            writer = SparklogWriter(sink_options({"path": SPARK_PATH, "topic": "t"}), schema_of(DDL))
            writer.commit([writer.write(iter(batches(DDL, rows)))])
            sent.update(dict.fromkeys(values, True))
    return sent


def attempt(space: str, write: Write, faults: list[tuple[int, Fault]], **configs: Any) -> tuple[Sent, Brokers]:
    with brokers(space, faults=faults, clock=ManualClock(), partitions=PARTITIONS, **configs) as cluster:
        sent = write(cluster)
        for store in cluster.stores:
            store.reopen()
    return sent, cluster


def steps(space: str, write: Write, broker: int) -> Iterator[tuple[int, str]]:
    """Return the storage steps of a write on one broker, each with its operation."""
    with brokers(space, clock=ManualClock(), partitions=PARTITIONS) as cluster:
        assert all(write(cluster).values())
        return iter([(step, call.operation) for step, call in enumerate(cluster.stores[broker].calls)])


def check(cluster: Brokers, sent: Sent, why: object) -> None:
    for partition in range(PARTITIONS):
        state = cluster.partition("t", partition)
        assert state.leader in state.isr, why
        replicas = [cluster.values(broker, "t", partition) for broker in state.isr]
        assert all(values == replicas[0] for values in replicas), (
            f"{why}: the in-sync replicas of {partition} differ: {replicas}"
        )
        numbers = [int(data.split(b"-")[1]) for data in replicas[0]]
        assert numbers == sorted(set(numbers)), f"{why}: {partition} has {numbers}"
        expected = [data for data, acknowledged in sent.items() if acknowledged and data.startswith(b"%d-" % partition)]
        assert set(expected) <= set(replicas[0]), f"{why}: an acknowledged record is lost"


@pytest.mark.sampled
@pytest.mark.parametrize("broker", [0, 1])
@pytest.mark.parametrize("write", [produce, transact, call, job])
def test_acknowledged_records_are_on_all_in_sync_replicas_after_a_fault_at_any_step(
    spaces: Spaces, write: Write, broker: int
) -> None:
    faults = [
        (operation, Fault(step, kind))
        for step, operation in steps(spaces(), write, broker)
        for kind in (ERROR, UNAVAILABLE, *((FULL, LOST_ANSWER) if operation in WRITES else ()))
    ]
    assert len(faults) > 20
    for operation, fault in chosen(faults):
        why = (write.__name__, broker, operation, fault)
        sent, cluster = attempt(spaces(), write, [(broker, fault)])
        check(cluster, sent, why)
        if sent and write in (produce, transact):
            assert all(sent.values()), f"{why}: not recovered from a transient fault"


@pytest.mark.sampled
@pytest.mark.parametrize("broker", [0, 1])
@pytest.mark.parametrize("write", [produce, transact, call, job])
def test_acknowledged_records_are_on_all_in_sync_replicas_after_a_crash_at_any_step(
    spaces: Spaces, write: Write, broker: int
) -> None:
    writes = [step for step, operation in steps(spaces(), write, broker) if operation in WRITES]
    for fault in chosen(Fault(step, kind) for step in writes for kind in (CRASH_BEFORE, CRASH_AFTER)):
        sent, cluster = attempt(spaces(), write, [(broker, fault)])
        check(cluster, sent, (write.__name__, broker, fault))


@pytest.mark.sampled
@pytest.mark.parametrize("write", [produce, transact])
def test_the_remaining_broker_has_every_record_after_the_other_is_lost_at_any_step(
    spaces: Spaces, write: Write
) -> None:
    """Broker 1 leads one partition and follows in the other; the root, which has the commits, stays available."""
    for step, _ in chosen(steps(spaces(), write, 1)):
        lost = [(1, Fault(later, ERROR)) for later in range(step, 500)]
        sent, cluster = attempt(spaces(), write, lost)
        check(cluster, sent, (write.__name__, step))
        assert all(sent.values())
        for partition in range(PARTITIONS):
            assert 0 in cluster.partition("t", partition).isr
            assert set(cluster.values(0, "t", partition)) == {value(partition, number) for number in range(ROUNDS)}


@pytest.mark.parametrize("broker", [0, 1])
@pytest.mark.parametrize("kind", [UNAVAILABLE, OUTAGE, LOST_ANSWER])
def test_with_min_insync_replicas_of_2_acknowledged_records_keep_both_replicas(
    spaces: Spaces, broker: int, kind: str
) -> None:
    for step, operation in steps(spaces(), produce, broker):
        if kind == LOST_ANSWER and operation not in WRITES:
            continue
        why = (broker, step, operation, kind)
        sent, cluster = attempt(spaces(), produce, [(broker, Fault(step, kind))], min_insync_replicas="2")
        check(cluster, sent, why)
        if sent:
            assert all(sent.values()), why
        assert all(set(cluster.partition("t", partition).isr) == {0, 1} for partition in range(PARTITIONS)), why


def test_a_replicated_commit_of_unknown_outcome_is_applied_once(spaces: Spaces) -> None:
    for step, operation in steps(spaces(), produce, 0):
        if operation == "put_if_absent":
            sent, cluster = attempt(spaces(), produce, [(0, Fault(step, OUTAGE))])
            check(cluster, sent, (step, operation))
            assert all(sent.values())
