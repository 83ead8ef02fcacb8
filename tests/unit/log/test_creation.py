"""An object that is written once: what counts is what is stored, whatever the answer to its create was."""

from __future__ import annotations

import uuid

import pytest

from sparklog.errors import StorageError
from sparklog.log.creation import create_object
from sparklog.store.memory import MemoryStore
from sparklog.testing.faults import DONE, KINDS, LATE, kinds_of
from sparklog.testing.faulty_store import Fault, FaultyStore, SimulatedCrash

KEY = "broker.json"


@pytest.mark.parametrize("kind", kinds_of("put_if_absent"))
def test_a_create_says_what_is_stored_or_that_it_is_not_known(kind: str) -> None:
    inner = MemoryStore(uuid.uuid4().hex)
    outcome = KINDS[kind]
    store = FaultyStore(inner, [Fault(0, kind)])
    try:
        assert create_object(store, KEY, b"mine", 100) == b"mine"
        assert outcome.effect != LATE, "it cannot be read back yet"
        if outcome.effect == DONE:
            assert inner.get(KEY) == b"mine"
    except (StorageError, SimulatedCrash):
        assert outcome.effect != DONE or outcome.crashes or outcome.lasting, "it can be read back"
    store.reopen()
    store.settle()
    if outcome.answer != "ok" and outcome.effect != "half":
        assert create_object(store, KEY, b"mine", 100) == b"mine"


def test_what_somebody_else_created_is_returned_and_stays() -> None:
    store = MemoryStore(uuid.uuid4().hex)
    store.put(KEY, b"other")
    assert create_object(store, KEY, b"mine", 100) == b"other"
    assert store.get(KEY) == b"other"
    unavailable = FaultyStore(store, [Fault(0, "lost_answer")])
    assert create_object(unavailable, KEY, b"mine", 100) == b"other"
