"""Evaluates rules on a cluster: measures, decides, stores what has changed, and sends it.

    with AlertFile(path) as file:
        evaluation = Alerts(coordinator, book, file).evaluate()

Rules: a rule that cannot be measured, or a channel that does not answer, is a problem in the result and stops no other.
The alerts of a rule that was not measured stay as they are. Several processes may evaluate with one file.
Not for: decisions (``transitions``, ``ticks``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from sparklog.coordinator import Coordinator
from sparklog.errors import InvalidRequestError, SparklogError
from sparklog.monitoring.alerts.alert_file import AlertFile
from sparklog.monitoring.alerts.channels import send_all
from sparklog.monitoring.alerts.measures import View, measure
from sparklog.monitoring.alerts.notifications import alert_of, message_of, summarize
from sparklog.monitoring.alerts.rule_sets import IN_USE_MS, digest_of, is_replaced
from sparklog.monitoring.alerts.rules import Rule, RuleBook
from sparklog.monitoring.alerts.ticks import Reading, Tick, is_outdated, next_tick
from sparklog.monitoring.alerts.transitions import (
    FIRING,
    AlertChange,
    AlertOutcome,
    AlertState,
    Observation,
    Subject,
    decide,
)
from sparklog.monitoring.system_tables import SystemTables
from sparklog.protocol.state import State

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Alert(NamedTuple):
    """An alert that is pending or firing, and a line that says why."""

    rule: Rule
    subject: Subject
    state: AlertState
    summary: str


class Evaluation(NamedTuple):
    """What an evaluation found: alerts by rule and subject, what has changed by it, and what went wrong."""

    cluster_id: str
    time_ms: int
    alerts: list[Alert]
    changes: list[AlertChange]
    problems: list[str]

    @property
    def firing(self) -> int:
        return sum(alert.state.status == FIRING for alert in self.alerts)


class Alerts:
    """The alerts of a cluster by the rules of a book. Not thread-safe.

    A program that follows the cluster anyway passes its ``tables``, and ``read_state``, which returns the newest state
    or raises SparklogError; otherwise an evaluation refreshes the coordinator.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        book: RuleBook,
        file: AlertFile,
        tables: SystemTables | None = None,
        read_state: Callable[[], State] | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._book = book
        self._file = file
        self._tables = tables or SystemTables(coordinator)
        self._read_state = read_state or coordinator.refresh
        self._boot = _boot_id()
        self._digest = digest_of(book)

    def evaluate(self) -> Evaluation:
        """Evaluate all rules once, and send what there is to send.

        Raises StorageError, CorruptMetadataError if the cluster or the file cannot be read; no alert has changed then,
        and what waited to be sent was sent. Raises InvalidRequestError if the file belongs to other rules, which
        replaced these and are in use.
        """
        problems: list[str] = []
        cluster = self._coordinator.state.cluster_id
        self._claim_file(cluster)
        try:
            begun = self._read_clocks()
            time_ms = next_tick(self._file.last_tick(cluster), begun).time_ms
            measured = self._measure(time_ms, problems)
        except SparklogError:
            self._send(cluster, self._coordinator.log.clock.now_ms())
            raise
        outcome = self._decide(cluster, begun, measured)
        problems += self._send(cluster, time_ms)
        return Evaluation(cluster, time_ms, self._describe(outcome), outcome.changes, problems)

    def _claim_file(self, cluster: str) -> None:
        """Take over the file from other rules, unless they have taken it over from these."""
        time_ms = self._coordinator.log.clock.now_ms()
        with self._file.transaction():
            if is_replaced(self._file.rule_sets(cluster), self._digest, time_ms):
                raise InvalidRequestError(
                    f"another process evaluates other rules with {self._file.path}, newer than these: end it, or name "
                    f"a file of its own for each set of rules with --state. Without it these rules are evaluated again "
                    f"after {IN_USE_MS // 60_000} minutes"
                )
            self._file.note_rule_set(cluster, self._digest, time_ms)

    def _read_clocks(self) -> Reading:
        log = self._coordinator.log
        return Reading(log.storage_clock.now_ms(), log.clock.monotonic(), self._boot)

    def _measure(self, time_ms: int, problems: list[str]) -> dict[str, dict[Subject, Observation]]:
        view = View(self._coordinator, self._tables, time_ms, self._read_state())
        measured = {}
        for rule in self._book.rules:
            try:
                measured[rule.name] = measure(rule, view)
            except SparklogError as error:
                problems.append(f"rule {rule.name} could not be evaluated: {error}")
        return measured

    def _decide(self, cluster: str, begun: Reading, measured: dict[str, dict[Subject, Observation]]) -> AlertOutcome:
        with self._file.transaction():
            last, earlier = self._file.last_tick(cluster), self._file.alerts(cluster)
            if is_outdated(last, begun):
                return AlertOutcome(earlier, [])
            tick: Tick = next_tick(last, begun)
            outcome = decide(self._book.rules, measured, earlier, tick)
            notifications = [each for change in outcome.changes for each in self._notifications(change)]
            self._file.save(cluster, tick, outcome.states, outcome.changes, notifications)
        return outcome

    def _notifications(self, change: AlertChange) -> list[tuple[str, dict[str, Any]]]:
        rule = next((rule for rule in self._book.rules if rule.name == change.rule), None)
        channels = list(self._book.channels) if rule is None else rule.notify
        return [(channel, alert_of(rule, change)) for channel in channels]

    def _send(self, cluster: str, time_ms: int) -> list[str]:
        """Send what is due; return what went wrong."""
        problems: list[str] = []
        due = self._file.claim(cluster, self._book.channels, time_ms)
        messages = {}
        for name, notifications in due.items():
            alerts = [{"id": f"{cluster}:{each.number}", **each.alert} for each in notifications]
            root = self._coordinator.store.root
            messages[name] = (self._book.channels[name], message_of(cluster, root, alerts))
        for sent in send_all(messages, self._coordinator.log.clock):
            if not sent.problem:
                self._file.remove(due[sent.channel])
                continue
            lost = self._file.postpone(due[sent.channel], time_ms)
            given_up = f"; {lost} notifications are given up" if lost else "; it is retried"
            problems.append(f"channel {sent.channel}: {sent.problem}{given_up}")
        return problems

    def _describe(self, outcome: AlertOutcome) -> list[Alert]:
        by_name = {rule.name: rule for rule in self._book.rules}
        alerts = []
        for (name, subject), state in outcome.states.items():
            rule = by_name.get(name)
            if rule is not None:
                alerts.append(Alert(rule, subject, state, summarize(rule, subject, state.value, state.detail)))
        return sorted(alerts, key=lambda alert: (alert.state.status, alert.rule.name, alert.subject))


def _boot_id() -> str:
    """Return what identifies this start of the machine, empty if it does not tell."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""
