"""Storage locations of a cluster's brokers as stores.

A location holds ``broker.json``, written once when it is registered. While that is missing, a local one is not the
folder that was registered: its disk is not mounted, or it was moved away. Writes are refused then, instead of
re-creating the folder beside what it held. The same goes for a cluster's root and its ``cluster.json``.

Not for: what these files say (``log.locations``), and whether a location is well (``coordinator.health``).
"""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.store.base import Store
from sparklog.store.local import LocalStore
from sparklog.store.open import open_store

IDENTITY_KEY = "broker.json"


def open_location(url: str, storage_options: Mapping[str, object] | None = None) -> Store:
    """The store of a registered location. Errors as ``open_store``; writes also raise StorageError where the location
    is not the one that was registered."""
    return guarded(open_store(url, storage_options), IDENTITY_KEY)


def guarded(store: Store, key: str) -> Store:
    """A store that writes only while this object is there, where the storage can lose its place: a local folder."""
    return store.guarded_by(key) if isinstance(store, LocalStore) else store
