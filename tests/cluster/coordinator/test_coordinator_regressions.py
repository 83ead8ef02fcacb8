"""Requests of several threads in one commit whose committing thread is interrupted."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable

from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import IndeterminateCommitError
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.state import State
from sparklog.store.base import BytesLike
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import FaultyStore
from tests.cluster.coordinator.helpers import commits_held


class InterruptedStore(FaultyStore):
    armed = False

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        super().put_if_absent(key, data)
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt


def test_an_interrupted_thread_leaves_the_others_with_an_unknown_outcome() -> None:
    store = InterruptedStore(MemoryStore(uuid.uuid4().hex))
    coordinator = create_cluster(store)
    outcomes: dict[str, BaseException] = {}

    def create(topic: str) -> None:
        try:
            coordinator.create_topic(topic)
        except BaseException as error:
            outcomes[topic] = error

    threads = [threading.Thread(target=create, args=(name,)) for name in "abc"]
    with commits_held(coordinator):
        for number, thread in enumerate(threads):
            thread.start()
            while len(coordinator.pending) <= number:
                pass
        store.armed = True
    for thread in threads:
        thread.join()
    kinds = sorted(type(error).__name__ for error in outcomes.values())
    assert kinds == ["IndeterminateCommitError", "IndeterminateCommitError", "KeyboardInterrupt"]
    assert all(
        error.__cause__ is not None for error in outcomes.values() if isinstance(error, IndeterminateCommitError)
    )
    assert set(coordinator.refresh().topics) == {"a", "b", "c"}


def submit_together(coordinator: Coordinator, *decisions: Callable[[State], Decision[None]]) -> list[str]:
    """Submit each in a thread of its own, for one commit; return the names of the errors, sorted."""
    errors: list[str] = []

    def submit(decide: Callable[[State], Decision[None]]) -> None:
        try:
            coordinator.submit(decide)
        except BaseException as error:
            errors.append(type(error).__name__)

    threads = [threading.Thread(target=submit, args=(decide,)) for decide in decisions]
    with commits_held(coordinator):
        for number, thread in enumerate(threads):
            thread.start()
            while len(coordinator.pending) <= number:
                pass
    for thread in threads:
        thread.join()
    return sorted(errors)


def test_a_time_limit_of_the_thread_that_commits_is_for_that_thread() -> None:
    """Its handler raises while the thread decides a request, perhaps of another one, which repeats it."""
    coordinator = create_cluster(MemoryStore(uuid.uuid4().hex))
    alarms = [TimeoutError("time limit")]

    def decide(state: State) -> Decision[None]:
        if alarms:
            raise alarms.pop()
        return Decision([], None)

    assert submit_together(coordinator, decide, decide) == ["IndeterminateCommitError", "TimeoutError"]
    assert submit_together(coordinator, decide, decide) == []


def test_a_bug_in_a_decision_concerns_its_caller_alone() -> None:
    coordinator = create_cluster(MemoryStore(uuid.uuid4().hex))

    def fail(state: State) -> Decision[None]:
        raise ZeroDivisionError

    assert submit_together(coordinator, fail, lambda state: Decision([], None)) == ["ZeroDivisionError"]
