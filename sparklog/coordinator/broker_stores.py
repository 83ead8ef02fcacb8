"""Opens the stores of a cluster's brokers when they are first needed, and remembers failures.

Rules: an out-of-sync replica whose location failed a write is not written to for ``REST_SECONDS``, so that a hanging
location does not slow down every append; replicas in sync are always written to, since skipping one takes it out of
sync. An address of the commit log is opened only if the root's owner allowed it (``store.location.may_contact``): a
refused one is checked again after ``REST_SECONDS``, an opened one stays open.
Failures remembered here concern this process alone and decide nothing: consequences of a failed location are commits.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from sparklog.clock import Clock
from sparklog.errors import StorageError, StoragePermissionError
from sparklog.ids import Ids
from sparklog.log.broker_files import allow_location, check_contact
from sparklog.protocol.state import State
from sparklog.store.base import Store
from sparklog.store.location import open_location
from sparklog.store.open import open_store

REST_SECONDS = 30.0
"""seconds for which writes that do not need a location skip it after a failure."""


class BrokerStores:
    """The stores of a cluster's brokers. Thread-safe. ``storage_options`` apply to the root and to every location."""

    def __init__(self, root: Store, clock: Clock, storage_options: Mapping[str, object] | None = None) -> None:
        self._root = root
        self._clock = clock
        self._options = dict(storage_options or {})
        self._opened: dict[tuple[str, int], Store] = {}
        self._refused: dict[str, tuple[StoragePermissionError, float]] = {}
        self._failed_at: dict[int, float] = {}
        self._lock = threading.Lock()

    def store_of(self, state: State, broker: int) -> Store:
        """Return the store of a broker; broker 0 is the root itself, unless that has moved.

        Raises StorageError, StoragePermissionError if the root's owner has not allowed the location,
        UnsupportedStoreError."""
        registered = state.brokers.get(broker)
        if registered is None:
            raise StorageError(
                f"broker {broker} is not registered in {self._root.root} at version {state.version}; "
                "`sparklog brokers list` shows the registered ones",
                path=self._root.root,
            )
        if not registered.url:
            return self._root
        store = self._opened.get((registered.url, broker))
        if store is None:
            self._check_contact(broker, registered.url)
            identity = {"cluster_id": state.cluster_id, "broker": broker}
            opened = open_location(registered.url, self._options, identity)
            with self._lock:
                store = self._opened.setdefault((registered.url, broker), opened)
        return store

    def open(self, url: str) -> Store:
        """Return the store of an address that the caller gives, created by the first write. Not for addresses of the
        commit log. Raises UnsupportedStoreError."""
        return open_store(url, self._options)

    def open_registered(self, broker: int, url: str) -> Store:
        """Return the store of a broker's address, even if it has no identity yet. Raises as ``store_of``."""
        self._check_contact(broker, url)
        return open_store(url, self._options)

    def allow(self, url: str, ids: Ids) -> bool:
        """Let clients of this cluster contact a location; return whether that is a change. Raises as
        ``allow_location``."""
        changed = allow_location(self._root, url, ids)
        self._refused.clear()
        return changed

    def _check_contact(self, broker: int, url: str) -> None:
        now = self._clock.monotonic()
        refused = self._refused.get(url)
        if refused is not None and now - refused[1] < REST_SECONDS:
            raise refused[0]
        try:
            check_contact(self._root, broker, url)
        except StoragePermissionError as error:
            self._refused[url] = (error, now)
            raise

    def forget(self) -> None:
        """Forget opened locations and past failures: each location is opened again at its next use."""
        with self._lock:
            self._opened.clear()
        self._refused.clear()
        self._failed_at.clear()

    def failed(self, broker: int) -> None:
        """Record that a write to this broker failed."""
        self._failed_at[broker] = self._clock.monotonic()

    def resting(self, state: State) -> frozenset[int]:
        """Return the brokers that failed a write recently. One that went offline since is left to the controller: it is
        written to again as soon as it has passed a check."""
        if not self._failed_at:
            return frozenset()
        for broker in [number for number, registered in state.brokers.items() if not registered.online]:
            self._failed_at.pop(broker, None)
        since = self._clock.monotonic() - REST_SECONDS
        return frozenset(broker for broker, failed_at in list(self._failed_at.items()) if failed_at > since)
