"""A Spark task as a group member, with a fault at every storage step: every record is copied once."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

import pyarrow as pa
import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster, open_cluster, shared
from sparklog.errors import SparklogError
from sparklog.protocol.decide.groups import leave_group
from sparklog.spark.group.task import ConsumeContext, ConsumeSettings, ConsumeTask
from sparklog.spark.sink import output
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore
from sparklog.store.process_local import start_over
from sparklog.testing.faulty_store import (
    ERROR,
    LOST_ANSWER,
    OUTAGE,
    UNAVAILABLE,
    WRITES,
    Fault,
    FaultyStore,
    SimulatedCrash,
    every_crash,
)
from sparklog.testing.records import Record, append_records
from sparklog.types import TopicPartition
from tests.crash.copies import copy_of
from tests.crash.test_steps import contents
from tests.sample import chosen

RECORDS = 6
ENDS = {TopicPartition("orders", number): RECORDS // 2 for number in range(2)}


@pytest.fixture(autouse=True)
def finish_files_sequentially(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are finished in a fixed order, so that a step is the same in every run."""
    monkeypatch.setattr(output, "FINISH_THREADS", 1)


def prepared() -> MemoryStore:
    return copy_of(_built())


@cache
def _built() -> MemoryStore:
    store = MemoryStore(uuid.uuid4().hex)
    coordinator = create_cluster(store)
    coordinator.create_topic("orders", 2)
    coordinator.create_topic("copy", 1)
    append_records(coordinator, "orders", [Record(value=str(n).encode(), partition=n % 2) for n in range(RECORDS)])
    return store


def copy(records: pa.RecordBatch, context: ConsumeContext) -> None:
    context.send("copy", records.select(["value"]))


@contextmanager
def opened_by_url(store: Store) -> Iterator[None]:
    """Every root opened in the block is this store, as in a process that has opened nothing yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "open_store", lambda url, options=None: store)
        start_over()
        manual = ManualClock()
        patch.setattr(shared, "open_cluster", lambda store, options: open_cluster(store, options, manual))
        yield


def run(store: Store) -> None:
    settings = ConsumeSettings(root="/log", group="g", topics=("orders",), max_records=2, ends=ENDS)
    with opened_by_url(store):
        ConsumeTask(settings, copy, 0).run()


def faults() -> list[Fault]:
    store = FaultyStore(prepared())
    run(store)
    points = list(every_crash(store.calls))
    for step, call in enumerate(store.calls):
        points += [Fault(step, kind) for kind in (ERROR, UNAVAILABLE, OUTAGE)]
        if call.operation in WRITES:
            points.append(Fault(step, LOST_ANSWER))
    return points


@pytest.mark.sampled
def test_every_record_is_copied_once_after_a_fault_at_any_step_of_a_member() -> None:
    for fault in chosen(faults()):
        inner = prepared()
        store = FaultyStore(inner, [fault])
        try:
            run(store)
        except (SimulatedCrash, SparklogError):
            log = open_cluster(inner)
            log.submit(
                partial(
                    leave_group,
                    group="g",
                    members=list(log.state.groups["g"].members) if "g" in log.state.groups else [],
                    reason="expired",
                )
            )
            run(inner)
        log = open_cluster(inner)
        copied = sorted(int(value) for value in contents(inner)["copy"][0])
        assert copied == list(range(RECORDS)), fault
        assert {entry.offset for entry in log.state.groups["g"].offsets.values()} == {RECORDS // 2}, fault
