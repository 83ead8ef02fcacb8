"""Either of two locations fails, or the process dies, at every step of a replicated write: what was acknowledged is on
every replica in sync, once and in order, and the ISR never names a replica that lacks a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock
from sparklog.errors import SparklogError
from sparklog.spark.options import sink_options
from sparklog.spark.sink.writer import SparklogWriter
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
from tests.replicated import Brokers, brokers
from tests.unit.spark.helpers import batches, schema_of

WAIT = 60
"""seconds. No test waits that long unless something is broken."""

DDL = "value string, partition int"
PARTITIONS = 2
ROUNDS = 3
Sent = dict[bytes, bool]
"""Whether each value was acknowledged."""

Write = Callable[[Brokers], Sent]


def value(partition: int, number: int) -> bytes:
    return b"%d-%d" % (partition, number)


def produce(found: Brokers) -> Sent:
    """Three commits of a record for each partition; partition 0 is led by broker 0 and partition 1 by broker 1."""
    futures = {}
    with suppress(SparklogError, SimulatedCrash), Producer(
        cluster=found.coordinator, linger_ms=60_000, retry_backoff_ms=0
    ) as producer:  # fmt: skip
        for number in range(ROUNDS):
            for partition in range(PARTITIONS):
                futures[value(partition, number)] = producer.send("t", value(partition, number), partition=partition)
            producer.flush(WAIT)
    return {sent: future.succeeded() for sent, future in futures.items()}


def transact(found: Brokers) -> Sent:
    """A transaction for each round, the records of the second half of them in files before its end."""
    futures = {}
    with suppress(SparklogError, SimulatedCrash), Producer(
        cluster=found.coordinator, transactional_id="tx", retry_backoff_ms=0
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


def call(found: Brokers) -> Sent:
    """Three calls, each with a record for each partition; one that fails is not repeated."""
    sent: Sent = {}
    with suppress(SparklogError, SimulatedCrash):
        for number in range(ROUNDS):
            values = [value(partition, number) for partition in range(PARTITIONS)]
            sent.update(dict.fromkeys(values, False))
            records = [Record(value=one, partition=partition) for partition, one in enumerate(values)]
            append_records(found.coordinator, "t", records)
            sent.update(dict.fromkeys(values, True))
    return sent


def job(found: Brokers) -> Sent:
    """Three Spark jobs as Spark runs them, each with a row for each partition; one that fails is not repeated."""
    sent: Sent = {}
    with suppress(SparklogError, SimulatedCrash):
        for number in range(ROUNDS):
            values = [value(partition, number) for partition in range(PARTITIONS)]
            sent.update(dict.fromkeys(values, False))
            rows = [{"value": one.decode(), "partition": partition} for partition, one in enumerate(values)]
            writer = SparklogWriter(sink_options({"path": found.root, "topic": "t"}), schema_of(DDL))
            writer.commit([writer.write(iter(batches(DDL, rows)))])
            sent.update(dict.fromkeys(values, True))
    return sent


def attempt(folder: Path, write: Write, faults: list[tuple[int, Fault]], **configs: Any) -> tuple[Sent, Brokers]:
    with brokers(folder, faults=faults, clock=ManualClock(), partitions=PARTITIONS, **configs) as found:
        sent = write(found)
        for store in found.stores:
            store.reopen()
    return sent, found


def steps(folder: Path, write: Write, broker: int) -> Iterator[tuple[int, str]]:
    """The storage steps of a write on one broker, with the operation of each."""
    with brokers(folder, clock=ManualClock(), partitions=PARTITIONS) as found:
        assert all(write(found).values())
        return iter([(step, call.operation) for step, call in enumerate(found.stores[broker].calls)])


def check(found: Brokers, sent: Sent, why: object) -> None:
    for partition in range(PARTITIONS):
        now = found.partition("t", partition)
        assert now.leader in now.isr, why
        on = [found.values(broker, "t", partition) for broker in now.isr]
        assert all(values == on[0] for values in on), f"{why}: the replicas in sync of {partition} differ: {on}"
        numbers = [int(one.split(b"-")[1]) for one in on[0]]
        assert numbers == sorted(set(numbers)), f"{why}: {partition} has {numbers}"
        missing = [one for one, known in sent.items() if known and one.startswith(b"%d-" % partition)]
        assert set(missing) <= set(on[0]), f"{why}: acknowledged and lost"


@pytest.mark.parametrize("broker", [0, 1])
@pytest.mark.parametrize("write", [produce, transact, call, job])
def test_a_fault_at_any_step_of_either_location_leaves_what_was_acknowledged_on_every_replica_in_sync(
    tmp_path: Path, write: Write, broker: int
) -> None:
    tried = 0
    for step, operation in steps(tmp_path / "counted", write, broker):
        kinds = (ERROR, UNAVAILABLE, *((FULL, LOST_ANSWER) if operation in WRITES else ()))
        for kind in kinds:
            why = (write.__name__, broker, step, operation, kind)
            sent, found = attempt(tmp_path / f"{step}-{kind}", write, [(broker, Fault(step, kind))])
            check(found, sent, why)
            if sent and write in (produce, transact):
                assert all(sent.values()), f"{why}: a fault that passes was not overcome"
            tried += 1
    assert tried > 20


@pytest.mark.parametrize("broker", [0, 1])
@pytest.mark.parametrize("write", [produce, transact, call, job])
def test_a_crash_at_any_step_of_either_location_leaves_what_was_acknowledged_on_every_replica_in_sync(
    tmp_path: Path, write: Write, broker: int
) -> None:
    for step, operation in steps(tmp_path / "counted", write, broker):
        if operation not in WRITES:
            continue
        for kind in (CRASH_BEFORE, CRASH_AFTER):
            sent, found = attempt(tmp_path / f"{step}-{kind}", write, [(broker, Fault(step, kind))])
            check(found, sent, (write.__name__, broker, step, operation, kind))


@pytest.mark.parametrize("write", [produce, transact])
def test_a_follower_and_leader_that_is_lost_for_good_at_any_step_leaves_one_that_has_everything(
    tmp_path: Path, write: Write
) -> None:
    """Broker 1 leads one partition and follows in the other; the root, where the commits are, stays."""
    for step, _ in steps(tmp_path / "counted", write, 1):
        lost = [(1, Fault(later, ERROR)) for later in range(step, 500)]
        sent, found = attempt(tmp_path / f"{step}", write, lost)
        check(found, sent, (write.__name__, step))
        assert all(sent.values())
        for partition in range(PARTITIONS):
            assert 0 in found.partition("t", partition).isr
            assert set(found.values(0, "t", partition)) == {value(partition, number) for number in range(ROUNDS)}


@pytest.mark.parametrize("broker", [0, 1])
@pytest.mark.parametrize("kind", [UNAVAILABLE, OUTAGE, LOST_ANSWER])
def test_with_min_insync_replicas_of_2_no_fault_costs_a_copy_of_what_was_acknowledged(
    tmp_path: Path, broker: int, kind: str
) -> None:
    for step, operation in steps(tmp_path / "counted", produce, broker):
        if kind == LOST_ANSWER and operation not in WRITES:
            continue
        why = (broker, step, operation, kind)
        sent, found = attempt(tmp_path / f"{step}", produce, [(broker, Fault(step, kind))], min_insync_replicas="2")
        check(found, sent, why)
        if sent:
            assert all(sent.values()), why
        assert all(set(found.partition("t", partition).isr) == {0, 1} for partition in range(PARTITIONS)), why


def test_a_commit_whose_outcome_nobody_can_tell_happens_once_with_replicas_too(tmp_path: Path) -> None:
    for step, operation in steps(tmp_path / "counted", produce, 0):
        if operation == "put_if_absent":
            sent, found = attempt(tmp_path / f"{step}", produce, [(0, Fault(step, OUTAGE))])
            check(found, sent, (step, operation))
            assert all(sent.values())
