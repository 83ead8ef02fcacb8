"""Stores that clients of an address get instead of opening one."""

from __future__ import annotations

from contextlib import ExitStack

from sparklog.store.memory import MemoryStore
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import FaultyStore
from sparklog.testing.substitutes import substituted


def test_the_innermost_block_applies_and_other_addresses_are_opened_as_usual() -> None:
    first, second = FaultyStore(MemoryStore("a")), FaultyStore(MemoryStore("a"))
    with substituted(first):
        with substituted(second):
            assert open_store("memory://a") is second
        assert open_store("memory://a") is first
        assert not isinstance(open_store("memory://b"), FaultyStore)
    assert not isinstance(open_store("memory://a"), FaultyStore)


def test_blocks_may_end_in_any_order() -> None:
    stores = [FaultyStore(MemoryStore("a")), FaultyStore(MemoryStore("b"))]
    blocks = [ExitStack(), ExitStack()]
    for block, store in zip(blocks, stores, strict=True):
        block.enter_context(substituted(store))
    blocks[0].close()
    assert not isinstance(open_store("memory://a"), FaultyStore)
    assert open_store("memory://b") is stores[1]
    blocks[1].close()
    assert not isinstance(open_store("memory://b"), FaultyStore)
