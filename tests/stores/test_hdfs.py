"""Behaviour specific to HDFS: permissions, and an unreachable NameNode."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from sparklog.errors import StorageError, StoragePermissionError, StorageUnavailableError
from sparklog.store import hdfs
from sparklog.store.hdfs import HdfsStore

pytestmark = pytest.mark.hdfs
SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def root(hdfs_environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    if "HADOOP_USER_NAME" in hdfs_environment:
        monkeypatch.setenv("HADOOP_USER_NAME", hdfs_environment["HADOOP_USER_NAME"])
    return hdfs_environment["SPARKLOG_TEST_HDFS_URL"]


def write_as(variable: str, user: str, url: str, answers: Any) -> None:
    """In a separate process: the client reads the user from the environment only once."""
    os.environ.pop("HADOOP_USER_NAME", None)
    os.environ[variable] = user
    raised: list[StorageError | None] = []
    store = HdfsStore(url, {})
    for write in (store.put, store.put_if_absent):
        try:
            write("a", b"1")
            raised.append(None)
        except StorageError as error:
            raised.append(error)
    answers.put(raised)


@pytest.mark.parametrize("variable", ["HADOOP_USER_NAME", "SPARK_USER"])
def test_folder_of_another_user_is_a_permission_error(root: str, variable: str) -> None:
    HdfsStore(f"{root}/private", {}).put("x", b"1")
    answers = SPAWN.Queue()
    other = SPAWN.Process(target=write_as, args=(variable, "somebody-else", f"{root}/private", answers))
    other.start()
    put, create = answers.get(timeout=60)
    assert create.nothing_written  # refused before the rename
    for error in (put, create):
        assert isinstance(error, StoragePermissionError)
        assert "HADOOP_USER_NAME" in str(error)
        assert "\n" not in str(error)
    other.join()


def test_key_below_a_file_cannot_be_written(root: str) -> None:
    store = HdfsStore(f"{root}/below-a-file", {})
    store.put("a", b"1")
    with pytest.raises(StorageError) as caught:
        store.put("a/b", b"2")
    assert not isinstance(caught.value, StorageUnavailableError)


def test_unreachable_namenode_is_reported_as_unavailable_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs, "FIRST_CALL_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    store = HdfsStore(f"hdfs://127.0.0.1:{port}/x", {})
    for call in (lambda: store.get("a"), lambda: store.put_if_absent("a", b"1"), lambda: list(store.list())):
        with pytest.raises(StorageUnavailableError, match="NameNode"):
            call()
