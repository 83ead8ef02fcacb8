"""Commits that a log hands on: none is missing, none is read twice, and who takes none costs little."""

from __future__ import annotations

import gc
import uuid

import pytest

from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import ObjectNotFoundError
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.commits.recent_commits import RecentCommits
from sparklog.protocol.commits import AlterConfig, commit_key
from sparklog.protocol.decide.decision import Decision
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import CountingStore


@pytest.fixture
def store() -> CountingStore:
    return CountingStore(MemoryStore(uuid.uuid4().hex))


@pytest.fixture
def writer(store: CountingStore) -> Coordinator:
    return create_cluster(store)


def change(writer: Coordinator, count: int = 1) -> None:
    for number in range(count):
        action = AlterConfig(set={"num.partitions": f"{number + 1}"})
        writer.submit(lambda _, action=action: Decision([action], None))  # type: ignore[misc]


def take(recent: RecentCommits, store: CountingStore, first: int, last: int) -> tuple[list[int], int]:
    """The versions that are taken, and the requests that it costs."""
    before = len(store.calls)
    versions = [commit.version for commit in recent.take(store, first, last)]
    return versions, len(store.calls) - before


def test_commits_that_are_read_or_made_are_handed_on(store: CountingStore, writer: Coordinator) -> None:
    log, recent = CommitLog.open(store), RecentCommits()
    log.followers.add(recent)
    change(writer, 5)
    log.refresh()
    Coordinator(log).submit(lambda _: Decision([AlterConfig(set={"num.partitions": "9"})], None))
    assert take(recent, store, 1, 6) == ([1, 2, 3, 4, 5, 6], 0)
    assert take(recent, store, 6, 6)[0] == [6]  # taken before, so it was read


def test_commits_that_are_not_kept_are_read(store: CountingStore, writer: Coordinator) -> None:
    change(writer, 4)
    log, recent = CommitLog.open(store), RecentCommits()
    log.followers.add(recent)
    change(writer, 2)
    log.refresh()
    versions, requests = take(recent, store, 0, 6)
    assert (versions, requests) == ([0, 1, 2, 3, 4, 5, 6], 5)


def test_the_oldest_commits_are_dropped_when_they_are_too_many(store: CountingStore, writer: Coordinator) -> None:
    log, recent = CommitLog.open(store), RecentCommits(max_bytes=1000)
    log.followers.add(recent)
    change(writer, 10)
    log.refresh()
    versions, requests = take(recent, store, 1, 10)
    assert versions == list(range(1, 11))
    assert 0 < requests < 10


def test_a_removed_commit_is_reported(store: CountingStore, writer: Coordinator) -> None:
    change(writer, 2)
    store.delete(commit_key(1))
    with pytest.raises(ObjectNotFoundError, match="commit 1 is absent"):
        take(RecentCommits(), store, 0, 2)


def test_who_is_gone_is_not_kept_by_the_log(store: CountingStore, writer: Coordinator) -> None:
    log = CommitLog.open(store)
    log.followers.add(RecentCommits())
    gc.collect()
    assert len(log.followers) == 0
