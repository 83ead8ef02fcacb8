"""A copy query whose storage fails, loses answers, or lets another instance run, at every step.

A small engine does what Spark does: it logs the end of a batch before it runs it, plans it, runs one task per partition
(up to four attempts), commits, and logs that it did. Reader and writer are the ones that Spark runs. The query is
restarted on its checkpoint until it finishes; then the copy must equal the source record by record, and the consumer
group's offsets must be the end offsets.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sparklog.coordinator import create_cluster, open_cluster, shared
from sparklog.errors import SparklogError
from sparklog.spark.options import sink_options
from sparklog.spark.sink import output
from sparklog.spark.sink.writer import RowWriter, SparklogWriter
from sparklog.spark.source.reader import SparklogPartition
from sparklog.spark.stream.options import stream_options
from sparklog.spark.stream.reader import SparklogStreamReader
from sparklog.spark.stream.writer import SparklogStreamCommitMessage, SparklogStreamWriter
from sparklog.store.memory import MemoryStore
from sparklog.store.process_local import start_over
from sparklog.testing.faulty_store import (
    CRASH_AFTER,
    CRASH_BEFORE,
    ERROR,
    FULL,
    LOST_ANSWER,
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
from tests.crash.test_steps import Contents, contents
from tests.sample import chosen

DDL = "key binary, value binary, partition int"
PARTITIONS = 2
RECORDS = 12
LIMIT = 6
TASK_ATTEMPTS = 4
PARTS = 8
"""Parts of the longest test, which workers share."""
RUNS = 60
"""A query that has not finished after this many starts is considered stuck."""


class SupersededError(Exception):
    """Another instance of the query has already logged this batch; Spark stops the second one."""


class Checkpoint:
    """The end offsets of batches, in files as Spark writes them, and the number of finished batches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ends: list[dict[str, Any]] = []
        self.finished = 0
        (folder / "offsets").mkdir(parents=True)

    def log_end(self, batch_id: int, end: dict[str, Any]) -> None:
        if batch_id != len(self.ends):
            raise SupersededError
        (self.folder / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
        self.ends.append(end)

    def log_finished(self, batch_id: int) -> None:
        if batch_id != self.finished:
            raise SupersededError
        self.finished += 1


def reader_and_writer(checkpoint: Checkpoint) -> tuple[SparklogStreamReader, SparklogStreamWriter]:
    """Both open the store of ``opened_by_url``, whatever the path."""
    source = {"path": "/log", "subscribe": "orders", "startingOffsets": "earliest"}
    source |= {"maxOffsetsPerTrigger": str(LIMIT), "kafka.group.id": "reader"}
    sink = {"path": "/log", "topic": "copies", "checkpointLocation": str(checkpoint.folder), "kafka.group.id": "copier"}
    reader = SparklogStreamReader(stream_options(source), schema_of(DDL))
    return reader, SparklogStreamWriter(sink_options(sink), schema_of(DDL))


def run_batches(checkpoint: Checkpoint) -> None:
    """Run the query until it has read everything or fails."""
    reader, writer = reader_and_writer(checkpoint)
    while True:
        batch_id = checkpoint.finished
        start = checkpoint.ends[batch_id - 1] if batch_id else reader.initialOffset()
        if batch_id == len(checkpoint.ends):
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start:
                return
            checkpoint.log_end(batch_id, end)
        end = checkpoint.ends[batch_id]
        run_batch(reader, writer, batch_id, start, end)
        checkpoint.log_finished(batch_id)
        reader.commit(end)


def run_batch(
    reader: SparklogStreamReader,
    writer: SparklogStreamWriter,
    batch_id: int,
    start: dict[str, Any],
    end: dict[str, Any],
) -> None:
    planned = reader.partitions(start, end)
    messages: list[SparklogStreamCommitMessage | None] = [None] * len(planned)
    try:
        for number, part in enumerate(planned):
            assert isinstance(part, SparklogPartition)
            messages[number] = run_task(reader, writer, part)
        writer.commit(list(messages), batch_id)
    except SparklogError:
        writer.abort(list(messages), batch_id)
        raise


def run_task(
    reader: SparklogStreamReader, writer: SparklogStreamWriter, part: SparklogPartition
) -> SparklogStreamCommitMessage:
    """Run a task, with retries. Outside of Spark a task does not know its query id, so it is added here."""
    for attempt in range(1, TASK_ATTEMPTS + 1):
        try:
            return SparklogStreamCommitMessage(RowWriter.write(writer, reader.read(part)), "q")
        except SparklogError:
            if attempt == TASK_ATTEMPTS:
                raise
    raise AssertionError("unreachable")


@pytest.fixture(autouse=True)
def finish_files_sequentially(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are finished in a fixed order, so that a step is the same in every run."""
    monkeypatch.setattr(output, "FINISH_THREADS", 1)


@contextmanager
def opened_by_url(store: FaultyStore) -> Iterator[FaultyStore]:
    """Every root opened in the block is this store, as in a process that has opened nothing yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "open_store", lambda url, options=None: store)
        start_over()
        yield store


def prepared() -> MemoryStore:
    """Return a cluster with records of three keys to copy, in more than one commit."""
    return copy_of(_built())


@cache
def _built() -> MemoryStore:
    store = MemoryStore(uuid.uuid4().hex)
    coordinator = create_cluster(store)
    for topic in ("orders", "copies"):
        coordinator.create_topic(topic, PARTITIONS)
    ddl = "key string, value string, partition int"
    with opened_by_url(FaultyStore(store)):
        job = SparklogWriter(sink_options({"path": "/log", "topic": "orders"}), schema_of(ddl))
        for half in (range(0, RECORDS, 2), range(1, RECORDS, 2)):
            rows = [{"key": f"k{n % 3}", "value": f"v{n}", "partition": n // 2 % PARTITIONS} for n in half]
            job.commit([job.write(iter(batches(ddl, rows)))])
    return store


def run_once(checkpoint: Checkpoint, store: FaultyStore) -> bool:
    """Start the query on this store; return whether it finished."""
    with opened_by_url(store):
        try:
            run_batches(checkpoint)
        except (SimulatedCrash, SparklogError, SupersededError):
            return False
    return True


def finish(checkpoint: Checkpoint, inner: MemoryStore) -> None:
    """Run the query to its end on a store without faults."""
    with opened_by_url(FaultyStore(inner)):
        run_batches(checkpoint)


def check_copy(inner: MemoryStore, about: object) -> None:
    stored: Contents = contents(inner)
    assert sum(map(len, stored["orders"])) == RECORDS
    assert stored["copies"] == stored["orders"], f"{about}: the copy differs from the source"
    group = open_cluster(inner).state.groups["copier"]
    ends = {entry.partition: entry.offset for entry in group.offsets.values()}
    assert ends == {number: len(values) for number, values in enumerate(stored["orders"])}, (
        f"{about}: offsets of the group"
    )


def steps(folder: Path) -> list[Call]:
    """Return the steps of a run without faults."""
    inner = prepared()
    store = FaultyStore(inner)
    checkpoint = Checkpoint(folder)
    assert run_once(checkpoint, store)
    assert checkpoint.finished == 2, "the test needs two batches"
    check_copy(inner, "without faults")
    return store.calls


def faults(calls: list[Call]) -> list[Fault]:
    """Every fault at every step, including reads."""
    points = list(every_crash(calls))
    for step, call in enumerate(calls):
        points += [Fault(step, kind) for kind in (ERROR, UNAVAILABLE)]
        if call.operation in WRITES:
            points += [Fault(step, kind) for kind in (FULL, PERMISSION)]
    return points


@pytest.mark.sampled
@pytest.mark.parametrize("part", range(PARTS))
def test_every_record_is_copied_once_after_a_fault_at_any_step_of_source_and_sink(tmp_path: Path, part: int) -> None:
    for number, fault in enumerate(chosen(faults(steps(tmp_path / "clean")))[part::PARTS]):
        inner, checkpoint = prepared(), Checkpoint(tmp_path / str(number))
        run_once(checkpoint, FaultyStore(inner, [fault]))
        finish(checkpoint, inner)
        check_copy(inner, fault)


def test_the_faults_tried_at_source_and_sink_are_of_every_kind(tmp_path: Path) -> None:
    kinds = {fault.kind for fault in faults(steps(tmp_path / "clean"))}
    assert kinds == {CRASH_BEFORE, CRASH_AFTER, LOST_ANSWER, ERROR, UNAVAILABLE, FULL, PERMISSION}


def test_every_record_is_copied_once_when_every_start_loses_the_answer_to_the_same_step(tmp_path: Path) -> None:
    for step, call in enumerate(steps(tmp_path / "clean")):
        if call.operation in WRITES:
            inner, checkpoint = prepared(), Checkpoint(tmp_path / str(step))
            for _ in range(3):
                run_once(checkpoint, FaultyStore(inner, [Fault(step, LOST_ANSWER)]))
            finish(checkpoint, inner)
            check_copy(inner, f"answers lost at step {step}: {call}")


@pytest.mark.parametrize("seed", range(25))
def test_every_record_is_copied_once_despite_random_storage_failures(tmp_path: Path, seed: int) -> None:
    inner, checkpoint = prepared(), Checkpoint(tmp_path / "query")
    rates = {LOST_ANSWER: 0.03, UNAVAILABLE: 0.01, CRASH_BEFORE: 0.01, CRASH_AFTER: 0.01}
    injected = 0
    for run in range(RUNS):
        store = FaultyStore(inner, seed=1000 * seed + run, rates=rates)
        ended = run_once(checkpoint, store)
        injected += len(store.injected)
        if ended:
            break
    else:
        raise AssertionError(f"seed {seed}: the query never finished")
    assert injected, f"seed {seed}: no fault was injected"
    check_copy(inner, f"seed {seed}, {injected} faults in {run + 1} runs")


@pytest.mark.parametrize("first", range(4))
def test_an_instance_delayed_at_any_step_while_another_runs_adds_nothing(first: int, tmp_path: Path) -> None:
    """A zombie: its storage answers so late that the query was restarted elsewhere and has finished."""
    wanted = steps(tmp_path / "clean")
    outcomes: Counter[bool] = Counter()
    for delayed_step in range(first, len(wanted), 4):
        inner, checkpoint = prepared(), Checkpoint(tmp_path / str(delayed_step))

        def run_another_instance(
            step: int,
            call: Call,
            delayed_step: int = delayed_step,
            inner: MemoryStore = inner,
            checkpoint: Checkpoint = checkpoint,
        ) -> None:
            if step == delayed_step:
                finish(checkpoint, inner)

        outcomes[run_once(checkpoint, FaultyStore(inner, before=run_another_instance))] += 1
        check_copy(inner, f"delayed at step {delayed_step}: {wanted[delayed_step]}")
    assert outcomes[False] > 0, "no zombie was refused"


def test_a_commit_can_be_repeated_however_many_of_its_answers_were_lost(tmp_path: Path) -> None:
    """``commit`` is called with the same messages until it succeeds, without a restart."""
    for lost in range(1, 12):
        inner, checkpoint = prepared(), Checkpoint(tmp_path / str(lost))
        with opened_by_url(FaultyStore(inner)) as store:
            reader, writer = reader_and_writer(checkpoint)
            start = reader.initialOffset()
            checkpoint.log_end(0, reader.latestOffset(start, reader.getDefaultReadLimit()))
            planned = reader.partitions(start, checkpoint.ends[0])
            messages = [run_task(reader, writer, part) for part in planned if isinstance(part, SparklogPartition)]
            store.reset_counts()
            store.inject(*(Fault(step, LOST_ANSWER) for step in range(lost)))
            while not is_committed(writer, messages):
                assert store.injected
                assert len(store.calls) < 100 * lost, f"{lost} answers lost: never committed"
            assert len(store.injected) == lost or len(store.calls) < lost
            checkpoint.log_finished(0)
        finish(checkpoint, inner)
        check_copy(inner, f"{lost} answers lost")


def is_committed(writer: SparklogStreamWriter, messages: list[SparklogStreamCommitMessage]) -> bool:
    try:
        writer.commit(list(messages), 0)
    except SparklogError:
        return False
    return True
