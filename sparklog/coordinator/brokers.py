"""Storage locations join a cluster, leave it, move, and are kept free of new replicas.

A location says who it is in ``broker.json``, written before the commit that registers it. So a location belongs to one
broker of one cluster, a registration that was interrupted can be run again, and a disk that is not mounted is told from
one that is (``store.location``).

A location elsewhere than the root is allowed by the root's owner first, or else nobody would contact it
(``log.locations``); registering and moving one does so where this process may, and is refused before anything is
registered where not.

Rules: a location is tried before it is registered: what is written there has to be readable.
Not for: whether it stays well (``health``), moving replicas (``protocol.decide_replicas``).
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

from sparklog import limits
from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.health import TRIAL_KEY
from sparklog.errors import (
    BrokerNotAvailableError,
    DuplicateBrokerRegistrationError,
    ObjectNotFoundError,
    PolicyViolationError,
    SparklogError,
    StorageError,
)
from sparklog.log.broker_files import CHECK_KEY, encode_identity, note_key, read_identity
from sparklog.log.creation import read_created
from sparklog.log.layout import CLUSTER_KEY
from sparklog.protocol.decide import brokers as decide_brokers
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.store.location import IDENTITY_KEY

logger = logging.getLogger(__name__)

_TRIES = 5
"""Registrations of others that may take the next free id meanwhile."""


def add_broker(coordinator: Coordinator, url: str, broker: int | None = None) -> int:
    """Register a storage location and return its broker id: the one given, or the next free one.

    Raises UnsupportedStoreError, DuplicateBrokerRegistrationError, InvalidRequestError, BrokerNotAvailableError where
    what is written cannot be read back, StorageError, of which
    StoragePermissionError where the location is elsewhere and this process may not allow it.
    """
    store = coordinator.brokers.open(url)
    root = coordinator.store.root
    for attempt in range(_TRIES):
        number = _number_for(coordinator.refresh(), store, broker, root)
        _try_out(store)
        coordinator.brokers.allow(store.root, coordinator.log.ids)
        mine = _claim(store, coordinator.state.cluster_id, number)
        try:
            coordinator.submit(partial(decide_brokers.register_broker, broker=number, url=store.root, root=root))
            return number
        except DuplicateBrokerRegistrationError:
            if mine:
                _withdraw_claim(coordinator.refresh(), store)
            if broker is not None or attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _number_for(state: State, store: Store, broker: int | None, root: str) -> int:
    """The id to register the location under; a registration that was interrupted has chosen one already."""
    known = read_identity(store)
    if known is not None and known.cluster_id == state.cluster_id and broker is None:
        broker = known.broker
    number: int = decide_brokers.register_broker(state, broker, store.root, root).result
    if known is not None and (known.cluster_id, known.broker) != (state.cluster_id, number):
        raise DuplicateBrokerRegistrationError(
            f"{store.root} is broker {known.broker} of cluster {known.cluster_id}; give another location, or delete "
            f"its {IDENTITY_KEY} if that cluster does not use it any more",
            path=store.root,
        )
    with suppress(ObjectNotFoundError):
        store.info(CLUSTER_KEY)
        raise DuplicateBrokerRegistrationError(
            f"{store.root} is the root of a cluster; give another location", path=store.root
        )
    return number


def _try_out(store: Store) -> None:
    """Raises BrokerNotAvailableError, StorageError."""
    store.put(TRIAL_KEY, b"1")
    if store.get(TRIAL_KEY) != b"1":
        raise BrokerNotAvailableError(f"{store.root} does not give back what was written to it", path=store.root)
    store.delete(TRIAL_KEY)


def _claim(store: Store, cluster_id: str, broker: int) -> bool:
    """Write down who the location is, unless that stands there already; whether this certainly wrote it.

    Raises StorageError where it is not known what stands there: a registration that is run again finds out.
    """
    try:
        store.put_if_absent(IDENTITY_KEY, encode_identity(cluster_id, broker))
    except StorageError as error:
        read_created(store, IDENTITY_KEY, error, limits.MAX_CLUSTER_FILE_BYTES)
    else:
        return True
    known = read_identity(store)
    if known is None or (known.cluster_id, known.broker) != (cluster_id, broker):
        raise DuplicateBrokerRegistrationError(
            f"{store.root} has become a broker of another registration meanwhile", path=store.root
        )
    return False


def _withdraw_claim(state: State, store: Store) -> None:
    """Take back what the location says of itself, since another one has got that id.

    Unless the location is registered: then another process has found the claim and used it, and its broker needs it.
    """
    if store.root not in (broker.url for broker in state.brokers.values()):
        store.delete(IDENTITY_KEY)


def remove_broker(coordinator: Coordinator, broker: int) -> None:
    """Let a location go that holds no replica; its files stay, except for those that say whose it is.

    Raises BrokerIdNotRegisteredError, PolicyViolationError.
    """
    url = decide_brokers.find_broker(coordinator.refresh(), broker).url
    coordinator.submit(lambda state: decide_brokers.unregister_broker(state, broker))
    try:
        store = coordinator.brokers.open_registered(broker, url)
        known = read_identity(store)
        if known is not None and (known.cluster_id, known.broker) == (coordinator.state.cluster_id, broker):
            store.delete(CHECK_KEY)
            store.delete(IDENTITY_KEY)
        coordinator.store.delete(note_key(broker))
    except SparklogError as error:
        logger.warning("%s is no broker any more, but could not be cleared of %s: %s", url, IDENTITY_KEY, error)


def cordon_broker(coordinator: Coordinator, broker: int, cordoned: bool = True) -> bool:
    """Give a broker no new replicas, or lift that; returns whether that is a change. Raises
    BrokerIdNotRegisteredError."""
    return bool(coordinator.submit(lambda state: decide_brokers.cordon(state, broker, cordoned)))


def move_broker(coordinator: Coordinator, broker: int, url: str) -> bool:
    """Say where a broker's files are now; returns whether that is a change.

    The location has to say that it is this broker. Raises BrokerIdNotRegisteredError, BrokerNotAvailableError,
    DuplicateBrokerRegistrationError, StorageError.
    """
    store = coordinator.brokers.open(url)
    state = coordinator.refresh()
    decide_brokers.find_broker(state, broker)
    known = read_identity(store)
    if known is None or (known.cluster_id, known.broker) != (state.cluster_id, broker):
        raise BrokerNotAvailableError(
            f"{store.root} does not say that it is broker {broker} of this cluster; move its files there first, "
            f"{IDENTITY_KEY} among them",
            path=store.root,
        )
    root = coordinator.store.root
    coordinator.brokers.allow(store.root, coordinator.log.ids)
    return bool(coordinator.submit(lambda now: decide_brokers.move_broker(now, broker, store.root, root)))


def replace_location(coordinator: Coordinator, broker: int) -> None:
    """Accept an empty location in the place of a broker's lost one: it counts as this broker from now on.

    The next check finds that it lost what it held, and the replication job copies everything to it. Raises
    BrokerIdNotRegisteredError, DuplicateBrokerRegistrationError for a location that is another broker's, StorageError,
    PolicyViolationError for the root.
    """
    state = coordinator.refresh()
    url = decide_brokers.find_broker(state, broker).url
    if not url:
        raise PolicyViolationError(
            f"broker {broker} is the root of the cluster, and its files are there; a lost root is replaced by its "
            "mirror (sparklog cluster promote)",
            broker=broker,
        )
    _claim(coordinator.brokers.open_registered(broker, url), state.cluster_id, broker)
