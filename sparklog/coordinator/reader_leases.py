"""Announcements: how readers say that they still need files which have left the log meanwhile.

A reader that works for long on one list of segments, such as a Spark job, stores one small object and renews it::

    leases/readers/<id>      {"version":42,"until_ms":1790000000000,"ttl_ms":600000}

Files that left the log after that version stay for ``ttl_ms`` after the object was written, by the storage's clock:
the reader's own may be off by days. What is announced only puts a deletion off: a reader that
announces nothing, or too late, looks up anew what took the place of files that are gone, and loses records only where
they were deleted or compacted.

Rules: a reader that may not write to the storage, or to which it does not answer, reads all the same. Reading a
snapshot is no reason to write often: in one process all reads share an announcement, which is made anew once half of
its time is over, for whatever version is the oldest that they use.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import msgspec

from sparklog.clock import Clock
from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError, SparklogError, UnsupportedVersionError
from sparklog.log.parallel import each
from sparklog.protocol import levels
from sparklog.store.base import ObjectInfo, Store
from sparklog.store.process_lock import ProcessLock

logger = logging.getLogger(__name__)

READERS = "leases/readers/"

MAX_ANNOUNCEMENT_BYTES = 4096

CLOCK_SLACK_MS = 60_000
"""ms that an announcement counts longer than it says: its renewal may take so long."""

UNREADABLE_MS = 3_600_000
"""ms that an announcement counts that cannot be read."""

DAMAGED, NEWER = "damaged", "newer"
"""Why an announcement cannot be read. A later version's stays: that version knows how long it counts."""

_READER = re.compile(re.escape(READERS) + r"[A-Za-z0-9_-]{1,64}")
"""A reader's announcement, and not a stray file that somebody left beside them."""


class ReaderLeaseFile(msgspec.Struct, frozen=True):
    """A reader may hold files that were part of the log at ``version``, for ``ttl_ms`` from when this was written.

    ``until_ms`` is that by the reader's own clock. Announcements of earlier versions of sparklog have nothing else.
    """

    version: int
    until_ms: int
    ttl_ms: int = 0
    format: int = levels.CURRENT


class StoredReaderLease(NamedTuple):
    """An announcement, where it is, and until when it counts by the storage's clock."""

    key: str
    version: int
    until_ms: int


class ReaderLease(NamedTuple):
    """A reader's own announcement; it can be sent to the tasks that read for it, and any of them may renew it.

    ``ttl_ms`` is how long one lasts, ``until_ms`` when it ends as far as is known here.
    """

    reader_id: str
    version: int
    ttl_ms: int
    until_ms: int = 0

    @property
    def key(self) -> str:
        return READERS + self.reader_id

    def is_due(self, now_ms: int) -> bool:
        """Whether it should be renewed: less than half of its time is left, or more than all of it, which is so by
        another machine's clock, or by one that was set since."""
        return not self.ttl_ms / 2 <= self.until_ms - now_ms <= self.ttl_ms

    def renewed(self, store: Store, clock: Clock) -> ReaderLease:
        """Store it, to last for its whole time from now. Raises StorageError."""
        announcement = self._replace(until_ms=clock.now_ms() + self.ttl_ms)
        store.put(self.key, msgspec.json.encode(ReaderLeaseFile(self.version, announcement.until_ms, self.ttl_ms)))
        return announcement

    def kept(self, store: Store, clock: Clock) -> ReaderLease:
        """The same, renewed if that is due and no other task has done it. Raises StorageError."""
        if not self.is_due(clock.now_ms()):
            return self
        stored = read_reader_lease(store, self.key)
        if stored is not None and stored.version <= self.version:
            known = self._replace(until_ms=stored.until_ms)
            if not known.is_due(clock.now_ms()):
                return known
        return self.renewed(store, clock)

    def close(self, store: Store) -> None:
        """Nothing is needed any more. Raises StorageError."""
        store.delete(self.key)


def read_reader_lease(store: Store, key: str) -> ReaderLeaseFile | None:
    """What is announced under a key, None where that is nothing. Raises StorageError, CorruptMetadataError,
    UnsupportedVersionError."""
    path = f"{store.root}/{key}"
    try:
        data = store.get(key, MAX_ANNOUNCEMENT_BYTES)
        levels.check_format(path, data)
        return msgspec.json.decode(data, type=ReaderLeaseFile)
    except ObjectNotFoundError:
        return None
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptMetadataError(f"the announcement {path} cannot be read: {error}; delete it", path=path) from error


def ends_ms(info: ObjectInfo, found: ReaderLeaseFile) -> int:
    """Until when an announcement counts: by the storage's clock, where it stamps objects, else by the reader's."""
    if found.ttl_ms and info.modified_ms > 0:
        return info.modified_ms + found.ttl_ms + CLOCK_SLACK_MS
    return found.until_ms + CLOCK_SLACK_MS


def list_reader_leases(store: Store, now_ms: int) -> Iterator[StoredReaderLease]:
    """The readers that are announced at this time, which is ``Coordinator.expiry_time_ms``. Raises StorageError.

    One that cannot be read counts for ``UNREADABLE_MS``: it may be somebody's all the same.
    """
    return iter(read_reader_leases(store, now_ms).valid)


class StoredReaderLeases(NamedTuple):
    """The readers that are announced, and those whose announcements are over."""

    valid: list[StoredReaderLease]
    expired: list[StoredReaderLease]


def read_reader_leases(store: Store, now_ms: int) -> StoredReaderLeases:
    """All there are, as of this time, many read at a time. Raises StorageError."""
    infos = list(store.list(READERS))
    found = each(partial(_read_listed, store), infos, max(store.parallel_requests, 1))
    result = StoredReaderLeases([], [])
    for info, read in zip(infos, found, strict=True):
        if isinstance(read, ReaderLeaseFile):
            until_ms = ends_ms(info, read)
            (result.valid if until_ms >= now_ms else result.expired).append(
                StoredReaderLease(info.key, read.version, until_ms)
            )
        elif read is not None:
            until_ms = info.modified_ms + UNREADABLE_MS
            if until_ms >= now_ms:
                result.valid.append(StoredReaderLease(info.key, -1, info.modified_ms))
            elif read is DAMAGED and info.modified_ms > 0 and _READER.fullmatch(info.key):
                result.expired.append(StoredReaderLease(info.key, -1, until_ms))
    return result


def _read_listed(store: Store, info: ObjectInfo) -> ReaderLeaseFile | str | None:
    """An announcement, or why it cannot be read; None for one that is gone."""
    try:
        return read_reader_lease(store, info.key)
    except UnsupportedVersionError:
        return NEWER
    except CorruptMetadataError:
        return DAMAGED


# -- one announcement for all reads of a process

_shared: dict[tuple[int, str, int], ReaderLease] = {}
_shared_lock = ProcessLock()


def take_reader_lease(coordinator: Coordinator, version: int, ttl_ms: int) -> ReaderLease | None:
    """What a read that was planned at ``version`` has to keep alive; None where it cannot be announced.

    Stored only if none of this process's announcements covers the read for half of its time still. It is left to
    expire: the tasks of a read tell nobody when the last one has ended.
    """
    store, clock = coordinator.store, coordinator.log.clock
    key = (os.getpid(), store.root, ttl_ms)
    with _shared_lock:
        found = _shared.get(key)
        if found is None or found.version > version or found.is_due(clock.now_ms()):
            found = _shared[key] = _announced_anew(coordinator, version, ttl_ms)
        return found if found.reader_id else None


def _announced_anew(coordinator: Coordinator, version: int, ttl_ms: int) -> ReaderLease:
    """A new announcement; where it cannot be stored, one without an id that says when to try again."""
    store, clock = coordinator.store, coordinator.log.clock
    try:
        return ReaderLease(coordinator.log.ids.write_id(), version, ttl_ms).renewed(store, clock)
    except SparklogError as error:
        logger.info("a read of %s at version %d is not announced: %s", store.root, version, error)
        return ReaderLease("", version, ttl_ms, clock.now_ms() + ttl_ms)
