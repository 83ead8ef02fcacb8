"""Creates an object that is written once, such as ``cluster.json``, and reads back the outcome.

Such an object identifies a location; writers of the same bytes are equivalent. So after a create only the stored object
counts, whatever the response was: a client that retries internally may get "exists" because of its own first request,
or any error after a request that took effect.

Not for: commits, which carry a write id (``commit_log``).
"""

from __future__ import annotations

from sparklog.errors import ObjectNotFoundError, StorageError
from sparklog.store.base import Store


def create_object(store: Store, key: str, data: bytes, max_bytes: int) -> bytes:
    """Create an object unless it exists, and return the stored bytes: ``data``, or those there before.

    Raises StorageError if the outcome is unknown: ``data`` may be stored, now or a moment later. Retry then.
    """
    try:
        store.put_if_absent(key, data)
    except StorageError as error:
        return read_created(store, key, error, max_bytes)
    return data


def read_created(store: Store, key: str, error: StorageError, max_bytes: int) -> bytes:
    """Return the bytes stored under a key whose create raised ``error``; raises that if the outcome is unknown."""
    if error.nothing_written:
        raise error
    try:
        return store.get(key, max_bytes)
    except ObjectNotFoundError:
        raise error from None
