"""Ends removals of surplus copies at remote storages, some time after their deletions were answered.

    leases/removals/<broker>-<20 digits>      {"broker":1,"url":"s3://b/1","version":42}: a removal that has deleted
                                              everything, by the version at which it began
    leases/removals/<broker>-begun-<id>       a removal that may be the one that has cordoned the broker; empty

A client of a remote storage sends a request again whose answer is lost, and the first one may be served after the
second one was answered: a DELETE would then hit a copy that was stored under the same name since. So the broker stays
cordoned until no such request can be on its way. Whoever finds a note that is old enough lifts that: the controller, or
the next vacuum.

Rules: a name is used once. A note decides nothing that ``protocol.decide.locations.end_removal`` does not check.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from functools import partial

import msgspec

from sparklog import limits
from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.one_timeline import in_one_timeline
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.log.parallel import map_parallel
from sparklog.protocol.decide.locations import Removal, end_removal
from sparklog.store.base import Store

logger = logging.getLogger(__name__)

REMOVALS = "leases/removals/"
LATE_REQUEST_MS = 600_000
"""Milliseconds after which a request that was sent again is on its way no more: clients give one up after minutes."""

_NAME = re.compile(re.escape(REMOVALS) + r"([0-9]{1,10})-[0-9]{20}")


class _Note(msgspec.Struct, frozen=True):
    broker: int
    url: str
    version: int


def may_repeat_requests(store: Store) -> bool:
    """Return whether a request to a storage may be served twice, once late: not on a disk of this machine."""
    return not store.is_local or store.has_own_clock


def note_begin(root: Store, broker: int, name: str) -> str:
    """Note, before its first commit, that a removal begins; return the note's key, to be deleted once it has ended.
    Raises StorageError."""
    key = f"{REMOVALS}{broker}-begun-{name}"
    root.put(key, b"")
    return key


def note_going_on(root: Store, broker: int, name: str, begin: str) -> tuple[str, bool]:
    """Note after its first commit that a removal goes on; return the note's key, and whether the removal may.

    An operator who has found the first note (``begin``) may have stopped what was committed before that commit, and
    delete the note. One who comes now has to find this one. A removal whose first note is gone must not go on. Raises
    StorageError.
    """
    key = note_begin(root, broker, name)
    return key, any(found == begin for found in find_notes(root, broker))


def find_notes(root: Store, broker: int) -> list[str]:
    """Return the keys of the notes of removals that may have cordoned a broker, and may lift that. Raises
    StorageError."""
    return [info.key for info in root.list(REMOVALS) if info.key.startswith(f"{REMOVALS}{broker}-")]


def note_removal(root: Store, removal: Removal) -> None:
    """Note a removal that has deleted what it had to, in place of earlier ones. Raises StorageError."""
    note = _Note(removal.broker, removal.url, removal.version)
    key = f"{REMOVALS}{removal.broker}-{removal.version:020d}"
    root.put(key, msgspec.json.encode(note))
    map_parallel(
        root.delete, [earlier for earlier in _notes_of(root, removal.broker) if earlier < key], root.parallel_requests
    )


def delete_notes(root: Store, keys: Sequence[str]) -> None:
    """Delete the notes of removals that an operator's commit has stopped, and no others. Raises StorageError."""
    map_parallel(root.delete, keys, root.parallel_requests)


def read_newest_removal(root: Store, broker: int) -> Removal | None:
    """Return the last removal that has deleted what it had to at a broker, and whose cordon is to be lifted. Raises
    StorageError."""
    notes = _notes_of(root, broker)
    return _read(root, notes[-1]) if notes else None


def _notes_of(root: Store, broker: int) -> list[str]:
    names = [_NAME.fullmatch(info.key) for info in root.list(REMOVALS)]
    return sorted(name.string for name in names if name is not None and int(name.group(1)) == broker)


@in_one_timeline
def end_removals(coordinator: Coordinator) -> None:
    """Lift the cordons of removals that ended long enough ago. Without a cordon it costs no request. Raises
    StorageError."""
    if not any(broker.cordoned for broker in coordinator.state.brokers.values()):
        return
    root, now_ms = coordinator.store, coordinator.log.expiry_clock.now_ms()
    for info in list(root.list(REMOVALS)):
        if _NAME.fullmatch(info.key) and now_ms - info.modified_ms >= LATE_REQUEST_MS:
            removal = _read(root, info.key)
            if removal is not None and not coordinator.submit(partial(end_removal, removal=removal)):
                logger.warning("%s", describe_lasting_cordon(removal.broker))
            root.delete(info.key)


def describe_lasting_cordon(broker: int) -> str:
    """Return what to do about a cordon that a removal does not lift."""
    return (
        f"broker {broker} stays cordoned: another removal of surplus copies may have begun there, or its location has "
        f"changed; run `sparklog brokers uncordon --id {broker}` when no vacuum is running"
    )


def _read(root: Store, key: str) -> Removal | None:
    """Return a noted removal; None if the note is damaged, or another process has used it: an operator decides then."""
    try:
        note = msgspec.json.decode(root.get(key, limits.MAX_CLUSTER_FILE_BYTES), type=_Note)
    except (ObjectNotFoundError, CorruptMetadataError, msgspec.MsgspecError, RecursionError):
        return None
    return Removal(note.broker, note.url, note.version, (), cordons=True)
