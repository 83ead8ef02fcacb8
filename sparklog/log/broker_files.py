"""What lies at the root of each storage location: who it is, and when it was checked last.

    broker.json          {"format":1,"cluster_id":"…","broker":1}     written once, when the location is registered
    broker-check.json    {"controller_epoch":3,"check":17,"time_ms":…}  overwritten by every check of the location

Where a location may be is said below the cluster's root, outside of ``meta/``, so that a policy can let the root's
owner alone write it (see ``store.location.may_contact``)::

    locations.json       {"format":2,"allowed":["s3://other-bucket/logs"]}

The check is noted below the cluster's root as well, in ``leases/brokers/<id>``, after it was stored at the location. So
a location whose check is older than the note has gone back in time: an older copy was put in its place.

Rules: as with leases, what these files say decides nothing. What follows from it is a commit.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

import msgspec

from sparklog import limits
from sparklog.errors import CorruptMetadataError, InvalidRequestError, ObjectNotFoundError, StoragePermissionError
from sparklog.ids import Ids
from sparklog.protocol import levels
from sparklog.store.base import Store
from sparklog.store.location import IDENTITY_KEY, is_local, may_contact, read_owned, write_owned
from sparklog.types import printable

CHECK_KEY = "broker-check.json"
LOCATIONS_KEY = "locations.json"
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


# -- where locations may be


class AllowedLocations(msgspec.Struct, frozen=True):
    """locations.json: addresses below which brokers may be, besides those of the root's own bucket or server."""

    format: int = levels.CURRENT
    allowed: tuple[str, ...] = ()


def read_allowed(root: Store) -> tuple[str, ...]:
    """The addresses that the root's owner allowed. Raises StoragePermissionError where the file is another user's,
    CorruptMetadataError, UnsupportedVersionError, StorageError."""
    path = f"{root.root}/{LOCATIONS_KEY}"
    try:
        data = read_owned(root, LOCATIONS_KEY, limits.MAX_LOCATIONS_FILE_BYTES)
        levels.check_format(path, data)
        return msgspec.json.decode(data, type=AllowedLocations).allowed
    except ObjectNotFoundError:
        return ()
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptMetadataError(
            f"{path} cannot be read: {error}; delete it and allow the locations again", path=path
        ) from error


def write_allowed(root: Store, allowed: Iterable[str], ids: Ids) -> None:
    """Overwrite what is allowed; two that do so at the same time may lose one's change. Raises StorageError."""
    data = msgspec.json.encode(AllowedLocations(allowed=tuple(sorted(set(allowed))))) + b"\n"
    if len(data) > limits.MAX_LOCATIONS_FILE_BYTES:
        raise InvalidRequestError(
            f"{root.root}/{LOCATIONS_KEY} would have {len(data)} bytes, over the limit of "
            f"{limits.MAX_LOCATIONS_FILE_BYTES}: allow a folder above several locations instead"
        )
    write_owned(root, LOCATIONS_KEY, data, ids)


def allow_location(root: Store, url: str, ids: Ids) -> bool:
    """Let clients of this root contact a location; returns whether that is a change. Raises StorageError, of which
    StoragePermissionError says that only the root's owner can."""
    if may_contact(url, root.root, ()):
        return False
    try:
        allowed = _allowed_before(root)
        if may_contact(url, root.root, allowed):
            return False
        write_allowed(root, [*allowed, url], ids)
    except StoragePermissionError as error:
        raise StoragePermissionError(
            f"{_shown(url)} is elsewhere than the root {root.root}, and only the root's owner can allow that: "
            f"{error.message}. Nothing was changed; {_what_to_run(root, url)}",
            path=url,
        ) from error
    return True


def _allowed_before(root: Store) -> tuple[str, ...]:
    """What is allowed already; nothing where another user put a file there, which the owner's takes the place of."""
    try:
        return read_allowed(root)
    except StoragePermissionError:
        if not is_local(root.root):
            raise
        return ()


def disallow_location(root: Store, url: str, ids: Ids) -> bool:
    """Take an address off the list; returns whether it was on it. Errors as ``allow_location``."""
    allowed = read_allowed(root)
    if url not in allowed:
        return False
    write_allowed(root, [other for other in allowed if other != url], ids)
    return True


def check_contact(root: Store, broker: int, url: str) -> None:
    """Refuse an address of the commit log that the root's owner has not allowed.

    Raises StoragePermissionError, StorageError, UnsupportedStoreError, CorruptMetadataError.
    """
    if may_contact(url, root.root, ()):
        return
    why = ""
    try:
        if may_contact(url, root.root, read_allowed(root)):
            return
    except StoragePermissionError as error:
        why = f" ({error.message})"
    raise StoragePermissionError(
        f"broker {broker} is at {_shown(url)}, which is not contacted: the owner of the root {root.root} has not "
        f"allowed it{why}. Where it is meant to be there, {_what_to_run(root, url)}",
        path=url,
        broker=broker,
    )


def _what_to_run(root: Store, url: str) -> str:
    where, place = shlex.quote(root.root), shlex.quote(_shown(url))  # another user chose it: it is not to run anything
    command = f"sparklog brokers allow --bootstrap-server {where} --location {place}"
    return f"the owner of the root runs `{command}`"


def _shown(url: str) -> str:
    return re.sub(r"://[^/@]*:[^/@]*@", "://", printable(url))
