"""The reserve of a root on a disk: some space that is kept, so that a full disk can be freed.

    meta/reserve          bytes without a meaning
    meta/reserve-1, …     a byte each: an inode

What frees space needs some first: ``delete-records``, the deletion of a topic, a shorter ``retention.ms`` and retention
are commits. So a root on a file system keeps ``limits.RESERVE_FILES`` files: bytes, and as many inodes, which may run
out before. If the disk is full, these operations delete them, and try again; the cleanup of the maintenance puts them
back.

Rules: best effort; nothing depends on the files, and they may be deleted at any time. Producers, jobs that write data,
and commands that free nothing never release it: they would only take what an operator needs. A bucket has none: what is
full there is a quota.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from sparklog import limits
from sparklog.errors import StorageError, StorageFullError
from sparklog.log.layout import RESERVE_KEY, exists
from sparklog.store.base import Store

Result = TypeVar("Result")


def reserve_keys() -> list[str]:
    """Return the keys of the files of the reserve."""
    return [RESERVE_KEY, *(f"{RESERVE_KEY}-{number}" for number in range(1, limits.RESERVE_FILES))]


def keep_reserve(store: Store) -> None:
    """Store what the reserve lacks if the root is on a file system. Best effort."""
    if not store.is_local:
        return
    with suppress(StorageError):  # such as a full disk, or a root that others may only read
        for key in reserve_keys():
            if not exists(store, key):
                size = limits.RESERVE_BYTES if key == RESERVE_KEY else 1
                store.put(key, hashlib.shake_256(b"sparklog").digest(size))  # not compressible


def release_reserve(store: Store) -> bool:
    """Delete the reserve; return whether there was one. Raises StorageError."""
    kept = [key for key in reserve_keys() if exists(store, key)] if store.is_local else []
    for key in kept:
        store.delete(key)
    return bool(kept)


def with_reserve(store: Store, work: Callable[[], Result]) -> Result:
    """Return the result of ``work``, which frees space. If the storage is full it is called again, without the reserve.

    Errors as ``work``, which must leave nothing half done if it raises StorageFullError.
    """
    try:
        return work()
    except StorageFullError:
        if not release_reserve(store):
            raise
        return work()
