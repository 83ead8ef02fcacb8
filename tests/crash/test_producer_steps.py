"""A producer's storage fails, or its process dies, at every step: records are stored at most once and in order,
acknowledged records are stored, and transactions are atomic.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from sparklog.client.producer.futures import FutureRecordMetadata
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import SparklogError
from sparklog.retry import ATTEMPTS
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
from tests.crash.copies import copy_of
from tests.sample import chosen

WAIT = 60
"""seconds. No test waits that long unless something is broken."""

Log = dict[tuple[str, int], list[bytes]]


def prepared() -> MemoryStore:
    return copy_of(_built())


@cache
def _built() -> MemoryStore:
    store = MemoryStore(uuid.uuid4().hex)
    coordinator = create_cluster(store)
    coordinator.create_topic("a", 2)
    coordinator.create_topic("b", 1)
    return store


def records(store: MemoryStore) -> Log:
    coordinator = open_cluster(store)
    log: Log = {}
    with LogReader(coordinator) as reader:
        for topic in coordinator.state.topics.values():
            for number, partition in enumerate(topic.partitions):
                read = reader.records(topic.name, number, 0, partition.high_watermark)
                log[topic.name, number] = [record.value or b"" for record in read]
    return log


def make(store: FaultyStore, **more: Any) -> Producer:
    """Return a producer that retries immediately and on a manual clock."""
    coordinator = open_cluster(store, clock=ManualClock())
    return Producer(cluster=coordinator, linger_ms=60_000, retry_backoff_ms=0, **more)


def produce(store: FaultyStore) -> dict[bytes, FutureRecordMetadata]:
    """Send records to all partitions in three flushes; return their futures."""
    sent: dict[bytes, FutureRecordMetadata] = {}
    with suppress(SparklogError, SimulatedCrash), make(store) as producer:
        for number in range(3):
            for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
                value = b"%s%d-%d" % (topic.encode(), partition, number)
                sent[value] = producer.send(topic, value, partition=partition)
            producer.flush(WAIT)
    return sent


def transact(store: FaultyStore) -> dict[bytes, FutureRecordMetadata]:
    """Commit two transactions of records for all partitions and a group's offsets; the second writes files before its
    end."""
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
    """Every fault at every step, including reads."""
    store = FaultyStore(prepared())
    operation(store)
    faults = list(every_crash(store.calls))
    for step, call in enumerate(store.calls):
        faults += [Fault(step, kind) for kind in (ERROR, UNAVAILABLE)]
        if call.operation in WRITES:
            faults.append(Fault(step, "full"))
    return faults


def in_order(values: list[bytes]) -> bool:
    numbers = [int(value.split(b"-")[1]) for value in values]
    return numbers == list(range(len(numbers)))


def acknowledged(sent: dict[bytes, FutureRecordMetadata]) -> set[bytes]:
    return {value for value, future in sent.items() if future.succeeded()}


@pytest.mark.parametrize("operation", [produce, transact])
def test_without_faults_every_record_is_stored(
    operation: Callable[[FaultyStore], dict[bytes, FutureRecordMetadata]],
) -> None:
    inner = prepared()
    sent = operation(FaultyStore(inner))
    log = records(inner)
    assert acknowledged(sent) == set(sent) == {value for values in log.values() for value in values}


@pytest.mark.sampled
def test_a_fault_at_any_step_of_producing_neither_loses_nor_duplicates_records() -> None:
    faults = faults_of(produce)
    assert len(faults) > 100
    for fault in chosen(faults):
        inner = prepared()
        store = FaultyStore(inner, [fault])
        try:
            sent = produce(store)
        finally:
            store.reopen()
        log = records(inner)
        for (topic, partition), values in log.items():
            assert in_order(values), f"{fault}: {topic}-{partition} has {values}"
            for offset, value in enumerate(values):
                future = sent[value]
                assert not future.succeeded() or future.get(0).offset == offset, (
                    f"{fault}: {value!r} is at another offset"
                )
        stored = {value for values in log.values() for value in values}
        assert acknowledged(sent) <= stored, f"{fault}: an acknowledged record is lost"
        if sent and not store_crashed(fault):
            assert acknowledged(sent) == set(sent), f"{fault}: not recovered from a transient fault"


def store_crashed(fault: Fault) -> bool:
    return fault.kind.startswith("crash")


@pytest.mark.sampled
def test_a_fault_at_any_step_of_a_transaction_leaves_it_atomic() -> None:
    faults = faults_of(transact)
    assert len(faults) > 100
    for fault in chosen(faults):
        inner = prepared()
        store = FaultyStore(inner, [fault])
        sent = transact(store)
        store.reopen()
        log = records(inner)
        committed = len(log["b", 0])
        assert all(len(values) == committed and in_order(values) for values in log.values()), (
            f"{fault}: partial transaction: {log}"
        )
        group = open_cluster(inner).state.groups.get("g")
        position = next(iter(group.offsets.values())).offset if group else -1
        assert position == committed - 1, f"{fault}: offsets without their records"
        stored = {value for values in log.values() for value in values}
        assert acknowledged(sent) <= stored, f"{fault}: an acknowledged record is lost"
        if sent and not store_crashed(fault):
            assert acknowledged(sent) == set(sent), f"{fault}: not recovered from a transient fault"


@pytest.mark.parametrize("operation", [produce, transact])
@pytest.mark.parametrize("kind", [UNAVAILABLE, LOST_ANSWER])
def test_a_commit_of_unknown_outcome_is_applied_once(
    operation: Callable[[FaultyStore], dict[bytes, FutureRecordMetadata]], kind: str
) -> None:
    """The answer is lost, and neither the commit nor the boundary can be read afterwards."""
    counted = FaultyStore(prepared())
    operation(counted)
    steps = [step for step, call in enumerate(counted.calls) if call.operation == "put_if_absent"]
    assert len(steps) >= 3
    for step in steps:
        for first in (step, step + 1):
            inner = prepared()
            silence = [Fault(later, UNAVAILABLE) for later in range(first, first + 1 + ATTEMPTS)]
            sent = operation(FaultyStore(inner, [*silence, Fault(step, kind)]))
            log = records(inner)
            assert all(in_order(values) for values in log.values()), f"step {step}, {kind}: {log}"
            assert acknowledged(sent) == set(sent) == {value for values in log.values() for value in values}


@pytest.mark.sampled
def test_the_next_instance_continues_after_a_crash_at_any_step_of_a_transaction() -> None:
    counted = FaultyStore(prepared())
    transact(counted)
    for fault in chosen(every_crash(counted.calls)):
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
