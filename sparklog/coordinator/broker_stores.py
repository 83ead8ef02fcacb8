"""The storage locations of a cluster's brokers, opened when they are first needed.

Rules: an out-of-sync replica whose location failed a write is let be for ``REST_SECONDS``, so that a location that
hangs does not slow every append down; those in sync are always written to, since leaving one out takes it out of sync.
An address of the commit log is opened only if the root's owner allowed that place (``store.location.may_contact``): one
that was refused is looked up again after ``REST_SECONDS``, one that was opened stays open.
What is remembered here holds for this process and decides nothing: what a location's failure means is a commit.
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
"""How long a location that failed a write is not tried again by writes that do not need it."""


class BrokerStores:
    """Thread-safe. ``storage_options`` are those of the cluster's root, and hold for every location."""

    def __init__(self, root: Store, clock: Clock, storage_options: Mapping[str, object] | None = None) -> None:
        self._root = root
        self._clock = clock
        self._options = dict(storage_options or {})
        self._opened: dict[str, Store] = {}
        self._refused: dict[str, tuple[StoragePermissionError, float]] = {}
        self._failed_at: dict[int, float] = {}
        self._lock = threading.Lock()

    def store_of(self, state: State, broker: int) -> Store:
        """The store of a broker; broker 0 is the root itself, unless that has moved.

        Raises StorageError, of which StoragePermissionError says that the root's owner has not allowed the location,
        UnsupportedStoreError."""
        found = state.brokers.get(broker)
        if found is None:
            raise StorageError(
                f"broker {broker} is not registered in {self._root.root} at version {state.version}; "
                "`sparklog brokers list` shows which are",
                path=self._root.root,
            )
        if not found.url:
            return self._root
        store = self._opened.get(found.url)
        if store is None:
            self._check_contact(broker, found.url)
            with self._lock:
                store = self._opened.setdefault(found.url, open_location(found.url, self._options))
        return store

    def open(self, url: str) -> Store:
        """The store of an address that the caller gives, created by a write. Not for an address of the commit log.
        Raises UnsupportedStoreError."""
        return open_store(url, self._options)

    def open_registered(self, broker: int, url: str) -> Store:
        """The store of a broker's address, also before it says who it is. Errors as ``store_of``."""
        self._check_contact(broker, url)
        return open_store(url, self._options)

    def allow(self, url: str, ids: Ids) -> bool:
        """Let clients of this cluster contact a location; returns whether that is a change. Errors as
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

    def failed(self, broker: int) -> None:
        """A write to this broker has failed."""
        self._failed_at[broker] = self._clock.monotonic()

    def resting(self, state: State) -> frozenset[int]:
        """Brokers that failed a write a short time ago. One that went offline since is for the controller to bring
        back: it is written to again as soon as it has passed a check."""
        if not self._failed_at:
            return frozenset()
        for broker in [number for number, known in state.brokers.items() if not known.online]:
            self._failed_at.pop(broker, None)
        since = self._clock.monotonic() - REST_SECONDS
        return frozenset(broker for broker, failed_at in list(self._failed_at.items()) if failed_at > since)
