"""Futures: kafka-python's interface, and callbacks added before or after the result."""

from __future__ import annotations

import logging
import sys
import threading
from array import array
from typing import Any

import pytest

from sparklog.client.condition import Condition
from sparklog.client.producer.futures import FutureOffsets, FutureRecordMetadata, RecordBatchResult
from sparklog.errors import KafkaTimeoutError, StorageUnavailableError, TransactionAbortedError
from sparklog.types import OffsetRange, TopicPartition


@pytest.fixture
def batch() -> RecordBatchResult:
    return new_batch()


def new_batch(partition: int = 0) -> RecordBatchResult:
    result = RecordBatchResult(Condition(), TopicPartition("t", partition))
    result.stamps = array("q", [5_000, 6_000, 7_000])
    result.sizes = (None, [1, -1, 3], [-1, 2, -1])
    return result


def resolve(batch: RecordBatchResult, error: BaseException | None = None, base_offset: int = 10) -> None:
    batch.base_offset = base_offset
    batch.resolve(error)


def test_a_pending_future_has_no_result(batch: RecordBatchResult) -> None:
    future = FutureRecordMetadata(batch, 1)
    assert not future.is_done
    assert not future.succeeded()
    assert not future.failed()
    assert not future.retriable()
    assert future.value is None
    assert future.exception is None
    with pytest.raises(KafkaTimeoutError, match=r"0\.001 seconds"):
        future.get(timeout=0.001)


def test_a_committed_record_has_its_metadata(batch: RecordBatchResult) -> None:
    future = FutureRecordMetadata(batch, 1)
    resolve(batch)
    assert future.is_done
    assert future.succeeded()
    assert future.get() == future.value == ("t", 0, TopicPartition("t", 0), 11, 6, None, -1, -1, 2)


def test_a_failed_record_raises_its_error(batch: RecordBatchResult) -> None:
    future = FutureRecordMetadata(batch, 0)
    resolve(batch, TransactionAbortedError("gone"))
    assert future.failed()
    assert not future.retriable()
    assert future.value is None
    with pytest.raises(TransactionAbortedError):
        future.get()


def test_a_transient_error_is_retriable(batch: RecordBatchResult) -> None:
    resolve(batch, StorageUnavailableError("busy"))
    assert FutureRecordMetadata(batch, 0).retriable()


@pytest.mark.parametrize("early", [True, False])
def test_callbacks_get_their_arguments_and_the_result(batch: RecordBatchResult, early: bool) -> None:
    future, called = FutureRecordMetadata(batch, 0), []
    if not early:
        resolve(batch)
    assert future.add_callback(lambda *args, **more: called.append((args, more)), 1, a=2) is future
    future.add_errback(called.append)
    future.add_both(lambda metadata: called.append(metadata.offset))
    if early:
        assert called == []
        resolve(batch)
    assert called == [((1, future.value), {"a": 2}), 10]


@pytest.mark.parametrize("early", [True, False])
def test_errbacks_get_the_exception(batch: RecordBatchResult, early: bool) -> None:
    called: list[Any] = []
    future, error = FutureRecordMetadata(batch, 0), StorageUnavailableError("busy")
    if not early:
        resolve(batch, error)
    future.add_callback(called.append)
    future.add_errback(lambda first, raised: called.append((first, raised)), "first")
    future.add_both(called.append)
    if early:
        resolve(batch, error)
    assert called == [("first", error), error]


def test_a_failing_callback_is_logged_and_the_others_run(
    batch: RecordBatchResult, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[object] = []
    future = FutureRecordMetadata(batch, 0).add_callback(lambda _: 1 / 0).add_callback(called.append)
    with caplog.at_level(logging.ERROR):
        resolve(batch)
    assert called == [future.value]
    assert "a callback of a producer's future failed" in caplog.text


def test_a_system_exit_in_a_callback_is_logged_by_the_resolving_thread(
    batch: RecordBatchResult, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[object] = []
    future = FutureRecordMetadata(batch, 0).add_callback(_exit).add_callback(called.append)
    thread = threading.Thread(target=lambda: called.append(resolve(batch)))
    thread.start()
    thread.join(30)
    assert called == [future.value, None]
    assert "SystemExit" in caplog.text


def test_the_main_thread_is_interrupted_once_all_callbacks_have_run(batch: RecordBatchResult) -> None:
    called: list[object] = []
    future = FutureRecordMetadata(batch, 0).add_callback(_interrupt).add_callback(_exit).add_callback(called.append)
    with pytest.raises(KeyboardInterrupt):
        resolve(batch)
    assert called == [future.value]
    with pytest.raises(SystemExit):
        future.add_callback(_exit)


def _exit(_: object) -> None:
    sys.exit("a callback wants to end the program")


def _interrupt(_: object) -> None:
    raise KeyboardInterrupt


def test_a_thread_waiting_for_a_future_is_woken(batch: RecordBatchResult) -> None:
    future, offsets = FutureRecordMetadata(batch, 0), []
    thread = threading.Thread(target=lambda: offsets.append(future.get(30).offset))
    thread.start()
    resolve(batch)
    thread.join(30)
    assert offsets == [10]


def test_a_tables_future_waits_for_all_parts_and_joins_adjacent_ranges() -> None:
    first, second, third = new_batch(), new_batch(), new_batch(1)
    future = FutureOffsets(Condition())
    for part, rows in ((first, 3), (second, 2), (third, 1)):
        future.add_part(part, rows)
    future.watch()
    resolve(second, base_offset=13)
    resolve(third, base_offset=5)
    assert not future.is_done
    resolve(first, base_offset=10)
    assert future.get() == [OffsetRange("t", 0, 10, 15), OffsetRange("t", 1, 5, 6)]


def test_a_tables_future_fails_with_the_first_error_once_all_parts_are_done() -> None:
    first, second = new_batch(), new_batch(1)
    future = FutureOffsets(Condition())
    future.add_part(first, 1)
    future.add_part(second, 1)
    future.watch()
    error = StorageUnavailableError("busy")
    resolve(second, error)
    assert not future.is_done
    resolve(first)
    assert future.exception is error
