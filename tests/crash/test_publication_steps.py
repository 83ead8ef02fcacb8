"""A publication, or the deletion of history segments, is killed or refused at every step: no table ever lists a file
that is gone or something else than the history of the log, and a rerun completes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import pytest

from sparklog.coordinator import Coordinator
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.delta import table_log
from sparklog.delta.actions import Line, TableSnapshot
from sparklog.delta.listing import find_files
from sparklog.delta.publication import published_version
from sparklog.delta.table_log import TableLog
from sparklog.errors import CommitConflictError, SparklogError
from sparklog.maintenance import tables as publishing
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.maintenance.tables import Tables
from sparklog.protocol.decide import segments as decide_segments
from sparklog.protocol.file_names import is_table_log
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import (
    ERROR,
    UNAVAILABLE,
    WRITES,
    Call,
    Fault,
    FaultyStore,
    SimulatedCrash,
    SimulatedInterrupt,
    every_crash,
    every_outcome,
)
from tests.cluster.maintenance.logs import Written, append, live
from tests.crash.copies import Objects, copy_of, objects_of
from tests.crash.maintenance_steps import Scene, opened
from tests.sample import chosen

CONFIGS = {
    "history.format": "delta",
    "segment.ms": "60000",
    "file.delete.delay.ms": "0",
    "history.delete.delay.ms": "0",
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": "0.01",
    "retention.ms": "-1",
}

Files = frozenset[str]


def produce(coordinator: Coordinator, first: int, last: int) -> None:
    for partition in (0, 1):
        for minute in range(first, last, 2):
            append(coordinator, "t", [Written(b"k%d" % (minute % 3), b"%d" % minute, minute)], partition=partition)
    roll(coordinator, InProcess())


def published_before(coordinator: Coordinator) -> None:
    """A table of a topic that has been compacted, and has got new segments, since."""
    coordinator.create_topic("t", 2, configs=CONFIGS)
    produce(coordinator, 1, 12)
    Tables(coordinator).publish("t")
    compact(coordinator, InProcess())
    produce(coordinator, 13, 18)


def never_published(coordinator: Coordinator) -> None:
    coordinator.create_topic("t", 2, configs=CONFIGS)
    produce(coordinator, 1, 8)


def deleted_and_published(coordinator: Coordinator) -> None:
    published_before(coordinator)
    delete_topic(coordinator, "t")


def expired(coordinator: Coordinator) -> None:
    published_before(coordinator)
    Tables(coordinator).publish("t")
    expire_first(coordinator, 0)


def expire_first(coordinator: Coordinator, partition: int) -> None:
    """Retention removes the first segment."""
    offsets = {("t", partition): live(coordinator, "t", partition)[0].end_offset}
    coordinator.submit(partial(decide_segments.delete_records, offsets=offsets))
    retain(coordinator)


def publish(coordinator: Coordinator) -> None:
    Tables(coordinator).publish("t")


def table_of(store: MemoryStore) -> TableSnapshot:
    return TableLog(store, "t").read()


def history_of(store: MemoryStore) -> Files:
    """The files of the newest history."""
    coordinator = opened(store)
    if "t" not in coordinator.state.topics:
        return frozenset()
    files, inexact = find_files(coordinator.state, "t", coordinator.segments("t"), {})
    assert not inexact
    return frozenset(files)


def check_files(store: MemoryStore, snapshot: TableSnapshot) -> None:
    keys = {info.key for info in store.list("tables/")}
    gone = [path for path in snapshot.files if f"tables/t/{path}" not in keys]
    assert not gone, f"the table lists files that are gone: {gone}"


def by_partition(files: Files, number: int) -> Files:
    return frozenset(path for path in files if f"partition={number}/" in path)


def faults_of(calls: Sequence[Call]) -> Iterator[Fault]:
    """Every crash and failure at every step, and at writes to the table's log every outcome."""
    yield from every_crash(calls)
    yield from (Fault(step, kind) for step in range(len(calls)) for kind in (ERROR, UNAVAILABLE))
    writes = {step for step, call in enumerate(calls) if call.operation in WRITES and is_table_log(call.key)}
    yield from (fault for fault in every_outcome(calls) if fault.step in writes)


def check_every_step(scene: Scene, finished: Callable[[MemoryStore], object]) -> None:
    """``finished`` returns what is the same after every rerun."""
    prepared = scene.prepared()
    histories, newest = (frozenset(table_of(prepared).files), history_of(prepared)), opened(prepared).state.version
    clean = copy_of(prepared)
    counted = FaultyStore(clean)
    coordinator = opened(counted)
    counted.reset_counts()
    scene.job(coordinator)
    wanted = finished(clean)
    assert frozenset(table_of(clean).files) == histories[1]
    completed: set[Objects] = set()
    for fault in chosen(faults_of(counted.calls)):
        inner = copy_of(prepared)
        store = FaultyStore(inner)
        coordinator = opened(store, seed=1)
        store.reset_counts()
        store.inject(fault)
        with suppress(SimulatedCrash, SimulatedInterrupt, SparklogError):
            scene.job(coordinator)
        for _ in range(2):
            snapshot = table_of(inner)
            check_files(inner, snapshot)
            listed = frozenset(snapshot.files)
            for number in (0, 1):
                assert by_partition(listed, number) in [by_partition(files, number) for files in histories], fault
            shown = published_version(snapshot, coordinator.state.cluster_id, "t")
            assert shown < newest or listed == histories[1], f"{fault}: the table says version {shown}"
            store.settle()  # then check again what late requests have done
        store.reopen()
        objects = objects_of(inner)
        if objects in completed:
            continue
        completed.add(objects)
        scene.job(opened(inner))
        assert finished(inner) == wanted, f"{fault}: a rerun"
        assert frozenset(table_of(inner).files) == histories[1], f"{fault}: a rerun"
        check_files(inner, table_of(inner))


def no_more_changes(store: MemoryStore) -> object:
    return Tables(opened(store)).publish("t").changes


def data_files(store: MemoryStore) -> int:
    return len(
        [info for info in store.list() if info.key.endswith((".parquet", ".log")) and not is_table_log(info.key)]
    )


@pytest.mark.sampled
@pytest.mark.parametrize("prepare", [never_published, published_before])
def test_a_publication_that_fails_at_any_step_leaves_a_table_of_the_log(
    prepare: Callable[[Coordinator], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_log, "CHECKPOINT_INTERVAL", 1)
    check_every_step(Scene(prepare, publish), no_more_changes)


@pytest.mark.sampled
def test_a_publication_in_parts_that_fails_at_any_step_leaves_each_partition_at_a_version_of_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(publishing, "COMMIT_BYTES", 1)
    check_every_step(Scene(published_before, publish), no_more_changes)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("prepare", "collect"),
    [
        (published_before, sweep),
        (expired, sweep),
        (deleted_and_published, sweep),
        (expired, partial(vacuum, older_than_ms=0, dry_run=False, force=True)),
    ],
)
def test_garbage_collection_that_fails_at_any_step_deletes_no_file_that_the_table_lists(
    prepare: Callable[[Coordinator], None], collect: Callable[[Coordinator], object]
) -> None:
    check_every_step(Scene(prepare, collect), data_files)


def others(store: MemoryStore) -> None:
    """What other processes do while a publisher is suspended: replace what it is about to list, and delete it."""
    coordinator = opened(store)
    produce(coordinator, 19, 24)
    compact(coordinator, InProcess())
    expire_first(coordinator, 1)
    assert sweep(opened(store)).files


@pytest.mark.sampled
@pytest.mark.parametrize("prepare", [never_published, published_before])
def test_a_publisher_that_was_suspended_at_any_step_lists_no_file_that_others_deleted(
    prepare: Callable[[Coordinator], None],
) -> None:
    for inner in suspended_at_every_step(prepare, publish, others):
        publish(opened(inner))
        assert frozenset(table_of(inner).files) == history_of(inner)
        check_files(inner, table_of(inner))


@pytest.mark.sampled
def test_a_sweep_that_is_suspended_at_any_step_leaves_no_listed_file_gone() -> None:
    assert list(suspended_at_every_step(expired, sweep, others_publish))


def suspended_at_every_step(
    prepare: Callable[[Coordinator], None],
    job: Callable[[Coordinator], object],
    others_do: Callable[[MemoryStore], None],
) -> Iterator[MemoryStore]:
    """Suspend a job before each of its steps but deletions, and let others work meanwhile; yield the storage after each
    run. No file that the table lists is missing at any step."""
    prepared = Scene(prepare, job).prepared()
    counted = FaultyStore(copy_of(prepared))
    coordinator = opened(counted)
    counted.reset_counts()
    job(coordinator)
    steps = [step for step, call in enumerate(counted.calls) if call.operation != "delete"]
    for suspended_at in chosen(steps):
        inner = copy_of(prepared)

        def suspend(step: int, call: Call, inner: MemoryStore = inner, at: int = suspended_at) -> None:
            check_files(inner, table_of(inner))
            if step == at:
                others_do(inner)

        store = FaultyStore(inner)
        process = opened(store)
        store.reset_counts()
        store.before = suspend
        with suppress(SparklogError):
            job(process)
        store.before = None
        check_files(inner, table_of(inner))
        yield inner


def others_publish(store: MemoryStore) -> None:
    coordinator = opened(store)
    produce(coordinator, 19, 24)
    compact(coordinator, InProcess())
    publish(coordinator)


def test_publishers_that_are_always_slower_give_up_with_an_error() -> None:
    inner = Scene(published_before, publish).prepared()

    def overtake(step: int, call: Call) -> None:
        if call.operation == "put_if_absent" and is_table_log(call.key):
            log = TableLog(inner, "t")
            log.read()
            assert log.commit([Line(commit_info={"operation": "WRITE", "txnId": str(step)})])

    store = FaultyStore(inner, before=overtake)
    with pytest.raises(CommitConflictError, match="table of topic t 10 times"):
        publish(opened(store))
