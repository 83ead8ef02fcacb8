"""Looks which live files of a broker a location holds, before the broker is moved there.

Rules: by listing, so a file counts if its ``.log`` and ``.index`` are there, with the sizes of those at the broker's
present location, as far as that can be listed. Decides nothing (``protocol.decide.locations``).
Not for: the contents of files (``maintenance.fsck``), out-of-sync replicas (``maintenance.replicas``).
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import SparklogError
from sparklog.protocol.decide.elections import every_partition
from sparklog.protocol.decide.locations import Seen
from sparklog.protocol.file_names import index_path
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)


def look_at(
    coordinator: Coordinator, state: State, broker: int, store: Store, partitions: Collection[TopicPartition] = ()
) -> dict[TopicPartition, Seen]:
    """Return what a location holds of the partitions, by default all, of which a broker is a replica in sync.

    Raises StorageError if the new location, or the root, cannot be read.
    """
    listings = _Listings(coordinator, state, broker, store)
    seen: dict[TopicPartition, Seen] = {}
    for name in partitions or every_partition(state):
        partition = state.find_partition(*name)
        if partition is None or broker not in partition.isr:
            continue
        segments = coordinator.segments(name.topic, state).partition(name.partition) if partition.segments else ()
        paths = dict.fromkeys(segment.path for segment in segments)
        missing = tuple(path for path in paths if not listings.holds(path))
        seen[name] = Seen(state.topics[name.topic].topic_id, partition.log_end_offset, state.version, missing)
    return seen


class _Listings:
    """The files of the new location and of the broker's present one, listed by folder. Not thread-safe."""

    def __init__(self, coordinator: Coordinator, state: State, broker: int, store: Store) -> None:
        self._new = store
        self._old: Store | None = None
        self._folders: dict[str, tuple[dict[str, int], dict[str, int]]] = {}
        try:
            self._old = coordinator.brokers.store_of(state, broker)
        except SparklogError as error:
            self._forget_old(broker, error)
        self._broker = broker

    def holds(self, path: str) -> bool:
        """Return whether the new location holds a file."""
        folder = path.rpartition("/")[0]
        if folder not in self._folders:
            self._folders[folder] = _list_sizes(self._new, folder), self._list_old(folder)
        new, old = self._folders[folder]
        return all(key in new and old.get(key, new[key]) == new[key] for key in (path, index_path(path)))

    def _list_old(self, folder: str) -> dict[str, int]:
        if self._old is None:
            return {}
        try:
            return _list_sizes(self._old, folder)
        except SparklogError as error:  # it may be gone, which is why the broker moves
            self._forget_old(self._broker, error)
            return {}

    def _forget_old(self, broker: int, error: SparklogError) -> None:
        self._old = None
        logger.info("the present location of broker %d cannot be listed: %s", broker, error)


def _list_sizes(store: Store, folder: str) -> dict[str, int]:
    return {info.key: info.size for info in store.list(f"{folder}/")}
