"""A root is restored from a copy while a producer uses it, and the commits that the producer knows are removed. The
producer continues from a checkpoint, and must not mistake another producer's id and sequences for its own."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, kept_reading, open_cluster
from sparklog.errors import IndeterminateCommitError, ProducerFencedError, TransactionAbortedError
from sparklog.log.commits import cleanup
from sparklog.log.layout import read_boundary
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import LOST_ANSWER, Call, FaultyStore
from tests.cluster.client.consumers import until
from tests.cluster.client.test_transactions_regressions import values
from tests.cluster.log.test_replaced_root import restore, take_snapshot

WAIT = 30
"""Seconds. Only a broken test waits this long."""


def cluster_with_topic() -> tuple[MemoryStore, dict[str, bytes]]:
    store = MemoryStore(uuid.uuid4().hex)
    cluster = create_cluster(store)
    cluster.create_topic("t")
    cluster.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
    return store, take_snapshot(store)


def new_producer(cluster: Coordinator, **more: Any) -> Producer:
    return Producer(cluster=cluster, **{"linger_ms": 60_000, "retry_backoff_ms": 0, **more})


def send(producer: Producer, *messages: bytes) -> None:
    for message in messages:
        producer.send("t", message, partition=0)
        producer.flush(WAIT)


def commit(producer: Producer, message: bytes) -> None:
    producer.begin_transaction()
    producer.send("t", message, partition=0)
    producer.commit_transaction()


def pass_by(store: Store, *readers: Coordinator) -> None:
    """Commit from another client, then remove the commits that clients know; ``readers`` read the new ones in time."""
    others = open_cluster(store)
    for number in range(200):
        others.submit(partial(alter_configs, topic="t", changes={"retention.ms": str(10**9 + number)}))
    for reader in readers:
        reader.refresh()
    others.log.write_checkpoint()
    cleanup.clean_up(store, ManualClock(int(time.time() * 1000) + 3_600_000), others.state.configs)
    assert read_boundary(store) > 50


class ReadInBackground(Coordinator):
    """Reads as soon as a background thread has read for this coordinator."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._shared = coordinator

    def refresh(self) -> State:
        newest = open_cluster(self._shared.store).state.version
        until(lambda: self._shared.state.version >= newest)
        return self._shared.state


class UnknownOutcome(FaultyStore):
    """The outcome of the next commit is unknown: it is stored or not, and reading it back fails until the client gives
    up. Then ``after_failure`` is called."""

    def __init__(self, store: Store, after_failure: Callable[[], None]) -> None:
        super().__init__(store)
        self.armed = ""
        self._after_failure = after_failure
        self._unreadable = 0

    def _due(self, call: Call) -> str | None:
        kind = super()._due(call)
        if self.armed and call.operation == "put_if_absent":
            kind, self.armed, self._unreadable = self.armed, "", 5
        elif self._unreadable and call.operation == "get" and call.key.startswith("meta/commits/"):
            self._unreadable -= 1
            kind = "unavailable"
            if not self._unreadable:
                self._after_failure()
        return kind


def test_a_record_is_not_mistaken_for_a_repetition_of_another_producers() -> None:
    store, snapshot = cluster_with_topic()
    a = new_producer(open_cluster(store))
    send(a, b"A0", b"A1")
    restore(store, snapshot)
    with new_producer(open_cluster(store)) as b:
        send(b, b"B0", b"B1", b"B2")  # with A's id and sequences
    pass_by(store)
    future = a.send("t", b"A2", partition=0)
    later = a.send("t", b"A3", partition=0)
    a.close()
    assert values(open_cluster(store), "t") == [b"B0", b"B1", b"B2", b"A2", b"A3"]
    assert (future.get(WAIT).offset, later.get(WAIT).offset) == (3, 4)


def test_a_record_with_unknown_outcome_is_indeterminate_after_a_restore() -> None:
    store, snapshot = cluster_with_topic()

    def replace_root() -> None:
        restore(store, snapshot)
        with new_producer(open_cluster(store)) as b:
            send(b, b"B0", b"B1")
        pass_by(store)

    faulty = UnknownOutcome(store, replace_root)
    a = new_producer(open_cluster(faulty, clock=ManualClock(int(time.time() * 1000))))
    send(a, b"A0")
    faulty.armed = LOST_ANSWER
    future = a.send("t", b"A1", partition=0)
    a.flush(WAIT)
    assert isinstance(future.exception, IndeterminateCommitError)
    send(a, b"A2")
    a.close()
    assert values(open_cluster(store), "t") == [b"B0", b"B1", b"A2"]


def test_an_idle_producer_continues_after_commits_were_removed() -> None:
    store, _ = cluster_with_topic()
    client = open_cluster(store)
    with new_producer(client) as producer:
        send(producer, b"0")
        pass_by(store)
        send(producer, b"1", b"2")
    assert client.log.unlinked_jumps == 1
    assert values(client, "t") == [b"0", b"1", b"2"]


def test_a_root_that_is_restored_while_its_checkpoint_is_loaded_is_an_unlinked_jump() -> None:
    """The client was away. It reads its newest commit, which is there, and then the newest checkpoint, which is not
    any more."""
    store, _ = cluster_with_topic()
    open_cluster(store).log.write_checkpoint()
    snapshot = take_snapshot(store)
    clock, armed = ManualClock(int(time.time() * 1000)), [False]

    def before(step: int, call: Call) -> None:
        if armed[0] and call == Call("get", "cluster.json"):
            armed[0] = False
            restore(store, snapshot)

    others = open_cluster(store)
    others.submit(partial(alter_configs, topic="t", changes={"retention.ms": "1"}))
    client = open_cluster(FaultyStore(store, before=before), clock=clock)
    others.submit(partial(alter_configs, topic="t", changes={"retention.ms": "2"}))
    others.log.write_checkpoint()
    clock.advance(client.log.settings.away_seconds + 1)
    armed[0] = True
    client.refresh()
    assert not armed[0]
    assert client.state == open_cluster(store).state
    assert client.log.unlinked_jumps == 1


def test_reading_every_commit_makes_no_unlinked_jump() -> None:
    store, _ = cluster_with_topic()
    client = open_cluster(store)
    others = open_cluster(store)
    for number in range(200):
        others.submit(partial(alter_configs, topic="t", changes={"retention.ms": str(10**9 + number)}))
    client.refresh()
    assert client.state.version == others.state.version
    assert client.log.unlinked_jumps == 0


# -- transactions


def test_a_restore_aborts_the_open_transaction_and_the_next_has_a_new_producer_id() -> None:
    store, snapshot = cluster_with_topic()
    a = new_producer(open_cluster(store), transactional_id="a")
    a.init_transactions()
    a.begin_transaction()
    future = a.send("t", b"A0", partition=0)
    restore(store, snapshot)
    reader = open_cluster(store)
    b = new_producer(reader, transactional_id="b")  # with A's id and epoch
    b.init_transactions()
    commit(b, b"B0")
    pass_by(store, reader)
    with pytest.raises(TransactionAbortedError, match="may belong to another producer"):
        a.commit_transaction()
    assert future.failed()
    a.abort_transaction()
    commit(a, b"A1")
    commit(b, b"B1")  # its id was not taken over
    for producer in (a, b):
        producer.close()
    assert values(open_cluster(store), "t") == [b"B0", b"A1", b"B1"]


def test_a_transaction_with_unknown_outcome_is_indeterminate_and_keeps_its_files() -> None:
    store, _ = cluster_with_topic()
    faulty = UnknownOutcome(store, lambda: pass_by(store))  # the same history, but this client cannot know that
    a = new_producer(open_cluster(faulty, clock=ManualClock(int(time.time() * 1000))), transactional_id="a")
    a.init_transactions()
    a.begin_transaction()
    future = a.send("t", b"A0", partition=0)
    faulty.armed = LOST_ANSWER
    with pytest.raises(IndeterminateCommitError, match="look for its records"):
        a.commit_transaction()
    assert isinstance(future.exception, IndeterminateCommitError)
    a.abort_transaction()
    commit(a, b"A1")
    a.close()
    assert values(open_cluster(store), "t") == [b"A0", b"A1"]


def test_an_idle_transactional_producer_does_not_fence_its_newer_instance() -> None:
    store, _ = cluster_with_topic()
    client = open_cluster(store)
    older = new_producer(client, transactional_id="a")
    older.init_transactions()
    reader = open_cluster(store)
    newer = new_producer(reader, transactional_id="a")
    newer.init_transactions()
    commit(newer, b"0")
    pass_by(store, reader)
    client.refresh()
    with pytest.raises(ProducerFencedError, match="newer instance"):
        older.begin_transaction()
    commit(newer, b"1")
    for producer in (older, newer):
        producer.close()
    assert values(open_cluster(store), "t") == [b"0", b"1"]


def test_a_transaction_may_be_open_for_longer_than_commits_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_reading, "SECONDS", 0.01)
    store, _ = cluster_with_topic()
    cluster = open_cluster(store)
    with new_producer(cluster, transactional_id="x", transaction_timeout_ms=900_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        send(producer, b"early")
        pass_by(store, ReadInBackground(cluster))
        send(producer, b"late")
        producer.commit_transaction()
    assert cluster.log.unlinked_jumps == 0
    assert open_cluster(store).state.partition("t", 0).log_end_offset >= 2
