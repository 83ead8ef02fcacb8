"""Registers, removes, moves and cordons the storage locations of brokers.

A location identifies itself in ``broker.json``, written before the commit that registers it. So a location belongs to
one broker of one cluster, an interrupted registration can be repeated, and a mounted disk can be told from an unmounted
one (``store.location``).

A location elsewhere than the root must first be allowed by the root's owner, or no client would contact it
(``log.broker_files``); registering and moving one allows it if this process may, else fails before anything is
registered.

Rules: a location is tested before it is registered: a written object must be readable. What a command makes unknown of
a location's files is committed before it takes effect, or with it (``protocol.decide.locations``).
Not for: health checks (``health``), moving replicas (``protocol.decide.replicas``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from sparklog import limits
from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.health import TRIAL_KEY
from sparklog.coordinator.location_files import look_at
from sparklog.coordinator.one_timeline import in_one_timeline
from sparklog.coordinator.ownership import check_claimable, claim_quietly, examine_owner, own_again
from sparklog.coordinator.removals import delete_notes, find_notes
from sparklog.errors import (
    BrokerNotAvailableError,
    DuplicateBrokerRegistrationError,
    ObjectNotFoundError,
    PolicyViolationError,
    SparklogError,
    StorageError,
)
from sparklog.log.broker_files import CHECK_KEY, Identity, encode_identity, note_keys, read_identity
from sparklog.log.creation import read_created
from sparklog.log.layout import CLUSTER_KEY, MIRROR_KEY
from sparklog.log.owner_files import OWNERS, read_owner, read_root, remove_owners
from sparklog.log.owner_files import note_key as owner_note_key
from sparklog.protocol.decide import brokers as decide_brokers
from sparklog.protocol.decide import locations as decide_locations
from sparklog.protocol.decide.ownership import is_another_roots
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.store.enclosing import check_outside_locations
from sparklog.store.location import IDENTITY_KEY, real_location

logger = logging.getLogger(__name__)

_TRIES = 5
"""tries of a registration while others take the next free id."""

_LOOKS = 3
"""times that a location is looked at for a move while partitions change."""


def add_broker(coordinator: Coordinator, url: str, broker: int | None = None) -> int:
    """Register a storage location and return its broker id: the one given, or the next free one. It is cordoned if it
    has files already.

    Raises UnsupportedStoreError, DuplicateBrokerRegistrationError, InvalidRequestError, BrokerNotAvailableError if
    written bytes cannot be read back, StorageError, and StoragePermissionError if the location is elsewhere and this
    process may not allow it.
    """
    store = coordinator.brokers.open(url)
    root = coordinator.store.root
    for attempt in range(_TRIES):
        real = find_real(coordinator.refresh(), root, store.root)
        number = _choose_id(coordinator.state, store, broker, root, real)
        check_claimable(coordinator, store)
        _test_write(store)
        coordinator.brokers.allow(store.root, coordinator.log.ids)
        has_files = _has_files(store)
        is_own_claim = _claim(store, coordinator.state.cluster_id, number)
        register = partial(
            decide_brokers.register_broker, broker=number, url=store.root, root=root, real=real, has_files=has_files
        )
        try:
            coordinator.submit(register)
            _identify_again(coordinator, store)  # a removal that was suspended may have deleted the identity
            claim_quietly(coordinator, number)
            if has_files:
                logger.warning(
                    "%s has files: broker %d is cordoned, since a vacuum that began before may still delete some of "
                    "them; when no vacuum is running, run `sparklog brokers uncordon --id %d`",
                    store.root,
                    number,
                    number,
                )
            return number
        except DuplicateBrokerRegistrationError:
            if is_own_claim:
                _withdraw_claim(coordinator, store)
            if broker is not None or attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


def find_real(state: State, root: str, url: str) -> dict[str, str]:
    """Return the paths without symbolic links of a location, the root and all other locations."""
    urls = {url, *(decide_brokers.location(broker, root) for broker in state.brokers.values()), root}
    return {each: real_location(each) for each in urls}


def _choose_id(state: State, store: Store, broker: int | None, root: str, real: Mapping[str, str]) -> int:
    """Return the id to register the location under; an interrupted registration has chosen one already."""
    identity = read_identity(store)
    if identity is not None and identity.cluster_id == state.cluster_id and broker is None:
        broker = identity.broker
    number: int = decide_brokers.register_broker(state, broker, store.root, root, real).result
    if identity is not None and (identity.cluster_id, identity.broker) != (state.cluster_id, number):
        raise DuplicateBrokerRegistrationError(
            f"{store.root} is broker {identity.broker} of cluster {identity.cluster_id}; give another location, or "
            f"delete its {IDENTITY_KEY} if that cluster no longer uses it",
            path=store.root,
        )
    for key, what in {CLUSTER_KEY: "the root of a cluster", MIRROR_KEY: "a mirror of a cluster's commit log"}.items():
        with suppress(ObjectNotFoundError):
            store.info(key)
            raise DuplicateBrokerRegistrationError(f"{store.root} is {what}; give another location", path=store.root)
    check_outside_locations(store)
    return number


def _has_files(store: Store) -> bool:
    """Return whether a location has files in folders, other than owner records. Raises StorageError."""
    return any("/" in info.key and not info.key.startswith(OWNERS) for info in store.list())


def _test_write(store: Store) -> None:
    """Test that the location stores an object. Raises BrokerNotAvailableError, StorageError."""
    store.put(TRIAL_KEY, b"1")
    if store.get(TRIAL_KEY) != b"1":
        raise BrokerNotAvailableError(f"{store.root} does not return what was written to it", path=store.root)
    store.delete(TRIAL_KEY)


def _claim(store: Store, cluster_id: str, broker: int) -> bool:
    """Write the location's identity unless it is there already; return whether this call certainly wrote it.

    Raises StorageError if the outcome is unknown: repeat the registration to find out.
    """
    try:
        store.put_if_absent(IDENTITY_KEY, encode_identity(cluster_id, broker))
    except StorageError as error:
        read_created(store, IDENTITY_KEY, error, limits.MAX_CLUSTER_FILE_BYTES)
    else:
        return True
    identity = read_identity(store)
    if identity is None or (identity.cluster_id, identity.broker) != (cluster_id, broker):
        raise DuplicateBrokerRegistrationError(
            f"{store.root} was taken by another registration in the meantime", path=store.root
        )
    return False


def _withdraw_claim(coordinator: Coordinator, store: Store) -> None:
    """Delete the location's identity, since another location got that id.

    Not if the location is registered: then another process has found and used the claim, and its broker needs it.
    """
    if _broker_at(coordinator.refresh(), store.root) is None:
        store.delete(IDENTITY_KEY)
        _identify_again(coordinator, store)


def _broker_at(state: State, url: str) -> int | None:
    """Return the broker that is registered at a location, None if there is none."""
    return next((number for number, broker in state.brokers.items() if broker.url == url), None)


def _identify_again(coordinator: Coordinator, store: Store) -> None:
    """Write what identifies a location if it was registered while that was deleted: this process was suspended, and has
    deleted what the new registration found or wrote."""
    broker = _broker_at(coordinator.refresh(), store.root)
    if broker is not None and _claim(store, coordinator.state.cluster_id, broker):
        logger.warning("%s was registered again while it was removed; it is broker %d", store.root, broker)


@in_one_timeline
def remove_broker(coordinator: Coordinator, broker: int) -> None:
    """Remove a broker that holds no replica; its files stay, except for those that identify it.

    Raises BrokerIdNotRegisteredError, PolicyViolationError, DuplicateBrokerRegistrationError if another location got
    its id in the meantime.
    """
    url = decide_brokers.find_broker(coordinator.refresh(), broker).url
    is_owned = _owns(coordinator, broker)
    coordinator.submit(partial(decide_brokers.unregister_broker, broker=broker, url=url))
    try:
        _forget_location(coordinator, broker, url, is_owned)
    except SparklogError as error:
        logger.warning(
            "broker %d was removed, but deleting %s from its location %s failed: %s", broker, IDENTITY_KEY, url, error
        )


def _owns(coordinator: Coordinator, broker: int) -> bool:
    """Return whether this root owns a broker's location, and so may delete what identifies it: not a copy's, nor that
    of a root that was replaced, which the other root uses."""
    try:
        return examine_owner(coordinator, broker, coordinator.state).refusal is None
    except SparklogError:  # it does not answer, or is another location
        return False


def _forget_location(coordinator: Coordinator, broker: int, url: str, is_owned: bool) -> None:
    """Delete what identifies the location of a broker that was removed, and what the root noted of it.

    A later registration of the location or the id writes files of the same names, and this process may be suspended
    before any deletion. So it looks for such a registration before each deletion, and after the last one writes again
    what it has deleted of it. Raises StorageError.
    """
    root, cluster_id = coordinator.store, coordinator.state.cluster_id
    store = coordinator.brokers.open_registered(broker, url)
    identity = read_identity(store) if is_owned else None
    steps: list[Callable[[], None]] = []
    if not is_owned:
        logger.warning("%s keeps its %s: it is not owned by %s, or did not answer", url, IDENTITY_KEY, root.root)
    if identity is not None and (identity.cluster_id, identity.broker) == (cluster_id, broker):
        steps += [
            partial(store.delete, CHECK_KEY),
            partial(remove_owners, store),
            partial(store.delete, IDENTITY_KEY),
        ]
    own = read_root(root)
    notes = [*note_keys(root, broker), owner_note_key(broker)]
    steps += [partial(root.delete, key) for key in notes]
    try:
        for step in steps:
            if broker in coordinator.refresh().brokers or _broker_at(coordinator.state, url) is not None:
                return
            if identity is not None and is_another_roots(own, read_owner(store, cluster_id)):
                return  # promoted, or taken over, since
            step()
    finally:  # whatever the timeline is now, its registrations need their files
        coordinator = coordinator.of_any_timeline
        _identify_again(coordinator, store)
        if broker in coordinator.state.brokers:
            own_again(coordinator, broker)


def cordon_broker(coordinator: Coordinator, broker: int, cordoned: bool = True) -> bool:
    """Exclude a broker from new replicas, or include it again; return whether that is a change.

    Raises BrokerIdNotRegisteredError."""
    while True:
        is_change = coordinator.submit(lambda state: decide_brokers.cordon(state, broker, cordoned))
        notes = find_notes(coordinator.store, broker)
        if notes:  # a removal may be suspended, and find its own state again later
            coordinator.submit(partial(decide_brokers.stop_removal, broker=broker, cordoned=cordoned))
            delete_notes(coordinator.store, notes)  # not those of one that has begun since: it is not stopped
            return is_change
        if decide_brokers.find_broker(coordinator.refresh(), broker).cordoned == cordoned:  # else it has just ended
            return is_change


@in_one_timeline
def move_broker(coordinator: Coordinator, broker: int, url: str) -> bool:
    """Change the location of a broker's files; return whether that is a change.

    The location must identify itself as this broker, and hold the live files of its replicas in sync. A partition of
    which it lacks files leaves the ISR there if another replica in sync is online, and replication copies them. Raises
    BrokerNotAvailableError, which names the missing files, if no other replica in sync is online,
    BrokerIdNotRegisteredError, DuplicateBrokerRegistrationError, StorageError.
    """
    store = coordinator.brokers.open(url)
    state = coordinator.refresh()
    former = decide_brokers.find_broker(state, broker)
    identity = read_identity(store)
    if identity is None or (identity.cluster_id, identity.broker) != (state.cluster_id, broker):
        raise BrokerNotAvailableError(
            f"{store.root} is not identified as broker {broker} of this cluster; move its files there first, including "
            f"{IDENTITY_KEY}",
            path=store.root,
        )
    root = coordinator.store.root
    if decide_brokers.location(former, root) == store.root:
        return False
    real = find_real(state, root, store.root)
    decide_brokers.check_apart(state, store.root, root, broker, real)
    coordinator.brokers.allow(store.root, coordinator.log.ids)
    seen = look_at(coordinator, state, broker, store)
    for look in range(1, _LOOKS + 1):
        move = coordinator.submit(
            partial(
                decide_locations.move_location,
                broker=broker,
                url=store.root,
                root=root,
                seen=seen,
                real=real,
                is_last=look == _LOOKS,
            )
        )
        if not move.unseen:
            break
        seen = {**seen, **look_at(coordinator, coordinator.refresh(), broker, store, move.unseen)}
    if move.behind:
        logger.warning(
            "%s lacks files of %d partitions, such as %s: broker %d is out of sync there until replication has copied "
            "them",
            store.root,
            len(move.behind),
            move.behind[0],
            broker,
        )
    return move.moved


@in_one_timeline
def replace_location(coordinator: Coordinator, broker: int) -> None:
    """Accept an empty location in place of a broker's lost one: from now on it is that broker.

    First commits that the broker's files are lost, so that nothing counts that was written there before: it leaves the
    ISRs that have another replica. The replication job then copies all files to it. Repeat the call if it fails. Raises
    BrokerIdNotRegisteredError, DuplicateBrokerRegistrationError if the location is another broker's, StorageError,
    PolicyViolationError for the root.
    """
    state = coordinator.refresh()
    url = decide_brokers.find_broker(state, broker).url
    if not url:
        raise PolicyViolationError(
            f"broker {broker} is the root of the cluster, with its files; a lost root is replaced by its "
            "mirror (sparklog cluster promote)",
            broker=broker,
        )
    store = coordinator.brokers.open_registered(broker, url)
    _check_claim(read_identity(store), store, state.cluster_id, broker)
    coordinator.submit(partial(decide_locations.replace_location, broker=broker, url=url))
    _claim(store, state.cluster_id, broker)


def _check_claim(identity: Identity | None, store: Store, cluster_id: str, broker: int) -> None:
    """Raise DuplicateBrokerRegistrationError if a location is another broker."""
    if identity is not None and (identity.cluster_id, identity.broker) != (cluster_id, broker):
        raise DuplicateBrokerRegistrationError(
            f"{store.root} is broker {identity.broker} of cluster {identity.cluster_id}; mount the right location",
            path=store.root,
        )
