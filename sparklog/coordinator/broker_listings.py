"""Lists which segment files the locations of brokers hold.

Rules: the location is the registered one before a listing and after it, so that an unmounted disk is not taken for an
empty one. By names and sizes. Not for: the contents of files (``maintenance.fsck``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress

from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.ownership import check_mounted
from sparklog.errors import ObjectNotFoundError, SparklogError
from sparklog.protocol.file_names import index_path
from sparklog.protocol.state import State
from sparklog.store.base import Store

logger = logging.getLogger(__name__)

_MAX_SINGLE_LOOKUPS = 8
"""Number of files of a folder up to which each is looked up by itself instead of listing the folder."""

Sizes = dict[str, tuple[int, int]]
"""Bytes of the ``.log`` and the ``.index`` by path of the ``.log``; only files that have both."""


class BrokerListings:
    """The files at the locations, each folder listed once; ``store_of`` opens them. Not thread-safe."""

    def __init__(
        self, coordinator: Coordinator, state: State, store_of: Callable[[State, int], Store] | None = None
    ) -> None:
        self._store_of = store_of or coordinator.brokers.store_of
        self._coordinator = coordinator
        self._state = state
        self._folders: dict[tuple[int, str], dict[str, int]] = {}
        self._at: dict[int, tuple[Collection[str], Sizes]] = {}

    def sizes(self, broker: int, paths: Collection[str]) -> Sizes:
        """Return the sizes of those of these files that a broker has. Raises StorageError, UnsupportedStoreError."""
        store = self._store_of(self._state, broker)
        check_mounted(self._coordinator, broker, store, self._state)
        by_folder: dict[str, list[str]] = {}
        for path in sorted(paths):  # the same requests in each run
            by_folder.setdefault(path.rpartition("/")[0], []).append(path)
        pairs: Sizes = {}
        for folder, inside in by_folder.items():
            sizes = self._folder_sizes(store, broker, folder, inside)
            for path in inside:
                log, index = sizes.get(path), sizes.get(index_path(path))
                if log is not None and index is not None:
                    pairs[path] = (log, index)
        check_mounted(self._coordinator, broker, store, self._state)  # another disk may have been listed
        return pairs

    def _folder_sizes(self, store: Store, broker: int, folder: str, inside: Sequence[str]) -> dict[str, int]:
        sizes = self._folders.get((broker, folder))
        if sizes is None:
            if len(inside) <= _MAX_SINGLE_LOOKUPS:
                return _look_up_sizes(store, inside)
            sizes = self._folders[broker, folder] = {info.key: info.size for info in store.list(f"{folder}/")}
        return sizes

    def size_at_any(self, brokers: Sequence[int], path: str, together: Collection[str]) -> tuple[int, int] | None:
        """Return the sizes of a file at the first of these brokers that has it; all of ``together`` are looked up with
        it."""
        for broker in brokers:
            sizes = self.sizes_if_listed(broker, together)
            if path in sizes:
                return sizes[path]
        return None

    def sizes_if_listed(self, broker: int, paths: Collection[str]) -> Sizes:
        """Return the sizes at a broker; none if it cannot be listed."""
        cached = self._at.get(broker)
        if cached is None or cached[0] is not paths:
            try:
                cached = (paths, self.sizes(broker, paths))
            except SparklogError as error:
                logger.warning("broker %d could not be listed, and counts as one without the files: %s", broker, error)
                cached = (paths, {})
            self._at[broker] = cached
        return cached[1]


def _look_up_sizes(store: Store, paths: Sequence[str]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for path in paths:
        for key in (path, index_path(path)):
            with suppress(ObjectNotFoundError):
                sizes[key] = store.info(key).size
    return sizes
