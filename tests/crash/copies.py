"""Copies of a cluster in memory: one that many attempts start from is built once. And the objects of a cluster as a
value: attempts that leave the same objects need one check of what follows from them.

Copies are only for a cluster whose objects do not name their root: one without other brokers.
"""

from __future__ import annotations

import uuid

from sparklog.clock import Clock
from sparklog.store.memory import MemoryStore

Objects = frozenset[tuple[str, bytes]]
"""Every object of a store: its key and its content."""


def objects_of(store: MemoryStore) -> Objects:
    return frozenset((key, content) for key, (content, _) in store.space.objects.items())


def copy_of(store: MemoryStore, clock: Clock | None = None) -> MemoryStore:
    """Return a new store with the same objects, of the same times. ``clock`` is the new one's."""
    copy = MemoryStore(uuid.uuid4().hex, clock)
    copy.space.objects.update(store.space.objects)
    return copy
