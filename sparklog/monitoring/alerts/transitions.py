"""What becomes of alerts: from what was measured, what they were before, and the time that has passed.

    outcome = decide(rules, measured, earlier, tick)

An alert is a rule and a subject, such as a group and a topic. Its state:

    (none)   the value is above the threshold        -> pending; firing if the rule has no ``for``
    pending  it has been for ``for``                 -> firing
    pending  it is not                               -> (none)
    firing   it is at most ``clear``                 -> firing, about to resolve
    firing   it has been for ``keep_firing_for``     -> (none): resolved

Rules: pure. What was not measured this time stays as it is; a subject that no longer exists has the value 0; an alert
of which the rule was removed resolves. Time is what ``ticks`` says, never that of a clock.
Not for: who is told (``channels``), and where states are kept (``alert_file``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sparklog.monitoring.alerts.rules import Rule
from sparklog.monitoring.alerts.ticks import Tick

PENDING, FIRING, RESOLVED = "pending", "firing", "resolved"

Subject = tuple[tuple[str, str], ...]
"""What an alert is about: pairs of what and its name, such as ("group", "billing"); empty for the cluster."""

AlertKey = tuple[str, Subject]
"""The name of a rule, and a subject."""


class Observation(NamedTuple):
    """What was measured of a subject, in the unit of the rule, and a remark for people."""

    value: float
    detail: str = ""


class AlertState(NamedTuple):
    """An alert that is pending or firing since a time. ``held`` are the seconds for which its value was above the
    threshold, ``cleared`` those for which it was not, None if it is now."""

    status: str
    since_ms: int
    held: float
    cleared: float | None
    value: float
    detail: str = ""


class AlertChange(NamedTuple):
    """An alert began to fire, or resolved. ``since_ms`` is when its value passed the threshold."""

    rule: str
    subject: Subject
    status: str
    time_ms: int
    since_ms: int
    value: float
    detail: str = ""


class AlertOutcome(NamedTuple):
    """The alerts that are pending or firing, and what has changed."""

    states: dict[AlertKey, AlertState]
    changes: list[AlertChange]


def decide(
    rules: Iterable[Rule],
    measured: Mapping[str, Mapping[Subject, Observation]],
    earlier: Mapping[AlertKey, AlertState],
    tick: Tick,
) -> AlertOutcome:
    """Return the alerts after an evaluation. ``measured`` has, by rule, what it found; a rule that could not be
    measured is not in it."""
    by_name = {rule.name: rule for rule in rules}
    keys = dict.fromkeys(earlier)
    keys.update(dict.fromkeys((name, subject) for name in by_name for subject in measured.get(name, ())))
    outcome = AlertOutcome({}, [])
    for key in keys:
        name, subject = key
        rule, before = by_name.get(name), earlier.get(key)
        if rule is None:
            after = None
        elif name not in measured:
            after = before
        else:
            after = _next(rule, before, measured[name].get(subject, Observation(0.0)), tick)
        if after is not None:
            outcome.states[key] = after
        _note_change(outcome.changes, key, before, after, tick)
    return outcome


def _next(rule: Rule, before: AlertState | None, seen: Observation, tick: Tick) -> AlertState | None:
    is_above = seen.value > rule.above
    if before is None or before.status == PENDING:
        if not is_above:
            return None
        held = 0.0 if before is None else before.held + tick.elapsed
        since_ms = tick.time_ms if before is None else before.since_ms
        return AlertState(FIRING if held >= rule.hold else PENDING, since_ms, held, None, *seen)
    held = before.held + tick.elapsed
    if seen.value > rule.clear:
        return AlertState(FIRING, before.since_ms, held, None, *seen)
    cleared = 0.0 if before.cleared is None else before.cleared + tick.elapsed
    return None if cleared >= rule.keep else AlertState(FIRING, before.since_ms, held, cleared, *seen)


def _note_change(
    changes: list[AlertChange], key: AlertKey, before: AlertState | None, after: AlertState | None, tick: Tick
) -> None:
    fired = before is not None and before.status == FIRING
    fires = after is not None and after.status == FIRING
    if fires and not fired and after is not None:
        changes.append(AlertChange(*key, FIRING, tick.time_ms, after.since_ms, after.value, after.detail))
    elif fired and not fires and before is not None:
        changes.append(AlertChange(*key, RESOLVED, tick.time_ms, before.since_ms, before.value, before.detail))
