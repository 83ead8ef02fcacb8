"""Files at the root of each storage location: its identity and its latest check.

    broker.json          {"format":1,"cluster_id":"…","broker":1}     written once, when the location is registered
    broker-check.json    {"controller_epoch":3,"check":17,"time_ms":…,"root_epoch":1}
                                                                      overwritten by every check of the location

The allowed locations are stored below the cluster's root, outside of ``meta/``, so that a policy can reserve the file
for the root's owner (see ``store.location.may_contact``)::

    locations.json       {"format":2,"allowed":["s3://other-bucket/logs"]}

The check is also stored below the cluster's root, in ``leases/brokers/<id>-<20 digits>``, after it was stored at the
location. So a location whose own check is older has gone back in time: it was replaced by an older copy. The name has
the controller epoch, and the latest check counts: a controller of an older epoch that was suspended overwrites nothing.

Rules: like leases, these files decide nothing. Consequences are commits.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

import msgspec

from sparklog import limits
from sparklog.errors import CorruptMetadataError, InvalidRequestError, ObjectNotFoundError, StoragePermissionError
from sparklog.ids import Ids
from sparklog.log.stored_json import decode_json, read_json
from sparklog.store.base import Store
from sparklog.store.location import IDENTITY_KEY, may_contact, read_owned, write_owned
from sparklog.types import printable

CHECK_KEY = "broker-check.json"
NOTES = "leases/brokers/"
LOCATIONS_KEY = "locations.json"
FORMAT = 1
LOCATIONS_FORMAT = 2


class Identity(msgspec.Struct, frozen=True):
    """broker.json: which broker of which cluster a location is."""

    format: int
    cluster_id: str
    broker: int


class LatestCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """A check of a location, ordered by the epochs of root and controller and its number: a root that was restored
    elects controllers of epochs that there were before."""

    controller_epoch: int
    check: int
    time_ms: int = 0
    root_epoch: int = 0

    def __lt__(self, other: LatestCheck) -> bool:
        return self._order() < other._order()

    def _order(self) -> tuple[int, int, int, int]:
        return self.root_epoch, self.controller_epoch, self.check, self.time_ms


NEVER_CHECKED = LatestCheck(0, 0)


def note_key(broker: int, epoch: int) -> str:
    """Return the key below the cluster's root of the latest check of a location by the controller of an epoch."""
    return f"{NOTES}{broker}-{epoch:020d}"


def note_keys(root: Store, broker: int) -> list[str]:
    """Return the keys of all notes of a location's checks. Raises StorageError."""
    name = re.compile(rf"{re.escape(NOTES)}{broker}(-[0-9]{{20}})?")  # without the epoch before 0.3.0
    return [info.key for info in root.list(NOTES) if name.fullmatch(info.key)]


def read_note(root: Store, broker: int, epoch: int = 0) -> LatestCheck:
    """Return the latest check of a location as noted at the root. If the controller of this ``epoch`` has noted one,
    that is it, which costs one read. Raises StorageError."""
    own = read_check(root, note_key(broker, epoch)) if epoch else NEVER_CHECKED
    if own != NEVER_CHECKED:
        return own
    return max((read_check(root, key) for key in note_keys(root, broker)), default=NEVER_CHECKED)


def write_note(root: Store, broker: int, check: LatestCheck, is_first: bool = False, for_older: bool = False) -> None:
    """Note a check of a location at the root, and delete those of older controllers if it ``is_first`` of this one.
    ``for_older``: also under the one name that controllers of 0.2.0 read. Raises StorageError."""
    key, older = note_key(broker, check.controller_epoch), f"{NOTES}{broker}"
    write_check(root, key, check)
    if for_older:
        write_check(root, older, check)
    if is_first:
        for other in note_keys(root, broker):
            if other < key and not (for_older and other == older):
                root.delete(other)


def read_identity(store: Store) -> Identity | None:
    """Return a location's identity, None if it has no broker.json. Raises CorruptMetadataError,
    UnsupportedVersionError, StorageError."""
    remedy = "if this is the right location, delete the file and register it again"
    return read_json(store, IDENTITY_KEY, Identity, remedy)


def encode_identity(cluster_id: str, broker: int) -> bytes:
    return msgspec.json.encode(Identity(FORMAT, cluster_id, broker)) + b"\n"


def read_check(store: Store, key: str) -> LatestCheck:
    """Return a stored check; a missing or damaged one counts as the oldest. Raises StorageError."""
    try:
        return msgspec.json.decode(store.get(key, limits.MAX_CLUSTER_FILE_BYTES), type=LatestCheck)
    except (ObjectNotFoundError, CorruptMetadataError, msgspec.MsgspecError, RecursionError):
        return NEVER_CHECKED


def write_check(store: Store, key: str, check: LatestCheck) -> None:
    """Store a check. Raises StorageError."""
    store.put(key, msgspec.json.encode(check))


# -- allowed locations


class AllowedLocations(msgspec.Struct, frozen=True):
    """locations.json: prefixes of allowed locations, besides the root's own bucket or server."""

    format: int = LOCATIONS_FORMAT
    allowed: tuple[str, ...] = ()


def read_allowed(root: Store) -> tuple[str, ...]:
    """Return the addresses that the root's owner allowed. Raises StoragePermissionError if the file is another user's,
    CorruptMetadataError, UnsupportedVersionError, StorageError."""
    try:
        data = read_owned(root, LOCATIONS_KEY, limits.MAX_LOCATIONS_FILE_BYTES)
    except ObjectNotFoundError:
        return ()
    remedy = "delete it and allow the locations again"
    return decode_json(f"{root.root}/{LOCATIONS_KEY}", data, AllowedLocations, remedy).allowed


def write_allowed(root: Store, allowed: Iterable[str], ids: Ids) -> None:
    """Replace the allowed locations; of two concurrent calls one may be lost. Raises StorageError."""
    data = msgspec.json.encode(AllowedLocations(allowed=tuple(sorted(set(allowed))))) + b"\n"
    if len(data) > limits.MAX_LOCATIONS_FILE_BYTES:
        raise InvalidRequestError(
            f"{root.root}/{LOCATIONS_KEY} would have {len(data)} bytes, over the limit of "
            f"{limits.MAX_LOCATIONS_FILE_BYTES}: allow a folder above several locations instead"
        )
    write_owned(root, LOCATIONS_KEY, data, ids)


def allow_location(root: Store, url: str, ids: Ids) -> bool:
    """Let clients of this root contact a location; return whether that is a change. Raises StorageError, and
    StoragePermissionError if this process is not run by the root's owner."""
    if may_contact(url, root.root, ()):
        return False
    try:
        allowed = _read_allowed_or_none(root)
        if may_contact(url, root.root, allowed):
            return False
        write_allowed(root, [*allowed, url], ids)
    except StoragePermissionError as error:
        raise StoragePermissionError(
            f"{_shown(url)} is elsewhere than the root {root.root}, and only the root's owner can allow that: "
            f"{error.message}. Nothing was changed; {_allow_hint(root, url)}",
            path=url,
        ) from error
    return True


def _read_allowed_or_none(root: Store) -> tuple[str, ...]:
    """Return the allowed locations; none if another user wrote the file, which the owner's file replaces."""
    try:
        return read_allowed(root)
    except StoragePermissionError:
        if not root.is_local:
            raise
        return ()


def disallow_location(root: Store, url: str, ids: Ids) -> bool:
    """Remove an address from the list; return whether it was there. Raises as ``allow_location``."""
    allowed = read_allowed(root)
    if url not in allowed:
        return False
    write_allowed(root, [other for other in allowed if other != url], ids)
    return True


def check_contact(root: Store, broker: int, url: str) -> None:
    """Refuse an address from the commit log that the root's owner has not allowed.

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
        f"allowed it{why}. If the location is correct, {_allow_hint(root, url)}",
        path=url,
        broker=broker,
    )


def _allow_hint(root: Store, url: str) -> str:
    quoted_root, location = shlex.quote(root.root), shlex.quote(_shown(url))  # chosen by another user: no injection
    command = f"sparklog brokers allow --bootstrap-server {quoted_root} --location {location}"
    return f"the owner of the root runs `{command}`"


def _shown(url: str) -> str:
    return re.sub(r"://[^/@]*:[^/@]*@", "://", printable(url))
