"""A commit that was stored and answered with an error of any kind, as a client that repeats a request by itself shows
it: nothing is acknowledged that is not there, no file is deleted that the log names, no sequence is used twice.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from sparklog import limits
from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import (
    IndeterminateCommitError,
    InvalidTxnStateError,
    ObjectNotFoundError,
    SparklogError,
    StoragePermissionError,
)
from sparklog.maintenance.gc.retired_files import sweep
from sparklog.maintenance.replicas.mirror import mirror
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.segments import delete_records
from sparklog.store.memory import MemoryStore
from sparklog.testing.faults import DONE, KINDS, LATE, NONE, kinds_of
from sparklog.testing.faulty_store import Call, Fault, FaultyStore, SimulatedInterrupt
from tests.cluster.client.test_producer_failures import values
from tests.cluster.maintenance.logs import Written, append, log_files, records

WAIT = 30
"""seconds. No test waits that long unless something is broken."""


def kinds_with(effect: str, interrupts: bool = False) -> list[str]:
    """What a create of a commit can come to that had this effect, and after which its process lives."""
    found = [kind for kind in kinds_of("put_if_absent") if KINDS[kind].effect == effect and not KINDS[kind].crashes]
    return [kind for kind in found if KINDS[kind].interrupts == interrupts]


STORED = kinds_with(DONE)
"""Everything that the creator of a commit can be told although it was stored."""

STORED_LATER = kinds_with(LATE)

INTERRUPTED = [kind for effect in (NONE, DONE, LATE) for kind in kinds_with(effect, interrupts=True)]


class NextCreate(FaultyStore):
    """A store whose next created commits come to ``kinds``, one each."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(uuid.uuid4().hex))
        self.kinds: list[str] = []
        self.before_step: Callable[[Call], None] = lambda call: None
        self.before = lambda step, call: self.before_step(call)

    def _due(self, call: Call) -> str | None:
        if call.operation == "put_if_absent" and self.kinds:
            self.inject(Fault(len(self.calls), self.kinds.pop(0)))
        return super()._due(call)


@pytest.fixture
def store() -> NextCreate:
    return NextCreate()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(2_000_000_000_000)


@pytest.fixture
def cluster(store: NextCreate, clock: ManualClock) -> Coordinator:
    coordinator = create_cluster(store, clock=clock)
    coordinator.create_topic("t", 2)
    return coordinator


def make(cluster: Coordinator, **more: Any) -> Producer:
    return Producer(cluster=cluster, **{"linger_ms": 60_000, "retry_backoff_ms": 0, **more})


@pytest.mark.parametrize("kind", [*STORED, *STORED_LATER])
def test_what_is_sent_after_a_commit_of_unknown_outcome_is_not_taken_for_its_repetition(
    cluster: Coordinator, store: NextCreate, kind: str
) -> None:
    with make(cluster) as producer:
        producer.send("t", b"0", partition=0)
        producer.flush(WAIT)
        store.kinds = [kind]
        futures = [producer.send("t", b"1", partition=0)]
        producer.flush(WAIT)
        store.reopen()  # what lasted is over
        futures += [producer.send("t", b"2", partition=0)]
        producer.flush(WAIT)
    store.settle()
    found = values(open_cluster(store))
    assert len(set(found)) == len(found), f"{kind}: stored twice"
    assert futures[1].succeeded()
    for value, future in zip((b"1", b"2"), futures, strict=True):
        assert not future.succeeded() or found[future.get().offset] == value, f"{kind}: acknowledged and lost"


def test_a_commit_that_the_storage_refuses_is_told_at_once_and_as_unknown(
    cluster: Coordinator, store: NextCreate, clock: ManualClock
) -> None:
    with make(cluster, delivery_timeout_ms=120_000) as producer:
        store.kinds = ["none+permission!"]
        refused = producer.send("t", b"0", partition=0)
        producer.flush(WAIT)
        assert isinstance(refused.exception, StoragePermissionError), "the store is certain"
        began = clock.monotonic()
        store.kinds = ["permission", "permission"]
        unknown = producer.send("t", b"1", partition=0)
        producer.flush(WAIT)
        assert isinstance(unknown.exception, IndeterminateCommitError)
        assert clock.monotonic() - began < 60


@pytest.mark.parametrize("kind", [*STORED, *STORED_LATER, *INTERRUPTED])
def test_aborting_a_transaction_whose_commit_was_stored_deletes_no_file_that_the_log_names(
    cluster: Coordinator, store: NextCreate, kind: str
) -> None:
    producer = make(cluster, transactional_id="tx", max_block_ms=5_000)
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("t", b"a", partition=0)
    store.kinds = [kind]
    committed, aborted = False, False
    try:
        producer.commit_transaction()
        committed = True
    except (SparklogError, SimulatedInterrupt):
        try:
            producer.abort_transaction()
            aborted = True
        except InvalidTxnStateError:
            committed = True
        except SparklogError:
            pass  # it may be committed
    producer.close()
    store.reopen()
    store.settle()
    found = values(open_cluster(store))
    assert found in ([], [b"a"])
    assert not (committed or future.succeeded()) or found == [b"a"]
    assert not aborted or found == []


def test_a_transaction_that_the_storage_refuses_to_settle_stays_unknown_until_it_answers(
    cluster: Coordinator, store: NextCreate
) -> None:
    producer = make(cluster, transactional_id="tx", max_block_ms=5_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"a", partition=0)
    store.kinds = ["done+permission*"]
    store.before_step = lambda call: store.inject(Fault(len(store.calls), "permission")) if store.injected else None
    with pytest.raises(IndeterminateCommitError):
        producer.commit_transaction()
    with pytest.raises(IndeterminateCommitError):
        producer.abort_transaction()
    store.before_step = lambda call: None
    store.reopen()
    producer.commit_transaction()
    producer.close()
    assert values(open_cluster(store)) == [b"a"]


def small_files(coordinator: Coordinator) -> None:
    for number in range(20):
        append(coordinator, "t", [Written(b"k%d" % (number % 3), b"v%d" % number, number)])


JOBS: dict[str, Callable[[Coordinator], object]] = {
    "roll": lambda coordinator: roll(coordinator, InProcess()),
    "compaction": lambda coordinator: compact(coordinator, InProcess()),
}


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("kind", [*STORED, *STORED_LATER])
def test_a_job_whose_commit_was_stored_deletes_none_of_the_files_that_it_made(
    store: NextCreate, clock: ManualClock, job: str, kind: str
) -> None:
    coordinator = create_cluster(store, clock=clock)
    configs = {"cleanup.policy": "compact", "segment.ms": "1", "min.cleanable.dirty.ratio": "0"}
    coordinator.create_topic("t", configs=configs if job == "compaction" else {})
    small_files(coordinator)
    before = records(coordinator, "t")
    files = set(log_files(coordinator))
    store.kinds = [kind]
    with suppress(SparklogError):
        JOBS[job](coordinator)
    store.reopen()
    store.settle()
    found = records(open_cluster(store), "t")
    assert set(log_files(coordinator)) > files, "it made a file, and the commit that names it was stored"
    assert found == before if job == "roll" else found[-1] == before[-1]


# -- a file with records of many partitions


def test_a_flush_that_is_too_large_for_one_commit_has_no_file_in_two_commits(
    cluster: Coordinator, store: NextCreate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the halves the first one leaves the log, and a sweep takes its files."""
    cluster.create_topic("wide", 40, configs={"retention.ms": "1", "segment.ms": "1", "file.delete.delay.ms": "0"})
    later = ManualClock(2_000_000_000_000 + 10**9)
    monkeypatch.setattr(limits, "MAX_INLINE_ACTIONS_BYTES", 1_000)
    monkeypatch.setattr(limits, "MAX_SPILLED_ACTIONS_BYTES", 9_000)
    swept: list[int] = []

    def sweep_after_the_first_half(call: Call) -> None:
        if call.operation == "put_if_absent" and not swept and wide_records():
            other = open_cluster(store.wrapped, clock=later)
            offsets = {("wide", number): -1 for number in range(40) if other.state.partition("wide", number).segments}
            other.submit(partial(delete_records, offsets=offsets))
            retain(other)
            later.advance(10)
            swept.append(sweep(other).files)

    def wide_records() -> int:
        return sum(one.log_end_offset for one in open_cluster(store.wrapped).state.topics["wide"].partitions)

    store.before_step = sweep_after_the_first_half
    with make(cluster) as producer:
        futures = [producer.send("wide", b"%d" % partition, partition=partition) for partition in range(40)]
        producer.flush(WAIT)
    assert swept, "nothing was swept between two commits"
    assert swept[0] > 0
    assert all(future.succeeded() for future in futures)
    coordinator = open_cluster(store.wrapped, clock=later)
    there = 0
    for partition in range(40):
        if coordinator.state.partition("wide", partition).log_start_offset == 0:
            assert [one.value for one in records(coordinator, "wide", partition)] == [b"%d" % partition]
            there += 1
    assert 0 < there < 40


def test_a_mirror_that_cannot_take_a_file_gets_no_checkpoint_that_names_it(cluster: Coordinator) -> None:
    """The error says that a folder of the mirror is missing, and nothing of the root."""
    cluster.log.write_checkpoint()
    counted = FaultyStore(MemoryStore(uuid.uuid4().hex))
    mirror(cluster.store, counted)
    steps = [step for step, call in enumerate(counted.calls) if call.operation == "put" and "checkpoints/" in call.key]
    assert len(steps) >= 3
    for step in steps:
        target = FaultyStore(MemoryStore(uuid.uuid4().hex), [Fault(step, "none+missing")])
        with pytest.raises(ObjectNotFoundError):
            mirror(cluster.store, target)
        found = {info.key for info in target.wrapped.list("meta/checkpoints/")}
        named = {counted.calls[other].key for other in steps[: steps.index(step)]}
        assert found == named, "it went on after what it could not write"
