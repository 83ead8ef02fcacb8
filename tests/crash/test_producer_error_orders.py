"""A producer meets errors of several kinds in any order: permanent ones after a lost answer, and several in a row.

Whatever the storage answered, a record that was acknowledged is in the log once, at its offset; one that failed with an
error that says nothing of an unknown outcome is not in it; any other is in it at most once; and the records of a
partition that are in it have the order in which they were sent. A transaction is whole or absent.
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from typing import Any

import pytest

from sparklog.client.producer import sender
from sparklog.client.producer.futures import FutureRecordMetadata
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import IndeterminateCommitError, KafkaTimeoutError, SparklogError
from sparklog.store.base import BytesLike, Store
from sparklog.store.memory import MemoryStore
from sparklog.testing.faults import KINDS, kinds_of, possible
from sparklog.testing.faulty_store import Fault, FaultyOutputFile, FaultyStore
from tests.crash.copies import copy_of
from tests.sample import chosen

SEEDS = range(750)
UNKNOWN = (IndeterminateCommitError, KafkaTimeoutError)
"""Errors after which a record may be in the log."""

PLACES = [("a", 0), ("a", 1), ("b", 0), ("c", 0), ("c", 1), ("c", 2)]

ANSWERS = ("error", "permission", "full", "unavailable")
OF_COMMITS = [kind for kind in kinds_of("put_if_absent") if KINDS[kind].answer in ANSWERS and not KINDS[kind].lasting]
OF_ALL = [kind for kind in OF_COMMITS if possible(KINDS[kind], "get")]


class TroubledCommits(FaultyStore):
    """At the given ``rate`` the creation of a commit has one of all outcomes, and then reads fail (or only those of the
    log), and new files: some with one error, then some with another one."""

    def __init__(self, store: Store, numbers: random.Random) -> None:
        super().__init__(store)
        self.rate = 0.0
        self._numbers = numbers
        self._errors: list[str] = []
        self._only_log = False

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        self._fail(key)
        return super().get(key, max_bytes)

    def open_output(self, key: str) -> FaultyOutputFile:
        self._fail(key)
        return super().open_output(key)

    def _fail(self, key: str) -> None:
        if self.rate and self._errors and (key.startswith("meta/") or not self._only_log):
            self.inject(Fault(len(self.calls), self._errors.pop(0)))

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        if key.startswith("meta/commits/") and self._numbers.random() < self.rate:
            self.inject(Fault(len(self.calls), self._numbers.choice(OF_COMMITS)))
            self._errors = []
            for _ in range(self._numbers.randint(0, 4)):
                self._errors += [self._numbers.choice(OF_ALL)] * self._numbers.randint(1, 8)
            self._only_log = self._numbers.random() < 0.5
        super().put_if_absent(key, data)


@cache
def _built() -> MemoryStore:
    store = MemoryStore(uuid.uuid4().hex)
    coordinator = create_cluster(store)
    for topic, partitions in (("a", 2), ("b", 1), ("c", 3)):
        coordinator.create_topic(topic, partitions)
    return store


class Run:
    """One seed: what was sent, and what became of it."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.inner = copy_of(_built())
        self.store = TroubledCommits(self.inner, self.random)
        self.clock = ManualClock()
        self.sent: dict[bytes, tuple[tuple[str, int], FutureRecordMetadata]] = {}

    def producer(self, **more: Any) -> Producer:
        cluster = open_cluster(self.store, clock=self.clock)
        settings = {"delivery_timeout_ms": 60_000, "retry_backoff_ms": 0, "retries": self.random.choice([0, 3, 1000])}
        return Producer(cluster=cluster, linger_ms=50_000, **{**settings, **more})

    @contextmanager
    def faults(self) -> Iterator[None]:
        """Trouble while this is entered."""
        self.store.rate = self.random.choice([0.2, 0.5, 0.9])
        try:
            yield
        finally:
            self.store.rate = 0.0
            self.store.heal()

    def send(self, producer: Producer) -> None:
        for _ in range(self.random.randint(1, 8)):
            topic, partition = self.random.choice(PLACES)
            value = b"%d" % len(self.sent)
            with suppress(SparklogError):
                self.sent[value] = (topic, partition), producer.send(topic, value, partition=partition)

    def log(self) -> dict[tuple[str, int], dict[int, bytes]]:
        """What is committed, by place and offset."""
        self.store.settle()
        cluster = open_cluster(self.inner)
        found: dict[tuple[str, int], dict[int, bytes]] = {}
        with LogReader(cluster) as reader:
            for topic, partition in PLACES:
                end = cluster.state.partition(topic, partition).high_watermark
                read = reader.records(topic, partition, 0, end)
                found[topic, partition] = {record.offset: record.value or b"" for record in read}
        return found


def check_log(run: Run) -> Counter[str]:
    """Return how many records had which outcome."""
    log, outcomes = run.log(), Counter[str]()
    for place, values in log.items():
        numbers = [int(value) for value in values.values()]
        assert numbers == sorted(set(numbers)), f"{place} is out of order, or has records twice: {numbers}"
    for value, (place, future) in run.sent.items():
        assert future.is_done, f"{value!r} was neither acknowledged nor failed"
        is_stored = value in log[place].values()
        if future.succeeded():
            offset = future.get(0).offset
            assert log[place].get(offset) == value, f"{value!r} was acknowledged at {offset} of {place}: {log[place]}"
            outcomes["acknowledged"] += 1
        elif not isinstance(future.exception, UNKNOWN):
            assert not is_stored, f"{value!r} failed with {future.exception!r}, and is in {place}"
            outcomes["failed"] += 1
        else:
            outcomes["unknown, stored" if is_stored else "unknown, absent"] += 1
    return outcomes


def produce(seed: int) -> Counter[str]:
    run = Run(seed)
    with run.producer() as producer:
        for _ in range(run.random.randint(2, 6)):
            run.send(producer)
            with run.faults() if run.random.random() < 0.7 else nullcontext():
                producer.flush(30)
                if run.random.random() < 0.3:
                    run.send(producer)
            run.clock.advance(run.random.choice([0, 0, 20, 59, 61]))
    return check_log(run)


def produce_all(seeds: Iterable[int]) -> Counter[str]:
    return sum((produce(seed) for seed in seeds), Counter[str]())


@pytest.mark.sampled
def test_errors_in_any_order_leave_each_record_whole_or_absent() -> None:
    outcomes = produce_all(chosen(SEEDS))
    assert set(outcomes) == {"acknowledged", "failed", "unknown, stored", "unknown, absent"}, outcomes


def test_a_producer_that_forgets_unknown_outcomes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "mark_outcome_unknown", lambda in_flight: None)
    with pytest.raises(AssertionError, match="failed with"):
        produce_all(SEEDS)


class Transactions(Run):
    """One seed of a transactional producer, which is replaced when it can go on no longer."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.ended: list[tuple[str, set[bytes]]] = []
        """The transactions: how each ended as far as its program knows, and its records."""

    def run(self) -> None:
        producer = self.begin()
        for _ in range(self.random.randint(2, 5)):
            begun, ending = len(self.sent), "absent"
            with self.faults() if self.random.random() < 0.7 else nullcontext():
                try:
                    producer.begin_transaction()
                    ending = self.fill(producer)
                except SparklogError:
                    with suppress(SparklogError):
                        producer.abort_transaction()
            self.clock.advance(self.random.choice([0, 0, 20, 61]))
            self.ended.append((ending, {b"%d" % number for number in range(begun, len(self.sent))}))
            try:
                producer.begin_transaction()
                producer.abort_transaction()
            except SparklogError:
                producer.close(1)
                producer = self.begin()
        producer.close(1)
        self.begin().close(1)

    def begin(self) -> Producer:
        producer = self.producer(transactional_id="t", retries=self.random.choice([1, 3, 1000]))
        producer.init_transactions()
        return producer

    def fill(self, producer: Producer) -> str:
        """Return how the transaction ended: committed, absent or unknown."""
        for _ in range(self.random.randint(1, 3)):
            self.send(producer)
            if self.random.random() < 0.3:
                producer.flush(30)
        if self.random.random() < 0.2:
            producer.abort_transaction()
            return "absent"
        try:
            producer.commit_transaction()
        except UNKNOWN:
            return self.retry_commit(producer)
        return "committed"

    def retry_commit(self, producer: Producer) -> str:
        with suppress(SparklogError):
            if self.random.random() < 0.5:
                producer.commit_transaction()
                return "committed"
        return "unknown"


def transact(seed: int) -> Counter[str]:
    run = Transactions(seed)
    run.run()
    log, endings = run.log(), Counter[str]()
    stored = {value for values in log.values() for value in values.values()}
    for place, values in log.items():
        numbers = [int(value) for value in values.values()]
        assert numbers == sorted(set(numbers)), f"{place} is out of order, or has records twice: {numbers}"
    for ending, sent in run.ended:
        found = sent & stored
        assert found in (set(), sent), f"of a transaction of {sent} only {found} are in the log"
        assert ending != "committed" or found == sent, f"a committed transaction is not in the log: {sent}"
        assert ending != "absent" or not found, f"an aborted or failed transaction is in the log: {sent}"
        endings[f"{ending}, {'stored' if found else 'absent'}"] += 1
    return endings


@pytest.mark.sampled
def test_errors_in_any_order_leave_each_transaction_whole_or_absent() -> None:
    endings = sum((transact(seed) for seed in chosen(SEEDS)), Counter[str]())
    assert set(endings) == {"committed, stored", "absent, absent", "unknown, stored", "unknown, absent"}, endings
