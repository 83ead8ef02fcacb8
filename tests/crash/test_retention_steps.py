"""Retention, sweep, vacuum and clean-up of commits are killed, or the storage fails, at every step: the log is as
before or after the operation, no reader gets an error, and a rerun completes as if nothing had failed."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import NamedTuple

import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import IndeterminateCommitError, SparklogError
from sparklog.log.commits import cleanup
from sparklog.log.commits.retired_files import REMOVED
from sparklog.log.layout import COMMITS, segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.log.settings import LogSettings
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.segments.retention import retain
from sparklog.protocol.state import State
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import ERROR, UNAVAILABLE, Fault, FaultyStore, SimulatedCrash, every_crash
from tests.cluster.maintenance.logs import Written, append, batch_of, records
from tests.crash.copies import copy_of
from tests.sample import chosen

MINUTE = 60.0
DAY = 86_400.0
NO_COMMITS_KEPT = LogSettings(min_commits_kept=0)


class Prepared(NamedTuple):
    store: MemoryStore
    clock: ManualClock
    """of the storage"""


class Contents(NamedTuple):
    """The records that readers see, and the stored files."""

    records: list[tuple[str, int, int, bytes | None]]
    files: frozenset[str]


def prepared() -> Prepared:
    """Expired segments in ``orders`` (the first 3 files of partition 0, the only file of partition 1), a deleted topic
    whose files are due, an orphan of a writer that was killed, and old commits behind a checkpoint."""
    store, clock = _built()
    own = ManualClock(clock.now_ms())
    return Prepared(copy_of(store, own), own)


@cache
def _built() -> Prepared:
    clock = ManualClock(0)
    store = MemoryStore(uuid.uuid4().hex, clock)
    coordinator = create_cluster(store, clock=clock, settings=NO_COMMITS_KEPT)
    small = {"internal.segment.bytes": "1", "file.delete.delay.ms": "1000"}
    coordinator.create_topic("orders", 2, configs={**small, "retention.ms": str(8 * 86_400_000)})
    coordinator.create_topic("audit", configs={**small, "retention.ms": "-1"})
    coordinator.create_topic("gone", configs=small)
    for number in range(3):
        append(coordinator, "orders", [Written(value=b"old %d" % number)])
    append(coordinator, "orders", [Written(value=b"other")], partition=1)
    append(coordinator, "audit", [Written(value=b"kept")])
    append(coordinator, "gone", [Written(value=b"x")])
    key = segment_key("orders", 0, 0, coordinator.state.version, coordinator.log.ids.write_id())
    writer = SegmentFileWriter(store, key, has_key=False)
    writer.start_run(RunTarget("orders", coordinator.state.topic("orders").topic_id, 0))
    writer.write(batch_of([Written()], ["value", "timestamp"]))
    writer.finish()
    delete_topic(coordinator, "gone")
    coordinator.log.write_checkpoint()
    clock.advance(9 * DAY)
    append(coordinator, "orders", [Written(value=b"new", minute=9 * 24 * 60)])
    clock.advance(60)
    return Prepared(store, clock)


def opened(store: MemoryStore | FaultyStore, clock: ManualClock) -> Coordinator:
    """Open with a separate clock, so that a back-off does not move the storage's time."""
    return open_cluster(store, clock=ManualClock(clock.now_ms()), settings=NO_COMMITS_KEPT)


class Operation(NamedTuple):
    run: Callable[[Coordinator], object]
    done: Callable[[State, Contents], bool]


OPERATIONS = {
    "retention": Operation(retain, lambda state, seen: state.partition("orders", 0).log_start_offset == 3),
    "sweep": Operation(sweep, lambda state, seen: not any(key.startswith("gone-") for key in seen.files)),
    "vacuum": Operation(
        lambda coordinator: vacuum(coordinator, dry_run=False), lambda state, seen: state.writer_fence >= 0
    ),
    "clean-up": Operation(
        lambda coordinator: cleanup.clean_up(
            coordinator.store, coordinator.log.clock, coordinator.state.configs, NO_COMMITS_KEPT
        ),
        lambda state, seen: True,
    ),
    "all": Operation(lambda coordinator: _everything(coordinator), lambda state, seen: True),
}


def _everything(coordinator: Coordinator) -> None:
    retain(coordinator)
    sweep(coordinator)
    vacuum(coordinator, dry_run=False)
    cleanup.clean_up(coordinator.store, coordinator.log.clock, coordinator.refresh().configs, NO_COMMITS_KEPT)


def seen(store: MemoryStore, clock: ManualClock) -> Contents:
    """Return what a new coordinator can read, and the stored files without metadata, whose names are random."""
    coordinator = opened(store, clock)
    visible = [
        (name, number, record.offset, record.value)
        for name, topic in sorted(coordinator.state.topics.items())
        for number in range(len(topic.partitions))
        for record in records(coordinator, name, number)
    ]
    files = frozenset(info.key for info in store.list() if not info.key.startswith(("meta/", "leases/")))
    return Contents(visible, files)


def comparable(contents: Contents) -> tuple[object, int]:
    return contents.records, len(contents.files)


def faults_of(operation: Operation) -> list[Fault]:
    inner, clock = prepared()
    store = FaultyStore(inner)
    coordinator = opened(store, clock)
    store.reset_counts()
    operation.run(coordinator)
    return [
        *every_crash(store.calls),
        *(Fault(step, kind) for step in range(len(store.calls)) for kind in (ERROR, UNAVAILABLE)),
    ]


@pytest.mark.sampled
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_fault_at_any_step_keeps_the_log_readable_and_a_rerun_completes_the_work(name: str) -> None:
    operation = OPERATIONS[name]
    clean, clock = prepared()
    before = seen(clean, clock)
    operation.run(opened(clean, clock))
    wanted = seen(clean, clock)
    faults = faults_of(operation)
    assert len(faults) > 20
    for fault in chosen(faults):
        inner, clock = prepared()
        store = FaultyStore(inner)
        coordinator = opened(store, clock)
        store.reset_counts()
        store.inject(fault)
        finished = False
        try:
            result = operation.run(coordinator)
            finished = not getattr(result, "problems", [])
        except (SimulatedCrash, IndeterminateCommitError, SparklogError):
            pass
        store.reopen()
        between = seen(inner, clock)
        assert between.records in (before.records, wanted.records), f"{name}, {fault}: neither before nor after"
        done = operation.done(opened(inner, clock).state, between)
        assert done or not finished, f"{name}, {fault}: reported as done, but is not"
        with suppress(IndeterminateCommitError):
            operation.run(opened(inner, clock))
        assert comparable(seen(inner, clock)) == comparable(wanted), f"{name}, {fault}: wrong result after a rerun"
        clock.advance(2 * MINUTE)
        _everything(opened(inner, clock))
        clock.advance(2 * MINUTE)
        _check_no_garbage(inner, clock, fault)


def _check_no_garbage(store: MemoryStore, clock: ManualClock, fault: Fault) -> None:
    """Check that only live files, and no unneeded listings and commits, are left."""
    sweep(opened(store, clock))
    state = opened(store, clock).state
    assert not state.removed_files
    logs = [info.key for info in store.list() if info.key.endswith(".log")]
    assert sorted(key.split("/")[0] for key in logs) == ["audit-0", "orders-0"], f"{fault}"
    listings = [info.key for info in store.list(REMOVED)]
    assert len(listings) <= 2  # of a killed run: too young for this vacuum
    versions = [int(info.key[len(COMMITS) : -len(".json")]) for info in store.list(COMMITS)]
    assert versions == list(range(min(versions), state.version + 1))
