"""Looks which live files of a broker a location holds, before the broker is moved there.

Rules: by listing, so a file counts if its ``.log`` and ``.index`` are there, with the sizes of those at the broker's
present location; if it does not have them, or cannot be listed, the ``.index`` is read, which states the length.
Decides nothing (``protocol.decide.locations``).
Not for: the contents of files (``maintenance.fsck``), out-of-sync replicas (``maintenance.replicas``).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from sparklog import limits
from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import CorruptionError, ObjectNotFoundError, SparklogError, StorageUnavailableError
from sparklog.format.index import decode_index
from sparklog.log.records.index_checks import find_run_fault
from sparklog.protocol.decide.elections import every_partition
from sparklog.protocol.decide.locations import SeenLocation
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.types import TopicPartition

logger = logging.getLogger(__name__)


def look_at(
    coordinator: Coordinator, state: State, broker: int, store: Store, partitions: Collection[TopicPartition] = ()
) -> dict[TopicPartition, SeenLocation]:
    """Return what a location holds of the partitions, by default all, of which a broker is a replica in sync.

    Raises StorageError if the new location, or the root, cannot be read.
    """
    listings = _Listings(coordinator, state, broker, store)
    seen: dict[TopicPartition, SeenLocation] = {}
    for name in partitions or every_partition(state):
        partition = state.find_partition(*name)
        if partition is None or broker not in partition.isr:
            continue
        segments = coordinator.segments(name.topic, state).partition(name.partition) if partition.segments else ()
        missing = tuple(dict.fromkeys(segment.path for segment in segments if not listings.holds(segment)))
        seen[name] = SeenLocation(state.topics[name.topic].topic_id, partition.log_end_offset, state.version, missing)
    return seen


def is_whole(store: Store, segment: Segment, sizes: Mapping[str, int]) -> bool:
    """Return whether a location, whose files have these ``sizes``, has the whole file of a segment: of the length that
    its index states, which has the runs that the commit names. Raises StorageError."""
    if segment.path not in sizes or segment.index_path not in sizes:
        return False
    try:
        index = decode_index(store.get(segment.index_path, limits.MAX_INDEX_BYTES), segment.index_path)
    except CorruptionError:
        return False
    except ObjectNotFoundError as error:  # it was listed: its disk has been unmounted since
        path = f"{store.root}/{segment.index_path}"
        raise StorageUnavailableError(f"{path} was listed and is missing now; try again", path=path) from error
    return index.summary.log_length == sizes[segment.path] and not find_run_fault(segment, index)


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

    def holds(self, segment: Segment) -> bool:
        """Return whether the new location holds the file of a segment. Without sizes to compare with, its index is
        read: a copy may have been interrupted. Raises StorageError."""
        folder = segment.path.rpartition("/")[0]
        if folder not in self._folders:
            self._folders[folder] = _list_sizes(self._new, folder), self._list_old(folder)
        new, old = self._folders[folder]
        keys = (segment.path, segment.index_path)
        if all(key in old for key in keys):
            return all(new.get(key) == old[key] for key in keys)
        return is_whole(self._new, segment, new)

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
