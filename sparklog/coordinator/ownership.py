"""Checks that a root owns the locations of its brokers before anything is deleted, elected or concluded there.

    check_owned(coordinator, broker)     before each batch of deletions
    check_all_owned(coordinator)         before a run that deletes: a copy of a root deletes nothing anywhere

A location is checked in three steps: it is the registered one by the content of ``broker.json``; the root recorded
there is this one (``protocol.decide.ownership``); and the log has the commit recorded there. The first check claims a
location that has no record; maintenance renews the record, so that it names a commit that an older copy does not have.

Rules: each call of a location ends (``broker_store``). One that does not answer is skipped by ``check_all_owned``:
nothing is deleted there. Between a check and the deletions that it precedes a process may be stopped: it looks again
after a while (``gc.recent_look``), and names of files are not used again.
Not for: taking locations over (``take_over``); writers, which are fenced by the controller's checks, and by the store's
guard where that costs no request.
"""

from __future__ import annotations

import logging
import shlex
from typing import NamedTuple

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.health import check_identity
from sparklog.errors import BrokerNotAvailableError, SparklogError
from sparklog.log.commits.replaced_root import read_log_end
from sparklog.log.layout import read_cluster_file
from sparklog.log.owner_files import (
    has_noted_epoch,
    is_same_root,
    read_note,
    read_owner,
    read_root,
    write_owner,
)
from sparklog.protocol.decide.ownership import (
    OwnerRecord,
    Ownership,
    Recorded,
    RootIdentity,
    is_another_roots,
    judge,
)
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.store.limited import LimitedStore

logger = logging.getLogger(__name__)


def check_owned(coordinator: Coordinator, broker: int, state: State | None = None) -> Store:
    """Return the store of a broker, whose calls end, after checking that it is this broker, and that this root owns it.

    Claims a location without a record. Raises BrokerNotAvailableError, StorageError.
    """
    checked = examine_owner(coordinator, broker, state or coordinator.state)
    if checked.refusal is not None:
        raise checked.refusal
    return checked.store


def broker_store(coordinator: Coordinator, state: State, broker: int) -> Store:
    """Return the store of a broker; each call of a location ends after ``broker.session.timeout.ms``, or later behind a
    network (``store.limited``). Without the root nothing can be decided, so its calls have no limit. Raises
    StorageError, UnsupportedStoreError."""
    store = coordinator.brokers.store_of(state, broker)
    return LimitedStore(store, session_timeout_seconds(state)) if state.brokers[broker].url else store


def session_timeout_seconds(state: State) -> float:
    return ClusterConfig.resolve(state.configs).broker_session_timeout_ms / 1000


class Examined(NamedTuple):
    """A location that is the registered one; ``refusal`` if this root does not own it, or if it is ``unsure`` whether
    it does: then nothing may be concluded, either."""

    store: Store
    refusal: BrokerNotAvailableError | None = None
    unsure: bool = False


def examine_owner(coordinator: Coordinator, broker: int, state: State) -> Examined:
    """Check and claim a location. Raises BrokerNotAvailableError if it is not the registered one, StorageError."""
    store = broker_store(coordinator, state, broker)
    check_mounted(coordinator, broker, store, state)
    own, record = read_root(coordinator.store), read_owner(store, state.cluster_id)
    if not state.brokers[broker].url:  # the root itself, unless a promoted one made it the location of its broker 0
        is_superseded = record is not None and record.epoch > own.epoch
        return Examined(store, _refuse(store, own, record, Ownership.SUPERSEDED) if is_superseded else None)
    ownership = _judge(coordinator, own, record, broker)
    if ownership is Ownership.UNCLAIMED and not may_claim(coordinator.store, own):
        ownership = Ownership.NO_NOTE
    if ownership is Ownership.UNCLAIMED:
        return _claim(coordinator, own, store, broker)
    if ownership is not Ownership.OWNED:
        unsure = ownership is Ownership.ANOTHER_ADDRESS
        return Examined(store, _refuse(store, own, record, ownership), unsure)
    return Examined(store)


def may_claim(root: Store, own: RootIdentity) -> bool:
    """Return whether a root may claim what no root of its epoch or a later one owns: not a copy of a root that was
    promoted, or took over. Raises StorageError."""
    return own.epoch == 0 or has_noted_epoch(root, own)


def describe_other_address(coordinator: Coordinator, broker: int) -> str:
    """Return under which address this root has recorded a location, if it was another than this process uses; else an
    empty text. What this process cannot reach may be there for those that use that address. Raises StorageError."""
    own, noted = read_root(coordinator.store), read_note(coordinator.store, broker)
    if noted is None or noted.epoch != own.epoch or noted.root == own.address:
        return ""
    return (
        f"its owner is {noted.root}, and this process uses {own.address}, which is the same root under another "
        "address, or was moved, or is a copy; nothing is changed"
    )


def check_mounted(coordinator: Coordinator, broker: int, store: Store, state: State) -> None:
    """Raise BrokerNotAvailableError unless a store is that of this broker now: again after a listing from which
    something is concluded, since its disk may have been unmounted or swapped meanwhile."""
    url = state.brokers[broker].url
    check_identity(store, state.cluster_id, broker, url)
    if not url and read_cluster_file(store).cluster_id != state.cluster_id:
        raise BrokerNotAvailableError(f"{store.root} is the root of another cluster now", path=store.root)


def check_all_owned(coordinator: Coordinator) -> None:
    """Check all locations that answer, before a run that deletes, and renew what is recorded there.

    Raises BrokerNotAvailableError if this root does not own one of them: then it deletes nothing anywhere, since
    another root may need what it would delete, also at this root. Raises StorageError if the root does not answer.
    """
    state = coordinator.state
    for broker, registered in sorted(state.brokers.items()):
        try:
            checked = examine_owner(coordinator, broker, state)
            if checked.refusal is None and registered.url:
                renew_owner(coordinator, checked.store, broker)
        except SparklogError:  # it does not answer, or is not the registered one: its own batches are refused
            if not registered.url:
                raise
            continue
        if checked.refusal is not None:
            raise checked.refusal


def renew_owner(coordinator: Coordinator, store: Store, broker: int) -> None:
    """Record at an owned location that this root has read its newest commit. Raises StorageError."""
    state = coordinator.state
    noted = read_note(coordinator.store, broker)
    if noted is None or noted.version < state.version:
        _claim(coordinator, read_root(coordinator.store), store, broker)


def _judge(coordinator: Coordinator, own: RootIdentity, record: OwnerRecord | None, broker: int) -> Ownership:
    noted = read_note(coordinator.store, broker)
    recorded = Recorded.KNOWN
    if record is not None and record != noted:
        recorded = _find_recorded(coordinator, record)
    ownership = judge(own, record, noted, recorded)
    if ownership is Ownership.ANOTHER_ADDRESS and record is not None:
        is_copy = is_in_use(coordinator, record.root, coordinator.state.cluster_id)
        return Ownership.ANOTHER_ROOT if is_copy else ownership
    return ownership


def _find_recorded(coordinator: Coordinator, record: OwnerRecord) -> Recorded:
    """Return what the log of this root says of the recorded commit. Another process may have read it first; this one
    may have read it before the root was restored."""
    state = coordinator.state
    if record.version > state.version:
        state = coordinator.refresh()
    if record.version > state.version:
        return Recorded.UNKNOWN
    end = read_log_end(coordinator.store, record.version, with_boundary=True)
    if end.removed_up_to >= record.version:
        is_newest = (record.version, record.digest) == (state.version, state.digest)
        return Recorded.KNOWN if is_newest else Recorded.REMOVED
    return Recorded.KNOWN if end.digest == record.digest else Recorded.UNKNOWN


def _claim(coordinator: Coordinator, own: RootIdentity, store: Store, broker: int) -> Examined:
    state = coordinator.state
    record = OwnerRecord(own.epoch, state.version, state.digest, own.address)
    counted = write_owner(store, coordinator.store, state.cluster_id, broker, record)
    if counted == record:
        return Examined(store)
    ownership = _judge(coordinator, own, counted, broker)  # another process of this root may have recorded more
    if ownership in (Ownership.OWNED, Ownership.UNCLAIMED):
        return Examined(store)
    return Examined(store, _refuse(store, own, counted, ownership), ownership is Ownership.ANOTHER_ADDRESS)


def _refuse(
    store: Store, own: RootIdentity, record: OwnerRecord | None, ownership: Ownership
) -> BrokerNotAvailableError:
    recorded = "none" if record is None else f"{record.root} (root epoch {record.epoch}, version {record.version})"
    why = {
        Ownership.SUPERSEDED: f"it belongs to the root {recorded} now, which replaced {own.address} "
        f"(root epoch {own.epoch})",
        Ownership.ANOTHER_ROOT: f"it belongs to the root {recorded}, and this root, {own.address}, is a copy of that, "
        "or was moved; if it is the same root under another address, use that one everywhere",
        Ownership.ANOTHER_ADDRESS: f"it belongs to the root {recorded}, and this root, {own.address}, is the same "
        "under another address, or was moved, or is a copy; use the recorded address everywhere",
        Ownership.UNSEEN_COMMIT: f"the root {recorded} has written there, and {own.address} does not have that commit: "
        "it was restored from an older copy",
        Ownership.NO_NOTE: f"{own.address} was restored from a backup, since it has no note that it owns the location",
    }[ownership]
    return BrokerNotAvailableError(
        f"{store.root} is left alone: {why}. Nothing is deleted. If this root is the cluster's from now on, and no "
        f"other is in use, run `sparklog brokers take-over --bootstrap-server {shlex.quote(own.address)}`",
        path=store.root,
    )


# -- registration


def check_claimable(coordinator: Coordinator, store: Store) -> None:
    """Raise BrokerNotAvailableError if another root of this cluster owns a location that is to be registered."""
    own, record = read_root(coordinator.store), read_owner(store, coordinator.state.cluster_id)
    if record is not None and is_another_roots(own, record):
        superseded = record.epoch > own.epoch
        raise _refuse(store, own, record, Ownership.SUPERSEDED if superseded else Ownership.ANOTHER_ROOT)


def claim_quietly(coordinator: Coordinator, broker: int) -> None:
    """Claim a location that was just registered, best effort: the next check does it otherwise."""
    try:
        check_owned(coordinator, broker, coordinator.refresh())
    except SparklogError as error:
        logger.warning("the location of broker %d was not claimed, the next check does it: %s", broker, error)


def own_again(coordinator: Coordinator, broker: int) -> None:
    """Write the record and the note of a location again, which this process may have deleted after a new registration
    wrote them. Does nothing if another root owns the location. Raises StorageError."""
    state = coordinator.state
    store = broker_store(coordinator, state, broker)
    check_mounted(coordinator, broker, store, state)
    own, record = read_root(coordinator.store), read_owner(store, state.cluster_id)
    if record is None or (record.root == own.address and record.epoch <= own.epoch):
        _claim(coordinator, own, store, broker)


def is_in_use(coordinator: Coordinator, address: str, cluster_id: str) -> bool:
    """Return whether an address is that of another root of this cluster that has not moved."""
    try:
        opened = coordinator.brokers.open_registered(0, address)
        store = LimitedStore(opened, session_timeout_seconds(coordinator.state))
        is_root = not is_same_root(store, coordinator.store)
        return is_root and read_cluster_file(store).cluster_id == cluster_id
    except SparklogError:
        return False
