"""The storage fails, or a process dies, at every step of a Spark write: plan, tasks, commit and abort.

Run as Spark would, but without Spark: two tasks, then the commit, and ``abort`` after any failure. A crashed task has
no message; after a failed commit all tasks have one.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
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
from tests.cluster.spark.helpers import batches, schema_of
from tests.crash.copies import copy_of
from tests.crash.test_steps import contents
from tests.sample import chosen

DDL = "topic string, key string, value string"
EXISTING = ("orders", "audit")
JOBS = {"topics that exist": EXISTING, "a topic that is created with the write": ("orders", "new")}


class Job(NamedTuple):
    """A job with a write number, of two tasks that write to these topics."""

    topics: tuple[str, ...]

    def writer(self) -> SparklogWriter:
        """The cluster is the store of ``opened_by_url``, whatever the path."""
        options = {"path": "/log", "txnAppId": "job", "txnVersion": "7"}
        return SparklogWriter(sink_options(options), schema_of(DDL))

    def write(self, writer: SparklogWriter, task: int) -> SparklogCommitMessage:
        names = [self.topics[number % len(self.topics)] for number in range(12)]
        rows = [{"topic": name, "key": f"k{n}", "value": f"{task}-{n}"} for n, name in enumerate(names)]
        return writer.write(iter(batches(DDL, rows)))

    def run(self, store: FaultyStore) -> None:
        """Run the job as Spark does; after a crash ``abort`` runs in another process."""
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
def finish_files_sequentially(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are finished in a fixed order, so that a step is the same in every run."""
    monkeypatch.setattr(output, "FINISH_THREADS", 1)


def prepared() -> MemoryStore:
    """Return a cluster whose topics have two codecs, so that a task writes more than one file."""
    return copy_of(_built())


@cache
def _built() -> MemoryStore:
    store = MemoryStore(uuid.uuid4().hex)
    coordinator = create_cluster(store)
    coordinator.submit(partial(alter_configs, topic="", changes={"num.partitions": "2"}))
    for topic in EXISTING:
        coordinator.create_topic(topic, 2)
    coordinator.submit(partial(alter_configs, topic="orders", changes={"compression.type": "gzip"}))
    return store


@contextmanager
def opened_by_url(store: FaultyStore) -> Iterator[FaultyStore]:
    """Every root opened in the block is this store, as in a process that has opened nothing yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "open_store", lambda url, options=None: store)
        start_over()
        yield store


def run(job: Job, inner: MemoryStore) -> None:
    with opened_by_url(FaultyStore(inner)) as store:
        job.run(store)


def faults(calls: list[Call]) -> list[Fault]:
    """Every fault at every step, including reads."""
    points = list(every_crash(calls))
    for step, call in enumerate(calls):
        points += [Fault(step, kind) for kind in (ERROR, UNAVAILABLE)]
        if call.operation in WRITES:
            points += [Fault(step, kind) for kind in (FULL, PERMISSION)]
    return points


def files(store: MemoryStore) -> set[str]:
    return {info.key for info in store.list("") if info.key.endswith((".log", ".index"))}


@pytest.mark.sampled
@pytest.mark.parametrize("name", JOBS)
def test_a_fault_at_any_step_of_a_job_leaves_all_rows_or_none_and_a_rerun_writes_each_once(name: str) -> None:
    job = Job(JOBS[name])
    before, clean = contents(prepared()), prepared()
    counted = FaultyStore(clean)
    with opened_by_url(counted):
        job.run(counted)
    wanted = contents(clean)
    assert sum(len(part) for topic in job.topics for part in wanted[topic]) == 24
    assert len(files(clean)) == 8
    seen = set()
    for fault in chosen(faults(counted.calls)):
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
        assert (after == wanted) or outcome != "acknowledged", f"{fault}: acknowledged, but rows are missing"
        assert (after == before) or outcome != "refused", f"{fault}: refused, but rows are stored"
        seen.add((outcome, after == wanted))
        run(job, inner)
        assert contents(inner) == wanted, f"{fault}: wrong contents after a rerun"
    assert seen == {("acknowledged", True), ("refused", False), ("unknown", True), ("unknown", False)}


@pytest.mark.sampled
@pytest.mark.parametrize("name", JOBS)
def test_a_task_retried_after_a_fault_at_any_step_writes_its_rows_once(name: str) -> None:
    job = Job(JOBS[name])
    clean = prepared()
    run(job, clean)
    counted = FaultyStore(prepared())
    with opened_by_url(counted):
        writer = job.writer()
        counted.reset_counts()
        job.write(writer, 0)
    for fault in chosen(faults(counted.calls)):
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


@pytest.mark.sampled
def test_a_fault_at_any_step_of_an_abort_raises_nothing_and_changes_no_record() -> None:
    job = Job(EXISTING)
    before = contents(prepared())
    counted = FaultyStore(prepared())
    with opened_by_url(counted):
        writer = job.writer()
        message = job.write(writer, 0)
        counted.reset_counts()
        writer.abort([message, None])
    assert counted.counts["delete"] == 4
    for fault in chosen(faults(counted.calls)):
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
        assert has_crashed or len(files(inner)) <= 2, f"{fault}: a file that cannot be deleted must not keep the others"


def test_aborting_a_job_whose_commit_was_refused_deletes_no_file() -> None:
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


def test_rows_of_an_uncommitted_job_are_invisible() -> None:
    inner = prepared()
    with opened_by_url(FaultyStore(inner)):
        job = Job(JOBS["a topic that is created with the write"])
        job.write(job.writer(), 0)
    assert files(inner)
    assert set(open_cluster(inner).state.topics) == set(EXISTING)
