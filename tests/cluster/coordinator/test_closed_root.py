"""Closing a root while other writers commit to it."""

from __future__ import annotations

import uuid
from functools import partial

import pytest

from sparklog import limits
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster
from sparklog.coordinator.closed_root import close_root
from sparklog.errors import CommitConflictError
from sparklog.ids import SeededIds
from sparklog.log.layout import COMMITS
from sparklog.protocol.decide.topics import alter_configs
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore


def close_among_writers(lost: int) -> tuple[int, float, int]:
    """Close a root whose first ``lost`` commits others win; return the version, the seconds and the tries."""
    store, clock, tries = MemoryStore(uuid.uuid4().hex), ManualClock(), 0
    other = create_cluster(store)

    def race(step: int, call: Call) -> None:
        nonlocal tries
        if call.operation == "put_if_absent" and call.key.startswith(COMMITS):
            tries += 1
            if tries <= lost:
                other.submit(partial(alter_configs, topic="", changes={"num.partitions": str(tries % 7 + 1)}))

    racing = FaultyStore(store, before=race)
    version = close_root(racing, other.state.cluster_id, "memory://elsewhere", clock, SeededIds(1))
    return version, clock.monotonic(), tries


def test_closing_a_root_pauses_after_each_lost_attempt() -> None:
    version, seconds, tries = close_among_writers(3)
    assert (version, tries) == (4, 4)
    assert 0 < seconds < 1
    assert close_among_writers(0)[1] == 0


def test_closing_fails_within_its_deadline_if_others_always_win() -> None:
    with pytest.raises(CommitConflictError, match="lost to other writers"):
        close_among_writers(limits.COMMIT_ATTEMPTS)
