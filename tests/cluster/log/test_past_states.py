"""The states before and after any commit: folded from a checkpoint or the first commit, and told apart from unknown."""

from __future__ import annotations

import pytest

import sparklog.testing
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import CorruptMetadataError, InvalidRequestError
from sparklog.log import past_states
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.past_states import PastStates
from sparklog.protocol.commits import AlterConfig, commit_key
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import State
from sparklog.store.memory import MemoryStore


def make(name: str, commits: int) -> tuple[Coordinator, list[State]]:
    """Return a cluster, and its state after each commit."""
    clock = ManualClock()
    cluster = create_cluster(MemoryStore(name, clock), clock=clock)
    states = [cluster.state]
    cluster.create_topic("orders", 2)
    states.append(cluster.state)
    while cluster.state.version < commits:
        clock.advance(60)
        change = AlterConfig(topic="orders", set={"retention.ms": str(1000 + cluster.state.version)})
        cluster.submit(lambda _, change=change: Decision([change], None))  # type: ignore[misc]
        states.append(cluster.state)
    cluster.log.wait_for_checkpoint()
    return cluster, states


def test_every_commit_has_the_states_that_there_were() -> None:
    cluster, states = make("past-states", 230)
    past = PastStates(cluster.log)
    for version in (230, 0, 1, 120, 121, 99, 100, 101, 229, 120):
        around = past.around(version)
        assert around.after == states[version]
        assert around.before == (states[version - 1] if version else State(cluster_id=states[0].cluster_id))


def test_a_state_before_removed_commits_is_unknown_and_those_after_a_checkpoint_are_not() -> None:
    cluster, states = make("past-states-removed", 450)
    cluster.submit(lambda _: Decision([AlterConfig(set={"metadata.max.retention.ms": "1"})], None))
    removed = clean_up(cluster.store, cluster.log.expiry_clock, cluster.state.configs, cluster.log.settings)
    assert removed.commits > 0
    past = PastStates(cluster.log)
    with pytest.raises(InvalidRequestError, match=r"before commit 5 is not known: the commits up to \d+ were removed"):
        past.around(5)
    assert past.around(440).before == states[439]


def test_only_so_many_commits_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, states = make("past-states-many", 90)
    monkeypatch.setattr(past_states, "MAX_FOLDED_COMMITS", 50)
    past = PastStates(cluster.log)
    with pytest.raises(InvalidRequestError, match="at most 50 commits are read to find out"):
        past.around(60)
    past.around(40)
    assert past.around(60).before == states[59]


def test_an_edited_commit_does_not_become_a_state() -> None:
    cluster, _ = make("past-states-edited", 20)
    key = commit_key(10)
    data = bytes(cluster.store.get(key))
    cluster.store.put(key, data.replace(b"retention", b"retentiom"))
    past = PastStates(cluster.log)
    past.around(9)
    with pytest.raises(CorruptMetadataError):
        past.around(12)


def test_a_lost_commit_is_not_taken_for_one_that_was_removed() -> None:
    cluster, states = make("past-states-lost", 20)
    cluster.store.delete(commit_key(10))
    past = PastStates(cluster.log)
    with pytest.raises(CorruptMetadataError, match="12 is not known: commit 10 is absent; `sparklog fsck`"):
        past.around(12)
    assert past.around(9).before == states[8]


@pytest.mark.parametrize("version", [-1, 10**6])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with sparklog.testing.cluster() as cluster, pytest.raises(InvalidRequestError, match="does not exist"):
        PastStates(cluster.coordinator.log).around(version)
