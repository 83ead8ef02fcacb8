"""Reader leases: keep files that have left the log for as long as a reader may still need them.

A reader that works for long on one list of segments, such as a Spark job, stores one small object and renews it::

    leases/readers/<id>      {"version":42,"until_ms":1790000000000,"ttl_ms":600000}

Files that left the log after that version are kept for ``ttl_ms`` after the object was written, by the storage's clock:
the reader's own may be off by days. A lease only delays deletion: a reader without one, or with an expired one, looks
up the segments that replaced deleted files, and misses only records that were deleted or compacted.

Rules: taking a lease is best effort: a reader that may not write, or gets no answer, reads without one. To write
rarely, all reads of a process share a lease, which is replaced once half of its time is over, or for an older
version.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import NamedTuple

import msgspec

from sparklog.clock import Clock
from sparklog.coordinator.coordinator import Coordinator
from sparklog.errors import CorruptMetadataError, SparklogError, UnsupportedVersionError
from sparklog.log.parallel import map_parallel
from sparklog.log.stored_json import read_json
from sparklog.store.base import ObjectInfo, Store
from sparklog.store.process_local import ProcessTable

logger = logging.getLogger(__name__)

READERS = "leases/readers/"
FORMAT = 2
"""The level that introduced the present fields of a lease."""

MAX_READER_LEASE_BYTES = 4096

CLOCK_SLACK_MS = 60_000
"""ms that a lease is valid longer than it states: its renewal may take that long."""

UNREADABLE_MS = 3_600_000
"""ms that an unreadable lease is valid."""

DAMAGED, NEWER = "damaged", "newer"
"""Why a lease cannot be read. One of a newer version is kept: that version knows how long it is valid."""

_READER = re.compile(re.escape(READERS) + r"[A-Za-z0-9_-]{1,64}")
"""The key of a reader lease, as opposed to a stray file beside them."""


class ReaderLeaseFile(msgspec.Struct, frozen=True):
    """The stored lease: keeps files that were part of the log at ``version``, for ``ttl_ms`` after it was written.

    ``until_ms`` is its end by the reader's own clock; leases of earlier versions of sparklog have no ``ttl_ms``.
    """

    version: int
    until_ms: int
    ttl_ms: int = 0
    format: int = FORMAT


class StoredReaderLease(NamedTuple):
    """A listed lease: its key, version and end by the storage's clock."""

    key: str
    version: int
    until_ms: int


class ReaderLease(NamedTuple):
    """A reader's own lease; it can be sent to the tasks that read for it, and any of them may renew it.

    ``ttl_ms`` is its duration, ``until_ms`` its end as far as this process knows.
    """

    reader_id: str
    version: int
    ttl_ms: int
    until_ms: int = 0

    @property
    def key(self) -> str:
        return READERS + self.reader_id

    def is_due(self, now_ms: int) -> bool:
        """Return whether to renew it: less than half of its time is left, or more than all of it, as by the clock of
        another machine, or one that was set since."""
        return not self.ttl_ms / 2 <= self.until_ms - now_ms <= self.ttl_ms

    def renewed(self, store: Store, clock: Clock) -> ReaderLease:
        """Store it for its whole duration from now, and return the renewed lease. Raises StorageError."""
        renewed_lease = self._replace(until_ms=clock.now_ms() + self.ttl_ms)
        store.put(self.key, msgspec.json.encode(ReaderLeaseFile(self.version, renewed_lease.until_ms, self.ttl_ms)))
        return renewed_lease

    def kept(self, store: Store, clock: Clock) -> ReaderLease:
        """Return the lease, renewed if that is due and no other task has done it. Raises StorageError."""
        if not self.is_due(clock.now_ms()):
            return self
        stored = read_reader_lease(store, self.key)
        if stored is not None and stored.version <= self.version:
            current = self._replace(until_ms=stored.until_ms)
            if not current.is_due(clock.now_ms()):
                return current
        return self.renewed(store, clock)

    def close(self, store: Store) -> None:
        """Delete the lease. Raises StorageError."""
        store.delete(self.key)


def read_reader_lease(store: Store, key: str) -> ReaderLeaseFile | None:
    """Return the lease stored under a key, None if there is none. Raises StorageError, CorruptMetadataError,
    UnsupportedVersionError."""
    return read_json(store, key, ReaderLeaseFile, "delete it", MAX_READER_LEASE_BYTES)


def ends_ms(info: ObjectInfo, lease: ReaderLeaseFile) -> int:
    """Return when a lease ends in ms: by the storage's clock if it stamps objects, else by the reader's."""
    if lease.ttl_ms and info.modified_ms > 0:
        return info.modified_ms + lease.ttl_ms + CLOCK_SLACK_MS
    return lease.until_ms + CLOCK_SLACK_MS


class StoredReaderLeases(NamedTuple):
    """The valid leases and the expired ones."""

    valid: list[StoredReaderLease]
    expired: list[StoredReaderLease]


def read_reader_leases(store: Store, now_ms: int) -> StoredReaderLeases:
    """Read all leases, in parallel, and sort them by validity at this time, which is ``ExpiryClock``. Raises
    StorageError.

    An unreadable lease is valid for ``UNREADABLE_MS``: a reader may depend on it nevertheless.
    """
    infos = list(store.list(READERS))
    leases = map_parallel(partial(_read_listed, store), infos, max(store.parallel_requests, 1))
    result = StoredReaderLeases([], [])
    for info, lease in zip(infos, leases, strict=True):
        if isinstance(lease, ReaderLeaseFile):
            until_ms = ends_ms(info, lease)
            (result.valid if until_ms >= now_ms else result.expired).append(
                StoredReaderLease(info.key, lease.version, until_ms)
            )
        elif lease is not None:
            until_ms = info.modified_ms + UNREADABLE_MS
            if until_ms >= now_ms:
                result.valid.append(StoredReaderLease(info.key, -1, info.modified_ms))
            elif lease is DAMAGED and info.modified_ms > 0 and _READER.fullmatch(info.key):
                result.expired.append(StoredReaderLease(info.key, -1, until_ms))
    return result


def _read_listed(store: Store, info: ObjectInfo) -> ReaderLeaseFile | str | None:
    """Return a lease, or why it cannot be read; None if it was deleted."""
    try:
        return read_reader_lease(store, info.key)
    except UnsupportedVersionError:
        return NEWER
    except CorruptMetadataError:
        return DAMAGED


# -- one lease for all reads of a process

_shared: ProcessTable[tuple[str, int], ReaderLease] = ProcessTable()
"""By root and duration."""


def take_reader_lease(coordinator: Coordinator, version: int, ttl_ms: int) -> ReaderLease | None:
    """Return the lease that a read planned at ``version`` has to keep alive; None if it cannot be stored.

    Stored only if no lease of this process covers the read for at least half of its duration. It is left to expire,
    since nothing tells when the last task of a read has ended.
    """
    store, clock = coordinator.store, coordinator.log.clock
    key = (store.root, ttl_ms)
    with _shared.held:
        leases = _shared.entries
        lease = leases.get(key)
        if lease is None or lease.version > version or lease.is_due(clock.now_ms()):
            lease = leases[key] = _store_new_lease(coordinator, version, ttl_ms)
        return lease if lease.reader_id else None


def _store_new_lease(coordinator: Coordinator, version: int, ttl_ms: int) -> ReaderLease:
    """Store and return a new lease; if that fails, return one without an id, whose end says when to retry."""
    store, clock = coordinator.store, coordinator.log.clock
    try:
        return ReaderLease(coordinator.log.ids.write_id(), version, ttl_ms).renewed(store, clock)
    except SparklogError as error:
        logger.info("could not store a reader lease in %s at version %d: %s", store.root, version, error)
        return ReaderLease("", version, ttl_ms, clock.now_ms() + ttl_ms)
