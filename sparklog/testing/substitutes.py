"""Lets clients that are given an address work on a store that fails or counts.

Not for: code that takes a store; pass it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.store.base import Store
from sparklog.store.open import OPENERS, scheme_of


@contextmanager
def substituted(store: Store) -> Iterator[None]:
    """Let ``open_store`` return this store for the address of its root, in this process, until the block ends."""
    scheme = scheme_of(store.root)
    before = OPENERS[scheme]
    active = True

    def open_substituted(text: str, options: dict[str, object]) -> Store:
        opened = before(text, options)
        return store if active and opened.root == store.root else opened

    OPENERS[scheme] = open_substituted
    try:
        yield
    finally:
        active = False  # blocks of several threads end in any order
        if OPENERS[scheme] is open_substituted:
            OPENERS[scheme] = before
