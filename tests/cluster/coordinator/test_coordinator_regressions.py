"""Requests of several threads in one commit whose committing thread is interrupted."""

from __future__ import annotations

import threading
import uuid

from sparklog.coordinator import create_cluster
from sparklog.errors import IndeterminateCommitError
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
