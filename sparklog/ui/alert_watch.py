"""Evaluates alert rules for the web page, on the clusters that it follows, and keeps what it found for all viewers.

    watch = AlertWatch(read_rule_file(path), "alerts.state")
    watch.start(clusters)
    watch.board("log").alerts

What ``sparklog alerts`` does: the same rules, the same file of states, the same channels. Both may run on one file;
each change is then told once. It reads the state that the page's follower has read, so viewers cost nothing.

Rules: nothing is decided here (``monitoring.alerts``). Evaluations are at least ``MIN_INTERVAL_SECONDS`` apart.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import NamedTuple

from sparklog.errors import SparklogError
from sparklog.monitoring.alerts.alert_file import AlertFile
from sparklog.monitoring.alerts.evaluation import Alert, Alerts
from sparklog.monitoring.alerts.rules import RuleBook
from sparklog.monitoring.alerts.transitions import FIRING, AlertChange
from sparklog.ui.follower import ClusterFollower

logger = logging.getLogger(__name__)

MIN_INTERVAL_SECONDS = 60.0
"""Seconds between two evaluations: an evaluation that looks back some hours sends dozens of requests."""
MAX_CHANGES = 200
"""Changes of alerts that a page shows, the newest."""


class Board(NamedTuple):
    """What the last evaluation of a cluster found: alerts, the newest changes, and what went wrong.

    ``time_ms`` is its time, None before the first one.
    """

    time_ms: int | None = None
    alerts: Sequence[Alert] = ()
    changes: Sequence[AlertChange] = ()
    problems: Sequence[str] = ()

    @property
    def firing(self) -> list[Alert]:
        return [alert for alert in self.alerts if alert.state.status == FIRING]


class AlertWatch:
    """The alerts of clusters, evaluated by one thread. Thread-safe.

    Raises StorageError if the file of states cannot be used.
    """

    def __init__(self, book: RuleBook, path: str) -> None:
        self.book = book
        self.path = path
        self._boards: dict[str, Board] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        AlertFile(path).close()

    @property
    def interval_seconds(self) -> float:
        """Seconds between two evaluations."""
        return max(self.book.interval_seconds, MIN_INTERVAL_SECONDS)

    def board(self, cluster: str) -> Board:
        """Return what the last evaluation of a cluster found."""
        return self._boards.get(cluster, Board())

    def start(self, clusters: Sequence[ClusterFollower]) -> None:
        """Evaluate the rules on these clusters from now on."""
        self._thread = threading.Thread(target=self._run, args=(clusters,), name="sparklog-ui-alerts", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the evaluations; one that runs is finished, if it takes no longer than some seconds."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def evaluate(self, clusters: Sequence[ClusterFollower]) -> None:
        """Evaluate the rules once on each cluster. What fails is a problem on its board; its alerts stay."""
        with AlertFile(self.path) as file:
            for cluster in clusters:
                self._boards[cluster.name] = self._evaluate(cluster, file)

    def _evaluate(self, cluster: ClusterFollower, file: AlertFile) -> Board:
        alerts = Alerts(cluster.coordinator, self.book, file, cluster.tables, cluster.fresh_state)
        try:
            found = alerts.evaluate()
            changes = file.changes(found.cluster_id, MAX_CHANGES)
        except SparklogError as error:
            return self.board(cluster.name)._replace(problems=[f"the rules could not be evaluated: {error.message}"])
        for problem in found.problems:
            logger.warning("%s: %s", cluster.name, problem)
        return Board(found.time_ms, found.alerts, changes, found.problems)

    def _run(self, clusters: Sequence[ClusterFollower]) -> None:
        while not self._stopped.is_set():
            try:
                self.evaluate(clusters)
            except Exception as error:
                logger.exception("the alert rules could not be evaluated")
                problems = [f"the rules could not be evaluated: {error}"]
                for cluster in clusters:
                    self._boards[cluster.name] = self.board(cluster.name)._replace(problems=problems)
            self._stopped.wait(self.interval_seconds)
