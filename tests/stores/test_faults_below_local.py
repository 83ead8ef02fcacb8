"""System calls fail or mislead at every step of every operation of the local store: no operation has a false result.

What may be believed: a write that returns has its bytes under the name, synced, and was the first if it had to be; a
read that returns has exactly the stored bytes; "does not exist" and "exists" are true; after "nothing was written"
nothing was; every listing that ends is complete. Anything else is an error that makes no claim.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from sparklog.errors import ObjectExistsError, ObjectNotFoundError, SparklogError, StorageError
from sparklog.ids import SeededIds
from sparklog.store import local, mapped_file, modes, os_errors
from sparklog.store.local import LocalStore
from tests.stores import faulty_os
from tests.stores.faulty_os import OTHERS, SystemCalls, SystemFault, every_fault

MODULES = (local, mapped_file, modes, os_errors)
TARGET, KEPT, GUARD = "a/b/target", "a/b/kept", "broker.json"
OLD, NEW, SECOND = b"old bytes", b"new bytes", b"second file"
SAMPLE = 11
"""Every how many faults are part of the ordinary tests."""


class Operation(NamedTuple):
    """An operation, and whether its target exists before. ``writes``: what it stores, by key."""

    name: str
    run: Callable[[LocalStore], object]
    target: bytes | None
    writes: dict[str, bytes]
    creates: bool = False


def stream(store: LocalStore) -> None:
    with store.open_output(TARGET) as file:
        file.write(NEW[:3])
        file.write(NEW[3:])


def stream_two(store: LocalStore) -> None:
    with store.open_output(TARGET) as first, store.open_output("a/b/second") as second:
        first.write(NEW)
        second.write(SECOND)
        first.close_with(second)


def read_mapped(store: LocalStore) -> bytes:
    file = store.open_input(TARGET)
    try:
        return bytes(file.read_at(0, 100))
    finally:
        file.close()


def put_if_absent(store: LocalStore) -> None:
    store.put_if_absent(TARGET, NEW)


STREAMED = {TARGET: NEW, "a/b/second": SECOND}
OPERATIONS = [
    Operation("put", lambda store: store.put(TARGET, NEW), None, {TARGET: NEW}),
    Operation("put over another", lambda store: store.put(TARGET, NEW), OLD, {TARGET: NEW}),
    Operation("put_if_absent", put_if_absent, None, {TARGET: NEW}, creates=True),
    Operation("put_if_absent of a taken name", put_if_absent, OLD, {TARGET: NEW}, creates=True),
    Operation("stream", stream, None, {TARGET: NEW}),
    Operation("stream over another", stream, OLD, {TARGET: NEW}),
    Operation("stream two", stream_two, None, STREAMED),
    Operation("delete", lambda store: store.delete(TARGET), OLD, {}),
    Operation("delete nothing", lambda store: store.delete(TARGET), None, {}),
    Operation("get", lambda store: store.get(TARGET), OLD, {}),
    Operation("get nothing", lambda store: store.get(TARGET), None, {}),
    Operation("get_range", lambda store: store.get_range(TARGET, 0, 100), OLD, {}),
    Operation("open_input", read_mapped, OLD, {}),
    Operation("info", lambda store: store.info(TARGET).size, OLD, {}),
    Operation("list", lambda store: [info.key for info in store.list("a/")], OLD, {}),
    Operation("list all", lambda store: [info.key for info in store.list()], OLD, {}),
]
BY_NAME = {operation.name: operation for operation in OPERATIONS}


class Trial(NamedTuple):
    """An operation with one fault, and what came of it."""

    operation: Operation
    fault: SystemFault | None
    calls: SystemCalls
    before: dict[str, bytes]
    after: dict[str, bytes]
    result: object
    error: BaseException | None


def attempt(operation: Operation, fault: SystemFault | None, folder: Path, patch: pytest.MonkeyPatch) -> Trial:
    root, backup = folder / "root", folder / "backup"
    store = LocalStore(str(root), ids=SeededIds(1)).guarded_by(GUARD)
    (root / "a/b").mkdir(parents=True)
    backup.mkdir()
    (root / GUARD).write_bytes(b"{}")
    (root / KEPT).write_bytes(OLD)
    if operation.target is not None:
        (root / TARGET).write_bytes(operation.target)
    before = files(root)
    calls = SystemCalls(root, backup, root / TARGET, fault)
    result, error = None, None
    with patch.context() as patched:
        for module in MODULES:
            patched.setattr(module, "os", calls)
        patched.setattr(local, "is_local_disk", lambda path: True)
        try:
            result = operation.run(store)
        except SparklogError as raised:
            error = raised
    return Trial(operation, fault, calls, before, files(root), result, error)


def files(root: Path) -> dict[str, bytes]:
    """The visible files."""
    paths = [path for path in root.rglob("*") if path.is_file() and not path.name.startswith(".tmp-")]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def find_false(trial: Trial) -> str:
    """Return what is false about the result; empty if all is true."""
    operation, error, after = trial.operation, trial.error, trial.after
    if after.get(KEPT) != OLD or after.get(GUARD) != b"{}":
        return "another file was changed"
    for key in after.keys() - trial.before.keys() - operation.writes.keys():
        if key != TARGET or not _was_taken(trial):
            return f"{key} appeared"
    if operation.writes:
        return _find_false_write(trial)
    if operation.name.startswith("delete"):
        if error is None and TARGET in after:
            return "it was deleted and exists"
        return "" if after.get(TARGET) in (None, OLD, OTHERS) else "it was changed"
    return _find_false_read(trial)


def _was_taken(trial: Trial) -> bool:
    return trial.fault is not None and trial.fault.kind in (faulty_os.TAKEN, faulty_os.BOTH) and trial.calls.failed


def _find_false_write(trial: Trial) -> str:
    operation, error, after = trial.operation, trial.error, trial.after
    for key, data in operation.writes.items():
        if after.get(key) not in (None, OLD, OTHERS, data):
            return f"{key} has {after.get(key)!r}"
        if error is None and after.get(key) != data:
            return f"{key} was written and has {after.get(key)!r}"
        if after.get(key) == data and isinstance(error, StorageError) and error.nothing_written:
            return f"{key} was written in spite of {error!r}"
    if operation.creates and operation.target is not None and after.get(TARGET) != operation.target:
        return "a taken name was overwritten"
    if error is None and operation.creates and operation.target is not None:
        return "a create of a taken name won"
    if isinstance(error, ObjectExistsError) and TARGET not in after:
        return f"nothing exists: {error!r}"
    if operation.target is not None and TARGET not in after:
        return "the former object is gone"
    fault = trial.fault
    if fault is not None and fault.kind == faulty_os.ERROR and error is None:
        call = trial.calls.calls[fault.step]
        return f"it succeeded without {call}" if call[0] in ("fsync", "fdatasync", "write") else ""
    return ""


def _find_false_read(trial: Trial) -> str:
    error, after, name = trial.error, trial.after, trial.operation.name
    if isinstance(error, ObjectNotFoundError):
        return f"it exists: {error!r}" if TARGET in trial.before else ""
    if error is not None:
        return ""
    stored = after.get(TARGET)
    expected = {
        "info": len(stored or b""),
        "list": sorted(key for key in after if key.startswith("a/")),
        "list all": sorted(after),
    }.get(name, stored)
    return "" if trial.result == expected else f"it returned {trial.result!r} instead of {expected!r}"


def faults_of(operation: Operation, folder: Path, patch: pytest.MonkeyPatch) -> list[SystemFault]:
    clean = attempt(operation, None, folder / "clean", patch)
    assert find_false(clean) == ""
    return list(every_fault(clean.calls.calls))


def check(operation: Operation, folder: Path, patch: pytest.MonkeyPatch, every: int) -> int:
    found = []
    faults = faults_of(operation, folder, patch)[::every]
    for number, fault in enumerate(faults):
        trial = attempt(operation, fault, folder / str(number), patch)
        false = find_false(trial)
        if false:
            found.append(f"{operation.name}, {trial.calls.calls[fault.step]} {fault}: {false}")
    assert not found, "\n".join(found)
    return len(faults)


@pytest.mark.parametrize("name", BY_NAME)
def test_no_result_is_false_for_a_sample_of_system_faults(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(BY_NAME[name], tmp_path, monkeypatch, SAMPLE)


@pytest.mark.faults
@pytest.mark.parametrize("name", BY_NAME)
def test_no_result_is_false_for_any_system_fault(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    points = check(BY_NAME[name], tmp_path, monkeypatch, 1)
    with capsys.disabled():
        print(f"\n{points} points: {name}")


def test_a_backup_by_hard_links_wins_no_create_of_a_taken_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``cp -al`` of a live root gives the temporary file a second name, just as a link whose answer was lost would."""
    operation = BY_NAME["put_if_absent"]
    steps = attempt(operation, None, tmp_path / "clean", monkeypatch).calls.calls
    link = next(step for step, (name, _) in enumerate(steps) if name == "link")
    trial = attempt(operation, SystemFault(link, faulty_os.BOTH), tmp_path / "both", monkeypatch)
    assert isinstance(trial.error, ObjectExistsError)
    assert trial.after[TARGET] == OTHERS


def test_a_link_whose_answer_was_lost_has_won_in_spite_of_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = BY_NAME["put_if_absent"]
    steps = attempt(operation, None, tmp_path / "clean", monkeypatch).calls.calls
    link = next(step for step, (name, _) in enumerate(steps) if name == "link")
    trial = attempt(operation, SystemFault(link, faulty_os.LATE, errno.EEXIST), tmp_path / "late", monkeypatch)
    assert trial.error is None
    assert trial.after[TARGET] == NEW


@pytest.mark.parametrize("name", ["put", "put_if_absent", "stream"])
def test_a_sync_that_fails_silently_is_noticed_by_these_checks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule broken on purpose: a store that ignores failed syncs."""
    operation = BY_NAME[name]
    faults = [fault for fault in faults_of(operation, tmp_path, monkeypatch) if fault.kind == faulty_os.ERROR]
    false = []
    for number, fault in enumerate(faults):
        with monkeypatch.context() as patched:
            patched.setattr(SystemCalls, "fsync", lambda self, file: _ignored(self, file), raising=False)
            false.append(find_false(attempt(operation, fault, tmp_path / f"ignored-{number}", patched)))
    assert any("without ('fsync'" in text for text in false)


def _ignored(calls: SystemCalls, file: int) -> None:
    with suppress(OSError):
        calls.call("fsync", os.fsync, (file,), {})
