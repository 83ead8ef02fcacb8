"""One commit attempt without a log: what is stored, the outcome, and the state after it."""

from __future__ import annotations

import uuid

import pytest

from sparklog.clock import ManualClock
from sparklog.errors import IndeterminateCommitError, ObjectNotFoundError, RootReplacedError
from sparklog.ids import SeededIds
from sparklog.log.checkpoints import checkpoint
from sparklog.log.commits.commit_attempt import CommitAttempt, CommitOutcome, PreparedCommit, prepare_commit
from sparklog.log.commits.commit_files import read_commit
from sparklog.log.elapsed import ElapsedTime
from sparklog.log.layout import CLUSTER_KEY, Boundary, encode_cluster_file, exists, write_boundary
from sparklog.log.settings import LogSettings
from sparklog.protocol import levels
from sparklog.protocol.commit_bytes import encode_to_store
from sparklog.protocol.commits import Action, AlterConfig, RegisterBroker, ResetTime, commit_key
from sparklog.protocol.fold import Draft, fold
from sparklog.protocol.state import State
from sparklog.store.base import Deleted, Store
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import LOST_ANSWER, UNAVAILABLE, Call, Fault, FaultyStore

NO_ANCHOR = (-1, "")


def prepare(base: State, *actions: Action, write_id: str = "mine") -> PreparedCommit:
    return prepare_commit(Draft(base, base.timestamp_ms + 1, actions), write_id, "host/1")


def log_of_one_commit() -> tuple[MemoryStore, State]:
    store = MemoryStore(uuid.uuid4().hex)
    store.put(CLUSTER_KEY, encode_cluster_file("c"))
    prepared = prepare(State(cluster_id="c", timestamp_ms=1_000_000, level=levels.CURRENT), RegisterBroker(broker=0))
    assert make(store, prepared) is CommitOutcome.WON
    return store, prepared.folded.state


def make(store: Store, prepared: PreparedCommit) -> CommitOutcome:
    clock = ManualClock()
    elapsed = ElapsedTime(clock, LogSettings().away_seconds)
    return CommitAttempt(store, clock, elapsed, prepared).make(elapsed.now(), NO_ANCHOR)


def assert_state_is_that_of_the_stored_commit(store: Store, prepared: PreparedCommit) -> None:
    commit, digest, size = read_commit(store, prepared.commit.version)
    assert fold(prepared.base, commit, digest) == prepared.folded
    assert size == prepared.size


def change(value: str = "3") -> AlterConfig:
    return AlterConfig(set={"num.partitions": value})


@pytest.mark.parametrize("kind", [None, LOST_ANSWER])
def test_a_stored_commit_is_won_for_any_answer(kind: str | None) -> None:
    inner, base = log_of_one_commit()
    prepared = prepare(base, change())
    assert make(FaultyStore(inner, [Fault(0, kind)] if kind else []), prepared) is CommitOutcome.WON
    assert_state_is_that_of_the_stored_commit(inner, prepared)


@pytest.mark.parametrize("kind", [None, LOST_ANSWER, UNAVAILABLE])
def test_a_number_taken_by_another_commit_is_lost_for_any_answer(kind: str | None) -> None:
    inner, base = log_of_one_commit()
    others = prepare(base, change("4"), write_id="another")

    def before(step: int, call: Call) -> None:
        if step == 0:
            assert make(inner, others) is CommitOutcome.WON

    store = FaultyStore(inner, [Fault(0, kind)] if kind else [], before=before)
    assert make(store, prepare(base, change())) is CommitOutcome.LOST
    assert inner.get(commit_key(1)) == others.encoded.data


def test_a_commit_that_cannot_be_read_back_is_an_unknown_outcome_and_is_kept() -> None:
    inner, base = log_of_one_commit()
    prepared = prepare(base, change())
    store = FaultyStore(inner, [Fault(0, LOST_ANSWER), *(Fault(step, UNAVAILABLE) for step in range(1, 20))])
    with pytest.raises(IndeterminateCommitError):
        make(store, prepared)
    assert inner.get(commit_key(1)) == prepared.encoded.data


def test_other_bytes_with_the_same_write_id_are_an_unknown_outcome() -> None:
    """Another program rewrote the commit: the decision must not be returned to any caller."""
    inner, base = log_of_one_commit()
    rewritten, _, _ = encode_to_store(prepare(base, change("4")).commit)

    def before(step: int, call: Call) -> None:
        if step == 1:
            inner.put(commit_key(1), rewritten)

    with pytest.raises(IndeterminateCommitError):
        make(FaultyStore(inner, [Fault(0, LOST_ANSWER)], before=before), prepare(base, change()))
    assert inner.get(commit_key(1)) == rewritten


def remove_next(store: MemoryStore, base: State) -> None:
    """Another process commits, writes a checkpoint, and removes the commits up to it."""
    other = prepare(base, change("4"), write_id="another")
    assert make(store, other) is CommitOutcome.WON
    checkpoint.write_checkpoint(store, SeededIds(0), other.folded.state, None, {})
    write_boundary(store, Boundary(1))
    for version in (0, 1):
        MemoryStore.delete(store, commit_key(version))  # once


def test_a_commit_below_the_boundary_is_removed() -> None:
    store, base = log_of_one_commit()
    remove_next(store, base)
    assert make(store, prepare(base, change())) is CommitOutcome.REMOVED
    with pytest.raises(ObjectNotFoundError):
        store.get(commit_key(1))


def test_a_boundary_beyond_every_checkpoint_removes_no_commit() -> None:
    """A clean-up that was stopped has set it in a root that was restored meanwhile, and is about to take it back."""
    store, base = log_of_one_commit()
    prepared = prepare(base, change())
    write_boundary(store, Boundary(5))
    assert make(store, prepared) is CommitOutcome.WON
    assert store.get(commit_key(1)) == prepared.encoded.data


def test_a_commit_that_resets_the_time_and_its_actions_have_that_time() -> None:
    store, base = log_of_one_commit()
    now_ms = base.timestamp_ms - 1_000
    prepared = prepare(base, RegisterBroker(broker=1), ResetTime(time_ms=now_ms))
    assert make(store, prepared) is CommitOutcome.WON
    assert (prepared.commit.timestamp, prepared.folded.state.timestamp_ms) == (now_ms, now_ms)
    assert_state_is_that_of_the_stored_commit(store, prepared)


class DeletesTwice(MemoryStore):
    """A storage whose client sends each deletion again, a minute later (``again``). It has no conditions on them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._sent: list[str] = []

    def delete(self, key: str) -> None:
        self._sent.append(key)
        super().delete(key)

    def delete_exactly(self, key: str, data: bytes) -> Deleted:
        return Store.delete_exactly(self, key, data)

    def again(self) -> None:
        for key in self._sent:
            super().delete(key)


@pytest.mark.parametrize("kind", [MemoryStore, DeletesTwice])
@pytest.mark.parametrize("is_removed", [False, True])
def test_withdrawing_a_commit_never_deletes_that_of_another_timeline(kind: type[MemoryStore], is_removed: bool) -> None:
    """The root is restored to an older copy while a commit is made; its number is then taken by another client."""
    old, base = log_of_one_commit()
    inner = kind(old.root.removeprefix("memory://"))
    prepared = prepare(base, change())

    def before(step: int, call: Call) -> None:
        if step == 1 and not is_removed:
            inner.put(commit_key(0), b'{"digest":"of another"}')

    if is_removed:
        remove_next(inner, base)
    store = FaultyStore(inner, before=before)
    if is_removed:
        assert make(store, prepared) is CommitOutcome.REMOVED
    else:
        with pytest.raises(RootReplacedError if kind is MemoryStore else IndeterminateCommitError):
            make(store, prepared)
    is_withdrawn = not exists(inner, commit_key(1))
    assert is_withdrawn == (kind is MemoryStore)
    inner.put(commit_key(1), b"of the restored root")
    if isinstance(inner, DeletesTwice):
        inner.again()
    assert inner.get(commit_key(1)) == b"of the restored root"
