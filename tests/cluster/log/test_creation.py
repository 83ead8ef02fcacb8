"""Creating an object once: the stored content counts, whatever the response to the create was."""

from __future__ import annotations

import uuid

import pytest

from sparklog.coordinator import create_cluster, open_cluster
from sparklog.errors import CorruptMetadataError, StorageError
from sparklog.log.creation import create_object
from sparklog.protocol.commits import commit_key
from sparklog.store.memory import MemoryStore
from sparklog.testing.faults import DONE, KINDS, LATE, kinds_of
from sparklog.testing.faulty_store import Call, Fault, FaultyStore, SimulatedCrash, SimulatedInterrupt

KEY = "broker.json"


@pytest.mark.parametrize("kind", kinds_of("put_if_absent"))
def test_a_create_returns_the_stored_content_or_reports_an_unknown_outcome(kind: str) -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    outcome = KINDS[kind]
    store = FaultyStore(inner, [Fault(0, kind)])
    try:
        assert create_object(store, KEY, b"mine", 100) == b"mine"
        assert outcome.effect != LATE, "it cannot be read back yet"
        if outcome.effect == DONE:
            assert inner.get(KEY) == b"mine"
    except (StorageError, SimulatedCrash, SimulatedInterrupt):
        is_answered = not (outcome.crashes or outcome.interrupts or outcome.lasting)
        assert outcome.effect != DONE or not is_answered, "it can be read back"
    store.reopen()
    store.settle()
    if outcome.answer != "ok" and outcome.effect != "half":
        assert create_object(store, KEY, b"mine", 100) == b"mine"


def test_an_object_created_by_another_process_is_returned_and_kept() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    store.put(KEY, b"other")
    assert create_object(store, KEY, b"mine", 100) == b"other"
    assert store.get(KEY) == b"other"
    unavailable = FaultyStore(store, [Fault(0, "lost_answer")])
    assert create_object(unavailable, KEY, b"mine", 100) == b"other"


def test_a_damaged_first_commit_is_an_error_and_does_not_retry_forever() -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    create_cluster(inner)
    data = inner.get(commit_key(0))
    inner.put(commit_key(0), data[: len(data) // 2])

    def stop(step: int, call: Call) -> None:
        assert step < 100, "the same object is read repeatedly"

    with pytest.raises(CorruptMetadataError):
        open_cluster(FaultyStore(inner, before=stop))
