"""A commit that was stored but answered with an error, as by a storage client that retries requests itself: nothing is
acknowledged that is not stored, no committed file is deleted, and no sequence number is used twice.
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
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.mirror import mirror
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
    """Return the outcomes of creating a commit that have this effect and do not end the process."""
    kinds = [kind for kind in kinds_of("put_if_absent") if KINDS[kind].effect == effect and not KINDS[kind].crashes]
    return [kind for kind in kinds if KINDS[kind].interrupts == interrupts]


STORED = kinds_with(DONE)
"""Every outcome that the creator of a commit can see although it was stored."""

STORED_LATER = kinds_with(LATE)

INTERRUPTED = [kind for effect in (NONE, DONE, LATE) for kind in kinds_with(effect, interrupts=True)]


class NextCreate(FaultyStore):
    """A store whose next commits have the outcomes ``kinds``, one each."""

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
def test_a_record_sent_after_a_commit_of_unknown_outcome_is_not_treated_as_its_repetition(
    cluster: Coordinator, store: NextCreate, kind: str
) -> None:
    with make(cluster) as producer:
        producer.send("t", b"0", partition=0)
        producer.flush(WAIT)
        store.kinds = [kind]
        futures = [producer.send("t", b"1", partition=0)]
        producer.flush(WAIT)
        store.reopen()  # ends lasting faults
        futures += [producer.send("t", b"2", partition=0)]
        producer.flush(WAIT)
    store.settle()
    stored = values(open_cluster(store))
    assert len(set(stored)) == len(stored), f"{kind}: stored twice"
    assert futures[1].succeeded()
    for value, future in zip((b"1", b"2"), futures, strict=True):
        assert not future.succeeded() or stored[future.get().offset] == value, f"{kind}: an acknowledged record is lost"


def test_a_commit_refused_by_the_storage_fails_promptly_with_outcome_unknown(
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
def test_aborting_a_transaction_whose_commit_was_stored_deletes_no_committed_file(
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
            pass  # outcome unknown
    producer.close()
    store.reopen()
    store.settle()
    stored = values(open_cluster(store))
    assert stored in ([], [b"a"])
    assert not (committed or future.succeeded()) or stored == [b"a"]
    assert not aborted or stored == []


def test_the_outcome_of_a_transaction_stays_unknown_until_the_storage_answers(
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
def test_a_job_whose_commit_was_stored_deletes_none_of_its_new_files(
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
    after = records(open_cluster(store), "t")
    assert set(log_files(coordinator)) > files, "it wrote a file, and the commit that names it was stored"
    assert after == before if job == "roll" else after[-1] == before[-1]


# -- a file with records of many partitions


def test_a_flush_too_large_for_one_commit_puts_no_file_into_two_commits(
    cluster: Coordinator, store: NextCreate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first half was committed, its records are deleted and a sweep deletes their files."""
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
        return sum(
            partition.log_end_offset for partition in open_cluster(store.wrapped).state.topics["wide"].partitions
        )

    store.before_step = sweep_after_the_first_half
    with make(cluster) as producer:
        futures = [producer.send("wide", b"%d" % partition, partition=partition) for partition in range(40)]
        producer.flush(WAIT)
    assert swept, "nothing was swept between two commits"
    assert swept[0] > 0
    assert all(future.succeeded() for future in futures)
    coordinator = open_cluster(store.wrapped, clock=later)
    kept = 0
    for partition in range(40):
        if coordinator.state.partition("wide", partition).log_start_offset == 0:
            assert [record.value for record in records(coordinator, "wide", partition)] == [b"%d" % partition]
            kept += 1
    assert 0 < kept < 40


def test_a_mirror_that_cannot_store_a_file_gets_no_checkpoint_that_names_it(cluster: Coordinator) -> None:
    """The error reports a missing folder of the mirror, not of the root."""
    cluster.log.write_checkpoint()
    counted = FaultyStore(MemoryStore(uuid.uuid4().hex))
    mirror(cluster.store, counted)
    steps = [step for step, call in enumerate(counted.calls) if call.operation == "put" and "checkpoints/" in call.key]
    assert len(steps) >= 3
    for step in steps:
        target = FaultyStore(MemoryStore(uuid.uuid4().hex), [Fault(step, "none+missing")])
        with pytest.raises(ObjectNotFoundError):
            mirror(cluster.store, target)
        stored = {info.key for info in target.wrapped.list("meta/checkpoints/")}
        named = {counted.calls[other].key for other in steps[: steps.index(step)]}
        assert stored == named, "it continued after a failed write"
