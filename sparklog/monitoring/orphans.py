"""Finds orphans: files in the storage that are not part of the log and never will be.

    needed = NeededFiles(coordinator, state)
    for found in find_orphans(store, broker, needed, fence): ...

They are what the vacuum deletes, and what the system table ``storage`` counts. The name of a file contains the version
of the cluster that its writer had read. Of the files that were begun at the ``fence`` or before, those that the log
does not name are orphans; the vacuum fences their writers, which may be paused, before it deletes anything.

Rules: it only reads; it lists all files of a broker. Not for: deleting (``maintenance.gc.vacuum``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import chain
from typing import NamedTuple

from sparklog.coordinator import Coordinator
from sparklog.coordinator.live_files import LiveFiles, read_live_partitions
from sparklog.errors import ObjectNotFoundError
from sparklog.log.commits.cleanup import newest_version_before
from sparklog.log.commits.retired_files import read_removed
from sparklog.protocol.file_names import NO_VERSION, begun_at, is_in_data_folder, log_path_of
from sparklog.protocol.state import State
from sparklog.retry import retry_read
from sparklog.store.base import Store

DEFAULT_AGE_MS = 7 * 86_400_000
"""Time in ms that a writer may take from its first byte to its commit, and that an unused lease is kept."""


SCANNED_EVERY = 1000
"""Files between two calls that tell how many were looked at."""

NEVER_COMMITTED = "its writer ended before its commit"
NO_VERSION_IN_NAME = "its name has no version, so a writer may still need it"
YOUNGER = "it was begun after the fence, and may still become part of the log"


class FoundFile(NamedTuple):
    """A file that the log does not name: its key, its size in bytes, and why; only NEVER_COMMITTED are orphans."""

    key: str
    size: int
    why: str


def newest_before(coordinator: Coordinator, state: State, before_ms: int) -> int:
    """Return the newest version that is older than a time, also of an idle cluster whose old commits were removed."""
    if state.timestamp_ms < before_ms:
        return state.version
    return newest_version_before(coordinator.store, state.version, before_ms)


class NeededFiles:
    """The files of live segments, and retired files that are left to the sweep. Case does not count: a file system that
    ignores it may list the folder of one topic under the name of another."""

    def __init__(self, coordinator: Coordinator, state: State) -> None:
        self._live = LiveFiles(read_live_partitions(coordinator, state))
        self._retired: set[str] = set()
        self.missing_listings: list[str] = []
        """Listings that are gone; their files look like orphans."""
        for key in sorted(state.removed_files):
            try:
                read = partial(_read_paths, coordinator.store, key)
                self._retired.update(retry_read(read, coordinator.log.clock))
            except ObjectNotFoundError:
                self.missing_listings.append(key)

    def has(self, key: str) -> bool:
        path = log_path_of(key)
        return path in self._live or path in self._retired or path.casefold() in self._folded

    @cached_property
    def _folded(self) -> set[str]:
        return {path.casefold() for path in chain(self._live.paths, self._retired)}


def _read_paths(store: Store, key: str) -> list[str]:
    return [file.path for file in read_removed(store, key)]


def find_orphans(
    store: Store, needed: NeededFiles, fence: int, scanned: Callable[[int], None] = lambda files: None
) -> Iterator[FoundFile]:
    """Yield the files of a broker that the log does not name; tell now and then how many were looked at."""
    for number, info in enumerate(store.list(), 1):
        if number % SCANNED_EVERY == 0:
            scanned(number)
        if not is_in_data_folder(info.key) or needed.has(info.key):
            continue
        version = begun_at(info.key)
        if version == NO_VERSION:
            yield FoundFile(info.key, info.size, NO_VERSION_IN_NAME)
        else:
            yield FoundFile(info.key, info.size, NEVER_COMMITTED if version <= fence else YOUNGER)
