"""What lies at the root of each storage location: who it is, and when it was checked last.

    broker.json          {"format":1,"cluster_id":"…","broker":1}     written once, when the location is registered
    broker-check.json    {"controller_epoch":3,"check":17,"time_ms":…}  overwritten by every check of the location

The check is noted below the cluster's root as well, in ``leases/brokers/<id>``, after it was stored at the location. So
a location whose check is older than the note has gone back in time: an older copy was put in its place.

Rules: as with leases, what these files say decides nothing. What follows from it is a commit.
"""

from __future__ import annotations

import msgspec

from sparklog import limits
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.protocol import levels
from sparklog.store.base import Store
from sparklog.store.location import IDENTITY_KEY

CHECK_KEY = "broker-check.json"
FORMAT = 1


class Identity(msgspec.Struct, frozen=True):
    """broker.json: which broker of which cluster a location is."""

    format: int
    cluster_id: str
    broker: int


class LatestCheck(msgspec.Struct, frozen=True, order=True):
    """A check of a location. The later of two has the higher controller epoch, or the higher number in the same."""

    controller_epoch: int
    check: int
    time_ms: int = 0


NEVER_CHECKED = LatestCheck(0, 0)


def note_key(broker: int) -> str:
    """Where below the cluster's root the latest check of a location is noted."""
    return f"leases/brokers/{broker}"


def read_identity(store: Store) -> Identity | None:
    """Who a location is, None where it has no broker.json. Raises CorruptMetadataError, UnsupportedVersionError,
    StorageError."""
    try:
        data = store.get(IDENTITY_KEY, limits.MAX_CLUSTER_FILE_BYTES)
    except ObjectNotFoundError:
        return None
    path = f"{store.root}/{IDENTITY_KEY}"
    try:
        levels.check_format(path, data)
        return msgspec.json.decode(data, type=Identity)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptMetadataError(
            f"{path} cannot be read: {error}; if the location is the right one, delete this file and register it again",
            path=path,
        ) from error


def encode_identity(cluster_id: str, broker: int) -> bytes:
    return msgspec.json.encode(Identity(FORMAT, cluster_id, broker)) + b"\n"


def read_check(store: Store, key: str) -> LatestCheck:
    """A check as it is stored; one that is missing or damaged counts as the oldest. Raises StorageError."""
    try:
        return msgspec.json.decode(store.get(key, limits.MAX_CLUSTER_FILE_BYTES), type=LatestCheck)
    except (ObjectNotFoundError, CorruptMetadataError, msgspec.MsgspecError, RecursionError):
        return NEVER_CHECKED


def write_check(store: Store, key: str, check: LatestCheck) -> None:
    """Raises StorageError."""
    store.put(key, msgspec.json.encode(check))
