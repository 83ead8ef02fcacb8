"""Checkpoints of a log: their contents, their base, and that failures never reach the caller."""

from __future__ import annotations

import logging
import uuid

import pytest

from sparklog.errors import CorruptMetadataError, RootReplacedError, StorageError
from sparklog.log.checkpoints import checkpoint, lists
from sparklog.log.checkpoints.lists import ListCache
from sparklog.protocol.commits import commit_key
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore
from tests.unit.log.small_log import TOPIC_ID, SmallLog


def stored_paths(log: SmallLog, manifest: checkpoint.Manifest) -> list[str]:
    listed = checkpoint.read_lists(log.store, manifest).of(TOPIC_ID)
    return [path for part in lists.read_list(log.store, listed) for path in part["path"].to_pylist()]


def test_a_checkpoint_has_the_state_and_the_segments_of_its_version() -> None:
    log = SmallLog()
    log.append("orders-0/a.log")
    state = log.append("orders-0/b.log")
    manifest = log.checkpointer.write()
    log.append("orders-0/c.log")
    assert checkpoint.read_newest_state(log.store) == (manifest, state)
    assert stored_paths(log, manifest) == ["orders-0/a.log", "orders-0/b.log"]


def test_a_checkpoint_is_based_on_the_newest_one_of_any_process() -> None:
    log = SmallLog()
    first = log.checkpointer.write()
    log.append("orders-0/a.log")
    second = log.checkpointer.write()
    assert checkpoint.read_heads(log.store, second) == log.state
    assert stored_paths(log, second) == ["orders-0/a.log"]
    assert second.version == first.version + 1


def test_a_checkpoint_avoids_a_base_with_missing_files() -> None:
    log = SmallLog()
    log.append("orders-0/a.log")
    first = log.checkpointer.write()
    log.append("orders-0/b.log")
    for part in first.lists:
        log.store.delete(part.key)
    second = log.new_checkpointer(2, ListCache(log.store)).write()
    assert log.avoided == [first.heads.key]
    assert stored_paths(log, second) == ["orders-0/a.log", "orders-0/b.log"]


def test_files_that_remain_missing_are_an_error() -> None:
    log = SmallLog()
    first = log.checkpointer.write()
    log.avoided.append(first.heads.key)
    log.take_snapshot = lambda newest, take=log.take_snapshot: take(newest)._replace(base=first)  # type: ignore[method-assign, misc]
    log.store.delete(first.heads.key)
    log.append("orders-0/a.log")
    with pytest.raises(CorruptMetadataError, match="missing"):
        log.new_checkpointer(2, ListCache(log.store)).write()


def test_a_checkpoint_is_withdrawn_if_the_root_was_replaced_during_its_write() -> None:
    inner = MemoryStore(uuid.uuid4().hex)

    def replace_root(step: int, call: Call) -> None:
        if call.operation == "put" and call.key.endswith(".json") and "latest" not in call.key:
            inner.put(commit_key(log.state.version), b"another timeline")

    log = SmallLog(FaultyStore(inner, before=replace_root))
    with pytest.raises(RootReplacedError):
        log.checkpointer.write()
    assert checkpoint.read_newest_listed(inner) is None


def test_verification_of_a_written_checkpoint_is_retried_after_storage_errors() -> None:
    failures = [StorageError("the token has expired")]

    def before(step: int, call: Call) -> None:
        if failures and call.operation == "get" and call.key == commit_key(log.state.version):
            raise failures.pop()

    log = SmallLog(FaultyStore(MemoryStore(uuid.uuid4().hex), before=before))
    manifest = log.checkpointer.write()
    assert checkpoint.read_newest(log.store) == manifest
    assert failures == []


@pytest.mark.parametrize("is_private", [True, False], ids=["in this thread", "in the background"])
def test_a_failure_is_logged_and_not_raised(is_private: bool, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(MemoryStore):
        def open_output(self, key: str) -> object:  # type: ignore[override]
            raise RuntimeError("an error of any kind")

    Failing.is_private = is_private
    log = SmallLog(Failing(uuid.uuid4().hex))
    with caplog.at_level(logging.WARNING):
        log.checkpointer.request()
        log.checkpointer.wait()
    assert "an error of any kind" in caplog.text
    assert checkpoint.read_newest(log.store) is None
