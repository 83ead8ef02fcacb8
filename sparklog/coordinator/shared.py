"""The coordinators of this process, one per root and storage options, which its clients share.

Not for: opening a coordinator of one's own (``coordinator.open_cluster``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from sparklog.coordinator.coordinator import Coordinator, open_cluster
from sparklog.errors import RootReplacedError
from sparklog.log.layout import read_cluster_file
from sparklog.store.open import open_store
from sparklog.store.process_lock import ProcessLock

_Key = tuple[int, str, str]

_shared: dict[_Key, Coordinator] = {}
_opening: dict[_Key, ProcessLock] = {}
_opening_guard = ProcessLock()


def _lock_of_key(key: _Key) -> ProcessLock:
    """Return the lock of one cluster, so that a hanging storage does not delay opening another cluster."""
    with _opening_guard:
        return _opening.setdefault(key, ProcessLock())


def shared_cluster(root: str, storage_options: Mapping[str, object] | None = None) -> Coordinator:
    """Return this process's coordinator for a root, opened once and refreshed, since Spark reuses planner processes.

    It is opened again if the root now holds another cluster, or another history of the same one. Raises as
    ``open_cluster``.
    """
    store = open_store(root, storage_options)
    key = (os.getpid(), store.root, repr(sorted((storage_options or {}).items())))
    with _lock_of_key(key):
        coordinator = _shared.get(key)
        if coordinator is None or read_cluster_file(store).cluster_id != coordinator.state.cluster_id:
            coordinator = _shared[key] = open_cluster(store, storage_options)
        else:
            try:
                coordinator.refresh()
            except RootReplacedError:  # a new client has not read the former history
                coordinator = _shared[key] = open_cluster(store, storage_options)
        return coordinator


def forget_shared(root: str) -> None:
    """Make this process open the root again for its next client."""
    for key in [key for key in list(_shared) if key[1] == root]:
        with _lock_of_key(key):
            _shared.pop(key, None)
