"""Open files: ranges, scans, streaming writes, on every store."""

from __future__ import annotations

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from sparklog.errors import InvalidRequestError, ObjectNotFoundError, StorageError
from sparklog.store.base import Store

MIB = 1024 * 1024
SIZE = 300_000
RANGES = {
    "start": (0, 10),
    "middle": (123_456, 789),
    "end": (SIZE - 10, 10),
    "last byte": (SIZE - 1, 1),
    "across the end": (SIZE - 10, 20),
    "at the end": (SIZE, 10),
    "past the end": (SIZE + 1000, 10),
    "nothing": (5, 0),
    "everything": (0, SIZE),
    "more than everything": (0, SIZE * 2),
}


def body(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


@pytest.mark.parametrize("name", RANGES)
def test_range_returns_the_bytes_that_exist(store: Store, name: str) -> None:
    position, length = RANGES[name]
    data = body(SIZE)
    store.put("a/b.log", data)
    expected = data[position : position + length]
    assert store.get_range("a/b.log", position, length) == expected
    file = store.open_input("a/b.log")
    assert file.read_at(position, length).to_pybytes() == expected
    assert file.bytes_read == len(expected)


def test_negative_positions_and_lengths_are_refused(store: Store) -> None:
    store.put("a", b"12345")
    file = store.open_input("a")
    for position, length in ((-1, 1), (0, -1), (-2, -1)):
        with pytest.raises(InvalidRequestError):
            store.get_range("a", position, length)
        with pytest.raises(InvalidRequestError):
            file.read_at(position, length)


def test_input_has_its_key_and_size(store: Store) -> None:
    store.put("a/b", b"12345")
    file = store.open_input("a/b")
    assert (file.key, file.size) == ("a/b", 5)


def test_scan_front_to_back_reads_every_byte_once(store: Store) -> None:
    data = body(15 * MIB + 77)
    with store.open_output("a.log") as output:
        output.write(data)
    file = store.open_input("a.log")
    pieces, position, sizes = [], 0, random.Random(2)
    while position < len(data):
        pieces.append(file.read_at(position, sizes.choice((100, 70_000, MIB, 6 * MIB))).to_pybytes())
        position += len(pieces[-1])
    assert b"".join(pieces) == data
    assert file.bytes_read == len(data)
    assert file.read_at(position, 10).size == 0


def test_reads_in_any_order_are_correct(store: Store) -> None:
    data = body(9 * MIB)
    store.put("a.log", data)
    file, choose = store.open_input("a.log"), random.Random(3)
    position = 0
    for _ in range(60):
        position = choose.choice((position, position + 500, max(0, position - 3 * MIB), choose.randrange(9 * MIB)))
        length = choose.choice((1, 1000, MIB))
        assert file.read_at(position, length).to_pybytes() == data[position : position + length]
        position += length


def test_threads_can_share_an_input(store: Store) -> None:
    data = body(2 * MIB)
    store.put("a.log", data)
    file = store.open_input("a.log")
    with ThreadPoolExecutor(8) as threads:
        starts = range(0, 2 * MIB, 50_000)
        pieces = threads.map(lambda start: file.read_at(start, 50_000).to_pybytes(), starts)
        assert b"".join(pieces) == data
    assert file.bytes_read == len(data)


def test_buffers_outlive_their_file_and_their_object(store: Store) -> None:
    store.put("a", b"12345")
    file = store.open_input("a")
    buffer = file.read_at(1, 3)
    file.close()
    file.close()
    store.put("a", b"xxxxx")
    store.delete("a")
    assert isinstance(buffer, pa.Buffer)
    assert buffer.to_pybytes() == b"234"


def test_closed_input_refuses_reads(store: Store) -> None:
    store.put("a", b"12345")
    file = store.open_input("a")
    file.close()
    with pytest.raises(StorageError):
        file.read_at(0, 1)


def assert_invisible(store: Store, key: str) -> None:
    with pytest.raises(ObjectNotFoundError):
        store.get(key)
    with pytest.raises(ObjectNotFoundError):
        store.info(key)
    assert list(store.list()) == []


@pytest.mark.parametrize("size", [10, 200_000, 20 * MIB])
def test_stream_is_invisible_until_closed(store: Store, size: int) -> None:
    data = body(size)
    file = store.open_output("orders-0/1.log")
    assert file.write(data) == size
    assert file.tell() == size
    assert_invisible(store, "orders-0/1.log")
    file.close()
    file.close()
    assert store.get("orders-0/1.log") == data
    assert [info.key for info in store.list()] == ["orders-0/1.log"]


@pytest.mark.parametrize("size", [10, 200_000, 20 * MIB])
def test_aborted_stream_leaves_nothing(store: Store, size: int) -> None:
    file = store.open_output("orders-0/1.log")
    file.write(body(size))
    file.abort()
    file.abort()
    assert_invisible(store, "orders-0/1.log")
    with pytest.raises(StorageError):
        file.write(b"more")
    assert store.remove_unfinished(1 << 60) == 0


def test_exception_in_the_block_aborts(store: Store) -> None:
    def fail() -> None:
        with store.open_output("a") as file:
            file.write(b"1")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert_invisible(store, "a")


def test_closed_stream_refuses_writes_and_ignores_abort(store: Store) -> None:
    with store.open_output("a") as file:
        file.write(b"1")
    with pytest.raises(StorageError):
        file.write(b"2")
    file.abort()
    assert store.get("a") == b"1"


def test_empty_stream_creates_an_empty_object(store: Store) -> None:
    store.open_output("a").close()
    assert store.get("a") == b""


def test_stream_replaces_an_object_only_when_closed(store: Store) -> None:
    store.put("a", b"old")
    with store.open_output("a") as file:
        file.write(b"new")
        assert store.get("a") == b"old"
    assert store.get("a") == b"new"


def test_stream_accepts_pieces_of_any_size_and_type(store: Store) -> None:
    choose, written, position = random.Random(4), hashlib.sha256(), 0
    forms = (bytes, bytearray, memoryview, pa.py_buffer)
    with store.open_output("a.log") as file:
        for number in range(400):
            piece = body(choose.choice((0, 1, 100, 5000, 65_536, 300_000)), number)
            assert file.write(choose.choice(forms)(piece)) == len(piece)
            written.update(piece)
            position += len(piece)
            assert file.tell() == position
    assert store.info("a.log").size == position
    assert hashlib.sha256(store.get("a.log")).digest() == written.digest()


def test_stream_of_many_parts_is_complete(store: Store) -> None:
    piece = body(3 * MIB)
    with store.open_output("a.log") as file:
        for _ in range(27):
            file.write(piece)
    assert hashlib.sha256(store.get("a.log")).digest() == hashlib.sha256(piece * 27).digest()


def test_written_memory_may_be_reused(store: Store) -> None:
    piece = bytearray(b"1" * 100_000)
    with store.open_output("a") as file:
        file.write(piece)
        piece[:] = b"2" * len(piece)
        file.write(piece)
        small = bytearray(b"3")
        file.write(small)
        small[:] = b"4"
    assert store.get("a") == b"1" * 100_000 + b"2" * 100_000 + b"3"


def test_overwriting_is_atomic_for_readers(store: Store) -> None:
    size, rounds = 200_000, 30
    store.put("a", bytes([0]) * size)

    def read(_: int) -> None:
        for _ in range(rounds):
            whole = store.get("a")
            assert len(whole) == size
            assert whole == whole[:1] * size

    with ThreadPoolExecutor(3) as threads:
        readers = threads.map(read, range(3))
        for number in range(1, rounds):
            store.put("a", bytes([number]) * size)
        list(readers)
