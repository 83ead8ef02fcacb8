"""Whole objects: reading, writing, creating, deleting, listing, on every store."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from sparklog.errors import (
    CorruptMetadataError,
    InvalidRequestError,
    ObjectExistsError,
    ObjectNotFoundError,
    RecordListTooLargeError,
)
from sparklog.limits import MAX_COMMIT_BYTES
from sparklog.store.base import Store
from sparklog.store.open import open_store

FORMS = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": lambda data: memoryview(bytearray(data)),
    "buffer": pa.py_buffer,
    "buffer slice": lambda data: pa.py_buffer(b"<" + data + b">").slice(1, len(data)),
}

UNUSUAL = ["with space", "per%20cent", "plus+", "brackets[0-9]*", "{a,b}", "ümlaut/日本", "#hash", ".hidden", "~x"]
UNUSUAL += ["a=b;c,d&e", "-dash", "'quote\"", "$HOME", "@", "x" * 255, "UPPER", "upper"]

HOSTILE = ["", "/", "/etc/passwd", "a/", "a//b", "..", "../a", "a/../b", "a/..", ".", "./a", "a\0b", "a\nb", "a\\b"]
HOSTILE += ["a?b", "c:d", ".tmp-x", "a/.tmp-x", "meta/.lock", "\ud800", "x" * 256, "y/" * 500 + "y"]


def keys(store: Store, prefix: str = "") -> list[str]:
    return [info.key for info in store.list(prefix)]


def test_missing_object_is_not_found_by_any_read(store: Store) -> None:
    with pytest.raises(ObjectNotFoundError) as caught:
        store.get("meta/commits/1.json")
    assert caught.value.path == f"{store.root}/meta/commits/1.json"
    with pytest.raises(ObjectNotFoundError):
        store.get("meta/commits/1.json", 100)
    with pytest.raises(ObjectNotFoundError):
        store.get_range("meta/commits/1.json", 0, 10)
    with pytest.raises(ObjectNotFoundError):
        store.info("meta/commits/1.json")
    with pytest.raises(ObjectNotFoundError):
        store.open_input("meta/commits/1.json").read_at(0, 10)


def test_folder_is_not_an_object(store: Store) -> None:
    store.put("a/b/c", b"1")
    for read in (store.get, store.info, lambda key: store.open_input(key).read_at(0, 1)):
        with pytest.raises(ObjectNotFoundError):
            read("a/b")


@pytest.mark.parametrize("form", FORMS)
def test_put_stores_any_type_of_bytes(store: Store, form: str) -> None:
    store.put("a/b", FORMS[form](b"body"))
    assert store.get("a/b") == b"body"


def test_put_replaces(store: Store) -> None:
    store.put("a", b"a long body")
    store.put("a", b"short")
    assert store.get("a") == b"short"
    assert store.info("a").size == 5


def test_put_of_no_bytes_creates_an_empty_object(store: Store) -> None:
    store.put("a", b"")
    assert store.get("a") == b""
    assert store.get("a", 10) == b""
    assert store.get_range("a", 0, 5) == b""
    assert store.open_input("a").read_at(0, 5).size == 0
    assert keys(store) == ["a"]


def test_get_refuses_more_than_the_limit(store: Store) -> None:
    store.put("a", b"12345")
    assert store.get("a", 5) == b"12345"
    with pytest.raises(CorruptMetadataError) as caught:
        store.get("a", 4)
    assert caught.value.path == f"{store.root}/a"


def test_info_has_size_and_time(store: Store) -> None:
    store.put("a/b", b"12345")
    info = store.info("a/b")
    assert (info.key, info.size) == ("a/b", 5)
    assert info.modified_ms > 1_600_000_000_000
    assert list(store.list()) == [info]


@pytest.mark.parametrize("form", FORMS)
def test_put_if_absent_stores_any_type_of_bytes(store: Store, form: str) -> None:
    store.put_if_absent("meta/commits/1.json", FORMS[form](b"body"))
    assert store.get("meta/commits/1.json") == b"body"


def test_put_if_absent_does_not_overwrite(store: Store) -> None:
    store.put_if_absent("meta/1", b"first")
    with pytest.raises(ObjectExistsError) as caught:
        store.put_if_absent("meta/1", b"second")
    assert caught.value.path == f"{store.root}/meta/1"
    assert store.get("meta/1") == b"first"
    assert keys(store) == ["meta/1"]


def test_put_if_absent_sees_what_put_and_streams_wrote(store: Store) -> None:
    store.put("a", b"1")
    with store.open_output("b") as file:
        file.write(b"2")
    for key in ("a", "b"):
        with pytest.raises(ObjectExistsError):
            store.put_if_absent(key, b"3")


def test_put_if_absent_works_again_after_delete(store: Store) -> None:
    store.put_if_absent("a", b"1")
    store.delete("a")
    store.put_if_absent("a", b"2")
    assert store.get("a") == b"2"


def test_put_if_absent_refuses_an_empty_body(store: Store) -> None:
    with pytest.raises(InvalidRequestError):
        store.put_if_absent("a", b"")
    assert keys(store) == []


def test_put_if_absent_accepts_up_to_the_largest_commit(store: Store) -> None:
    store.put_if_absent("largest", bytes(MAX_COMMIT_BYTES))
    with pytest.raises(RecordListTooLargeError):
        store.put_if_absent("larger", bytes(store.largest_create_bytes + 1))
    assert keys(store) == ["largest"]
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("largest", bytes(MAX_COMMIT_BYTES))


def test_exactly_one_of_many_threads_creates_an_object(store: Store) -> None:
    def create(number: int) -> int | None:
        try:
            store.put_if_absent("meta/1", b"%d" % number)
        except ObjectExistsError:
            return None
        return number

    with ThreadPoolExecutor(16) as threads:
        winners = [number for number in threads.map(create, range(32)) if number is not None]
    assert len(winners) == 1
    assert store.get("meta/1") == b"%d" % winners[0]


def test_delete_removes_an_object_and_accepts_a_missing_one(store: Store) -> None:
    store.put("a/b", b"1")
    store.delete("a/b")
    store.delete("a/b")
    store.delete("never/was")
    with pytest.raises(ObjectNotFoundError):
        store.get("a/b")
    assert keys(store) == []


def test_list_is_recursive_and_sorted_by_key(store: Store) -> None:
    written = ["orders-0/2.log", "orders-0/1.log", "orders-0/10/x", "orders-0.y", "orders-1/1.log", "orders/1", "z"]
    for size, key in enumerate(written):
        store.put(key, bytes(size + 1))
    assert keys(store) == sorted(written)
    assert {info.key: info.size for info in store.list()} == {key: size + 1 for size, key in enumerate(written)}


def test_list_of_a_folder_excludes_its_siblings(store: Store) -> None:
    for key in ("orders-1/a", "orders-1/b/c", "orders-10/d", "orders-1.e", "orders"):
        store.put(key, b"1")
    assert keys(store, "orders-1/") == ["orders-1/a", "orders-1/b/c"]
    assert keys(store, "orders-1/b/") == ["orders-1/b/c"]


def test_list_of_a_missing_folder_or_of_an_object_is_empty(store: Store) -> None:
    assert keys(store) == []
    assert keys(store, "none/") == []
    store.put("a", b"1")
    assert keys(store, "a/") == []


def test_list_sees_writes_and_deletes_immediately(store: Store) -> None:
    for number in range(5):
        store.put(f"a/{number}", b"1")
        assert keys(store, "a/") == [f"a/{n}" for n in range(number + 1)]
    store.delete("a/2")
    assert keys(store, "a/") == ["a/0", "a/1", "a/3", "a/4"]


def test_list_requires_a_prefix_that_ends_with_a_slash(store: Store) -> None:
    for prefix in ("meta", "/", "/meta/", "../", "a/../", "a//"):
        with pytest.raises(InvalidRequestError):
            list(store.list(prefix))


def test_list_of_more_than_one_page_is_complete(store: Store) -> None:
    expected = [f"meta/commits/{number:020d}.json" for number in range(1100)]
    with ThreadPoolExecutor(16) as threads:
        list(threads.map(lambda key: store.put(key, b"1"), reversed(expected)))
    assert keys(store, "meta/commits/") == expected


@pytest.mark.parametrize("key", UNUSUAL)
def test_unusual_names_are_kept_unchanged(store: Store, key: str) -> None:
    store.put(f"f/{key}", b"1")
    store.put_if_absent(f"g/{key}", b"2")
    with store.open_output(f"h/{key}") as file:
        file.write(b"3")
    assert [store.get(f"{folder}/{key}") for folder in "fgh"] == [b"1", b"2", b"3"]
    assert keys(store) == [f"{folder}/{key}" for folder in "fgh"]
    assert store.open_input(f"h/{key}").read_at(0, 1).to_pybytes() == b"3"
    store.delete(f"f/{key}")
    assert keys(store, "f/") == []


@pytest.mark.parametrize("key", HOSTILE)
def test_hostile_keys_are_refused_by_every_call(store: Store, key: str) -> None:
    calls: list[Any] = [
        store.get,
        store.info,
        store.delete,
        store.open_input,
        store.open_output,
        lambda key: store.get_range(key, 0, 1),
        lambda key: store.put(key, b"1"),
        lambda key: store.put_if_absent(key, b"1"),
    ]
    for call in calls:
        with pytest.raises(InvalidRequestError):
            call(key)
    assert keys(store) == []


def test_pickled_copy_sees_the_same_objects(store: Store) -> None:
    copy = pickle.loads(pickle.dumps(store))
    store.put("a", b"1")
    assert copy.get("a") == b"1"
    copy.put_if_absent("b", b"2")
    assert store.get("b") == b"2"
    assert copy.root == store.root


def test_root_opens_the_same_objects(store: Store, address: tuple[str, dict[str, Any]]) -> None:
    store.put("a", b"1")
    assert open_store(store.root, address[1]).get("a") == b"1"
    assert not store.root.endswith("/")


def test_secrets_are_not_shown_in_names(store: Store, address: tuple[str, dict[str, Any]]) -> None:
    secret = str(address[1].get("secret", "nothing secret"))
    assert secret not in repr(store)
    assert secret not in store.root


def test_commit_lock_can_be_taken_repeatedly(store: Store) -> None:
    for _ in range(3):
        with store.commit_lock():
            pass
    with pytest.raises(ZeroDivisionError), store.commit_lock():
        raise ZeroDivisionError
    with store.commit_lock():
        store.put_if_absent("meta/1", b"1")
    assert keys(store) == ["meta/1"]
