"""Transactions that are interrupted while their records are written, and transactions whose producer id expires or
gets a new epoch before their outcome is known."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster, open_cluster, topic_deletion
from sparklog.errors import (
    IndeterminateCommitError,
    InvalidTxnStateError,
    KafkaTimeoutError,
    ProducerFencedError,
    SparklogError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.decide import expiry as decide_expiry
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import LOST_ANSWER, UNAVAILABLE, Call, FaultyStore
from tests.cluster.client.flaky_store import FlakyStore
from tests.cluster.client.test_transactions_regressions import values

INTERRUPTIONS = [KeyboardInterrupt(), MemoryError(), TimeoutError("a soft limit"), pa.ArrowInvalid("a column")]


class StoppedUpload(FaultyStore):
    """Raises ``due`` once, when the next segment file is written."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(uuid.uuid4().hex), before=self._interrupt)
        self.due: BaseException | None = None

    def _interrupt(self, step: int, call: Call) -> None:
        if self.due is not None and call.key.endswith((".log", ".index")):
            error, self.due = self.due, None
            raise error


@pytest.mark.parametrize("step", ["flush", "commit_transaction"])
@pytest.mark.parametrize("interruption", INTERRUPTIONS, ids=lambda error: type(error).__name__)
def test_offsets_are_not_committed_if_writing_the_records_was_interrupted(
    interruption: BaseException, step: str
) -> None:
    store = StoppedUpload()
    cluster = create_cluster(store)
    for topic in ("in", "out"):
        cluster.create_topic(topic)
    with Producer(cluster=cluster, transactional_id="tx", linger_ms=60_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        future = producer.send("out", b"lost", partition=0)
        producer.send_offsets_to_transaction({("in", 0): 0}, "g")
        store.due = interruption
        with pytest.raises(type(interruption)):
            getattr(producer, step)()
        with pytest.raises(InvalidTxnStateError, match="were not written"):
            producer.commit_transaction()
        assert isinstance(future.exception, TransactionAbortedError)
        assert "g" not in cluster.refresh().groups
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send("out", b"again", partition=0)
        producer.send_offsets_to_transaction({("in", 0): 0}, "g")
        producer.commit_transaction()
    assert values(open_cluster(store), "out") == [b"again"]
    assert "g" in cluster.refresh().groups


def test_a_transaction_is_indeterminate_if_its_id_expires_before_its_outcome_is_known() -> None:
    clock = ManualClock()
    store = FlakyStore(clock)
    cluster = create_cluster(store, clock=clock)
    cluster.create_topic("orders")
    producer = Producer(cluster=cluster, transactional_id="tx", linger_ms=60_000)
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("orders", b"there", partition=0)
    store.commits, store.silent = [LOST_ANSWER], True
    store.before_retry = lambda: open_cluster(store).submit(
        lambda state: decide_expiry.forget_transactional_ids(state, ["tx"])
    )
    with pytest.raises(IndeterminateCommitError, match="look for its records") as raised:
        producer.commit_transaction()
    assert "nothing was committed" not in str(raised.value)
    assert isinstance(future.exception, IndeterminateCommitError)
    producer.close()
    assert values(open_cluster(store), "orders") == [b"there"], "the files are kept"


class UnknownCommit:
    """A transaction whose commit has an unknown outcome, and a topic that is deleted before the retry. The commits that
    settle the outcome then fail with the faults in ``commits``."""

    def __init__(self, first: str, commits: list[str]) -> None:
        self.clock = ManualClock()
        self.store = FlakyStore(self.clock)
        self.cluster = create_cluster(self.store, clock=self.clock)
        for topic in ("orders", "gone"):
            self.cluster.create_topic(topic)
        self.producer = Producer(cluster=self.cluster, transactional_id="tx", linger_ms=60_000)
        self.producer.init_transactions()
        self.producer.begin_transaction()
        self.future = self.producer.send("orders", b"a", partition=0)
        self.producer.send_offsets_to_transaction({("gone", 0): 0}, "g")
        self.following = commits
        self.store.commits, self.store.silent, self.store.before_retry = [first], True, self._delete_topic

    def _delete_topic(self) -> None:
        topic_deletion.delete_topic(open_cluster(self.store), "gone")
        self.store.commits = self.following

    def epoch(self) -> int:
        state = self.cluster.refresh()
        return state.producers[state.indexes.transactional_ids["tx"]].epoch

    def values(self) -> list[bytes | None]:
        return values(open_cluster(self.store), "orders")


FENCES = [[LOST_ANSWER], [UNAVAILABLE, LOST_ANSWER], [LOST_ANSWER, UNAVAILABLE]]


@pytest.mark.parametrize("fences", FENCES, ids="-".join)
def test_a_producer_recognises_its_own_epoch_whose_outcome_was_unknown(fences: list[str]) -> None:
    """Its commit was not stored; the epoch after it was."""
    scenario = UnknownCommit(UNAVAILABLE, list(fences))
    with pytest.raises(UnknownTopicOrPartitionError):
        scenario.producer.commit_transaction()
    assert scenario.future.failed()
    assert scenario.epoch() == 1, "exactly one new epoch"
    scenario.producer.abort_transaction()
    scenario.producer.begin_transaction()
    scenario.producer.send("orders", b"b", partition=0)
    scenario.producer.commit_transaction()
    scenario.producer.close()
    assert scenario.values() == [b"b"]


def test_a_transaction_whose_commit_is_retried_after_its_own_epoch_bump_is_abortable() -> None:
    scenario = UnknownCommit(UNAVAILABLE, [LOST_ANSWER])

    def go_down() -> None:
        scenario.store.down = True

    def delete_topic() -> None:
        topic_deletion.delete_topic(open_cluster(scenario.store), "gone")
        scenario.store.commits, scenario.store.before_retry = [LOST_ANSWER], go_down

    scenario.store.before_retry = delete_topic
    with pytest.raises(KafkaTimeoutError):
        scenario.producer.commit_transaction()
    scenario.store.down = False
    scenario.cluster.refresh()
    with pytest.raises(TransactionAbortedError, match="is not committed"):
        scenario.producer.commit_transaction()
    scenario.producer.abort_transaction()
    scenario.producer.begin_transaction()
    scenario.producer.send("orders", b"b", partition=0)
    scenario.producer.commit_transaction()
    scenario.producer.close()
    assert scenario.values() == [b"b"]


def test_a_newer_instance_fences_a_producer_after_its_own_epoch_bump() -> None:
    scenario = UnknownCommit(UNAVAILABLE, [LOST_ANSWER])
    newer: list[Producer] = []

    def take_over() -> None:
        newer.append(Producer(cluster=open_cluster(scenario.store), transactional_id="tx", linger_ms=60_000))
        newer[0].init_transactions()

    def delete_topic() -> None:
        topic_deletion.delete_topic(open_cluster(scenario.store), "gone")
        scenario.store.commits, scenario.store.before_retry = [LOST_ANSWER], take_over

    scenario.store.before_retry = delete_topic
    with pytest.raises(ProducerFencedError, match="newer instance has taken over"):
        scenario.producer.commit_transaction()
    newer[0].begin_transaction()
    newer[0].send("orders", b"b", partition=0)
    newer[0].commit_transaction()
    for producer in (scenario.producer, newer[0]):
        producer.close()
    assert scenario.values() == [b"b"]


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "not stored"])
def test_an_abort_resolves_the_unknown_outcome_of_a_commit(stored: bool) -> None:
    clock = ManualClock()
    store = FlakyStore(clock)
    cluster = create_cluster(store, clock=clock)
    cluster.create_topic("orders")
    producer = Producer(cluster=cluster, transactional_id="tx", linger_ms=60_000, max_block_ms=10_000)
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("orders", b"a", partition=0)

    def go_down() -> None:
        store.down = True

    store.commits, store.silent, store.before_retry = [LOST_ANSWER if stored else UNAVAILABLE], True, go_down
    with pytest.raises(KafkaTimeoutError):
        producer.commit_transaction()
    with pytest.raises(KafkaTimeoutError, match="its outcome is unknown"):
        producer.abort_transaction()
    store.down = False
    if stored:
        with pytest.raises(InvalidTxnStateError, match="it is committed"):
            producer.abort_transaction()
        assert future.get().offset == 0
    else:
        producer.abort_transaction()
        assert isinstance(future.exception, TransactionAbortedError)
    assert not [info for info in store.list("orders-0/") if not stored], (
        "the files of the aborted transaction are deleted"
    )
    producer.begin_transaction()
    producer.send("orders", b"b", partition=0)
    producer.commit_transaction()
    producer.close()
    assert values(open_cluster(store), "orders") == ([b"a", b"b"] if stored else [b"b"])


def test_a_fenced_producer_reports_a_newer_instance() -> None:
    cluster = create_cluster(MemoryStore(uuid.uuid4().hex))
    cluster.create_topic("orders")
    older, newer = (Producer(cluster=cluster, transactional_id="tx", linger_ms=60_000) for _ in range(2))
    older.init_transactions()
    older.begin_transaction()
    older.send("orders", b"a", partition=0)
    newer.init_transactions()
    with pytest.raises(SparklogError, match="newer instance has taken over") as raised:
        older.commit_transaction()
    assert "own earlier attempt" not in str(raised.value)
    for producer in (older, newer):
        producer.close()
