"""The objects that say which root owns a storage location.

    <location>/owners/<20 digits>-<20 digits>.json   epoch and version: an owner record; the highest name counts
    <root>/meta/epochs/<20 digits>.json              {"format":3,"epoch":1}: the highest name is the root's epoch; none
                                                     in a root that was never promoted and never took over
    <root>/meta/former-roots/<20 digits>             the address of the root that this one replaced when it got that
                                                     epoch, until that root is closed; also those that this one had
    <mirror>/meta/source-epochs/<20 digits>.json     the epoch of the root that is mirrored; none as there
    <root>/leases/owners/<broker>                    the owner record that this root wrote last at a location
    <root>/leases/epochs/<20 digits>                 the address at which the root got this epoch

    owners/00000000000000000000-00000000000000000042.json
    {"format":3,"cluster_id":"…","broker":1,"epoch":0,"version":42,"digest":"5b1f…","root":"/data/log"}

Rules: an owner record and an epoch are written once under their names, so a process that was stopped cannot overwrite
those of a later epoch; older records are deleted after a newer one was written. A promoted root has records in the
folder of the old root, too. Not for: what follows from them (``protocol.decide.ownership``).
"""

from __future__ import annotations

import os
import re
from contextlib import suppress

import msgspec

from sparklog import limits
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.log.creation import create_object
from sparklog.log.parallel import map_parallel
from sparklog.log.stored_json import decode_json
from sparklog.protocol.decide.ownership import OwnerRecord, RootIdentity
from sparklog.store.base import Store

OWNERS = "owners/"
NOTES = "leases/owners/"
EPOCH_NOTES = "leases/epochs/"
EPOCHS = "meta/epochs/"
FORMER_ROOTS = "meta/former-roots/"
SOURCE_EPOCHS = "meta/source-epochs/"
"""Another folder: the epoch of the root that a mirror copies is not that of the mirror, once it is promoted."""
FORMAT = 3
"""The level that introduced these objects."""

_RECORD = re.compile(re.escape(OWNERS) + r"([0-9]{20})-([0-9]{20})\.json")
_EPOCH = re.compile(r"([0-9]{20})\.json")
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


class EpochFile(msgspec.Struct, frozen=True):
    """An epoch as it is stored. Its name counts; the content is for people."""

    format: int
    epoch: int


def address_of(root: Store) -> str:
    """Return the address of a root, the same for all links to a local folder."""
    return os.path.realpath(root.root) if root.is_local else root.root


def is_same_root(root: Store, other: Store) -> bool:
    """Return whether two addresses lead to the same root, also by two mount paths of a local folder."""
    if address_of(root) == address_of(other):
        return True
    try:
        return root.is_local and other.is_local and os.path.samefile(root.root, other.root)
    except OSError:
        return False


def read_root(root: Store) -> RootIdentity:
    """Return address and epoch of a root. Raises StorageError."""
    return RootIdentity(address_of(root), _read_epoch(root, EPOCHS))


def write_epoch(root: Store, epoch: int) -> None:
    """Store the epoch of a root, after a note of it; without effect if it has a higher one. Raises StorageError."""
    address = address_of(root).encode()
    create_object(root, f"{EPOCH_NOTES}{epoch:020d}", address, limits.MAX_CLUSTER_FILE_BYTES)
    _write_epoch(root, EPOCHS, epoch)


def mirror_epoch(root: Store, mirror: Store) -> None:
    """Store the epoch of a root at its mirror, unless that or a higher one is there, and the former roots that are to
    be closed. Raises StorageError."""
    epoch = read_root(root).epoch
    if epoch > read_source_epoch(mirror):
        _write_epoch(mirror, SOURCE_EPOCHS, epoch)
    for key, address in read_former_roots(root).items():
        create_object(mirror, key, address.encode(), limits.MAX_CLUSTER_FILE_BYTES)


def note_former_root(root: Store, address: str) -> None:
    """Note that a root replaces another one, which it is to close, in its present epoch. Raises StorageError."""
    key = f"{FORMER_ROOTS}{_read_epoch(root, EPOCHS):020d}"
    create_object(root, key, address.encode(), limits.MAX_CLUSTER_FILE_BYTES)


def read_former_roots(root: Store) -> dict[str, str]:
    """Return the addresses of the roots that a root replaced and that may not be closed yet, by the key of the note,
    which is deleted once they are. Raises StorageError."""
    notes: dict[str, str] = {}
    for info in root.list(FORMER_ROOTS):
        with suppress(ObjectNotFoundError):  # closed meanwhile
            notes[info.key] = root.get(info.key, limits.MAX_CLUSTER_FILE_BYTES).decode(errors="replace")
    return notes


def read_source_epoch(mirror: Store) -> int:
    """Return the epoch that the root of a mirror had; 0 if none was mirrored. Raises StorageError."""
    return _read_epoch(mirror, SOURCE_EPOCHS)


def _read_epoch(store: Store, folder: str) -> int:
    names = (_EPOCH.fullmatch(info.key.removeprefix(folder)) for info in store.list(folder))
    return max((int(name.group(1)) for name in names if name), default=0)


def _write_epoch(store: Store, folder: str, epoch: int) -> None:
    """Create an epoch. Those before it stay: they are few, and a name is not used again."""
    data = msgspec.json.encode(EpochFile(FORMAT, epoch)) + b"\n"
    create_object(store, f"{folder}{epoch:020d}.json", data, limits.MAX_CLUSTER_FILE_BYTES)


def record_key(record: OwnerRecord) -> str:
    return f"{OWNERS}{record.epoch:020d}-{record.version:020d}.json"


def note_key(broker: int) -> str:
    """Return the key below the root of the owner record that it wrote last at a broker."""
    return f"{NOTES}{broker}"


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


def has_noted_epoch(root: Store, own: RootIdentity) -> bool:
    """Return whether a root has noted that it got its epoch at its address: a copy has not. A root that got it from a
    version that did not note that has owner records of it. Raises StorageError."""
    key = f"{EPOCH_NOTES}{own.epoch:020d}"
    with suppress(ObjectNotFoundError, CorruptMetadataError):
        return root.get(key, limits.MAX_CLUSTER_FILE_BYTES).decode(errors="replace") == own.address
    return any((note.epoch, note.root) == (own.epoch, own.address) for note in _read_notes(root))


def _read_notes(root: Store) -> list[OwnerRecord]:
    names = [info.key.removeprefix(NOTES) for info in root.list(NOTES)]
    notes = (read_note(root, int(name)) for name in names if name.isdecimal())
    return [note for note in notes if note is not None]


def write_owner(store: Store, root: Store, cluster_id: str, broker: int, record: OwnerRecord) -> OwnerRecord | None:
    """Write an owner record at a location, after the note of it at the root, and delete older records; return the one
    that counts then: another root may have written a higher one, or one of this name, since this root looked.

    None if a new registration has deleted them all. Raises CorruptMetadataError, StorageError."""
    data, key = _encode(cluster_id, broker, record), record_key(record)
    root.put(note_key(broker), data)  # first: a root that has a record without a note is taken for a restored one
    if create_object(store, key, data, limits.MAX_CLUSTER_FILE_BYTES) != data:
        return read_owner(store, cluster_id)
    keys = _record_keys(store)
    map_parallel(store.delete, [other for other in keys if other < key], store.parallel_requests)
    if max(keys, default=key) == key:
        return record
    _note_later_epoch(store, root, cluster_id, broker, record)
    return read_owner(store, cluster_id)


def _note_later_epoch(store: Store, root: Store, cluster_id: str, broker: int, late: OwnerRecord) -> None:
    """Note again the record of a later epoch of the same root: a note is overwritten, so a process that was suspended
    has replaced it by that of its own epoch."""
    newest = read_owner(store, cluster_id)
    if newest is not None and newest.root == late.root and late.epoch < newest.epoch == read_root(root).epoch:
        root.put(note_key(broker), _encode(cluster_id, broker, newest))


def _encode(cluster_id: str, broker: int, record: OwnerRecord) -> bytes:
    stored = StoredOwner(FORMAT, cluster_id, broker, record.epoch, record.version, record.digest, record.root)
    return msgspec.json.encode(stored) + b"\n"


def remove_owners(store: Store) -> None:
    """Delete all owner records of a location that is no broker's any more. Raises StorageError."""
    map_parallel(store.delete, _record_keys(store), store.parallel_requests)


def _record_keys(store: Store) -> list[str]:
    return [info.key for info in store.list(OWNERS) if _RECORD.fullmatch(info.key)]
