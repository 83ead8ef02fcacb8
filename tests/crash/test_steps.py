"""The writer is killed, or the storage fails, at every step of every operation: the operation is atomic, acknowledged
operations are stored, and a retry completes as if nothing had failed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pytest

from sparklog.coordinator import Coordinator, create_cluster, open_cluster, topic_deletion
from sparklog.errors import AlreadyExistsError, IndeterminateCommitError, SparklogError
from sparklog.log.layout import segment_key
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide.producers import init_producer
from sparklog.protocol.decide.topics import alter_configs, create_partitions
from sparklog.protocol.state import State
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import (
    ERROR,
    FULL,
    PERMISSION,
    UNAVAILABLE,
    WRITES,
    Fault,
    FaultyStore,
    SimulatedCrash,
    every_crash,
)
from tests.sample import chosen

Contents = dict[str, list[list[bytes]]]


def write_records(coordinator: Coordinator, values: list[bytes], topics: tuple[str, ...]) -> list[PartitionAppend]:
    """Write one file for all partitions of these topics, as a task that writes to many does."""
    state = coordinator.state
    key = segment_key(topics[0], 0, 0, coordinator.state.version, coordinator.log.ids.write_id())
    writer = SegmentFileWriter(coordinator.store, key, has_key=False)
    for topic in topics:
        for partition in range(len(state.topic(topic).partitions)):
            writer.start_run(RunTarget(topic, state.topic(topic).topic_id, partition))
            stamps = pa.array([0] * len(values), pa.timestamp("us", tz="UTC"))
            columns = [pa.array(values, pa.binary()), stamps]
            writer.write(pa.RecordBatch.from_arrays(columns, names=["value", "timestamp"]))
    return writer.finish()


def append(coordinator: Coordinator) -> None:
    items = write_records(coordinator, [b"new-1", b"new-2"], ("orders", "audit"))
    coordinator.append(AppendRequest(appends=items, application="job", application_version=7))


def produce(coordinator: Coordinator) -> None:
    """Append as an idempotent producer that already has its id."""
    items = write_records(coordinator, [b"new-1", b"new-2"], ("orders", "audit"))
    numbered = [
        PartitionAppend(
            topic=item.topic,
            topic_id=item.topic_id,
            partition=item.partition,
            run=item.run,
            producer_id=0,
            producer_epoch=0,
            base_sequence=0,
        )
        for item in items
    ]
    coordinator.append(AppendRequest(appends=numbered))


def once(change: Callable[[Coordinator], object]) -> Callable[[Coordinator], None]:
    """Wrap a change that is refused if it was already made, so that a retry has nothing to do."""

    def run(coordinator: Coordinator) -> None:
        with suppress(AlreadyExistsError):
            change(coordinator)

    return run


def delete_topic(coordinator: Coordinator) -> None:
    if "audit" in coordinator.refresh().topics:
        topic_deletion.delete_topic(coordinator, "audit")


def add_partitions(coordinator: Coordinator) -> None:
    if len(coordinator.refresh().topic("orders").partitions) < 4:
        coordinator.submit(partial(create_partitions, topic="orders", total=4))


class Operation(NamedTuple):
    run: Callable[[Coordinator], object]
    happened: Callable[[State], bool]


OPERATIONS = {
    "append": Operation(append, lambda s: s.topics["orders"].partitions[0].log_end_offset == 4),
    "produce": Operation(produce, lambda s: s.topics["orders"].partitions[0].log_end_offset == 4),
    "create topic": Operation(once(lambda c: c.create_topic("new", 3)), lambda s: "new" in s.topics),
    "delete topic": Operation(delete_topic, lambda s: "audit" not in s.topics),
    "add partitions": Operation(add_partitions, lambda s: len(s.topics["orders"].partitions) == 4),
    "configs": Operation(
        lambda c: c.submit(partial(alter_configs, topic="orders", changes={"retention.ms": "5"})),
        lambda s: s.topics["orders"].configs != {},
    ),
    "offsets": Operation(
        lambda c: c.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): 1}))),
        lambda s: "g" in s.groups,
    ),
    "checkpoint": Operation(lambda c: c.log.write_checkpoint(), lambda s: False),
}


def prepared() -> MemoryStore:
    store = MemoryStore(uuid.uuid4().hex)
    coordinator = create_cluster(store)
    coordinator.create_topic("orders", 2)
    coordinator.create_topic("audit", 1)
    coordinator.append(AppendRequest(appends=write_records(coordinator, [b"old-1", b"old-2"], ("orders", "audit"))))
    coordinator.submit(init_producer)
    coordinator.log.write_checkpoint()
    return store


def contents(store: MemoryStore) -> Contents:
    """Return every record of every partition, read through a new coordinator."""
    coordinator = open_cluster(store)
    state = coordinator.state
    fetcher = Fetcher(lambda broker: store)
    contents: Contents = {}
    for topic in state.topics.values():
        for number, partition in enumerate(topic.partitions):
            segments = coordinator.segments(topic.name).partition(number)
            records = list(fetcher.read(topic.name, segments, 0, partition.log_end_offset, ["value"]))
            values = [value for part in records for value in part.batch.column(0).to_pylist()]
            assert len(values) == partition.log_end_offset
            contents.setdefault(topic.name, []).append(values)
    return contents


def faults_of(operation: Operation) -> list[Fault]:
    """Every fault at every step of this operation, including reads."""
    store = FaultyStore(prepared())
    coordinator = open_cluster(store)
    store.reset_counts()
    operation.run(coordinator)
    calls = list(store.calls)
    faults = list(every_crash(calls))
    for step, call in enumerate(calls):
        faults += [Fault(step, kind) for kind in (ERROR, UNAVAILABLE)]
        if call.operation in WRITES:
            faults += [Fault(step, kind) for kind in (FULL, PERMISSION)]
    return faults


@pytest.mark.sampled
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_fault_at_any_step_leaves_all_or_nothing_and_a_retry_completes_the_operation(name: str) -> None:
    operation = OPERATIONS[name]
    before = contents(prepared())
    clean = prepared()
    operation.run(open_cluster(clean))
    wanted = contents(clean)
    faults = faults_of(operation)
    assert len(faults) > 10
    for fault in chosen(faults):
        inner = prepared()
        store = FaultyStore(inner)
        coordinator = open_cluster(store)
        store.reset_counts()
        store.inject(fault)
        acknowledged = refused = False
        try:
            operation.run(coordinator)
            acknowledged = True
        except (SimulatedCrash, IndeterminateCommitError):
            pass  # outcome unknown
        except SparklogError:
            refused = True
        store.reopen()
        after = contents(inner)
        assert after in (before, wanted), f"{name}, {fault}: neither before nor after"
        happened = operation.happened(open_cluster(inner).state)
        assert (not acknowledged) or happened or name == "checkpoint", f"{name}, {fault}: acknowledged, but lost"
        assert not (refused and happened), f"{name}, {fault}: refused, but applied"
        operation.run(open_cluster(inner))
        assert contents(inner) == wanted, f"{name}, {fault}: wrong contents after a retry"


def test_creating_a_cluster_can_be_retried_after_a_fault_at_any_step() -> None:
    counted = FaultyStore(MemoryStore(uuid.uuid4().hex))
    create_cluster(counted)
    for fault in every_crash(counted.calls):
        inner = MemoryStore(uuid.uuid4().hex)
        store = FaultyStore(inner, [fault])
        with suppress(SimulatedCrash, SparklogError):
            create_cluster(store)
        store.reopen()
        with suppress(AlreadyExistsError):
            create_cluster(inner)
        assert list(open_cluster(inner).state.brokers) == [0], f"{fault}"


def test_the_cluster_is_readable_and_accepts_appends_after_the_disk_was_full() -> None:
    inner = prepared()
    store = FaultyStore(inner)
    coordinator = open_cluster(store)
    store.reset_counts()
    for step in range(3):
        store.inject(Fault(step, FULL))
    with pytest.raises(SparklogError):
        append(coordinator)
    before = contents(inner)
    store.reopen()
    append(coordinator)
    assert contents(inner) != before
