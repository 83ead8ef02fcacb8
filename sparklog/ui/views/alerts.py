"""Alerts: what fires and what is pending, what changed, and the rules with what they mean. Rules: pure.

Not for: evaluating rules (``monitoring.alerts``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparklog.monitoring.alerts.notifications import describe_subject
from sparklog.monitoring.alerts.quantities import Unit, show
from sparklog.monitoring.alerts.rules import KINDS, SEVERITIES, Patterns, Rule
from sparklog.monitoring.alerts.transitions import FIRING, PENDING, AlertChange, Subject
from sparklog.ui.views.cells import ago_cell
from sparklog.ui.views.overview import Concern
from sparklog.ui.views.query import Query, address
from sparklog.ui.views.tables import Cell, Column, Table, make_table
from sparklog.ui.views.text import shown, time

if TYPE_CHECKING:
    from sparklog.monitoring.alerts.evaluation import Alert

_STATES = {FIRING: "bad", PENDING: "warn"}


def alerts_table(alerts: Sequence[Alert], cluster: str, query: Query, now_ms: int) -> Table:
    """Return what fires and what is pending, the most severe first."""
    columns: list[Column[Alert]] = [
        Column("state", "State", lambda row: row.state.status,
               lambda row: Cell(row.state.status, kind=_STATES.get(row.state.status, "dim"))),
        Column("severity", "Severity", _severity, lambda row: row.rule.severity),
        Column("rule", "Rule", lambda row: row.rule.name, lambda row: shown(row.rule.name, 100)),
        Column("subject", "Of", lambda row: row.subject, lambda row: subject_cell(row.subject, cluster)),
        Column("value", "Value", lambda row: row.state.value,
               _measured_cell, True),
        Column("since", "Since", lambda row: row.state.since_ms,
               lambda row: ago_cell(row.state.since_ms, now_ms), True),
        Column("detail", "Why", lambda row: row.state.detail,
               lambda row: Cell(KINDS[row.rule.kind].meaning, note=shown(row.state.detail, 200))),
    ]  # fmt: skip
    return make_table(alerts, columns, query, caption="Firing and pending", sort="-severity", name="a.",
                      empty="Nothing fires.")  # fmt: skip


def _measured_cell(alert: Alert) -> Cell:
    value, above = (show(each, alert.rule.unit) for each in (alert.state.value, alert.rule.above))
    return Cell(value, note=f"allowed {above}")


def _severity(alert: Alert) -> tuple[bool, int]:
    return alert.state.status == FIRING, SEVERITIES.index(alert.rule.severity)


def subject_cell(subject: Subject, cluster: str) -> Cell:
    """Return what an alert is about, with a link to where that shows."""
    names = dict(subject)
    text = shown(describe_subject(subject), 200)
    if "group" in names:
        return Cell(text, address(cluster, "group", name=names["group"]))
    if "broker" in names:
        return Cell(text, address(cluster, "brokers"))
    if "step" in names:
        return Cell(text, address(cluster, "maintenance"))
    return Cell(text, address(cluster, "topics", names["topic"]) if "topic" in names else "")


def changes_table(changes: Sequence[AlertChange], rules: Mapping[str, Rule], cluster: str, query: Query) -> Table:
    """Return the changes of alerts: what began to fire and what resolved, newest first."""
    columns: list[Column[AlertChange]] = [
        Column("time", "Time", lambda row: row.time_ms, lambda row: time(row.time_ms)),
        Column("state", "State", lambda row: row.status,
               lambda row: Cell(row.status, kind="bad" if row.status == FIRING else "good")),
        Column("rule", "Rule", lambda row: row.rule, lambda row: shown(row.rule, 100)),
        Column("subject", "Of", lambda row: row.subject, lambda row: subject_cell(row.subject, cluster)),
        Column("value", "Value", lambda row: row.value, lambda row: _value(row, rules), True),
        Column("since", "Since", lambda row: row.since_ms, lambda row: time(row.since_ms)),
        Column("detail", "Remark", lambda row: row.detail, lambda row: shown(row.detail, 200)),
    ]  # fmt: skip
    return make_table(changes, columns, query, caption="What changed", sort="-time", name="c.", per_page=50,
                      empty="Nothing has fired since the state of alerts is kept.")  # fmt: skip


def _value(change: AlertChange, rules: Mapping[str, Rule]) -> str:
    return show(change.value, rules[change.rule].unit) if change.rule in rules else ""


def rules_table(rules: Sequence[Rule], query: Query) -> Table:
    """Return the rules: what each measures, when it fires, and what to do then."""
    columns: list[Column[Rule]] = [
        Column("rule", "Rule", lambda row: row.name, lambda row: Cell(shown(row.name, 100), note=row.kind)),
        Column("severity", "Severity", lambda row: SEVERITIES.index(row.severity), lambda row: row.severity),
        Column("when", "Fires", lambda row: row.above, _when_cell),
        Column("of", "Of", lambda row: KINDS[row.kind].subject, _of_cell),
        Column("clear", "Resolves", lambda row: row.clear, _clear_cell),
        Column("notify", "Tells", lambda row: row.notify, lambda row: shown(", ".join(row.notify), 200)),
        Column("description", "What to do", lambda row: row.description, lambda row: shown(row.description, 400)),
    ]
    return make_table(rules, columns, query, caption="Rules", sort="rule", name="r.")


def _when_cell(rule: Rule) -> Cell:
    kind = KINDS[rule.kind]
    lasting = f" for {show(rule.hold, Unit.SECONDS)}" if rule.hold else ""
    within = f", within {show(rule.over, Unit.SECONDS)}" if "over" in kind.keys else ""
    late = f", late by {show(rule.late, Unit.SECONDS)}" if "late" in kind.keys else ""
    return Cell(f"above {show(rule.above, rule.unit)}{lasting}{within}{late}", note=kind.meaning)


def _of_cell(rule: Rule) -> Cell:
    wanted = [f"{what} {' '.join(rule.patterns.get(what, Patterns()).texts)}" for what in KINDS[rule.kind].subject]
    return Cell(shown(", ".join(wanted) or "the cluster", 200))


def _clear_cell(rule: Rule) -> Cell:
    lasting = f" for {show(rule.keep, Unit.SECONDS)}" if rule.keep else ""
    return Cell(f"at {show(rule.clear, rule.unit)} or less{lasting}")


def concerns_of(firing: Sequence[Alert], cluster: str) -> list[Concern]:
    """Return what fires as sentences for the overview, at most ten."""
    concerns = [
        Concern(f"Alert: {shown(alert.rule.name, 80)}: {shown(alert.summary, 300)}", address(cluster, "alerts"),
                "bad" if alert.rule.severity == "critical" else "warn")
        for alert in firing[:10]
    ]  # fmt: skip
    if len(firing) > 10:
        concerns.append(Concern(f"{len(firing) - 10:,} more alerts fire", address(cluster, "alerts")))
    return concerns
