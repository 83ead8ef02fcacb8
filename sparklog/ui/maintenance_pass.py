"""Runs passes of maintenance that were started from the web page, one at a time for each cluster; tells what is due.

    passes.start(cluster, ["roll", "retention"])
    passes.status("log").reports

A pass is what ``sparklog maintain --once`` runs, in a thread of this process. If the process ends before the pass, its
step has made its commit or changed nothing, and files that it wrote are found by ``sparklog vacuum``.

Rules: nothing is decided here. Not for: what steps do (``maintenance.steps``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from sparklog.coordinator import Coordinator
from sparklog.errors import InvalidRequestError
from sparklog.maintenance.loop import Loop, LoopReport, Stop, describe_error, problems
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.step_names import STEP_NAMES
from sparklog.monitoring import maintenance_due
from sparklog.monitoring.facts.files import retired_files
from sparklog.protocol.segments import Segment
from sparklog.protocol.state import State
from sparklog.ui.follower import ClusterFollower

if TYPE_CHECKING:
    from sparklog.maintenance.steps import MaintenanceContext

logger = logging.getLogger(__name__)

PASS_STEPS = tuple(name for name in STEP_NAMES if name != "mirror")
"""The steps that a pass may have; a mirror is for ``sparklog maintain --mirror``."""
MAX_PARTITIONS = 1000
"""Partitions of which the lists of segments are looked at, to tell what is due."""
STOP_SECONDS = 10.0
"""Seconds that the end of the process waits for the step that runs."""


class PassStatus(NamedTuple):
    """A pass: its steps, the reports of those that ran, and when it ended, None while it runs. ``error`` ended it."""

    started_ms: int
    steps: Sequence[str]
    reports: Sequence[LoopReport] = ()
    ended_ms: int | None = None
    error: str = ""

    @property
    def running(self) -> str:
        """The step that runs now, empty if none does."""
        is_running = self.ended_ms is None and len(self.reports) < len(self.steps)
        return self.steps[len(self.reports)] if is_running else ""

    @property
    def problems(self) -> int:
        """Problems of the steps that ran."""
        return problems(self.reports)


class Passes:
    """The passes of all clusters of a page. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._status: dict[str, PassStatus] = {}
        self._threads: list[threading.Thread] = []
        self._stop = Stop()

    def status(self, cluster: str) -> PassStatus | None:
        """Return the pass of a cluster that was started last, None without one."""
        return self._status.get(cluster)

    def check_idle(self, cluster: str) -> None:
        """Raise InvalidRequestError if a pass of a cluster is running."""
        status = self.status(cluster)
        if status is not None and status.ended_ms is None:
            raise InvalidRequestError("a pass of this cluster is running: wait for its end")

    def start(self, cluster: ClusterFollower, only: Sequence[str]) -> None:
        """Start a pass of these steps, all without any. Raises InvalidRequestError if one is running."""
        names = [name for name in PASS_STEPS if not only or name in only]
        with self._lock:
            self.check_idle(cluster.name)
            thread = threading.Thread(target=self._run, args=(cluster, names), name="sparklog-ui-pass", daemon=True)
            started = PassStatus(cluster.now_ms, names)
            self._status[cluster.name] = started
            try:
                thread.start()
            except RuntimeError as error:  # there are too many threads
                self._status[cluster.name] = started._replace(ended_ms=started.started_ms, error=str(error))
                raise
            self._threads = [*(each for each in self._threads if each.is_alive()), thread]

    @property
    def is_stopping(self) -> bool:
        """Whether no step is begun any more."""
        return self._stop.requested

    def stop(self) -> None:
        """End all passes after the task that runs, and wait for that a moment."""
        self._stop.request()
        for thread in self._threads:
            thread.join(STOP_SECONDS)

    def _run(self, cluster: ClusterFollower, names: Sequence[str]) -> None:
        error = ""
        try:
            from sparklog.maintenance.steps import steps  # slow to import, and most pages never start a pass

            with closing(_context(cluster.coordinator, self._stop.check)) as context:
                by_name = {step.name: step for step in steps(context, names)}
                for name in names:
                    loop = Loop([by_name[name]], cluster.coordinator.log.clock, self._stop.check, _log_line)
                    reports = loop.once()
                    if not reports:
                        error = "stopped, because the program of this page ended"
                        break
                    status = self._status[cluster.name]
                    self._status[cluster.name] = status._replace(reports=[*status.reports, *reports])
        except BaseException as failure:
            error = describe_error(failure)
            logger.exception("the pass of maintenance of %s failed", cluster.name)
        finally:
            status = self._status[cluster.name]
            self._status[cluster.name] = status._replace(ended_ms=cluster.now_ms, error=error)


def _context(coordinator: Coordinator, check: Callable[[], None]) -> MaintenanceContext:
    from sparklog.maintenance.steps import MaintenanceContext

    return MaintenanceContext(coordinator, lambda _: InProcess(check), check=check, once=True)


def _log_line(line: str) -> None:
    logger.info("maintenance: %s", line)


class Due(NamedTuple):
    """Files that a step would work on now, and their bytes; it ``frees`` them, at once or after a delay."""

    step: str
    files: int
    size_bytes: int
    frees: bool


class DueNow(NamedTuple):
    """What is due, by step, and how many partitions were not looked at, since there are too many."""

    steps: list[Due]
    left_out: int


def list_due(coordinator: Coordinator, state: State, now_ms: int) -> DueNow:
    """Return what maintenance would do now, as far as the log says. Raises StorageError, CorruptMetadataError."""
    rolled: list[Segment] = []
    expired: list[Segment] = []
    looked_at = left_out = 0
    for topic in state.topics_in_order():
        live = None
        for number, partition in enumerate(topic.partitions):
            roll = maintenance_due.may_be_rolled(partition)
            retain = maintenance_due.may_be_expired(state, topic, partition)
            if not roll and not retain:
                continue
            if looked_at >= MAX_PARTITIONS:
                left_out += 1
                continue
            looked_at += 1
            live = live or coordinator.segments(topic.name, state)
            segments = live.partition(number)
            rolled += maintenance_due.segments_to_roll(state, topic, number, segments) if roll else []
            expired += maintenance_due.segments_expired(state, topic, number, segments, now_ms) if retain else []
    retired = retired_files(state, now_ms)
    found = [
        Due("roll", len(rolled), sum(each.size_bytes for each in rolled), False),
        Due("retention", len(expired), sum(each.size_bytes for each in expired), True),
        Due("deletion", retired.files, retired.bytes, True),
    ]
    return DueNow([each for each in found if each.files], left_out)
