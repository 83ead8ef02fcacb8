"""An address at which a store is mounted: it can be unmounted, exchanged for another one, and mounted again.

    disks = [MemoryStore("a"), MemoryStore("b")]
    points = [MountPoint("/mnt/a", disks[0]), MountPoint("/mnt/b", disks[1])]
    points[0].swap(points[1])     # each disk is at the other's address
    points[0].unmount(calls=3)    # for three calls the empty folder below the mount point is there, then the disk again

What is below an unmounted mount point is a folder like any other, and empty at first: reads find nothing, listings are
empty, and writes go into it, unless the store is ``guarded_by`` an object, as those of registered locations are; with
``fields`` that also finds another disk in the place of the right one. Every call sees what is mounted at its time. A
file that is being written when the mount changes cannot be published.

Rules: thread-safe as far as the mounted stores are; not picklable into another process. Not for: faults of single calls
(``faulty_store``), which wraps it.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from copy import copy

from sparklog.errors import ObjectNotFoundError, StorageError, StorageUnavailableError
from sparklog.store.base import BytesLike, Deleted, InputFile, ObjectInfo, OutputFile, Store
from sparklog.store.memory import MemoryStore

_folders = itertools.count()


class _Mounted:
    """What is at an address now. Of the next calls, ``calls_before`` find ``returning``, then ``calls_left`` the
    folder, and the later ones ``returning`` again."""

    def __init__(self, store: Store, folder: Store) -> None:
        self.store = store
        self.folder = folder
        self.calls_before = 0
        self.calls_left = 0
        self.returning: Store | None = None


class MountPoint(Store):
    """The store at an address. All stores that ``guarded_by`` returns share its mount."""

    def __init__(self, root: str, store: Store, folder: Store | None = None) -> None:
        """``store`` is mounted at ``root`` first; ``folder`` is what is there while nothing is mounted: an empty folder
        by default."""
        self.root = root
        self._mount = _Mounted(store, folder or MemoryStore(f"below-mount-point-{next(_folders)}"))
        self._required = ""
        self._fields: Mapping[str, object] = {}

    @property
    def mounted(self) -> Store:
        """The store at this address now: the folder below it if nothing is mounted."""
        return self._mount.store

    @property
    def has_own_clock(self) -> bool:
        return self._mount.store.has_own_clock

    def mount(self, store: Store) -> None:
        """Mount a store here, in place of what was mounted."""
        self._mount.store, self._mount.returning = store, None

    def unmount(self, calls: int = 0, after: int = 0) -> Store:
        """Unmount the store, for so many calls if that is not 0, and then ``after`` so many calls; return it."""
        store = self._mount.store
        if not calls or not after:
            self._mount.store = self._mount.folder
        self._mount.calls_before, self._mount.calls_left = after, calls
        self._mount.returning = store if calls else None
        return store

    def swap(self, other: MountPoint) -> None:
        """Exchange what is mounted at two addresses."""
        here, there = self.mounted, other.mounted
        self.mount(there)
        other.mount(here)

    def guarded_by(self, key: str, fields: Mapping[str, object] | None = None) -> MountPoint:
        guarded = copy(self)
        guarded._required, guarded._fields = key, fields or {}
        return guarded

    def _at_call(self) -> Store:
        mount = self._mount
        if mount.returning is None:
            return mount.store
        if mount.calls_before:
            mount.calls_before -= 1
        elif mount.calls_left:
            mount.calls_left -= 1
            mount.store = mount.folder
        else:
            self.mount(mount.returning)
        return mount.store

    def _to_change(self, key: str, what: str) -> Store:
        """Return the mounted store, after a look whether it is the required one."""
        store = self._at_call()
        if self._required:
            try:
                stored = json.loads(store.get(self._required))
            except ObjectNotFoundError:
                stored = None
            if not isinstance(stored, dict) or any(stored.get(name) != value for name, value in self._fields.items()):
                found = "is missing" if stored is None else f"is {stored}"
                raise StorageError(
                    f"{self.root}/{key} was not {what}: {self._required} {found}, so another disk, or none, is mounted",
                    path=f"{self.root}/{key}",
                )
        return store

    def sync(self, folder: str) -> None:
        self._mount.store.sync(folder)

    def get(self, key: str, max_bytes: int | None = None) -> bytes:
        return self._at_call().get(key, max_bytes)

    def get_range(self, key: str, position: int, length: int) -> bytes:
        return self._at_call().get_range(key, position, length)

    def put(self, key: str, data: BytesLike) -> None:
        self._to_change(key, "written").put(key, data)

    def put_if_absent(self, key: str, data: BytesLike) -> None:
        self._to_change(key, "written").put_if_absent(key, data)

    def delete(self, key: str) -> None:
        (self._to_change(key, "deleted") if self._fields else self._at_call()).delete(key)

    def delete_exactly(self, key: str, data: bytes) -> Deleted:
        return self._at_call().delete_exactly(key, data)

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return self._at_call().list(prefix)

    def info(self, key: str) -> ObjectInfo:
        return self._at_call().info(key)

    def open_input(self, key: str) -> InputFile:
        return self._at_call().open_input(key)

    def open_output(self, key: str) -> OutputFile:
        store = self._to_change(key, "written")
        return _MountedOutputFile(self, store, store.open_output(key))

    def remove_unfinished(self, before_ms: int) -> int:
        return self._at_call().remove_unfinished(before_ms)


class _MountedOutputFile(OutputFile):
    """A streaming write to the store that was mounted when it began. Not thread-safe."""

    def __init__(self, point: MountPoint, store: Store, file: OutputFile) -> None:
        self.key = file.key
        self._point = point
        self._store = store
        self._file = file

    def write(self, data: BytesLike) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def close(self) -> None:
        try:
            if self._point._to_change(self.key, "written") is not self._store:
                path = f"{self._point.root}/{self.key}"
                raise StorageUnavailableError(f"{path} was begun on another disk than is mounted now", path=path)
        except BaseException:
            self._file.abort()
            raise
        self._file.close()

    def abort(self) -> None:
        self._file.abort()
