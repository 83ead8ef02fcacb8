"""Caches the open segment files of a process's readers, least recently used first out, below a limit for the process.

The limit is a share of the descriptors that the process may have (``ulimit -n``), read whenever a file is opened. When
it is reached, the least recently used file is closed, whichever reader owns it. If the system refuses a file
nevertheless, because others used up the descriptors, half of the files are closed and the limit is halved; it grows
again with each file that can be opened. A file of a local disk needs a descriptor only while it is being opened.

Rules: each ``OpenFiles`` belongs to one reader, whose thread holds its lock while it uses a file. Another thread closes
files of a reader only if it gets that lock without waiting, so a file that is being read stays open.
"""

from __future__ import annotations

import itertools
import resource
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from threading import RLock
from typing import Generic, Protocol, TypeVar

from sparklog.store.process_local import ProcessLock

OPEN_SEGMENTS = 256
"""segments whose index and open file a reader keeps for further lookups."""

SHARE_OF_DESCRIPTORS = 2
"""Divisor: the cache may use this part of the process's descriptors."""

FEWEST_FILES, MOST_FILES = 16, 4096
"""Bounds of the limit, whatever the system allows: with fewer a reader of many partitions keeps reopening files, and
more cost memory for their indexes."""


class Closable(Protocol):
    """A cached file."""

    def close(self) -> None: ...


File = TypeVar("File", bound=Closable)


@dataclass(frozen=True, slots=True)
class _Entry(Generic[File]):
    used: int
    file: File


class OpenFiles(Generic[File]):
    """The open files of one reader, by path. Its thread holds ``lock`` while it uses them."""

    def __init__(self, budget: FileBudget | None = None) -> None:
        self._budget = budget or PROCESS
        self.lock = RLock()
        self._entries: OrderedDict[str, _Entry[File]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[File]:
        return (entry.file for entry in self._entries.values())

    def get(self, path: str) -> File | None:
        """Return the file if it is open, and mark it as used now."""
        entry = self._entries.get(path)
        if entry is None:
            return None
        self._entries[path] = _Entry(next(_uses), entry.file)
        self._entries.move_to_end(path)
        return entry.file

    def make_room(self) -> None:
        """Close files so that another one may be opened."""
        while len(self._entries) >= OPEN_SEGMENTS:
            self.close_oldest()
        self._budget.make_room()

    def add(self, path: str, file: File) -> None:
        """Add a file that was just opened."""
        self._entries[path] = _Entry(next(_uses), file)
        self._budget.add(self)
        self._budget.grow()

    def drop(self, path: str) -> None:
        """Close a file if it is open."""
        entry = self._entries.pop(path, None)
        if entry is not None:
            entry.file.close()

    def drop_all(self) -> None:
        for path in list(self._entries):
            self.drop(path)
        self._budget.remove(self)

    def spare(self) -> bool:
        """Close half of the process's files after the system refused one; return whether any were closed."""
        return self._budget.halve()

    # -- called by other readers' threads too, which hold ``lock`` then

    def oldest(self) -> int | None:
        """Return the use number of the least recently used file, None if none is open."""
        return next(iter(self._entries.values())).used if self._entries else None

    def close_oldest(self) -> None:
        _, entry = self._entries.popitem(last=False)
        entry.file.close()


class FileBudget:
    """Limits the open files of all readers of a process. Thread-safe."""

    def __init__(self, most: int = MOST_FILES) -> None:
        self._lock = ProcessLock()
        self._cap = self._most = most
        self._readers: weakref.WeakSet[OpenFiles[Closable]] = weakref.WeakSet()

    def add(self, reader: OpenFiles[File]) -> None:
        """Register a reader that opened a file; its files count while it exists."""
        with self._lock.held:
            self._readers.add(reader)  # type: ignore[arg-type]

    def remove(self, reader: OpenFiles[File]) -> None:
        """Forget a reader that closed its files; all readers are looked at whenever a file is opened."""
        with self._lock.held:
            self._readers.discard(reader)  # type: ignore[arg-type]

    @property
    def limit(self) -> int:
        """The number of files that may be open now."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        share = MOST_FILES if soft == resource.RLIM_INFINITY else soft // SHARE_OF_DESCRIPTORS
        return max(FEWEST_FILES, min(self._most, share))

    def make_room(self) -> None:
        """Close files until another one may be opened."""
        with self._lock.held:
            self._close_down_to(self.limit - 1)

    def halve(self) -> bool:
        """Close half of the files and halve the limit; return whether any were closed."""
        with self._lock.held:
            before = self._count()
            self._most = max(FEWEST_FILES, min(self._most, before // 2))
            self._close_down_to(before // 2)
            return self._count() < before

    def grow(self) -> None:
        """Raise a halved limit by one, after a file was opened."""
        self._most = min(self._most + 1, self._cap)

    def _count(self) -> int:
        return sum(map(len, list(self._readers)))

    def _close_down_to(self, most: int) -> None:
        excess = self._count() - most
        if excess <= 0:
            return
        free = [reader for reader in list(self._readers) if reader.lock.acquire(blocking=False)]
        try:
            for _ in range(excess):
                ages = [(age, reader) for reader in free if (age := reader.oldest()) is not None]
                if not ages:
                    return
                min(ages, key=lambda pair: pair[0])[1].close_oldest()
        finally:
            for reader in free:
                reader.lock.release()


_uses = itertools.count()
"""Numbers all uses of files, over all readers."""

PROCESS = FileBudget()
"""The budget shared by the readers of this process."""
