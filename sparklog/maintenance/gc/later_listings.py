"""The files that listings name whose time has not come: a sweep of older listings leaves them.

A file can be named twice: a listing may name files of changes that were left out, and a file that holds runs of several
partitions leaves the log with the last of them. Each commit that takes a run out of the log names its file, so the
listing that is due last decides: its delay and what readers may still need count from when the file left.

Rules: nothing is deleted while a listing that is not due cannot be read, since it may name any file; that ends when it
is due. Not thread-safe. Not for: listings that are due (``sweep``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sparklog.coordinator import Coordinator
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError, SparklogError, StorageError
from sparklog.log.commits.retired_files import RemovedFile, read_removed
from sparklog.log.parallel import map_parallel
from sparklog.protocol.state import State


class LaterListings:
    """What the listings of a state name that are not in ``due``. Each is read once."""

    def __init__(self, coordinator: Coordinator, due: Collection[str]) -> None:
        self._coordinator = coordinator
        self._read = set(due)
        self._files: set[tuple[str, int]] = set()
        self._paths: set[str] = set()
        self._unreadable: dict[str, str] = {}

    def read(self, state: State) -> str:
        """Read the listings that a state adds; return why nothing may be deleted by it, empty if all were read."""
        new = sorted(set(state.removed_files) - self._read)
        self._read.update(new)
        store = self._coordinator.store
        for key, files in zip(new, map_parallel(self._read_one, new, store.parallel_requests), strict=True):
            if isinstance(files, SparklogError):
                self._unreadable[key] = files.message
                continue
            self._files.update((file.path, file.broker) for file in files)
            self._paths.update(file.path for file in files)
        for key, why in self._unreadable.items():
            if key in state.removed_files:
                return f"listing {key}, which is not due yet, cannot be read, and may name any file: {why}"
        return ""

    def _read_one(self, key: str) -> list[RemovedFile] | SparklogError:
        try:
            return list(read_removed(self._coordinator.store, key))
        except ObjectNotFoundError as error:
            is_done = key not in self._coordinator.refresh().removed_files  # another sweep has finished it
            return [] if is_done else error
        except (CorruptMetadataError, StorageError) as error:
            return error

    def split(self, files: Iterable[RemovedFile]) -> tuple[list[RemovedFile], bool]:
        """Return the files that no later listing names, and whether a copy of another one is only named here."""
        files = list(files)
        free = [file for file in files if file.path not in self._paths]
        later = [file for file in files if file.path in self._paths]
        return free, any((file.path, file.broker) not in self._files for file in later)
