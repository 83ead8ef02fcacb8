"""Ends removals of surplus copies at remote storages, some time after their deletions were answered.

    leases/removals/<broker>-<20 digits>      {"broker":1,"url":"s3://b/1","version":42}: a removal that has deleted
                                              everything, by the version at which it began

A client of a remote storage sends a request again whose answer is lost, and the first one may be served after the
second one was answered: a DELETE would then hit a copy that was stored under the same name since. So the broker stays
cordoned until no such request can be on its way. Whoever finds a note that is old enough lifts that: the controller, or
the next vacuum.

Rules: a name is used once. A note decides nothing that ``protocol.decide.locations.end_removal`` does not check.
"""

from __future__ import annotations

import re
from functools import partial

import msgspec

from sparklog import limits
from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.one_history import in_one_history
from sparklog.errors import CorruptMetadataError, ObjectNotFoundError
from sparklog.protocol.decide.locations import Removal, end_removal
from sparklog.store.base import Store

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


def note_removal(root: Store, removal: Removal) -> None:
    """Note a removal that has deleted what it had to. Raises StorageError."""
    note = _Note(removal.broker, removal.url, removal.version)
    root.put(f"{REMOVALS}{removal.broker}-{removal.version:020d}", msgspec.json.encode(note))


def forget_removals(root: Store, broker: int) -> None:
    """Delete the notes of a broker whose cordon an operator has set or lifted. Raises StorageError."""
    for info in list(root.list(REMOVALS)):
        name = _NAME.fullmatch(info.key)
        if name and int(name.group(1)) == broker:
            root.delete(info.key)


@in_one_history
def end_removals(coordinator: Coordinator) -> None:
    """Lift the cordons of removals that ended long enough ago. Without a cordon it costs no request. Raises
    StorageError."""
    if not any(broker.cordoned for broker in coordinator.state.brokers.values()):
        return
    root, now_ms = coordinator.store, coordinator.log.expiry_clock.now_ms()
    for info in list(root.list(REMOVALS)):
        if _NAME.fullmatch(info.key) and now_ms - info.modified_ms >= LATE_REQUEST_MS:
            removal = _read(root, info.key)
            if removal is not None:
                coordinator.submit(partial(end_removal, removal=removal))
            root.delete(info.key)


def _read(root: Store, key: str) -> Removal | None:
    """Return a noted removal; None if the note is damaged, or another process has used it: an operator decides then."""
    try:
        note = msgspec.json.decode(root.get(key, limits.MAX_CLUSTER_FILE_BYTES), type=_Note)
    except (ObjectNotFoundError, CorruptMetadataError, msgspec.MsgspecError, RecursionError):
        return None
    return Removal(note.broker, note.url, note.version, (), cordons=True)
