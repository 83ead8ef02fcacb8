"""Follows one cluster for all viewers of the web page: one thread, which refreshes at most once a second.

    follower = ClusterFollower("log", coordinator)
    follower.start()
    follower.read("lag", group="billing").to_pylist()

Pages are served from the newest state that was read. While nobody looks, the cluster is read every ten seconds.

Rules: reads only. A storage that fails is asked again, and ``status`` says so. Not for: what tables hold
(``monitoring``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

import pyarrow as pa

from sparklog.coordinator import Coordinator
from sparklog.errors import SparklogError
from sparklog.monitoring.system_tables import Selection, SystemTables
from sparklog.protocol.state import State

WATCHED_SECONDS = 1.0
"""Pause between two refreshes while pages are asked for."""
IDLE_SECONDS = 10.0
"""Pause between two refreshes while no page has been asked for within as long."""
TABLES_KEPT = 48
"""Tables that are kept for the next viewer, as long as the cluster does not change."""


class Status(NamedTuple):
    """How fresh the state is: when it was read, and what failed since, empty if nothing did."""

    read_ms: int
    problem: str = ""


class ClusterFollower:
    """The newest state of a cluster, and its system tables. Thread-safe. ``name`` is its part of addresses."""

    def __init__(self, name: str, coordinator: Coordinator) -> None:
        self.name = name
        self.coordinator = coordinator
        self.status = Status(coordinator.log.clock.now_ms())
        self._tables = SystemTables(coordinator)
        self._kept: OrderedDict[tuple[str, int, Selection], pa.Table] = OrderedDict()
        self._lock = threading.Lock()
        self._watched, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._follow, name=f"sparklog-ui-{name}", daemon=True)

    @property
    def root(self) -> str:
        """The folder or URL of the cluster, without credentials."""
        return self.coordinator.store.root

    @property
    def now_ms(self) -> int:
        """The time of the cluster's clock."""
        return self.coordinator.log.clock.now_ms()

    def start(self) -> None:
        """Begin to follow the cluster."""
        self._thread.start()

    def stop(self) -> None:
        """End following it."""
        self._stopped.set()
        self._watched.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def state(self) -> State:
        """Return the newest state that was read, and read the cluster each second from now on for a while."""
        self._watched.set()
        return self.coordinator.state

    def refresh(self) -> None:
        """Read the newest state now; what fails is in ``status``."""
        try:
            self.coordinator.refresh()
        except SparklogError as error:
            self.status = self.status._replace(problem=str(error))
        else:
            self.status = Status(self.now_ms)

    def read(self, table: str, selection: Selection | None = None, state: State | None = None) -> pa.Table:
        """Return a system table in the newest state that was read, or in this one.

        Raises StorageError, CorruptMetadataError.
        """
        selection, state = selection or Selection(), state or self.state()
        key = (table, state.version, selection)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        rows = self._tables.read(table, selection, state)
        with self._lock:
            self._kept[key] = rows
            while len(self._kept) > TABLES_KEPT:
                self._kept.popitem(last=False)
        return rows

    def _follow(self) -> None:
        while not self._stopped.is_set():
            self.refresh()
            self._watched.clear()
            self._stopped.wait(WATCHED_SECONDS)
            self._watched.wait(IDLE_SECONDS - WATCHED_SECONDS)
