"""Copies of a cluster in memory: one that many attempts start from is built once.

Only for a cluster whose objects do not name their root: one without other brokers.
"""

from __future__ import annotations

import uuid

from sparklog.clock import Clock
from sparklog.store.memory import MemoryStore


def copy_of(store: MemoryStore, clock: Clock | None = None) -> MemoryStore:
    """Return a new store with the same objects, of the same times. ``clock`` is the new one's."""
    copy = MemoryStore(uuid.uuid4().hex, clock)
    copy.space.objects.update(store.space.objects)
    return copy
