"""Outcomes of a create on HDFS: before the rename, a failure certainly has not created the name.

The client here fails at chosen steps. Failures of a real NameNode, its permissions and its absence, are tested in
tests/stores/test_hdfs.py.
"""

from __future__ import annotations

import pytest

from sparklog.errors import ObjectExistsError, StorageError, StorageUnavailableError
from sparklog.store.hdfs import HdfsStore
from sparklog.store.process_local import ProcessLocal

PANIC = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
STEPS = ("create", "write", "close", "rename")
FAILURES = [
    OSError("RPC listener disconnected"),
    RuntimeError('RPCError("org.apache.hadoop.security.AccessControlException", "no")'),
    FileNotFoundError("/a"),
    PermissionError("no"),
    TypeError("in the client"),
    PANIC("called `Option::unwrap()` on a `None` value"),
]


class Client:
    """Files by name; ``failing`` is the step that raises, after its effect if ``late``."""

    def __init__(self, failing: str = "", failure: BaseException | None = None, late: bool = False) -> None:
        self.files: dict[str, bytes] = {}
        self._failing, self._failure, self._late = failing, failure, late

    def create(self, path: str, options: object) -> Writer:
        with self.step("create"):
            return Writer(self, path)

    def rename(self, source: str, target: str, overwrite: bool) -> None:
        with self.step("rename"):
            if target in self.files and not overwrite:
                raise FileExistsError(target)
            self.files[target] = self.files.pop(source)

    def delete(self, path: str, recursive: bool) -> bool:
        return self.files.pop(path, None) is not None

    def step(self, name: str) -> Step:
        return Step(self._failure if name == self._failing else None, self._late)


class Step:
    def __init__(self, failure: BaseException | None, late: bool) -> None:
        self._failure, self._late = failure, late

    def __enter__(self) -> None:
        if self._failure is not None and not self._late:
            raise self._failure

    def __exit__(self, *error: object) -> None:
        if self._failure is not None and error[0] is None:
            raise self._failure


class Writer:
    def __init__(self, client: Client, path: str) -> None:
        self._client, self._path = client, path
        self._data = b""

    def write(self, data: memoryview) -> None:
        with self._client.step("write"):
            self._data += bytes(data)

    def hsync(self) -> None:
        pass

    def close(self) -> None:
        with self._client.step("close"):
            self._client.files[self._path] = self._data


def store_of(client: Client) -> HdfsStore:
    store = HdfsStore("hdfs://namenode/log", {})
    store.client = ProcessLocal(lambda: client)
    return store


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
@pytest.mark.parametrize("step", STEPS)
def test_failed_create_is_certain_only_before_the_rename(step: str, failure: BaseException, late: bool) -> None:
    client = Client(step, failure, late)
    with pytest.raises(StorageError) as caught:
        store_of(client).put_if_absent("meta/1", b"mine")
    assert bool(caught.value.nothing_written) is (step != "rename")
    assert not isinstance(caught.value, ObjectExistsError)
    assert ("/log/meta/1" in client.files) is (step == "rename" and late)
    if step == "rename":
        assert isinstance(caught.value, StorageUnavailableError)


def test_taken_name_is_distinguished_from_a_failure() -> None:
    client = Client()
    store_of(client).put_if_absent("meta/1", b"first")
    with pytest.raises(ObjectExistsError) as caught:
        store_of(client).put_if_absent("meta/1", b"second")
    assert not caught.value.nothing_written
    assert client.files == {"/log/meta/1": b"first"}


def test_interrupt_during_the_rename_is_reraised() -> None:
    with pytest.raises(KeyboardInterrupt):
        store_of(Client("rename", KeyboardInterrupt())).put_if_absent("meta/1", b"mine")
