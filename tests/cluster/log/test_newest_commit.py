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


def passed_by() -> CommitLog:
    """A log that goes on from a checkpoint that nothing links to what it has read."""
    store = MemoryStore(uuid.uuid4().hex)
    log, others = create_cluster(store).log, open_cluster(store)
    others.create_topic("t")
    others.submit(partial(alter_configs, topic="", changes={"metadata.max.retention.ms": "600000"}))
    log.refresh()
    assert (log.newest_commit(0), log.newest_commit(1)) == (newest(log), None)
    pass_by(store)
    return log


def test_a_history_that_was_left_by_a_load_that_was_interrupted_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    log = passed_by()

    def interrupt(*arguments: object) -> SegmentLists:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(commit_log, "SegmentLists", interrupt)
        with pytest.raises(KeyboardInterrupt):
            log.refresh()
    assert log.newest_commit(0) is None
    log.refresh()
    assert (log.unlinked_jumps, log.newest_commit(0), log.newest_commit(1)) == (1, None, newest(log))


def test_a_history_that_is_being_left_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The state is replaced before the jump is counted."""
    log = passed_by()
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
