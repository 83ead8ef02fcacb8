"""Creating an object that is written once, such as ``cluster.json``, with its outcome read back.

Such an object says who a location is; whoever writes the same bytes is as right as who wrote them first. So what counts
after a create is what is stored, whatever the answer was: a client that repeats a request by itself is told "exists" by
its own first one, or an error of any kind after one that was stored.

Not for: commits, which carry a write id (``commit_log``).
"""

from __future__ import annotations

from sparklog.errors import ObjectNotFoundError, StorageError
from sparklog.store.base import Store


def create_object(store: Store, key: str, data: bytes, max_bytes: int) -> bytes:
    """Create an object unless there is one, and return what is stored: ``data``, or what was there before.

    Raises StorageError where that cannot be told; it may be stored then, now or a moment later. Do it again.
    """
    try:
        store.put_if_absent(key, data)
    except StorageError as error:
        return read_created(store, key, error, max_bytes)
    return data


def read_created(store: Store, key: str, error: StorageError, max_bytes: int) -> bytes:
    """What is stored under a key whose create ended with ``error``; raises that where it cannot be told."""
    if error.nothing_written:
        raise error
    try:
        return store.get(key, max_bytes)
    except ObjectNotFoundError:
        raise error from None
