"""The objects that say which root owns a storage location.

    <location>/owners/<20 digits>-<20 digits>.json   epoch and version: an owner record; the highest name counts
    <root>/meta/root.json                            {"format":3,"epoch":1}: absent in a root that was never promoted
    <mirror>/meta/source-root.json                   the meta/root.json of the root that is mirrored; absent as there
    <root>/leases/owners/<broker>                    the owner record that this root wrote last at a location

    owners/00000000000000000000-00000000000000000042.json
    {"format":3,"cluster_id":"…","broker":1,"epoch":0,"version":42,"digest":"5b1f…","root":"/data/log"}

Rules: an owner record is written once under its name, so a process that was stopped cannot overwrite that of a later
epoch; older ones are deleted after a newer one was written. A promoted root has records in the folder of the old root,
too. Not for: what follows from them (``protocol.decide.ownership``).
"""

from __future__ import annotations

import os
import re

import msgspec

from sparklog import limits
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.log.creation import create_object
from sparklog.log.parallel import map_parallel
from sparklog.log.stored_json import decode_json, read_json
from sparklog.protocol.decide.ownership import OwnerRecord, RootIdentity
from sparklog.store.base import Store

OWNERS = "owners/"
ROOT_KEY = "meta/root.json"
SOURCE_ROOT_KEY = "meta/source-root.json"
"""Another name: a mirroring that is suspended while the mirror is promoted must not set the new root's epoch back."""
FORMAT = 3
"""The level that introduced these objects."""

_RECORD = re.compile(re.escape(OWNERS) + r"([0-9]{20})-([0-9]{20})\.json")
_REMEDY = "delete it, and let the root that owns the location take it over (sparklog brokers take-over)"


class StoredOwner(msgspec.Struct, frozen=True):
    """An owner record as it is stored, with the cluster and broker of its location."""

    format: int
    cluster_id: str
    broker: int
    epoch: int
    version: int
    digest: str
    root: str

    @property
    def record(self) -> OwnerRecord:
        return OwnerRecord(self.epoch, self.version, self.digest, self.root)


class RootFile(msgspec.Struct, frozen=True):
    """meta/root.json."""

    format: int
    epoch: int


def address_of(root: Store) -> str:
    """Return the address of a root, the same for all links to a local folder."""
    return os.path.realpath(root.root) if root.is_local else root.root


def read_root(root: Store) -> RootIdentity:
    """Return address and epoch of a root. Raises CorruptMetadataError, UnsupportedVersionError, StorageError."""
    stored = read_json(root, ROOT_KEY, RootFile, "let the root take its locations over (sparklog brokers take-over)")
    return RootIdentity(address_of(root), 0 if stored is None else stored.epoch)


def mirror_epoch(root: Store, mirror: Store) -> None:
    """Store the epoch of a root at its mirror, unless a higher one is there. Raises StorageError,
    CorruptMetadataError."""
    epoch = read_root(root).epoch
    if epoch > read_source_epoch(mirror):
        mirror.put(SOURCE_ROOT_KEY, msgspec.json.encode(RootFile(FORMAT, epoch)) + b"\n")


def read_source_epoch(mirror: Store) -> int:
    """Return the epoch that the root of a mirror had; 0 if none was mirrored. Raises as ``read_root``."""
    stored = read_json(mirror, SOURCE_ROOT_KEY, RootFile, "delete it, and mirror the root again")
    return 0 if stored is None else stored.epoch


def write_epoch(root: Store, epoch: int) -> None:
    """Store the epoch of a root. Raises StorageError."""
    root.put(ROOT_KEY, msgspec.json.encode(RootFile(FORMAT, epoch)) + b"\n")


def record_key(record: OwnerRecord) -> str:
    return f"{OWNERS}{record.epoch:020d}-{record.version:020d}.json"


def note_key(broker: int) -> str:
    """Return the key below the root of the owner record that it wrote last at a broker."""
    return f"leases/owners/{broker}"


def read_owner(store: Store, cluster_id: str) -> OwnerRecord | None:
    """Return the owner record of a location that counts, None if it has none of this cluster.

    Raises CorruptMetadataError, UnsupportedVersionError, StorageError.
    """
    for key in sorted(_record_keys(store), reverse=True):
        try:
            data = store.get(key, limits.MAX_CLUSTER_FILE_BYTES)
        except ObjectNotFoundError:  # replaced by a newer one since
            return read_owner(store, cluster_id)
        stored = decode_json(f"{store.root}/{key}", data, StoredOwner, _REMEDY)
        if stored.cluster_id == cluster_id:  # else a former cluster's
            return stored.record
    return None


def read_note(root: Store, broker: int) -> OwnerRecord | None:
    """Return the owner record that a root wrote last at a location; a damaged note counts as none. Raises
    StorageError."""
    try:
        data = root.get(note_key(broker), limits.MAX_CLUSTER_FILE_BYTES)
        return msgspec.json.decode(data, type=StoredOwner).record
    except (ObjectNotFoundError, CorruptMetadataError, msgspec.MsgspecError, RecursionError):
        return None


def write_owner(store: Store, root: Store, cluster_id: str, broker: int, record: OwnerRecord) -> bool:
    """Write an owner record at a location, after the note of it at the root, and delete older records; return whether
    it is there. False if another one has its name. Raises StorageError."""
    stored = StoredOwner(FORMAT, cluster_id, broker, record.epoch, record.version, record.digest, record.root)
    data = msgspec.json.encode(stored) + b"\n"
    key = record_key(record)
    root.put(note_key(broker), data)  # first: a root that has a record without a note is taken for a restored one
    if create_object(store, key, data, limits.MAX_CLUSTER_FILE_BYTES) != data:
        return False
    map_parallel(store.delete, [other for other in _record_keys(store) if other < key], store.parallel_requests)
    return True


def remove_owners(store: Store) -> None:
    """Delete all owner records of a location that is no broker's any more. Raises StorageError."""
    map_parallel(store.delete, _record_keys(store), store.parallel_requests)


def _record_keys(store: Store) -> list[str]:
    return [info.key for info in store.list(OWNERS) if _RECORD.fullmatch(info.key)]
