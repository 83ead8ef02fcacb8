from __future__ import annotations

import gc
import io
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import fsspec
import pytest

from sparklog.errors import StorageError, StoragePermissionError
from sparklog.store import process_local
from sparklog.store.remote import FsspecOutputFile, FsspecStore
from sparklog.store.s3 import S3Store


class Upload(io.RawIOBase):
    """Like fsspec's files: publishes when closed, also by the garbage collector."""

    def __init__(self, published: list[bytes]) -> None:
        self.written = b""
        self.published = published
        self.done = False

    @property
    def closed(self) -> bool:
        return self.done

    @closed.setter
    def closed(self, value: bool) -> None:
        self.done = value

    def write(self, data: object) -> int:
        self.written += bytes(memoryview(data))  # type: ignore[arg-type]
        return len(self.written)

    def close(self) -> None:
        if not self.done:
            self.done = True
            self.published.append(self.written)

    def discard(self) -> None:
        self.written = b""


def test_stream_dropped_without_close_publishes_nothing() -> None:
    published: list[bytes] = []
    file = FsspecOutputFile(FsspecStore("gs://bucket/a", {}), "k", Upload(published))
    file.write(b"half of it")
    del file
    gc.collect()
    assert published == []


def test_closed_stream_publishes_once() -> None:
    published: list[bytes] = []
    with FsspecOutputFile(FsspecStore("gs://bucket/a", {}), "k", Upload(published)) as file:
        file.write(b"all of it")
    gc.collect()
    assert published == [b"all of it"]


class CredentialsMissingError(Exception):
    """As Google's, which is not one of Python's own."""


class Client:
    """One that looks for credentials as soon as it is made, as those of cloud storages do."""

    @staticmethod
    def _get_kwargs_from_urls(url: str) -> dict[str, Any]:
        return {}

    def __init__(self, **options: Any) -> None:
        raise CredentialsMissingError("no token was found")


def write(store: FsspecStore) -> None:
    with store.open_output("k") as file:
        file.write(b"v")


@pytest.mark.parametrize(
    "request_of",
    [
        lambda store: store.get("k"),
        lambda store: store.put("k", b"v"),
        lambda store: store.put_if_absent("k", b"v"),
        lambda store: store.delete("k"),
        lambda store: store.info("k"),
        lambda store: list(store.list()),
        lambda store: write(store),
    ],
    ids=["get", "put", "put_if_absent", "delete", "info", "list", "open_output"],
)
def test_a_client_that_finds_no_credentials_is_a_storage_error(
    request_of: Callable[[FsspecStore], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec, "get_filesystem_class", {"gs": Client, "s3": Client}.__getitem__)
    for store in (FsspecStore("gs://bucket/a", {}), S3Store("s3://bucket/a", {})):
        with pytest.raises(StorageError, match=r"://bucket/a.*no token was found; check the credentials") as raised:
            request_of(store)
        assert isinstance(raised.value, StoragePermissionError)
        assert isinstance(raised.value.__cause__, CredentialsMissingError)


def test_equal_pickles_share_a_client_in_a_process() -> None:
    """Each task of Spark gets a pickle; a client of its own takes an S3 client 100 ms."""
    store, other = S3Store("s3://bucket/log", {"anon": True}), S3Store("s3://bucket/log", {"key": "k", "secret": "s"})
    first, second = (pickle.loads(pickle.dumps(store)) for _ in range(2))
    assert first is second
    assert first is not store
    assert pickle.loads(pickle.dumps(other)) is not first


def test_a_client_is_shared_for_a_time_since_its_credentials_may_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    store = S3Store("s3://bucket/log", {"token": "rotating"})
    first = pickle.loads(pickle.dumps(store))
    kept = weakref.ref(first)
    monkeypatch.setattr(process_local, "SHARED_SECONDS", 0.0)
    assert pickle.loads(pickle.dumps(store)) is not first
    del first
    gc.collect()
    assert kept() is None


def test_few_clients_are_kept() -> None:
    kept = weakref.ref(pickle.loads(pickle.dumps(S3Store("s3://bucket/log", {"token": "0"}))))
    for number in range(1, 300):
        pickle.loads(pickle.dumps(S3Store("s3://bucket/log", {"token": str(number)})))
    gc.collect()
    assert kept() is None


def test_stores_with_options_that_only_spark_can_pickle_are_unpickled_too() -> None:
    def make_session() -> None:
        """Not importable by name."""

    kind, arguments = S3Store("s3://bucket/log", {"session": make_session}).__reduce__()[1]
    assert process_local.unpickle_shared(kind, arguments).root == "s3://bucket/log"
