"""Each call of a limited store ends, and what was given up occupies its address until it ends."""

from __future__ import annotations

import threading
import uuid

import pytest

from sparklog.errors import ObjectNotFoundError, StorageUnavailableError
from sparklog.store.limited import LimitedStore
from sparklog.store.memory import MemoryStore
from sparklog.testing.faulty_store import Call, FaultyStore

LONG = 600.0


class LocalStore(FaultyStore):
    """Limits of local stores have no minimum."""

    is_local = True


def test_a_call_without_an_answer_ends_and_takes_effect_later() -> None:
    ends = threading.Event()

    def wait(step: int, call: Call) -> None:
        if call.operation == "put":
            ends.wait(60)

    memory = MemoryStore(uuid.uuid4().hex)
    store = LocalStore(memory, before=wait)
    with pytest.raises(StorageUnavailableError, match=r"hangs: no answer within 0\.1 s"):
        LimitedStore(store, 0.1).put("a", b"late")
    with pytest.raises(StorageUnavailableError, match="an earlier call has no answer yet"):
        LimitedStore(store, LONG).get("a")
    ends.set()
    while True:
        try:
            assert LimitedStore(store, LONG).get("a") == b"late"
            break
        except StorageUnavailableError:
            pass


def test_answers_and_errors_are_those_of_the_store() -> None:
    store = LimitedStore(MemoryStore(uuid.uuid4().hex), LONG)
    store.put("f/a", b"1")
    store.put_if_absent("f/b", b"22")
    with store.open_output("f/c") as output:
        output.write(b"333")
        assert output.tell() == 3
    file = store.open_input("f/c")
    assert (file.size, file.read_at(1, 2).to_pybytes()) == (3, b"33")
    assert [(info.key, info.size) for info in store.list("f/")] == [("f/a", 1), ("f/b", 2), ("f/c", 3)]
    store.delete("f/a")
    with pytest.raises(ObjectNotFoundError):
        store.get("f/a")
