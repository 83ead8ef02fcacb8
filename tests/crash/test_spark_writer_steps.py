"""The storage fails, or a process dies, at every step of a Spark write: its plan, its tasks, its commit, its abort.

As Spark would run it, without Spark: two tasks, then the commit, and ``abort`` after anything that failed. A task that
crashed has no message; after a commit that failed or crashed, all have one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import NamedTuple

import pytest

from sparklog.coordinator import create_cluster, open_cluster, shared
from sparklog.errors import IndeterminateCommitError, SparklogError
from sparklog.protocol.decide.topics import alter_configs
from sparklog.spark.options import sink_options
from sparklog.spark.sink import output
from sparklog.spark.sink.writer import SparklogCommitMessage, SparklogWriter
from sparklog.store.memory import MemoryStore
from sparklog.store.process_local import start_over
from sparklog.testing.faulty_store import (
    ERROR,
    FULL,
    PERMISSION,
    UNAVAILABLE,
    WRITES,
    Call,
    Fault,
    FaultyStore,
    SimulatedCrash,
    every_crash,
)
from tests.crash.test_steps import contents
from tests.unit.spark.helpers import batches, schema_of

DDL = "topic string, key string, value string"
EXISTING = ("orders", "audit")
JOBS = {"topics that exist": EXISTING, "a topic that is created with the write": ("orders", "new")}


class Job(NamedTuple):
    """A numbered job of two tasks that write to these topics."""

    topics: tuple[str, ...]

    def writer(self) -> SparklogWriter:
        """Its cluster is the store of ``opened_by_url``, whatever the path."""
        options = {"path": "/log", "txnAppId": "job", "txnVersion": "7"}
        return SparklogWriter(sink_options(options), schema_of(DDL))

    def write(self, writer: SparklogWriter, task: int) -> SparklogCommitMessage:
        names = [self.topics[number % len(self.topics)] for number in range(12)]
        rows = [{"topic": name, "key": f"k{n}", "value": f"{task}-{n}"} for n, name in enumerate(names)]
        return writer.write(iter(batches(DDL, rows)))

    def run(self, store: FaultyStore) -> None:
        """What Spark does; a crash is one of the process that was running, and ``abort`` runs in another."""
        writer = self.writer()
        messages: list[SparklogCommitMessage | None] = [None, None]
        try:
            for task in range(2):
                messages[task] = self.write(writer, task)
            writer.commit(list(messages))
        except (SimulatedCrash, SparklogError):
            store.reopen()
            writer.abort(list(messages))
            raise


@pytest.fixture(autouse=True)
def one_file_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are finished in a fixed order, so that a step is the same in every run."""
    monkeypatch.setattr(output, "FINISH_THREADS", 1)


def prepared() -> MemoryStore:
    """A cluster with topics of two codecs, so that a task leaves more than one file."""
    store = MemoryStore(uuid.uuid4().hex)
    coordinator = create_cluster(store)
    coordinator.submit(partial(alter_configs, topic="", changes={"num.partitions": "2"}))
    for topic in EXISTING:
        coordinator.create_topic(topic, 2)
    coordinator.submit(partial(alter_configs, topic="orders", changes={"compression.type": "gzip"}))
    return store


@contextmanager
def opened_by_url(store: FaultyStore) -> Iterator[FaultyStore]:
    """Whoever opens this store's root in here gets this very store, in a process that has opened nothing yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "open_store", lambda url, options=None: store)
        start_over()
        yield store


def run(job: Job, inner: MemoryStore) -> None:
    with opened_by_url(FaultyStore(inner)) as store:
        job.run(store)


def faults(calls: list[Call]) -> list[Fault]:
    """Every fault at every step; reads are refused too."""
    found = list(every_crash(calls))
    for step, call in enumerate(calls):
        found += [Fault(step, kind) for kind in (ERROR, UNAVAILABLE)]
        if call.operation in WRITES:
            found += [Fault(step, kind) for kind in (FULL, PERMISSION)]
    return found


def files(store: MemoryStore) -> set[str]:
    return {info.key for info in store.list("") if info.key.endswith((".log", ".index"))}


@pytest.mark.parametrize("name", JOBS)
def test_a_fault_at_any_step_of_a_job_leaves_all_rows_or_none_and_a_second_run_each_once(name: str) -> None:
    job = Job(JOBS[name])
    before, clean = contents(prepared()), prepared()
    counted = FaultyStore(clean)
    with opened_by_url(counted):
        job.run(counted)
    wanted = contents(clean)
    assert sum(len(part) for topic in job.topics for part in wanted[topic]) == 24
    assert len(files(clean)) == 8
    seen = set()
    for fault in faults(counted.calls):
        inner = prepared()
        outcome = "acknowledged"
        with opened_by_url(FaultyStore(inner, [fault])) as store:
            try:
                job.run(store)
            except (SimulatedCrash, IndeterminateCommitError):
                outcome = "unknown"
            except SparklogError:
                outcome = "refused"
        after = contents(inner)  # reads every record: no file that a commit names was deleted
        assert after in (before, wanted), f"{fault}: neither before nor after"
        assert (after == wanted) or outcome != "acknowledged", f"{fault}: acknowledged and lost"
        assert (after == before) or outcome != "refused", f"{fault}: refused, and done all the same"
        seen.add((outcome, after == wanted))
        run(job, inner)
        assert contents(inner) == wanted, f"{fault}: not the same after a second run"
    assert seen == {("acknowledged", True), ("refused", False), ("unknown", True), ("unknown", False)}


@pytest.mark.parametrize("name", JOBS)
def test_a_task_that_is_retried_after_a_fault_at_any_of_its_steps_writes_its_rows_once(name: str) -> None:
    job = Job(JOBS[name])
    clean = prepared()
    run(job, clean)
    counted = FaultyStore(prepared())
    with opened_by_url(counted):
        writer = job.writer()
        counted.reset_counts()
        job.write(writer, 0)
    for fault in faults(counted.calls):
        inner = prepared()
        with opened_by_url(FaultyStore(inner)) as store:
            writer = job.writer()
            store.reset_counts()
            store.inject(fault)
            with suppress(SimulatedCrash, SparklogError):
                job.write(writer, 0)
            store.reopen()
            writer.commit([job.write(writer, 0), job.write(writer, 1)])
        assert contents(inner) == contents(clean), f"{fault}"


def test_a_fault_at_any_step_of_an_abort_is_no_error_and_leaves_what_was_there() -> None:
    job = Job(EXISTING)
    before = contents(prepared())
    counted = FaultyStore(prepared())
    with opened_by_url(counted):
        writer = job.writer()
        message = job.write(writer, 0)
        counted.reset_counts()
        writer.abort([message, None])
    assert counted.counts["delete"] == 4
    for fault in faults(counted.calls):
        inner = prepared()
        with opened_by_url(FaultyStore(inner)) as store:
            writer = job.writer()
            message = job.write(writer, 0)
            store.reset_counts()
            store.inject(fault)
            with suppress(SimulatedCrash):
                writer.abort([message, None])
            has_crashed = store.crashed
            store.reopen()
        assert contents(inner) == before, f"{fault}"
        assert has_crashed or len(files(inner)) <= 2, f"{fault}: one file that stays must not keep the others"


def test_a_job_whose_commit_was_refused_can_be_aborted_and_leaves_its_files_to_nobody() -> None:
    """After a failed commit all tasks have messages: its outcome may be unknown, so no file is deleted."""
    job = Job(EXISTING)
    inner = prepared()
    before = contents(inner)
    with opened_by_url(FaultyStore(inner)) as store:
        writer = job.writer()
        messages = [job.write(writer, task) for task in range(2)]
        written = files(inner)
        store.reset_counts()
        store.inject(*(Fault(step, PERMISSION) for step in range(50)))
        with pytest.raises(SparklogError):
            writer.commit(list(messages))
        store.reopen()
        writer.abort(list(messages))
    assert files(inner) == written
    assert contents(inner) == before
    run(job, inner)
    assert sum(len(values) for topic in EXISTING for values in contents(inner)[topic]) == 24


def test_nothing_is_seen_of_a_job_that_has_not_committed() -> None:
    inner = prepared()
    with opened_by_url(FaultyStore(inner)):
        job = Job(JOBS["a topic that is created with the write"])
        job.write(job.writer(), 0)
    assert files(inner)
    assert set(open_cluster(inner).state.topics) == set(EXISTING)
