from __future__ import annotations

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.errors import StorageUnavailableError
from sparklog.store.read_ahead import MAX_GAP_BYTES, WINDOW_BYTES, WINDOWS_AHEAD, ReadAheadFile

MIB = 1024 * 1024


class Object:
    """An object in memory that records each request. ``fail`` is the number of next requests that fail."""

    def __init__(self, size: int) -> None:
        self.data = random.Random(size).randbytes(size)
        self.requests: list[tuple[int, int]] = []
        self.fail = 0
        self.lock = threading.Lock()

    def fetch(self, position: int, length: int) -> bytes:
        with self.lock:
            self.requests.append((position, length))
            if self.fail:
                self.fail -= 1
                raise StorageUnavailableError("no answer")
        return self.data[position : position + length]

    def open(self) -> ReadAheadFile:
        return ReadAheadFile("a", self.fetch, lambda: len(self.data))


def test_single_reads_fetch_exactly_their_bytes() -> None:
    stored = Object(MIB)
    file = stored.open()
    for position, length in ((500_000, 1000), (0, 20), (900_000, 5), (123, 456)):
        assert file.read_at(position, length).to_pybytes() == stored.data[position : position + length]
    assert stored.requests == [(500_000, 1000), (0, 20), (900_000, 5), (123, 456)]


def test_lookup_of_a_batch_by_its_parts_fetches_no_additional_bytes() -> None:
    stored = Object(30 * MIB)
    file = stored.open()
    for batch in (3, 9, 1):
        for part in range(3):
            file.read_at(batch * MIB + part * 1000, 1000)
    assert all(length == 1000 for _, length in stored.requests)


def test_scan_reads_large_windows_and_each_byte_once() -> None:
    stored = Object(30 * MIB + 5)
    file = stored.open()
    for start in range(0, 30 * MIB + 5, MIB):
        assert file.read_at(start, MIB).to_pybytes() == stored.data[start : start + MIB]
    inside = [(start, length) for start, length in stored.requests if start < len(stored.data)]
    assert sum(min(length, len(stored.data) - start) for start, length in inside) == len(stored.data)
    assert len(stored.requests) <= 1 + 30 * MIB // WINDOW_BYTES + 1 + WINDOWS_AHEAD


def test_small_skips_continue_a_scan_and_jumps_do_not() -> None:
    stored = Object(60 * MIB)
    file = stored.open()
    position = 0
    for _ in range(40):
        assert file.read_at(position, 100_000).to_pybytes() == stored.data[position : position + 100_000]
        position += 100_000 + MAX_GAP_BYTES // 2
    assert len(stored.requests) < 20
    stored.requests.clear()
    file.read_at(50 * MIB, 10)
    assert stored.requests == [(50 * MIB, 10)]


def test_slices_of_one_window_share_its_memory() -> None:
    stored = Object(9 * MIB)
    file = stored.open()
    file.read_at(0, 100)
    file.read_at(100, MIB)
    first, second = file.read_at(MIB + 100, 1000), file.read_at(MIB + 1100, 1000)
    assert second.address - first.address == 1000


def test_failed_window_is_raised_and_fetched_again_on_retry() -> None:
    stored = Object(20 * MIB)
    file = stored.open()
    file.read_at(0, MIB)
    stored.fail = 1000
    for _ in range(2):
        with pytest.raises(StorageUnavailableError):
            file.read_at(MIB, MIB)
    stored.fail = 0
    for start in range(MIB, 20 * MIB, MIB):
        assert file.read_at(start, MIB).to_pybytes() == stored.data[start : start + MIB]


@given(
    st.integers(0, 12 * MIB),
    st.lists(
        st.tuples(st.sampled_from(["next", "skip", "back", "jump"]), st.sampled_from([0, 1, 5000, MIB, 5 * MIB])),
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_any_order_of_reads_returns_the_bytes_that_exist(
    size: int, steps: list[tuple[str, int]], choose: random.Random
) -> None:
    stored = Object(size)
    file = stored.open()
    position = 0
    for step, length in steps:
        if step == "skip":
            position += choose.randrange(2 * MAX_GAP_BYTES)
        elif step == "back":
            position = max(0, position - choose.randrange(3 * MIB))
        elif step == "jump":
            position = choose.randrange(14 * MIB)
        assert file.read_at(position, length).to_pybytes() == stored.data[position : position + length]
        position += length
    file.close()
