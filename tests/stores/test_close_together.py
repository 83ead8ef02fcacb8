"""Two streaming writes that are closed together: both objects exist on every store, and a local one needs fewer
syncs."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from sparklog.errors import ObjectNotFoundError, StorageUnavailableError
from sparklog.store.base import Store
from sparklog.store.local import SYNC_EVERY_BYTES, LocalStore


def test_both_objects_exist_afterwards(store: Store) -> None:
    first, second = store.open_output("a/1.log"), store.open_output("a/1.index")
    first.write(b"records" * 30_000)
    second.write(b"entries")
    first.close_with(second)
    assert store.get("a/1.log") == b"records" * 30_000
    assert store.get("a/1.index") == b"entries"


@pytest.mark.parametrize("second", ["a/2", "b/2"])
@pytest.mark.parametrize("size", [10, SYNC_EVERY_BYTES + 10])
def test_all_bytes_are_synced_before_a_file_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, second: str
) -> None:
    """Bytes written before a sync begins are durable, later ones are not."""
    synced: dict[int, int] = {}
    guard = threading.Lock()
    folders = 0

    def note(file: int) -> None:
        nonlocal folders
        status = os.fstat(file)
        with guard:
            folders += stat.S_ISDIR(status.st_mode)
            synced[status.st_ino] = status.st_size

    def rename(old: str, new: str) -> None:
        status = os.stat(old)
        assert synced[status.st_ino] == status.st_size
        os.replace(old, new)

    store = LocalStore(str(tmp_path))
    files = store.open_output("a/1"), store.open_output(second)
    for file in files:
        file.write(bytes(size))
        file.write(b"the end")
    folders = 0
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, note)
    monkeypatch.setattr(os, "rename", rename)
    files[0].close_with(files[1])
    assert [len(store.get(key)) for key in ("a/1", second)] == [size + 7, size + 7]
    assert folders == len({"a", os.path.dirname(second)})


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_a_failed_sync_of_either_fails_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def fail(file: int) -> None:
        raise OSError(5, "Input/output error")

    store = LocalStore(str(tmp_path))
    first, second = store.open_output("1.log"), store.open_output("1.index")
    first.write(b"records")
    second.write(b"entries")
    monkeypatch.setattr(os, call, fail)
    with pytest.raises(StorageUnavailableError):
        first.close_with(second)
    with pytest.raises(ObjectNotFoundError):
        store.get("1.index")
    assert not list(tmp_path.rglob(".tmp-*"))


def test_a_file_that_is_already_closed_is_unchanged(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    first, second = store.open_output("1.log"), store.open_output("1.index")
    first.write(b"records")
    first.close()
    second.write(b"entries")
    first.close_with(second)
    assert (store.get("1.log"), store.get("1.index")) == (b"records", b"entries")
