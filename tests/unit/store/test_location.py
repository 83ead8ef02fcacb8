"""An unmounted location is not written to below its mount point."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from sparklog.errors import StorageError
from sparklog.store.base import TEMPORARY_PREFIX
from sparklog.store.location import IDENTITY_KEY, may_contact, open_location
from sparklog.store.memory import MemoryStore
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import FaultyStore


def test_a_location_without_its_identity_refuses_writes_and_is_not_recreated(tmp_path: Path) -> None:
    store = open_location(str(tmp_path / "disk"))
    for write in (store.put, store.put_if_absent):
        with pytest.raises(StorageError, match="mount"):
            write("orders-0/x", b"1")
    with pytest.raises(StorageError, match="mount"):
        store.open_output("orders-0/y")
    assert not (tmp_path / "disk").exists()


def test_a_location_with_its_identity_is_writable_also_from_a_pickled_copy(tmp_path: Path) -> None:
    open_store(str(tmp_path)).put(IDENTITY_KEY, b"{}")
    store = pickle.loads(pickle.dumps(open_location(str(tmp_path))))
    store.put("orders-0/x", b"1")
    with store.open_output("orders-0/y") as output:
        output.write(b"2")
    assert store.get("orders-0/x") + store.get("orders-0/y") == b"12"
    os.unlink(tmp_path / IDENTITY_KEY)
    with pytest.raises(StorageError):
        store.put("orders-0/z", b"3")


def test_a_file_is_not_created_if_its_disk_is_unmounted_during_the_write(tmp_path: Path) -> None:
    open_store(str(tmp_path)).put(IDENTITY_KEY, b"{}")
    output = open_location(str(tmp_path)).open_output("orders-0/x")
    output.write(b"1")
    os.unlink(tmp_path / IDENTITY_KEY)
    with pytest.raises(StorageError, match="mount"):
        output.close()
    assert list((tmp_path / "orders-0").iterdir()) == []


@pytest.mark.parametrize("key", ["orders-0/x", "x"])
def test_a_folder_removed_right_before_a_file_is_created_is_not_recreated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    disk = tmp_path / "disk"
    open_store(str(disk)).put(IDENTITY_KEY, b"{}")
    store = open_location(str(disk))
    create = os.open

    def remove_and_create(path: str, *rest: int) -> int:
        if TEMPORARY_PREFIX in path and disk.exists():
            disk.rename(tmp_path / "away")
        return create(path, *rest)

    monkeypatch.setattr(os, "open", remove_and_create)
    with pytest.raises(StorageError):
        store.put(key, b"1")
    assert not disk.exists()


def test_storages_without_mounts_are_not_guarded() -> None:
    store = MemoryStore("not-guarded")
    assert store.guarded_by(IDENTITY_KEY) is store


# -- which endpoints are contacted


@pytest.mark.parametrize(
    ("url", "root", "allowed"),
    [
        ("/disk1/log", "/data/log", ()),
        ("/disk1/log", "s3://bucket/log", ()),
        ("file:///disk1", "s3://bucket/log", ()),
        ("memory://x", "/data/log", ()),
        ("s3://bucket/other", "s3://bucket/log", ()),
        ("s3a://bucket/other", "s3://bucket/log", ()),
        ("hdfs://nn:8020/x", "hdfs://nn:8020/log", ()),
        ("s3://other/logs/a", "/data/log", ("s3://other/logs",)),
        ("s3://other/logs", "/data/log", ("s3://other/logs/",)),
        ("s3://other/logs", "s3://bucket/log", ("gs://x", "s3a://other")),
    ],
)
def test_local_locations_the_bucket_of_the_root_and_allowed_ones_are_contacted(
    url: str, root: str, allowed: tuple[str, ...]
) -> None:
    assert may_contact(url, root, allowed)


@pytest.mark.parametrize(
    ("url", "root", "allowed"),
    [
        ("s3://other/log", "/data/log", ()),
        ("s3://other/log", "s3://bucket/log", ()),
        ("gs://bucket/log", "s3://bucket/log", ()),
        ("hdfs://nn:9/log", "hdfs://nn:8020/log", ()),
        ("abfs://c@another.dfs.core.windows.net/x", "abfs://c@mine.dfs.core.windows.net/x", ()),
        ("s3://bucket.evil/log", "s3://bucket/log", ()),
        ("s3://bucket@evil/log", "s3://bucket/log", ()),
        ("s3://bucket/../other/log", "s3://bucket/log", ()),
        ("s3://other/logs/../secret", "/data/log", ("s3://other/logs",)),
        ("s3://other/logs/%2e%2e/secret", "/data/log", ("s3://other/logs",)),
        ("s3://other/logs-of-another", "/data/log", ("s3://other/logs",)),
        ("s3://other", "/data/log", ("s3://other/logs",)),
        ("s3://other/log", "/data/log", ("/", "file:///", "", "s3://", "::", "s3:/other")),
    ],
)
def test_other_locations_are_not_contacted(url: str, root: str, allowed: tuple[str, ...]) -> None:
    assert not may_contact(url, root, allowed)


def test_only_files_of_this_machine_are_local(tmp_path: Path) -> None:
    remote = open_store("gs://bucket/log")
    stores = {"disk": open_store(str(tmp_path)), "memory": MemoryStore("m"), "remote": remote}
    assert {name for name, store in stores.items() if store.is_local} == {"disk"}
    assert {name for name, store in stores.items() if store.parallel_requests > 1} == {"remote"}
    assert FaultyStore(stores["disk"]).is_local
