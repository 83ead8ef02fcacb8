"""Behaviour specific to file systems: full disks, permissions, other mounts, lost answers of NFS, the order of
syncs."""

from __future__ import annotations

import _thread
import ctypes
import errno
import gc
import os
import pickle
import resource
import socket
import stat
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from sparklog.coordinator import create_cluster
from sparklog.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    StorageFullError,
    StoragePermissionError,
    StorageUnavailableError,
    UnsupportedStoreError,
)
from sparklog.ids import SeededIds
from sparklog.log.commits.commit_files import read_ahead
from sparklog.protocol.commits import commit_key
from sparklog.store import local as local_store
from sparklog.store.base import TEMPORARY_PREFIX, Store
from sparklog.store.local import LocalStore
from sparklog.store.os_errors import is_local_disk

MIB = 1024 * 1024
NOBODY = 65534


def files_below(folder: Path) -> list[str]:
    """Every file, including hidden ones."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def in_child(action: Callable[[], None]) -> None:
    """Run in a forked child, which may limit itself or drop its rights permanently."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child starts no threads and takes no locks
        child = os.fork()
    if child == 0:
        status = 1
        try:
            action()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A file system in memory, if the machine allows mounting one."""
    folder.mkdir(exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, options.encode()):
        pytest.skip(f"this machine does not let us mount a tmpfs: {os.strerror(ctypes.get_errno())}")
    try:
        yield
    finally:
        libc.umount2(str(folder).encode(), 2)


def remount_read_only(folder: Path) -> None:
    ms_rdonly, ms_remount = 1, 32
    assert ctypes.CDLL(None).mount(b"tmpfs", str(folder).encode(), b"tmpfs", ms_rdonly | ms_remount, b"") == 0


def every_write(store: Store, size: int) -> list[Callable[[], object]]:
    def stream() -> None:
        with store.open_output("a/stream") as file:
            for _ in range(16):
                file.write(bytes(size // 16))

    return [
        lambda: store.put_if_absent("a/created", bytes(size)),
        lambda: store.put("a/put", bytes(size)),
        stream,
    ]


def test_full_disk_leaves_nothing(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=2m"):
        store = LocalStore(str(tmp_path / "disk"))
        store.put("a/put", b"old")
        for write in every_write(store, 3 * MIB):
            with pytest.raises(StorageFullError):
                write()
        assert files_below(tmp_path / "disk") == ["a/put"]
        assert store.get("a/put") == b"old"


def test_file_size_limit_leaves_nothing(tmp_path: Path) -> None:
    def write_all() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MIB, MIB))
        for write in every_write(LocalStore(str(tmp_path)), 3 * MIB):
            with pytest.raises(StorageFullError):
                write()

    in_child(write_all)
    assert files_below(tmp_path) == []


def test_read_only_mount_refuses_writes_and_serves_reads(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=2m"):
        store = LocalStore(str(tmp_path / "disk"))
        store.put("a/put", b"old")
        remount_read_only(tmp_path / "disk")
        for write in [*every_write(store, 1000), lambda: store.delete("a/put")]:
            with pytest.raises(StoragePermissionError):
                write()
        with store.commit_lock():  # it cannot be taken there, which is not an error
            assert store.get("a/put") == b"old"


def test_folder_of_another_user_refuses_writes_and_serves_reads() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(f"{folder}/top")
        store.put("a/put", b"old")
        os.chmod(folder, 0o755)  # every user can reach the root
        os.chmod(f"{folder}/top/a", 0o555)

        def write_all() -> None:
            if os.getuid() == 0:  # a superuser, whom no mode restricts
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            for write in [*every_write(store, 1000), lambda: store.delete("a/put")]:
                with pytest.raises(StoragePermissionError) as caught:
                    write()
                assert folder in str(caught.value.path)
            assert store.get("a/put") == b"old"

        in_child(write_all)
        os.chmod(f"{folder}/top/a", 0o755)


def test_unreadable_object_is_a_permission_error() -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore(folder)
        store.put("a", b"1")
        os.chmod(folder, 0o755)
        os.chmod(f"{folder}/a", 0)

        def read() -> None:
            if os.getuid() == 0:
                os.setuid(NOBODY)
            with pytest.raises(StoragePermissionError):
                store.get("a")

        in_child(read)


def test_key_below_a_file_is_not_found_and_cannot_be_written(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a", b"1")
    with pytest.raises(ObjectNotFoundError):
        store.get("a/b")
    for write in (store.put, store.put_if_absent):
        with pytest.raises(StorageError):
            write("a/b", b"2")
    store.delete("a/b")
    assert store.get("a") == b"1"


def test_key_of_a_folder_cannot_be_written(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a/b", b"1")
    with pytest.raises(StorageError):
        store.put("a", b"2")
    with pytest.raises(StorageError, match="is a folder, so nothing can be stored under this name: move it") as raised:
        store.put_if_absent("a", b"2")
    assert raised.value.nothing_written
    assert not isinstance(raised.value, ObjectExistsError)
    assert files_below(tmp_path) == ["a/b"]


def put_pipe(path: Path) -> None:
    os.mkfifo(path)


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


OTHERS: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a named pipe": put_pipe,
    "a socket": put_socket,
    "a link that points to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to(path.parent / "nothing"),
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_file_types_read_as_absent_and_refuse_writes(other: str, tmp_path: Path) -> None:
    OTHERS[other](tmp_path / "a")
    store = LocalStore(str(tmp_path))
    for read in (store.get, store.info, store.open_input, lambda key: store.get_range(key, 0, 1)):
        with pytest.raises(ObjectNotFoundError, match=f"it is {other}"):
            read("a")
    assert list(store.list()) == []
    assert list(store.list_others("")) == [("a", other)]
    with pytest.raises(StorageError, match=f"{tmp_path}/a is {other}") as raised:
        store.put_if_absent("a", b"2")
    assert raised.value.nothing_written


def test_link_that_succeeded_with_a_lost_answer_has_won(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # NFS repeats a request after a lost answer, and then reports that the name exists. No NFS server runs here.
    link = os.link

    def link_and_complain(*arguments: str) -> None:
        link(*arguments)
        link(*arguments)

    monkeypatch.setattr(os, "link", link_and_complain)
    store = LocalStore(str(tmp_path))
    store.put_if_absent("a", b"1")
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("a", b"2")
    assert store.get("a") == b"1"
    assert files_below(tmp_path) == ["a"]


def test_a_backup_by_hard_links_makes_no_winner_of_a_loser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # `cp -al` links whatever is in the folder, also the temporary file of a create that then finds its name taken.
    link = os.link

    def back_up_and_link(source: str, target: str) -> None:
        link(source, f"{tmp_path}/backup")
        link(source, target)

    store = LocalStore(str(tmp_path / "root"))
    store.put_if_absent("a", b"1")
    monkeypatch.setattr(os, "link", back_up_and_link)
    with pytest.raises(ObjectExistsError):
        store.put_if_absent("a", b"2")
    assert store.get("a") == b"1"


def test_only_the_very_same_bytes_are_deleted(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    assert store.delete_exactly("a", b"1")
    for other in (b"2", b"12", b""):
        store.put("a", other)
        assert store.delete_exactly("a", b"1")
        assert store.get("a") == other
    store.put("a", b"1")
    assert store.delete_exactly("a", b"1")
    assert list(store.list()) == []


def test_a_mount_that_may_repeat_a_deletion_keeps_the_object(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.store.local.is_local_disk", lambda path: False)
    store = LocalStore(str(tmp_path))
    store.put("a", b"1")
    assert not store.delete_exactly("a", b"1")
    assert store.get("a") == b"1"


def test_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UnsupportedStoreError, match="hard links"):
        LocalStore(str(tmp_path)).put_if_absent("a", b"1")
    assert files_below(tmp_path) == []


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_cluster_is_not_created_without_hard_links_and_leaves_nothing(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: str) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UnsupportedStoreError, match=r"no hard links.*use a file system that has them.*or S3"):
        create_cluster(str(tmp_path / "log"))
    assert files_below(tmp_path) == []


def test_bytes_are_durable_before_the_name_and_the_name_before_returning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a/first", b"1")  # creates the folder
    events: list[str] = []
    sync = os.fsync

    def record_sync(file: int) -> None:
        events.append("sync folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "sync file")
        sync(file)

    def recorder(name: str) -> Callable[[str, str], None]:
        call = getattr(os, name)
        return lambda source, target: (events.append("name"), call(source, target))[-1]

    monkeypatch.setattr(os, "fsync", record_sync)
    monkeypatch.setattr(os, "link", recorder("link"))
    monkeypatch.setattr(os, "rename", recorder("rename"))
    for write in every_write(store, 16_000):
        events.clear()
        write()
        assert events == ["sync file", "name", "sync folder"]
    events.clear()
    store.put("b/c/d", b"1")
    assert events == ["sync folder", "sync folder", "sync file", "name", "sync folder"]


def test_failed_sync_of_a_folder_is_an_unknown_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync = os.fsync

    def fail_for_folders(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(5, "Input/output error")
        sync(file)

    store = LocalStore(str(tmp_path))
    monkeypatch.setattr(os, "fsync", fail_for_folders)
    with pytest.raises(StorageUnavailableError):
        store.put_if_absent("a", b"1")


@pytest.mark.parametrize("way", ["is not started", "ends before it begins", "ends before it syncs"])
def test_what_a_thread_did_not_sync_is_synced_by_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Where memory is exhausted."""
    store, synced = LocalStore(str(tmp_path)), list[int]()
    fdatasync, start = os.fdatasync, _thread.start_new_thread

    def sync(file: int) -> None:
        if way == "ends before it syncs" and threading.current_thread() is not threading.main_thread():
            raise MemoryError
        fdatasync(file)
        synced.append(os.fstat(file).st_size)

    def start_none(function: Callable[[], None], arguments: tuple[()]) -> int:
        if way == "is not started":
            raise RuntimeError("can't start new thread")
        return start(function if way == "ends before it syncs" else lambda: None, arguments)

    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(sys, "unraisablehook", lambda failed: None)
    monkeypatch.setattr(_thread, "start_new_thread", start_none)
    output = store.open_output("t-0/1.log")
    output.write(b"records")
    other = store.open_output("t-0/1.index")
    other.write(b"index")
    output.close_with(other)
    assert synced == [5]
    assert store.get("t-0/1.log") == b"records"


def test_failed_background_sync_fails_the_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    file = LocalStore(str(tmp_path)).open_output("a")
    for _ in range(70):
        file.write(bytes(MIB))
    with pytest.raises(StorageUnavailableError):
        file.close()
    assert files_below(tmp_path) == []


def test_reads_are_slices_of_one_memory_map(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a", bytes(range(256)) * 1000)
    file = store.open_input("a")
    assert file.read_at(5000, 10).address - file.read_at(0, 1).address == 5000


def test_folder_is_created_on_the_first_write(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "a" / "b"))
    assert list(store.list()) == []
    with pytest.raises(ObjectNotFoundError):
        store.get("x")
    assert files_below(tmp_path) == []
    assert not (tmp_path / "a").exists()


def test_a_file_that_a_vacuum_deleted_while_it_was_written_is_an_error_that_says_so(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    output = store.open_output("t-0/1.log")
    output.write(b"records")
    assert store.remove_unfinished(before_ms=2**52) == 1
    with pytest.raises(StorageError, match=rf"{TEMPORARY_PREFIX}\S+ was deleted while it was written"):
        output.close()
    with pytest.raises(ObjectNotFoundError):
        store.get("t-0/1.log")


@pytest.mark.parametrize(("call", "naming"), [("put", "rename"), ("put_if_absent", "link")])
def test_an_object_that_a_vacuum_deleted_while_it_was_written_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, naming: str
) -> None:
    store = LocalStore(str(tmp_path))
    name = getattr(os, naming)

    def delete_first(temporary: str, path: str) -> None:
        assert store.remove_unfinished(before_ms=2**52) == 1
        name(temporary, path)

    monkeypatch.setattr(os, naming, delete_first)
    with pytest.raises(StorageError, match=rf"{TEMPORARY_PREFIX}\S+ was deleted while it was written"):
        getattr(store, call)("meta/check.json", b"{}")
    monkeypatch.undo()
    assert files_below(tmp_path) == []


def test_create_that_cannot_write_its_temporary_file_has_certainly_written_nothing(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=2m"):
        with pytest.raises(StorageFullError) as full:
            LocalStore(str(tmp_path / "disk")).put_if_absent("a/created", bytes(3 * MIB))
        assert full.value.nothing_written
    store = LocalStore(str(tmp_path))
    store.put("file", b"1")
    with pytest.raises(StorageError) as caught:
        store.put_if_absent("file/below", b"2")
    assert caught.value.nothing_written
    with pytest.raises(StorageError) as caught:
        LocalStore(str(tmp_path), required_key="not-there").put_if_absent("a", b"1")
    assert caught.value.nothing_written


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT])
@pytest.mark.parametrize("local", [True, False], ids=["disk", "network"])
def test_refused_link_is_a_certain_failure_on_a_disk_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, local: bool
) -> None:
    # No disk refuses a link beside the file that it has just stored, and no NFS server runs here.
    def refuse(*arguments: str) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(local_store, "is_local_disk", lambda path: local)
    with pytest.raises(StorageError) as caught:
        LocalStore(str(tmp_path)).put_if_absent("a", b"1")
    assert bool(caught.value.nothing_written) is local


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.ETIMEDOUT])
def test_unanswered_link_is_an_unknown_outcome_on_any_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(*arguments: str) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", fail)
    monkeypatch.setattr(local_store, "is_local_disk", lambda path: True)
    with pytest.raises(StorageUnavailableError) as caught:
        LocalStore(str(tmp_path)).put_if_absent("a", b"1")
    assert not caught.value.nothing_written


def test_local_disks_are_distinguished_from_possible_network_mounts(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=2m"):
        assert is_local_disk(str(tmp_path / "disk"))
    assert not is_local_disk("/proc/self")
    assert not is_local_disk(str(tmp_path / "missing"))


def test_requests_to_a_mount_run_in_parallel_as_to_any_far_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LocalStore(str(tmp_path / "not" / "yet")).parallel_requests == 1
    monkeypatch.setattr(local_store, "is_local_disk", lambda path: False)
    mount = LocalStore(str(tmp_path))
    for version in range(64):
        mount.put(commit_key(version), b"{}")
    reading, most, get = 0, 0, LocalStore.get

    def get_slowly(*arguments: Any) -> bytes:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        sleep(0.01)  # a round trip
        try:
            return get(*arguments)
        finally:
            reading -= 1

    monkeypatch.setattr(LocalStore, "get", get_slowly)
    assert len(read_ahead(mount, 0, 64)) == 64
    assert most > 1
    assert pickle.loads(pickle.dumps(mount)).parallel_requests == mount.parallel_requests


def test_taken_temporary_name_is_not_reported_as_an_existing_object(tmp_path: Path) -> None:
    ids = SeededIds(1)
    (tmp_path / f"{TEMPORARY_PREFIX}{SeededIds(1).write_id()}").touch()
    with pytest.raises(StorageError) as caught:
        LocalStore(str(tmp_path), ids=ids).put_if_absent("a", b"1")
    assert not isinstance(caught.value, ObjectExistsError)
    assert caught.value.nothing_written


def test_the_folder_of_a_disks_own_checks_is_not_listed(tmp_path: Path) -> None:
    """At the root of a mounted disk is one that only the superuser may list."""
    store = LocalStore(str(tmp_path))
    for name in ("lost+found", "orders-0"):
        (tmp_path / name / "lost+found").mkdir(parents=True)
        (tmp_path / name / "lost+found" / "a").touch()
    assert [info.key for info in store.list()] == ["orders-0/lost+found/a"]


def test_links_to_folders_are_not_listed_and_not_followed(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "root"))
    store.put("orders-0/1.log", b"1")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.log").write_bytes(b"2")
    (tmp_path / "root" / "loop").symlink_to(".")
    (tmp_path / "root" / "orders-0" / "up").symlink_to("..")
    (tmp_path / "root" / "away-0").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root" / "itself").symlink_to("itself")
    (tmp_path / "root" / "dangling").symlink_to("nowhere")
    (tmp_path / "root" / "to-file").symlink_to("orders-0/1.log")
    assert [info.key for info in store.list()] == ["orders-0/1.log", "to-file"]
    for prefix in ("away-0/", "loop/", "loop/orders-0/", "orders-0/up/", "itself/"):
        with pytest.raises(StorageError, match="a link to a folder, which no listing follows"):  # not: it is empty
            list(store.list(prefix))
    assert store.remove_unfinished(1 << 60) == 0


def test_open_file_keeps_no_descriptor(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("a", bytes(range(256)))
    before = len(os.listdir("/proc/self/fd"))
    files = [store.open_input("a") for _ in range(100)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert files[7].read_at(3, 2).to_pybytes() == b"\x03\x04"


def test_buffers_outlive_their_file_and_the_map_is_released_with_the_last_one(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path))
    store.put("mapped-object", bytes(range(256)) * 100)
    file = store.open_input("mapped-object")
    data = file.read_at(256, 4)
    file.close()
    del file
    store.delete("mapped-object")
    gc.collect()
    assert data.to_pybytes() == b"\0\1\2\3"
    assert "mapped-object" in Path("/proc/self/maps").read_text()
    del data
    assert "mapped-object" not in Path("/proc/self/maps").read_text()


def test_a_deletion_of_certain_bytes_that_was_suspended_keeps_what_was_stored_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between comparing and deleting: others may have deleted the object, and created it again."""
    store, others = LocalStore(str(tmp_path)), LocalStore(str(tmp_path))
    rename = os.rename

    def resume(source: str, target: str) -> None:
        monkeypatch.setattr(os, "rename", rename)
        others.delete("a")
        others.put_if_absent("a", b"2")
        rename(source, target)

    for _ in range(2):
        store.put("a", b"1")
        monkeypatch.setattr(os, "rename", resume)
        assert store.delete_exactly("a", b"1")
        assert store.get("a") == b"2"
        assert os.listdir(tmp_path) == ["a"]
