"""The segment files that the readers of a process keep open: each its latest, and all together no more than the process
can spare.

The limit is a part of what the system lets the process open (``ulimit -n``), asked for whenever a file is opened. Where
it is reached the file that was used longest ago is closed, whichever reader has it. Where the system refuses a file all
the same, others having used up what there is, half of the files are closed and the limit is that low, until it has
grown again with the files that can be opened. A file of a local disk needs a descriptor only while it is opened.

Rules: each ``OpenFiles`` belongs to one reader, whose thread holds its lock while it works with a file. Another thread
closes files of a reader only where it gets that lock at once, so a file that is being read stays open.
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

from sparklog.store.process_lock import ProcessLock

OPEN_SEGMENTS = 256
"""segments whose index and open file a reader keeps, for lookups that come back to them."""

SHARE_OF_DESCRIPTORS = 2
"""One in so many of the descriptors a process may have is for files that are only kept open to be quick."""

FEWEST_FILES, MOST_FILES = 16, 4096
"""Bounds of the limit, whatever the system allows: with fewer a reader of many partitions opens files all the time, and
more cost memory for their indexes."""


class Closable(Protocol):
    """What is kept open."""

    def close(self) -> None: ...


File = TypeVar("File", bound=Closable)


@dataclass(frozen=True, slots=True)
class _Kept(Generic[File]):
    used: int
    file: File


class OpenFiles(Generic[File]):
    """The open files of one reader, by path. Its thread holds ``lock`` around whatever it does with them."""

    def __init__(self, budget: FileBudget | None = None) -> None:
        self._budget = budget or PROCESS
        self.lock = RLock()
        self._kept: OrderedDict[str, _Kept[File]] = OrderedDict()
        self._budget.add(self)

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[File]:
        return (kept.file for kept in self._kept.values())

    def get(self, path: str) -> File | None:
        """The file, if it is open; it counts as used now."""
        found = self._kept.get(path)
        if found is None:
            return None
        self._kept[path] = _Kept(next(_uses), found.file)
        self._kept.move_to_end(path)
        return found.file

    def make_room(self) -> None:
        """Close what is too much once another file is open."""
        while len(self._kept) >= OPEN_SEGMENTS:
            self.close_oldest()
        self._budget.make_room()

    def add(self, path: str, file: File) -> None:
        """Keep a file that was just opened."""
        self._kept[path] = _Kept(next(_uses), file)
        self._budget.grow()

    def drop(self, path: str) -> None:
        """Close a file, if it is open."""
        found = self._kept.pop(path, None)
        if found is not None:
            found.file.close()

    def drop_all(self) -> None:
        for path in list(self._kept):
            self.drop(path)

    def spare(self) -> bool:
        """After the system refused another file: close half of those of this process; whether there were any."""
        return self._budget.halve()

    # -- called by other readers' threads too

    def try_lock(self) -> bool:
        """Whether the caller may call ``oldest`` and ``close_oldest`` now, and is to call ``unlock`` afterwards."""
        return self.lock.acquire(blocking=False)

    def unlock(self) -> None:
        self.lock.release()

    def oldest(self) -> int | None:
        """When the file that was used longest ago was used, None where none is open."""
        return next(iter(self._kept.values())).used if self._kept else None

    def close_oldest(self) -> None:
        _, kept = self._kept.popitem(last=False)
        kept.file.close()


class FileBudget:
    """How many files the readers of a process keep open together. Thread-safe."""

    def __init__(self, most: int = MOST_FILES) -> None:
        self._lock = ProcessLock()
        self._cap = self._most = most
        self._readers: weakref.WeakSet[OpenFiles[Closable]] = weakref.WeakSet()

    def add(self, reader: OpenFiles[File]) -> None:
        """Count the files of this reader, for as long as it is there."""
        with self._lock:
            self._readers.add(reader)  # type: ignore[arg-type]

    @property
    def limit(self) -> int:
        """How many may be open now."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        share = MOST_FILES if soft == resource.RLIM_INFINITY else soft // SHARE_OF_DESCRIPTORS
        return max(FEWEST_FILES, min(self._most, share))

    def make_room(self) -> None:
        """Close files until one more may be opened."""
        with self._lock:
            self._close_down_to(self.limit - 1)

    def halve(self) -> bool:
        """Close half of the files, and keep no more for a while; whether any were closed."""
        with self._lock:
            before = self._count()
            self._most = max(FEWEST_FILES, min(self._most, before // 2))
            self._close_down_to(before // 2)
            return self._count() < before

    def grow(self) -> None:
        """A file was opened without a refusal."""
        self._most = min(self._most + 1, self._cap)

    def _count(self) -> int:
        return sum(map(len, list(self._readers)))

    def _close_down_to(self, most: int) -> None:
        too_many = self._count() - most
        if too_many <= 0:
            return
        free = [reader for reader in list(self._readers) if reader.try_lock()]
        try:
            for _ in range(too_many):
                ages = [(age, reader) for reader in free if (age := reader.oldest()) is not None]
                if not ages:
                    return
                min(ages, key=lambda pair: pair[0])[1].close_oldest()
        finally:
            for reader in free:
                reader.unlock()


_uses = itertools.count()
"""Numbers uses of files in their order, over all readers."""

PROCESS = FileBudget()
"""What the readers of this process share."""
