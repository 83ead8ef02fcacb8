"""A commit is folded once by its writer, and every reader gets the same state."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import msgspec
import pytest

from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import IndeterminateCommitError, StorageUnavailableError
from sparklog.log.commits.commit_attempt import CommitOutcome
from sparklog.log.commits.commit_files import read_commit
from sparklog.protocol.commit_bytes import encode_to_store
from sparklog.protocol.commits import Action, AlterConfig, commit_key
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.fold import Draft
from sparklog.protocol.log_time import decide_reset
from sparklog.store.base import BytesLike, Store
from sparklog.store.memory import MemoryStore
from tests.cluster.coordinator.helpers import commits_held


class Folds:
    """Counts drafts and the actions applied to them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drafts = 0
        self.applied = 0
        create, apply = Draft.__init__, Draft.apply

        def counted_create(draft: Draft, *arguments: object) -> None:
            self.drafts += 1
            create(draft, *arguments)  # type: ignore[arg-type]

        def counted_apply(draft: Draft, action: Action) -> None:
            self.applied += 1
            apply(draft, action)

        monkeypatch.setattr(Draft, "__init__", counted_create)
        monkeypatch.setattr(Draft, "apply", counted_apply)

    def of(self, operation: Callable[[], object]) -> tuple[int, int]:
        """Drafts and applied actions of an operation."""
        before = (self.drafts, self.applied)
        operation()
        return self.drafts - before[0], self.applied - before[1]


@pytest.fixture
def folds(monkeypatch: pytest.MonkeyPatch) -> Folds:
    return Folds(monkeypatch)


def memory() -> MemoryStore:
    return MemoryStore(uuid.uuid4().hex)


def assert_all_read_the_same(coordinator: Coordinator, store: Store) -> None:
    """This holds also after the coordinator itself has read the stored commits."""
    state = coordinator.state
    assert open_cluster(store).state == state
    assert coordinator.refresh() is state


class RacingStore(MemoryStore):
    """A store whose next create of a commit calls ``before_create`` and ``after_create``, once each."""

    before_create: Callable[[], object] | None = None
    after_create: Callable[[], object] | None = None

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        is_commit = key.startswith("meta/commits/")
        if is_commit and self.before_create is not None:
            callback, self.before_create = self.before_create, None
            callback()
        super().put_if_absent(key, data)
        if is_commit and self.after_create is not None:
            callback, self.after_create = self.after_create, None
            callback()


def lose_answer() -> None:
    raise StorageUnavailableError("503")


def race() -> tuple[Coordinator, RacingStore, Coordinator]:
    """A cluster, and a coordinator of another process."""
    name = uuid.uuid4().hex
    others = create_cluster(MemoryStore(name))
    store = RacingStore(name)
    return open_cluster(store, clock=ManualClock(others.log.clock.now_ms())), store, others


def test_a_commit_that_wins_without_a_race_is_folded_once(folds: Folds) -> None:
    store = memory()
    coordinator = create_cluster(store)
    assert folds.of(lambda: coordinator.create_topic("a")) == (1, 1)
    assert folds.of(lambda: coordinator.submit(partial(alter_configs, topic="a", changes={"retention.ms": "1"}))) == (
        1,
        1,
    )
    assert_all_read_the_same(coordinator, store)


def test_requests_that_share_a_commit_share_its_fold(folds: Folds) -> None:
    store = memory()
    coordinator = create_cluster(store)
    threads = [threading.Thread(target=coordinator.create_topic, args=(name,)) for name in "abcd"]

    version = coordinator.state.version
    with ExitStack() as held:
        held.enter_context(commits_held(coordinator))
        for thread in threads:
            thread.start()
        while len(coordinator.pending) < len(threads):
            pass

        def commit_together() -> None:
            held.close()
            for thread in threads:
                thread.join()

        assert folds.of(commit_together) == (1, 4)
    assert coordinator.state.version == version + 1
    assert_all_read_the_same(coordinator, store)


def test_a_request_is_decided_again_after_a_concurrent_commit(folds: Folds) -> None:
    coordinator, store, others = race()
    store.before_create = lambda: others.submit(partial(alter_configs, topic="", changes={"num.partitions": "7"}))
    # once each: the lost attempt, the concurrent commit by its writer and by its reader, the commit that won
    assert folds.of(lambda: coordinator.create_topic("a")) == (4, 4)
    assert coordinator.state.configs == {"num.partitions": "7"}
    assert_all_read_the_same(coordinator, store)


def test_a_commit_with_an_unknown_outcome_that_is_read_back_as_ours_is_not_folded_again(folds: Folds) -> None:
    coordinator, store, _ = race()
    store.after_create = lose_answer
    assert folds.of(lambda: coordinator.create_topic("a")) == (1, 1)
    assert_all_read_the_same(coordinator, store)


def test_a_commit_with_an_unknown_outcome_that_turns_out_lost_leaves_nothing_in_the_state(
    folds: Folds,
) -> None:
    coordinator, store, others = race()

    def commit_and_lose_answer() -> None:
        others.submit(partial(alter_configs, topic="", changes={"num.partitions": "7"}))
        lose_answer()

    store.before_create = commit_and_lose_answer
    assert folds.of(lambda: coordinator.create_topic("a")) == (4, 4)
    assert coordinator.state.version == others.state.version + 1
    assert_all_read_the_same(coordinator, store)


def test_a_rewritten_commit_is_read_and_not_taken_for_the_decided_one() -> None:
    coordinator, store, _ = race()
    before = coordinator.state

    def rewrite() -> None:
        key = commit_key(before.version + 1)
        commit = msgspec.structs.replace(read_commit(store, before.version + 1).commit, writer="another program")
        store.put(key, encode_to_store(commit).data)
        lose_answer()

    store.after_create = rewrite
    with pytest.raises(IndeterminateCommitError):
        coordinator.create_topic("a")
    assert coordinator.state is before
    assert open_cluster(store).state == coordinator.refresh()
    assert list(coordinator.state.topics) == ["a"]


def test_a_commit_that_resets_the_time_is_folded_again_at_that_time(folds: Folds) -> None:
    store, clock = memory(), ManualClock()
    coordinator = create_cluster(store, clock=clock)
    now_ms = clock.now_ms()
    clock.advance(1_000_000)
    coordinator.create_topic("a")
    clock.set_ms(now_ms)
    assert folds.of(lambda: coordinator.submit(partial(decide_reset, now_ms=now_ms))) == (2, 2)
    assert coordinator.state.timestamp_ms == coordinator.state.topics["a"].created_ms == now_ms
    assert_all_read_the_same(coordinator, store)


def test_a_draft_of_an_older_state_is_not_committed() -> None:
    coordinator, _, others = race()
    draft = coordinator.log.draft([AlterConfig(set={"num.partitions": "3"})])
    others.create_topic("a")
    coordinator.refresh()
    assert coordinator.log.commit(draft) is CommitOutcome.LOST
    assert coordinator.refresh().version == others.state.version


def test_a_signal_handler_may_read_the_log_during_a_commit() -> None:
    coordinator, store, others = race()

    def handle_signal() -> None:
        coordinator.refresh()
        others.create_topic("b")

    store.after_create = handle_signal
    coordinator.create_topic("a")
    assert sorted(coordinator.state.topics) == ["a", "b"]
    assert_all_read_the_same(coordinator, store)
