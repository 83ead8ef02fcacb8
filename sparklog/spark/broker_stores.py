"""Open the stores of a cluster's brokers for tasks, which read and write files without opening the cluster.

Rules: runs in the process that plans; stores are pickled and sent to tasks.
Not for: choosing a replica (``log.records.read_order``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from sparklog.coordinator import Coordinator
from sparklog.errors import SparklogError, StorageError, StoragePermissionError
from sparklog.protocol.decide.append import Begun
from sparklog.protocol.state import State
from sparklog.store.base import Store

logger = logging.getLogger(__name__)


def readable_stores(coordinator: Coordinator) -> dict[int, Store]:
    """Return the stores that can be opened from here, by broker id. A broker that cannot be opened is left out: other
    replicas may have its records."""
    state, stores = coordinator.state, {}
    for broker in state.brokers:
        try:
            stores[broker] = coordinator.brokers.store_of(state, broker)
        except SparklogError as error:
            logger.warning("broker %d cannot be opened, reading from other replicas: %s", broker, error)
    return stores


class BrokerMap(dict[int, Store]):
    """Stores by broker id, of one state of the cluster. Looking up one that could not be opened raises StorageError
    with the reason.

    ``begun`` is that state: a file that is written to one of these stores has its version in its name, whatever else
    its writer has read since. So a commit can tell whether a broker has changed its location in between.
    """

    def __init__(self, stores: Mapping[int, Store], errors: Mapping[int, str], begun: Begun) -> None:
        super().__init__(stores)
        self.errors = dict(errors)
        self.begun = begun

    def __missing__(self, broker: int) -> Store:
        if broker in self.errors:
            raise StoragePermissionError(self.errors[broker], broker=broker)
        raise StorageError(f"broker {broker} was not registered when this write started", broker=broker)

    def __reduce__(self) -> tuple[Any, ...]:
        return (BrokerMap, (dict(self), self.errors, self.begun))


def broker_stores(coordinator: Coordinator, state: State | None = None) -> BrokerMap:
    """Return the store of every broker by id, as of a state (default: the newest read); broker 0 is the root itself. A
    location that the root's owner has not allowed raises only when it is looked up. Raises UnsupportedStoreError,
    StorageError."""
    state = coordinator.state if state is None else state
    stores: dict[int, Store] = {}
    errors: dict[int, str] = {}
    for broker in state.brokers:
        try:
            stores[broker] = coordinator.brokers.store_of(state, broker)
        except StoragePermissionError as error:
            errors[broker] = error.message
    return BrokerMap(stores, errors, Begun(state.version, state.digest))
