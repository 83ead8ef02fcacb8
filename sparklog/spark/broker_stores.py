"""The stores of a cluster's brokers, for tasks that read and write files without opening the cluster."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from sparklog.coordinator import Coordinator
from sparklog.errors import SparklogError, StorageError, StoragePermissionError
from sparklog.store.base import Store

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


class BrokerMap(dict[int, Store]):
    """Stores by broker id. Asked for one that could not be opened, it says why not: StorageError."""

    def __init__(self, stores: Mapping[int, Store], errors: Mapping[int, str]) -> None:
        super().__init__(stores)
        self.errors = dict(errors)

    def __missing__(self, broker: int) -> Store:
        if broker in self.errors:
            raise StoragePermissionError(self.errors[broker], broker=broker)
        raise StorageError(f"broker {broker} was not registered when this write began", broker=broker)

    def __reduce__(self) -> tuple[Any, ...]:
        return (BrokerMap, (dict(self), self.errors))


def broker_stores(coordinator: Coordinator) -> BrokerMap:
    """The store of every broker by id; broker 0 is the root itself. One that the root's owner has not allowed is an
    error for whatever needs it. Raises UnsupportedStoreError, StorageError."""
    state, found, errors = coordinator.state, {}, {}
    for broker in state.brokers:
        try:
            found[broker] = coordinator.brokers.store_of(state, broker)
        except StoragePermissionError as error:
            errors[broker] = error.message
    return BrokerMap(found, errors)
