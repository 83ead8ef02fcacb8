"""Transactions that are interrupted while their records are written, and those whose producer id is not known, or taken
by themselves, before their outcome is."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest

from sparklog.client.producer import Producer
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import (
    IndeterminateCommitError,
    InvalidTxnStateError,
    ProducerFencedError,
    SparklogError,
    TransactionAbortedError,
)
from sparklog.protocol import decide_expiry
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import LOST_ANSWER, UNAVAILABLE, Call, FaultyStore
from tests.unit.client.flaky_store import FlakyStore
from tests.unit.client.test_review_transactions import values

INTERRUPTIONS = [KeyboardInterrupt(), MemoryError(), TimeoutError("a soft limit"), pa.ArrowInvalid("a column")]


class StoppedUpload(FaultyStore):
    """The program is interrupted when it next begins a file of records."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(uuid.uuid4().hex), before=self._interrupt)
        self.due: BaseException | None = None

    def _interrupt(self, step: int, call: Call) -> None:
        if self.due is not None and call.key.endswith((".log", ".index")):
            error, self.due = self.due, None
            raise error


@pytest.mark.parametrize("step", ["flush", "commit_transaction"])
@pytest.mark.parametrize("interruption", INTERRUPTIONS, ids=lambda error: type(error).__name__)
def test_offsets_are_not_committed_without_records_whose_writing_was_interrupted(
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
        with pytest.raises(InvalidTxnStateError, match="in no file"):
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


def test_a_transaction_whose_id_is_forgotten_before_its_outcome_is_known_is_told_as_unknown() -> None:
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
    assert values(open_cluster(store), "orders") == [b"there"], "its files stay"


def test_a_producer_that_may_have_fenced_itself_does_not_blame_another_instance_alone() -> None:
    """Its commit and then its next epoch have no answer; the epoch was stored, and the commit was not."""
    clock = ManualClock()
    store = FlakyStore(clock)
    cluster = create_cluster(store, clock=clock)
    for topic in ("orders", "gone"):
        cluster.create_topic(topic)
    producer = Producer(cluster=cluster, transactional_id="tx", linger_ms=60_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("orders", b"a", partition=0)
    producer.send_offsets_to_transaction({("gone", 0): 0}, "g")

    def delete_topic() -> None:
        open_cluster(store).delete_topic("gone")
        store.commits = [LOST_ANSWER]  # of the next epoch

    store.commits, store.silent, store.before_retry = [UNAVAILABLE], True, delete_topic
    with pytest.raises(ProducerFencedError, match="this producer's own earlier attempt"):
        producer.commit_transaction()
    producer.close()
    assert values(open_cluster(store), "orders") == []


def test_a_producer_that_another_instance_fenced_says_so() -> None:
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
