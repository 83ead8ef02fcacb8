"""Follows one cluster for all viewers of the web page: one thread, which refreshes at most once a second.

    follower = ClusterFollower("log", coordinator)
    follower.start()
    follower.read("lag", Selection(group="billing")).to_pylist()

Pages are served from the newest state that was read. While nobody looks, the cluster is read every ten seconds.

Rules: reads only. A storage that fails is asked again, and ``status`` says so. Not for: what tables hold
(``monitoring``).
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from sparklog.coordinator import Coordinator
from sparklog.errors import SparklogError, StorageUnavailableError
from sparklog.log.commits.cleanup import newest_version_before
from sparklog.log.past_states import Around, PastStates
from sparklog.maintenance.fsck.kept_report import KeptReport, read_kept_report
from sparklog.monitoring.system_tables import OF_STATE, RowSelection, SystemTables
from sparklog.protocol.state import State
from sparklog.ui.shared_searches import SharedSearches

logger = logging.getLogger(__name__)

WATCHED_SECONDS = 1.0
"""Pause between two refreshes while pages are asked for."""
WATCHED_SECONDS_WITH_ALERTS = 1.5
"""The same where alert rules are evaluated as well: their requests and those of the follower are 2/s at most."""
IDLE_SECONDS = 10.0
"""Pause between two refreshes while no page has been asked for within as long."""
TABLES_KEPT = 48
"""Tables that are kept for the next viewer, as long as the cluster does not change; the lag
and the members of now for ``IDLE_SECONDS``."""

PATIENCE_SECONDS = 0.7
"""How long a page waits for commits to be read. The first page of a cluster with many commits shows without them."""
MAX_READS = 8
"""Reads of tables at the same time."""

_Key = tuple[str, int, RowSelection, int]
_Result = TypeVar("_Result")


class StillReading(Exception):
    """The commits that a page needs are being read: the page can be asked for again."""


class Status(NamedTuple):
    """How fresh the state is: when it was read, and what failed since, empty if nothing did."""

    read_ms: int
    problem: str = ""


class ClusterFollower:
    """The newest state of a cluster, its system ``tables`` and its searches. Thread-safe.

    ``name`` is its part of addresses.
    """

    def __init__(
        self,
        name: str,
        coordinator: Coordinator,
        patience: float = PATIENCE_SECONDS,
        watched_seconds: float = WATCHED_SECONDS,
    ) -> None:
        self.name = name
        self._watched_seconds = watched_seconds
        self._patience = patience
        self.coordinator = coordinator
        self.status = Status(coordinator.log.clock.now_ms())
        self.searches = SharedSearches(coordinator)
        self.tables = SystemTables(coordinator)
        self._kept: OrderedDict[_Key, pa.Table] = OrderedDict()
        self._past = PastStates(coordinator.log)
        self._recent: dict[str, tuple[float, Future[Any]]] = {}
        self._reading: dict[Hashable, Future[Any]] = {}
        self._versions: OrderedDict[int, int] = OrderedDict()
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

    def fresh_state(self) -> State:
        """Return a state that was read a moment ago. Raises StorageUnavailableError if the cluster cannot be read."""
        if self.now_ms - self.status.read_ms > 2000 * IDLE_SECONDS:
            self.refresh()
        if self.status.problem:
            raise StorageUnavailableError(self.status.problem)
        return self.coordinator.state

    def refresh(self) -> None:
        """Read the newest state now; what fails is in ``status``."""
        try:
            self.coordinator.refresh()
        except SparklogError as error:
            self.status = self.status._replace(problem=str(error))
        else:
            self.status = Status(self.now_ms)

    def since(self, time_ms: int) -> RowSelection:
        """Return the selection of the commits since a time, and perhaps the one before it.

        Versions of earlier times do not change, so that a time is looked up once. Raises StillReading as ``read``,
        StorageError.
        """
        with self._lock:
            first = self._versions.get(time_ms)
        if first is None:
            version = self.coordinator.state.version
            look_up = partial(newest_version_before, self.coordinator.store, version, time_ms)
            first = self._wait(("since", time_ms), look_up)
            with self._lock:
                self._versions[time_ms] = first
                while len(self._versions) > TABLES_KEPT:
                    self._versions.popitem(last=False)
        return RowSelection(first_version=max(first, 0))

    def read(self, table: str, selection: RowSelection | None = None, state: State | None = None) -> pa.Table:
        """Return a system table in the newest state that was read, or in this one.

        Raises StillReading if the commits that it needs take longer than ``PATIENCE_SECONDS`` to read; that goes on,
        so that it succeeds later. Raises StorageError, CorruptMetadataError.
        """
        selection, state = selection or RowSelection(), state or self.state()
        key = (table, state.version, selection, self._period(table, selection))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        if table in OF_STATE:
            return self._keep(key, self.tables.read(table, selection, state))
        return self._wait(key, lambda: self._keep(key, self.tables.read(table, selection, state)))

    def _period(self, table: str, selection: RowSelection) -> int:
        """Return what tells apart the times at which rows are read again: without a commit, lag that ends now grows,
        and members die."""
        is_of_now = table in ("groups", "members") or (table == "lag" and selection.until_ms is None)
        return self.now_ms // int(1000 * IDLE_SECONDS) if is_of_now else 0

    def around(self, version: int) -> Around:
        """Return the states before and after a commit. Raises StillReading as ``read``, or as ``PastStates``."""
        return self._wait(("around", version), partial(self._past.around, version))

    def fsck_report(self) -> KeptReport | None:
        """Return the report of the last check that was kept, None without one.

        Raises as ``recent``, and CorruptMetadataError, UnsupportedVersionError, StorageError.
        """
        report = self.recent("fsck", lambda: read_kept_report(self.coordinator.store))
        is_of_cluster = report is not None and report.cluster_id == self.coordinator.state.cluster_id
        return report if is_of_cluster else None  # another came with a copy of its root

    def recent(self, name: str, work: Callable[[], _Result]) -> _Result:
        """Return the outcome of some work on the cluster, done at most ``IDLE_SECONDS`` ago, for all viewers.

        Raises StillReading if it takes longer than ``PATIENCE_SECONDS``, and what it raises.
        """
        monotonic = self.coordinator.log.clock.monotonic()
        with self._lock:
            began, outcome = self._recent.get(name, (-math.inf, None))
        if outcome is None or (outcome.done() and monotonic - began >= IDLE_SECONDS):
            outcome = self._begin(("recent", name), work)
            with self._lock:
                self._recent[name] = monotonic, outcome
        result: _Result = self._result(outcome)
        return result

    def _wait(self, key: Hashable, work: Callable[[], _Result]) -> _Result:
        result: _Result = self._result(self._begin(key, work))
        return result

    def _result(self, outcome: Future[Any]) -> Any:
        wait([outcome], self._patience)
        if not outcome.done():
            raise StillReading
        return outcome.result()  # a TimeoutError that it raises is one of the work

    def _keep(self, key: _Key, rows: pa.Table) -> pa.Table:
        with self._lock:
            self._kept[key] = rows
            while len(self._kept) > TABLES_KEPT:
                self._kept.popitem(last=False)
        return rows

    def _begin(self, key: Hashable, work: Callable[[], Any]) -> Future[Any]:
        """Return the result of some reading, which goes on however long the caller waits, and is shared by all."""
        with self._lock:
            reading = self._reading.get(key)
            if reading is not None:
                return reading
            if len(self._reading) >= MAX_READS:
                raise StillReading
            reading = self._reading[key] = Future()
        try:
            threading.Thread(target=self._finish, args=(key, work, reading), daemon=True).start()
        except RuntimeError as error:  # there are too many threads: the next viewer tries again
            reading.set_exception(error)
            with self._lock:
                del self._reading[key]
        return reading

    def _finish(self, key: Hashable, work: Callable[[], Any], reading: Future[Any]) -> None:
        try:
            reading.set_result(work())
        except BaseException as error:
            reading.set_exception(error)
        finally:
            with self._lock:
                del self._reading[key]

    def _follow(self) -> None:
        while not self._stopped.is_set():
            self._watched.clear()  # first: a request during the refresh must start the next one
            try:
                self.refresh()
            except Exception as error:  # whatever it is: a state that nobody follows must not look new
                logger.exception("%s could not be read", self.name)
                self.status = self.status._replace(problem=f"{type(error).__name__}: {error}")
            if not self._stopped.wait(self._watched_seconds):
                self._watched.wait(IDLE_SECONDS - self._watched_seconds)
