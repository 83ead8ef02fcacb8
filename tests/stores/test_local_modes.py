"""Access to written files is decided by the root's mode, not by the writer's umask."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog.errors import StoragePermissionError
from sparklog.store.base import LOCK_NAME, TEMPORARY_PREFIX
from sparklog.store.local import LocalStore
from tests.stores.test_local import NOBODY, in_child

ONLY_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A root that every user can reach."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root = Path(folder) / "root"
        root.mkdir()
        yield root


def write_everything(store: LocalStore) -> None:
    store.put_if_absent("meta/commits/1.json", b"1")
    store.put("meta/boundary.json", b"2")
    with store.open_output("orders-0/1.log") as file:
        file.write(b"3")
    with store.commit_lock():
        pass


def modes_below(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*")}


def as_user(uid: int, gid: int, action: Callable[[], None]) -> None:
    def run() -> None:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
        action()

    in_child(run)


@pytest.mark.parametrize(
    ("root_mode", "file_mode", "folder_mode", "lock_mode"),
    [
        (0o755, 0o644, 0o755, 0o600),
        (0o700, 0o600, 0o700, 0o600),
        (0o775, 0o664, 0o775, 0o660),
        (0o2770, 0o660, 0o2770, 0o660),
        (0o777, 0o666, 0o777, 0o666),
        (0o1777, 0o666, 0o777, 0o666),
    ],
    ids=oct,
)
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o000], ids=oct)
def test_written_files_have_the_mode_of_the_root_for_any_umask(
    shared: Path, root_mode: int, file_mode: int, folder_mode: int, lock_mode: int, mask: int
) -> None:
    shared.chmod(root_mode)
    with umask(mask):
        write_everything(LocalStore(str(shared)))
    assert modes_below(shared) == {
        "meta": folder_mode,
        "meta/.lock": lock_mode,
        "meta/commits": folder_mode,
        "meta/commits/1.json": file_mode,
        "meta/boundary.json": file_mode,
        "orders-0": folder_mode,
        "orders-0/1.log": file_mode,
    }


def test_unfinished_file_has_the_mode_of_the_finished_one(shared: Path) -> None:
    shared.chmod(0o700)
    with umask(0):
        file = LocalStore(str(shared)).open_output("orders-0/1.log")
    file.write(b"secret")
    (temporary,) = [path for path in shared.rglob("*") if path.name.startswith(TEMPORARY_PREFIX)]
    assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    file.abort()


def test_root_created_by_the_first_write_has_the_mode_of_the_umask(shared: Path) -> None:
    with umask(0o077):
        write_everything(LocalStore(str(shared / "new")))
    assert stat.S_IMODE((shared / "new").stat().st_mode) == 0o700
    assert modes_below(shared / "new")["meta/boundary.json"] == 0o600


@ONLY_ROOT
def test_writer_with_umask_077_keeps_a_shared_root_accessible(shared: Path) -> None:
    shared.chmod(0o777)
    with umask(0o077):
        write_everything(LocalStore(str(shared)))

    def go_on() -> None:
        store = LocalStore(str(shared))
        assert store.get("meta/commits/1.json") == b"1"
        store.put_if_absent("meta/commits/2.json", b"2")
        store.put("meta/boundary.json", b"2")
        store.delete("orders-0/1.log")

    as_user(NOBODY, NOBODY, go_on)


@ONLY_ROOT
def test_group_of_the_root_is_inherited(shared: Path) -> None:
    os.chown(shared, -1, 4321)
    shared.chmod(0o770)
    with umask(0o077):
        write_everything(LocalStore(str(shared)))
    assert {path.stat().st_gid for path in shared.rglob("*")} == {4321}
    as_user(NOBODY, 4321, lambda: write_everything(LocalStore(str(shared / "orders-0"))))


@ONLY_ROOT
def test_group_other_than_that_of_the_root_gets_no_access(shared: Path) -> None:
    os.chown(shared, NOBODY, 4321)
    shared.chmod(0o770)
    as_user(NOBODY, 1234, lambda: write_everything(LocalStore(str(shared))))  # may not give files to group 4321
    assert (shared / "meta/boundary.json").stat().st_gid == 1234
    assert modes_below(shared)["meta/boundary.json"] == 0o600
    assert modes_below(shared)["meta"] == 0o700


@ONLY_ROOT
def test_user_with_read_access_only_cannot_open_the_lock(shared: Path) -> None:
    shared.chmod(0o755)
    write_everything(LocalStore(str(shared)))
    lock = shared / "meta" / LOCK_NAME
    os.chmod(lock, 0o644)  # as older versions created it
    with LocalStore(str(shared)).commit_lock():
        pass

    def try_to_open() -> None:
        assert LocalStore(str(shared)).get("meta/boundary.json") == b"2"
        for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
            with pytest.raises(PermissionError):
                os.open(lock, flags)
        with pytest.raises(StoragePermissionError):
            LocalStore(str(shared)).put("meta/boundary.json", b"3")

    as_user(NOBODY, NOBODY, try_to_open)
