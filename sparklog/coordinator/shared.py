"""The coordinators of this process, one per root and storage options, which its clients share.

Not for: opening a coordinator of one's own (``coordinator.open_cluster``).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from sparklog.coordinator.coordinator import Coordinator, open_cluster
from sparklog.errors import RootReplacedError
from sparklog.log.layout import read_cluster_file
from sparklog.store.open import open_store
from sparklog.store.process_local import ProcessTable


class _Shared:
    """The coordinator of one address. The lock is its own, so that a hanging storage delays no other cluster."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.coordinator: Coordinator | None = None


coordinators: ProcessTable[tuple[str, str], _Shared] = ProcessTable()
"""By root and storage options."""


def shared_cluster(root: str, storage_options: Mapping[str, object] | None = None) -> Coordinator:
    """Return this process's coordinator for a root, opened once and refreshed, since Spark reuses planner processes.

    It is opened again if the root now holds another cluster, or another timeline of the same one. Raises as
    ``open_cluster``.
    """
    store = open_store(root, storage_options)
    with coordinators.held:
        shared = coordinators.entries.setdefault((store.root, repr(sorted((storage_options or {}).items()))), _Shared())
    with shared.lock:
        coordinator = shared.coordinator
        if coordinator is None or read_cluster_file(store).cluster_id != coordinator.state.cluster_id:
            coordinator = shared.coordinator = open_cluster(store, storage_options)
        else:
            try:
                coordinator.refresh()
            except RootReplacedError:  # a new client has not read the former timeline
                coordinator = shared.coordinator = open_cluster(store, storage_options)
        return coordinator


def forget_shared(root: str) -> None:
    """Make this process open the root again for its next client."""
    with coordinators.held:
        entries = coordinators.entries
        for key in [key for key in entries if key[0] == root]:
            del entries[key]
