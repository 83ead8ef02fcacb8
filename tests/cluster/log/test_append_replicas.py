"""One segment file on several brokers: identical bytes, one encoding, and the effects of a failed location."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import StorageError, StorageFullError, UnsupportedStoreError
from sparklog.format import segment_writer
from sparklog.log.records.replicated_file import discard
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.protocol.decide.append import PartitionAppend
from sparklog.store.base import Store
from sparklog.store.local import LocalStore
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import (
    CRASH_AFTER,
    CRASH_BEFORE,
    ERROR,
    FULL,
    LOST_ANSWER,
    PERMISSION,
    UNAVAILABLE,
    CountingStore,
    Fault,
    FaultyStore,
    SimulatedCrash,
)
from tests.waiting import waiting_at

KEY = "orders-0/00000000000000000000-v3-abc.log"
INDEX = KEY.removesuffix(".log") + ".index"


def batch(rows: int = 3, size: int = 10) -> pa.RecordBatch:
    values = pa.array([b"%d" % row * size for row in range(rows)], pa.binary())
    stamps = pa.array(range(rows), pa.timestamp("us", tz="UTC"))
    return pa.RecordBatch.from_arrays([values, stamps], names=["value", "timestamp"])


def stores(folder: Path, count: int = 2) -> list[CountingStore]:
    return [CountingStore(LocalStore(str(folder / str(number)))) for number in range(count)]


def write(first: FaultyStore, *others: FaultyStore, rows: int = 3, size: int = 10) -> list[PartitionAppend]:
    """Write two batches of one partition to brokers 0, 1 and so on."""
    writer = SegmentFileWriter(first, KEY, has_key=False, replicas=list(enumerate(others, 1)))
    writer.start_run(RunTarget("orders", "t1", 0))
    try:
        for _ in range(2):
            writer.write(batch(rows, size))
    except StorageError:
        writer.abort()
        raise
    return writer.finish()


def keys(store: FaultyStore) -> list[str]:
    return sorted(info.key for info in store.wrapped.list())


def unfinished(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".tmp-*")]


def test_every_broker_has_the_same_bytes_in_both_files(tmp_path: Path) -> None:
    first, second, third = stores(tmp_path, 3)
    (append,) = write(first, second, third)
    assert (append.run.broker, append.run.replicas) == (0, [0, 1, 2])
    for key in (KEY, INDEX):
        assert first.get(key) == second.get(key) == third.get(key) != b""


def test_an_append_to_a_single_broker_has_no_replica_list(tmp_path: Path) -> None:
    (store,) = stores(tmp_path, 1)
    (append,) = write(store)
    assert (append.run.broker, append.run.replicas) == (0, [])


def test_a_replica_costs_one_more_write_of_the_bytes_and_no_second_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Count the bytes and calls of each store, and the rows encoded."""
    encoded: list[int] = []
    encode = segment_writer.SegmentWriter.write

    def counted(self: segment_writer.SegmentWriter, rows: pa.RecordBatch, **more: Any) -> object:
        encoded.append(rows.num_rows)
        return encode(self, rows, **more)

    monkeypatch.setattr(segment_writer.SegmentWriter, "write", counted)
    (alone,) = stores(tmp_path / "alone", 1)
    write(alone, rows=2000, size=200)
    first, second = stores(tmp_path / "both")
    write(first, second, rows=2000, size=200)
    assert encoded == [2000, 2000] * 2
    assert first.bytes_written == second.bytes_written == alone.bytes_written > 2 * 2000 * 200
    assert first.counts == second.counts == alone.counts
    assert (first.bytes_read, second.bytes_read) == (0, 0)


def steps_of(folder: Path, **more: Any) -> int:
    counted = stores(folder / "counted")
    write(*counted, **more)
    assert len(counted[0].calls) == len(counted[1].calls)
    return len(counted[0].calls)


@pytest.mark.parametrize("broken", [0, 1])
@pytest.mark.parametrize("kind", [ERROR, UNAVAILABLE, FULL, LOST_ANSWER])
def test_a_location_that_fails_at_any_step_is_left_out_and_the_other_copy_is_complete(
    tmp_path: Path, broken: int, kind: str
) -> None:
    rows, size = 500, 2000  # enough data for writes before the file is closed
    for step in range(steps_of(tmp_path, rows=rows, size=size)):
        folder = tmp_path / f"{step}"
        brokers: list[FaultyStore] = list(stores(folder))
        brokers[broken] = FaultyStore(brokers[broken], [Fault(step, kind)])
        (append,) = write(*brokers, rows=rows, size=size)
        assert (append.run.broker, append.run.replicas) == (1 - broken, []), f"step {step}"
        assert keys(brokers[1 - broken]) == [INDEX, KEY]
        if kind != LOST_ANSWER:  # without an answer to its open, a writer cannot remove the file
            assert not unfinished(folder)


def test_if_every_location_fails_the_leaders_error_is_raised_and_nothing_unfinished_is_left(
    tmp_path: Path,
) -> None:
    for step in range(steps_of(tmp_path)):
        folder = tmp_path / f"{step}"
        faulty = [
            FaultyStore(store, [Fault(step, kind)]) for store, kind in zip(stores(folder), (FULL, ERROR), strict=True)
        ]
        with pytest.raises(StorageFullError):
            write(*faulty)
        assert not unfinished(folder)


@pytest.mark.parametrize("kind", [CRASH_BEFORE, CRASH_AFTER])
def test_a_crash_at_any_step_returns_no_append(tmp_path: Path, kind: str) -> None:
    for step in range(steps_of(tmp_path)):
        first, second = stores(tmp_path / f"{step}")
        with pytest.raises(SimulatedCrash):
            write(first, FaultyStore(second, [Fault(step, kind)]))


@pytest.mark.parametrize("operation", ["open_output", "write", "close"])
@pytest.mark.parametrize("waits", [0, 1])
def test_a_location_whose_writes_wait_is_left_out_and_holds_up_no_later_file(
    tmp_path: Path, operation: str, waits: int
) -> None:
    for folder in ("0", "1"):
        (tmp_path / folder).mkdir()
    with waiting_at(tmp_path / str(waits)) as waiting:
        brokers = [open_store(str(tmp_path / folder)) for folder in ("0", "1")]
        waiting.operations = {operation}
        for number in range(3):
            key = KEY.replace("0.log", f"{number}.log")
            writer = SegmentFileWriter(brokers[0], key, has_key=False, replicas=[(1, brokers[1])])
            writer.start_run(RunTarget("orders", "t1", 0))
            writer.write(batch())
            (append,) = writer.finish()
            assert (append.run.broker, append.run.replicas) == (1 - waits, [])
        assert len(waiting.calls) == 1


def test_an_aborted_write_leaves_no_file_at_any_broker(tmp_path: Path) -> None:
    brokers = stores(tmp_path)
    writer = SegmentFileWriter(brokers[0], KEY, has_key=False, replicas=[(1, brokers[1])])
    writer.start_run(RunTarget("orders", "t1", 0))
    writer.write(batch())
    writer.abort()
    assert [keys(store) for store in brokers] == [[], []]
    assert not unfinished(tmp_path)


def test_a_location_that_cannot_even_abort_does_not_fail_the_write(tmp_path: Path) -> None:
    first = FaultyStore(LocalStore(str(tmp_path / "0")), seed=1, rates={})
    second = FaultyStore(LocalStore(str(tmp_path / "1")), seed=1, rates={})
    writer = SegmentFileWriter(first, KEY, has_key=False, replicas=[(1, second)])
    writer.start_run(RunTarget("orders", "t1", 0))
    writer.write(batch())
    second.inject(rates={PERMISSION: 1.0})
    assert writer.finish()[0].run.broker == 0
    assert writer.failed == [1]


def test_discarding_deletes_both_files_at_every_broker_with_a_copy(tmp_path: Path) -> None:
    brokers = stores(tmp_path)
    (append,) = write(*brokers)
    discard([append.run, append.run], brokers.__getitem__)
    assert [keys(store) for store in brokers] == [[], []]


@pytest.mark.parametrize("error", [StorageError, UnsupportedStoreError])
def test_discarding_continues_after_a_location_that_fails_or_cannot_be_opened(
    tmp_path: Path, error: type[Exception]
) -> None:
    brokers = stores(tmp_path)
    (append,) = write(*brokers)

    def store_of(broker: int) -> Store:
        if broker == 0:
            raise error("broker 0 cannot be opened")
        return brokers[broker]

    discard([append.run], store_of)
    assert [keys(store) for store in brokers] == [[INDEX, KEY], []]
