"""What a process tells another one of the history that it has read: the newest commit of it."""

from __future__ import annotations

import threading
import uuid
from functools import partial

import pytest

from sparklog.coordinator import create_cluster, open_cluster
from sparklog.log.commits import commit_log
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.commits.segment_lists import SegmentLists
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from tests.cluster.client.test_producer_restored_roots import pass_by


def newest(log: CommitLog) -> tuple[int, str]:
    return log.state.version, log.state.digest


def test_it_is_the_newest_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore(uuid.uuid4().hex)
    log = create_cluster(store).log
    open_cluster(store).create_topic("t")
    assert (log.newest_commit(0), log.newest_commit(1)) == (newest(log), None)
    monkeypatch.setattr(log, "_torn", True)  # a thread was interrupted while it advanced the state
    assert log.newest_commit(0) is None
    log.refresh()
    assert log.newest_commit(0) == newest(log)


def test_a_history_that_is_being_left_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is replaced before the jump is counted."""
    store = MemoryStore(uuid.uuid4().hex)
    log, others = create_cluster(store).log, open_cluster(store)
    others.create_topic("t")
    others.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
    pass_by(store)
    answers: list[object] = []
    threads: list[threading.Thread] = []

    def ask_and_create(*arguments: object) -> SegmentLists:
        thread = threading.Thread(target=lambda: answers.append(log.newest_commit(0)))
        thread.start()
        thread.join(0.2)  # it waits for this load
        threads.append(thread)
        return SegmentLists(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(commit_log, "SegmentLists", ask_and_create)
    log.refresh()
    for thread in threads:
        thread.join(30)
    assert answers == [None]
    assert (log.newest_commit(0), log.newest_commit(1)) == (None, newest(log))
