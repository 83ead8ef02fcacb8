"""Reads the small JSON objects of a cluster: with a bound on their size, their format first, and a remedy in the error.

Not for: commits and checkpoints, whose bytes have digests.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from sparklog import limits
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.protocol import levels
from sparklog.store.base import Store

Content = TypeVar("Content")


def read_json(
    store: Store, key: str, kind: type[Content], remedy: str, max_bytes: int = limits.MAX_CLUSTER_FILE_BYTES
) -> Content | None:
    """Return the object under a key, None if it does not exist. Raises as ``decode_json``, and StorageError."""
    try:
        data = store.get(key, max_bytes)
    except ObjectNotFoundError:
        return None
    return decode_json(f"{store.root}/{key}", data, kind, remedy)


def decode_json(path: str, data: bytes, kind: type[Content], remedy: str) -> Content:
    """Return the content of the object at a path. ``remedy`` tells what to do if it is damaged.

    Raises UnsupportedVersionError if its format is newer, CorruptMetadataError.
    """
    try:
        levels.check_format(path, data)
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptMetadataError(f"{path} cannot be read: {error}; {remedy}", path=path) from error
