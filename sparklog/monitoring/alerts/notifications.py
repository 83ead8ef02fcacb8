"""What people and programs are told about alerts: texts, and the JSON of a notification.

Rules: pure. Names of groups and topics are text of strangers: control characters are escaped in texts for people.
Not for: sending (``channels``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sparklog.clock import utc_text
from sparklog.monitoring.alerts.quantities import Unit, show
from sparklog.monitoring.alerts.rules import KINDS, Rule
from sparklog.monitoring.alerts.transitions import FIRING, AlertChange, Subject
from sparklog.types import printable

VERSION = 1
"""Of the JSON of notifications; fields may be added without another one."""
UNITS = {Unit.SECONDS: "seconds", Unit.BYTES: "bytes", Unit.COUNT: "count"}
MAX_LINES = 20
"""Alerts that the text of a notification shows."""


class NotificationText(NamedTuple):
    """A notification: a title and a text for people, and the document for programs."""

    title: str
    text: str
    document: dict[str, Any]


def describe_subject(subject: Subject) -> str:
    """Return a subject as text: ``group billing, topic orders``; ``the cluster`` if it is empty."""
    return printable(", ".join(f"{what} {name}" for what, name in subject)) or "the cluster"


def summarize(rule: Rule, subject: Subject, value: float, detail: str) -> str:
    """Return one line that says what was measured and what the rule allows.

    An alert still fires below its threshold, until its value has been at most ``clear`` for long enough.
    """
    compared = "more than" if value > rule.above else "no longer more than"
    measured = f"{show(value, rule.unit)}, {compared} {show(rule.above, rule.unit)}"
    remark = f"; {printable(detail)}" if detail else ""
    return f"{describe_subject(subject)}: {measured} ({KINDS[rule.kind].meaning}){remark}"


def alert_of(rule: Rule | None, change: AlertChange) -> dict[str, Any]:
    """Return a change as the JSON of an alert; ``rule`` is None if it was removed."""
    summary = "its rule was removed" if rule is None else summarize(rule, change.subject, change.value, change.detail)
    return {
        "rule": change.rule,
        "kind": None if rule is None else rule.kind,
        "severity": "info" if rule is None else rule.severity,
        "status": change.status,
        "subject": dict(change.subject),
        "value": change.value,
        "above": None if rule is None else rule.above,
        "unit": None if rule is None else UNITS[rule.unit],
        "summary": summary,
        "description": "" if rule is None else rule.description,
        "since_ms": change.since_ms,
        "time_ms": change.time_ms,
    }


def message_of(cluster_id: str, root: str, alerts: Sequence[dict[str, Any]]) -> NotificationText:
    """Return the notification about alerts, each as ``alert_of`` made it, with an ``id``."""
    firing = sum(alert["status"] == FIRING for alert in alerts)
    counts = [f"{firing} firing"] * bool(firing) + [f"{len(alerts) - firing} resolved"] * (firing < len(alerts))
    first = f": {alerts[0]['rule']}" if len(alerts) == 1 else ""
    title = f"sparklog: {', '.join(counts)}{printable(first)}"
    lines = [_line(alert) for alert in alerts[:MAX_LINES]]
    if len(alerts) > MAX_LINES:
        lines.append(f"and {len(alerts) - MAX_LINES} more")
    lines.append(f"cluster {cluster_id} at {printable(root)}")
    document = {"version": VERSION, "cluster_id": cluster_id, "root": root, "text": "\n".join([title, *lines])}
    return NotificationText(title, "\n".join(lines), {**document, "alerts": list(alerts)})


def _line(alert: dict[str, Any]) -> str:
    what = f"{alert['status'].upper()} {alert['rule']} [{alert['severity']}]"
    about = f"{alert['summary']}, since {utc_text(alert['since_ms'])}"
    return printable(f"{what} {about}") + (f"\n  {printable(alert['description'])}" if alert["description"] else "")
