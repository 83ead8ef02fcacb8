"""The stores of a cluster's brokers, for tasks that read and write files without opening the cluster."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sparklog.coordinator import Coordinator
from sparklog.errors import SparklogError
from sparklog.store.base import Store
from sparklog.store.location import open_location

logger = logging.getLogger(__name__)


def readable_stores(coordinator: Coordinator) -> dict[int, Store]:
    """The stores of the brokers that can be opened from here: what one lacks, other replicas may have."""
    state, found = coordinator.state, {}
    for broker in state.brokers:
        try:
            found[broker] = coordinator.brokers.store_of(state, broker)
        except SparklogError as error:
            logger.warning("broker %d is not read from: %s", broker, error)
    return found


def broker_stores(coordinator: Coordinator, storage_options: Mapping[str, object]) -> dict[int, Store]:
    """The store of every broker by id; broker 0 is the root itself. Raises UnsupportedStoreError."""
    return {
        number: open_location(broker.url, storage_options) if broker.url else coordinator.store
        for number, broker in coordinator.state.brokers.items()
    }
