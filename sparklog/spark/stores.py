"""The stores of a cluster's brokers, for tasks that read and write files without opening the cluster."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.coordinator import Coordinator
from sparklog.store.base import Store
from sparklog.store.location import open_location


def broker_stores(coordinator: Coordinator, storage_options: Mapping[str, object]) -> dict[int, Store]:
    """The store of every broker by id; broker 0 is the root itself. Raises UnsupportedStoreError."""
    return {
        number: open_location(broker.url, storage_options) if broker.url else coordinator.store
        for number, broker in coordinator.state.brokers.items()
    }
