"""A call of the storage does not return: records and transactions end at their time-outs, and what is then unknown is
found out once it does."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import IllegalStateError, InvalidTxnStateError, KafkaTimeoutError, StorageUnavailableError
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.cluster.client.test_transactions_regressions import values

WAIT = 30
SHORT_MS = 300


class HangingStore(FaultyStore):
    """Commits hang while ``answers`` is cleared, and fail then if ``fails``."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(uuid.uuid4().hex), before=self._hang)
        self.answers = threading.Event()
        self.answers.set()
        self.hangs = threading.Event()
        self.fails = False

    def _hang(self, step: int, call: Call) -> None:
        if (
            call.operation.startswith(("create", "put", "write"))
            and "commits/" in call.key
            and not self.answers.is_set()
        ):
            self.hangs.set()
            self.answers.wait(WAIT)
            if self.fails:
                raise StorageUnavailableError("it was not done", path=call.key)


@pytest.fixture
def store() -> Iterator[HangingStore]:
    store = HangingStore()
    yield store
    store.answers.set()


@pytest.fixture
def cluster(store: HangingStore) -> Coordinator:
    cluster = create_cluster(store)
    cluster.create_topic("t")
    return cluster


def read(store: HangingStore) -> list[bytes | None]:
    return values(open_cluster(store.wrapped), "t")


def test_records_end_at_delivery_timeout_while_a_commit_hangs(cluster: Coordinator, store: HangingStore) -> None:
    producer = Producer(
        cluster=cluster, delivery_timeout_ms=SHORT_MS, request_timeout_ms=SHORT_MS, linger_ms=0, acks="all"
    )
    producer.send("t", b"0").get(WAIT)
    store.answers.clear()
    called: list[BaseException] = []
    in_flight = producer.send("t", b"1").add_errback(called.append)
    assert store.hangs.wait(WAIT)
    waiting = producer.send("t", b"2")
    producer.flush(WAIT)
    with pytest.raises(KafkaTimeoutError, match="whether they are in the log is not known"):
        in_flight.get()
    with pytest.raises(KafkaTimeoutError, match="they are not in the log"):
        waiting.get()
    assert called == [in_flight.exception]
    store.answers.set()
    assert producer.send("t", b"3").get(WAIT).offset == 2
    producer.close(WAIT)
    assert read(store) == [b"0", b"1", b"3"]


def begun(cluster: Coordinator) -> Producer:
    producer = Producer(cluster=cluster, transactional_id="tx", max_block_ms=SHORT_MS, linger_ms=60_000)
    producer.init_transactions()
    producer.begin_transaction()
    return producer


@pytest.mark.parametrize("then", ["commit", "abort"])
@pytest.mark.parametrize("fails", [False, True], ids=["done", "not done"])
def test_a_transaction_ends_at_max_block_while_its_commit_hangs(
    cluster: Coordinator, store: HangingStore, fails: bool, then: str
) -> None:
    producer = begun(cluster)
    future = producer.send("t", b"a", partition=0)
    producer.flush()
    files = {info.key for info in store.wrapped.list("t-0/")}
    store.answers.clear()
    store.fails = fails
    for step in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        began = time.monotonic()
        with pytest.raises(KafkaTimeoutError, match="outcome is unknown"):
            step()
        assert time.monotonic() - began < WAIT / 2
    assert not future.is_done
    assert {info.key for info in store.wrapped.list("t-0/")} == files, "nothing is deleted on an unknown outcome"
    store.answers.set()
    is_committed = True
    if then == "commit":
        ask_again(producer.commit_transaction)
    elif fails:
        is_committed = not aborts(producer)
    else:
        with pytest.raises(InvalidTxnStateError, match="it is committed"):
            ask_again(producer.abort_transaction)
    assert future.succeeded() == is_committed
    producer.begin_transaction()
    producer.send("t", b"b", partition=0)
    ask_again(producer.commit_transaction)
    producer.close(WAIT)
    assert read(store) == ([b"a", b"b"] if is_committed else [b"b"])


def ask_again(step: Callable[[], None]) -> None:
    """Repeat a step, as its time-out says, until it has an answer."""
    for _ in range(WAIT):
        with suppress(KafkaTimeoutError):
            return step()
    raise AssertionError("no answer")


def aborts(producer: Producer) -> bool:
    """Return whether the transaction is aborted: its commit may have been retried and have succeeded in between."""
    try:
        ask_again(producer.abort_transaction)
    except InvalidTxnStateError:
        return False
    return True


def test_closing_ends_while_a_transactions_commit_hangs(cluster: Coordinator, store: HangingStore) -> None:
    producer = begun(cluster)
    future = producer.send("t", b"a", partition=0)
    store.answers.clear()
    with pytest.raises(KafkaTimeoutError):
        producer.commit_transaction()
    producer.close(0.1)
    with pytest.raises(KafkaTimeoutError, match="may be in the log"):
        future.get(WAIT)


def test_a_time_out_names_the_last_error(
    cluster: Coordinator, store: HangingStore, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(cluster=cluster, delivery_timeout_ms=SHORT_MS, request_timeout_ms=SHORT_MS, linger_ms=0)
    producer.send("t", b"0").get(WAIT)

    def fail(step: int, call: Call) -> None:
        if call.key.endswith(".log"):
            raise StorageUnavailableError("No space left on device", path=call.key)

    store.before = fail
    with pytest.raises(KafkaTimeoutError, match="No space left on device") as raised:
        producer.send("t", b"1").get(WAIT)
    assert isinstance(raised.value.__cause__, StorageUnavailableError)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert sum("retrying" in message and "No space left" in message for message in warnings) == 1
    store.before = None
    producer.close(WAIT)


def test_closing_without_a_limit_ends_once_all_records_have_failed(cluster: Coordinator, store: HangingStore) -> None:
    producer = Producer(cluster=cluster, delivery_timeout_ms=SHORT_MS, request_timeout_ms=SHORT_MS, linger_ms=0)
    producer.send("t", b"0").get(WAIT)
    store.answers.clear()
    failed = producer.send("t", b"1")
    assert store.hangs.wait(WAIT)
    closing = threading.Thread(target=producer.close, daemon=True)
    closing.start()
    closing.join(WAIT - 5)  # the call of the storage hangs for longer
    assert not closing.is_alive()
    assert isinstance(failed.exception, KafkaTimeoutError)


def test_flush_in_a_callback_of_a_time_out_is_refused(cluster: Coordinator, store: HangingStore) -> None:
    """It would wait for the thread that runs the callback, and no later record would time out."""
    producer = Producer(cluster=cluster, delivery_timeout_ms=SHORT_MS, request_timeout_ms=SHORT_MS, linger_ms=0)
    producer.send("t", b"0").get(WAIT)
    refused: list[BaseException] = []

    def flush(_: BaseException) -> None:
        try:
            producer.flush()
        except IllegalStateError as error:
            refused.append(error)

    store.answers.clear()
    producer.send("t", b"1").add_errback(flush)
    assert store.hangs.wait(WAIT)
    later = producer.send("t", b"2")
    producer.flush(WAIT - 5)
    assert isinstance(later.exception, KafkaTimeoutError)
    assert len(refused) == 1
    store.answers.set()
    producer.close()
