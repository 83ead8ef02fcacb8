"""A producer's storage fails, or its process dies, at every step: each record is there once, in order, and what was
acknowledged is there; a transaction is there whole or not at all.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from sparklog.client.producer.futures import FutureRecordMetadata
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import SparklogError
from sparklog.log.commits.commit_attempt import READ_BACK_ATTEMPTS
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import (
    ERROR,
    LOST_ANSWER,
    UNAVAILABLE,
    WRITES,
    Fault,
    FaultyStore,
    SimulatedCrash,
    every_crash,
)

WAIT = 60
"""seconds. No test waits that long unless something is broken."""

Log = dict[tuple[str, int], list[bytes]]


def prepared() -> MemoryStore:
    store = MemoryStore(uuid.uuid4().hex)
    coordinator = create_cluster(store)
    coordinator.create_topic("a", 2)
    coordinator.create_topic("b", 1)
    return store


def records(store: MemoryStore) -> Log:
    coordinator = open_cluster(store)
    found: Log = {}
    with LogReader(coordinator) as reader:
        for topic in coordinator.state.topics.values():
            for number, partition in enumerate(topic.partitions):
                read = reader.records(topic.name, number, 0, partition.high_watermark)
                found[topic.name, number] = [record.value or b"" for record in read]
    return found


def make(store: FaultyStore, **more: Any) -> Producer:
    """Return a producer that retries immediately, and whose waits for the storage take no time."""
    coordinator = open_cluster(store, clock=ManualClock())
    return Producer(cluster=coordinator, linger_ms=60_000, retry_backoff_ms=0, **more)


def produce(store: FaultyStore) -> dict[bytes, FutureRecordMetadata]:
    """Three flushes of records for all partitions; the future of each."""
    sent: dict[bytes, FutureRecordMetadata] = {}
    with suppress(SparklogError, SimulatedCrash), make(store) as producer:
        for number in range(3):
            for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
                value = b"%s%d-%d" % (topic.encode(), partition, number)
                sent[value] = producer.send(topic, value, partition=partition)
            producer.flush(WAIT)
    return sent


def transact(store: FaultyStore) -> dict[bytes, FutureRecordMetadata]:
    """Two transactions of records for all partitions and offsets of a group, the second with files before its end."""
    sent: dict[bytes, FutureRecordMetadata] = {}
    with suppress(SparklogError, SimulatedCrash), make(store, transactional_id="tx") as producer:
        producer.init_transactions()
        for number in range(2):
            producer.begin_transaction()
            for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
                value = b"%s%d-%d" % (topic.encode(), partition, number)
                sent[value] = producer.send(topic, value, partition=partition)
                if number == 1:
                    producer.flush()
            producer.send_offsets_to_transaction({("b", 0): number}, "g")
            producer.commit_transaction()
    return sent


def faults_of(operation: Callable[[FaultyStore], object]) -> list[Fault]:
    """Every fault at every step; reads are refused too."""
    store = FaultyStore(prepared())
    operation(store)
    found = list(every_crash(store.calls))
    for step, call in enumerate(store.calls):
        found += [Fault(step, kind) for kind in (ERROR, UNAVAILABLE)]
        if call.operation in WRITES:
            found.append(Fault(step, "full"))
    return found


def in_order(values: list[bytes]) -> bool:
    numbers = [int(value.split(b"-")[1]) for value in values]
    return numbers == list(range(len(numbers)))


def acknowledged(sent: dict[bytes, FutureRecordMetadata]) -> set[bytes]:
    return {value for value, future in sent.items() if future.succeeded()}


@pytest.mark.parametrize("operation", [produce, transact])
def test_without_faults_everything_is_there(
    operation: Callable[[FaultyStore], dict[bytes, FutureRecordMetadata]],
) -> None:
    inner = prepared()
    sent = operation(FaultyStore(inner))
    found = records(inner)
    assert acknowledged(sent) == set(sent) == {value for values in found.values() for value in values}


def test_a_fault_at_any_step_of_producing_leaves_each_record_once_and_what_was_acknowledged() -> None:
    faults = faults_of(produce)
    assert len(faults) > 100
    for fault in faults:
        inner = prepared()
        store = FaultyStore(inner, [fault])
        try:
            sent = produce(store)
        finally:
            store.reopen()
        found = records(inner)
        for (topic, partition), values in found.items():
            assert in_order(values), f"{fault}: {topic}-{partition} has {values}"
            for offset, value in enumerate(values):
                future = sent[value]
                assert not future.succeeded() or future.get(0).offset == offset, f"{fault}: {value!r} is elsewhere"
        there = {value for values in found.values() for value in values}
        assert acknowledged(sent) <= there, f"{fault}: acknowledged and lost"
        if sent and not store_crashed(fault):
            assert acknowledged(sent) == set(sent), f"{fault}: a fault that passes was not overcome"


def store_crashed(fault: Fault) -> bool:
    return fault.kind.startswith("crash")


def test_a_fault_at_any_step_of_a_transaction_leaves_all_of_it_or_nothing() -> None:
    faults = faults_of(transact)
    assert len(faults) > 100
    for fault in faults:
        inner = prepared()
        store = FaultyStore(inner, [fault])
        sent = transact(store)
        store.reopen()
        found = records(inner)
        committed = len(found["b", 0])
        assert all(len(values) == committed and in_order(values) for values in found.values()), (
            f"{fault}: torn: {found}"
        )
        group = open_cluster(inner).state.groups.get("g")
        position = next(iter(group.offsets.values())).offset if group else -1
        assert position == committed - 1, f"{fault}: offsets without their records"
        there = {value for values in found.values() for value in values}
        assert acknowledged(sent) <= there, f"{fault}: acknowledged and lost"
        if sent and not store_crashed(fault):
            assert acknowledged(sent) == set(sent), f"{fault}: a fault that passes was not overcome"


@pytest.mark.parametrize("operation", [produce, transact])
@pytest.mark.parametrize("kind", [UNAVAILABLE, LOST_ANSWER])
def test_a_commit_that_nobody_can_tell_the_outcome_of_happens_once(
    operation: Callable[[FaultyStore], dict[bytes, FutureRecordMetadata]], kind: str
) -> None:
    """Its answer is lost, and neither it nor the boundary can be read afterwards."""
    counted = FaultyStore(prepared())
    operation(counted)
    steps = [step for step, call in enumerate(counted.calls) if call.operation == "put_if_absent"]
    assert len(steps) >= 3
    for step in steps:
        for first in (step, step + 1):
            inner = prepared()
            silence = [Fault(later, UNAVAILABLE) for later in range(first, first + 1 + READ_BACK_ATTEMPTS)]
            sent = operation(FaultyStore(inner, [*silence, Fault(step, kind)]))
            found = records(inner)
            assert all(in_order(values) for values in found.values()), f"step {step}, {kind}: {found}"
            assert acknowledged(sent) == set(sent) == {value for values in found.values() for value in values}


def test_the_next_instance_goes_on_after_a_crash_at_any_step_of_a_transaction() -> None:
    counted = FaultyStore(prepared())
    transact(counted)
    for fault in every_crash(counted.calls):
        inner = prepared()
        store = FaultyStore(inner, [fault])
        transact(store)
        store.reopen()
        before = records(inner)
        with make(FaultyStore(inner), transactional_id="tx") as producer:
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("b", b"b0-%d" % len(before["b", 0]))
            producer.commit_transaction()
        after = records(inner)
        assert after["b", 0][:-1] == before["b", 0], f"{fault}"
        assert in_order(after["b", 0]), f"{fault}"
