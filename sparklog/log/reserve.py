"""The reserve of a root on a disk: some space that is kept, so that a full disk can be freed.

    meta/reserve      bytes without a meaning

What frees space needs some first: ``delete-records``, the deletion of a topic, a shorter ``retention.ms`` and retention
are commits. So a root on a file system keeps a file of ``limits.RESERVE_BYTES``. If the disk is full, these operations
delete it, and try again; the cleanup of the maintenance puts it back.

Rules: best effort; nothing depends on the file, and it may be deleted at any time. Producers, jobs that write data, and
commands that free nothing never release it: they would only take what an operator needs. A bucket has none: what is
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


def keep_reserve(store: Store) -> None:
    """Store the reserve if the root is on a file system and has none. Best effort."""
    if not store.is_local:
        return
    with suppress(StorageError):  # such as a full disk, or a root that others may only read
        if not exists(store, RESERVE_KEY):
            store.put(RESERVE_KEY, hashlib.shake_256(b"sparklog").digest(limits.RESERVE_BYTES))  # not compressible


def release_reserve(store: Store) -> bool:
    """Delete the reserve; return whether there was one. Raises StorageError."""
    if not store.is_local or not exists(store, RESERVE_KEY):
        return False
    store.delete(RESERVE_KEY)
    return True


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
