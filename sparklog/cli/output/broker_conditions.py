"""Probes the brokers for every command that shows them: their state in the log, and whether their locations answer.

The log shows a location as online until a controller notices its failure, and no controller may be running; so each
location is probed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from sparklog.cli.arguments.parser import complain

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator

TIMEOUT_MS = 5000
"""ms within which the locations have to answer, unless an option sets another timeout."""

Word = Literal["online", "unreachable", "offline"]


class Condition(NamedTuple):
    """The condition of a broker. ``last_seen_ms`` is None if unknown; ``problem`` is why it did not answer."""

    word: Word
    last_seen_ms: int | None
    problem: str | None


def conditions_of(coordinator: Coordinator, timeout_ms: int = TIMEOUT_MS) -> dict[int, Condition]:
    """Probe all brokers in parallel; return their conditions by id. Raises StorageError if the root does not answer."""
    from sparklog.coordinator.probes import probe_brokers

    probes = probe_brokers(coordinator, timeout_ms / 1000)
    conditions: dict[int, Condition] = {}
    for number, probe in probes.items():
        probed: Word = "online" if probe.answered else "unreachable"
        word = probed if coordinator.state.brokers[number].online else "offline"
        conditions[number] = Condition(word, probe.last_seen_ms, probe.why or None)
    return conditions


def complain_of(conditions: Mapping[int, Condition]) -> None:
    """Print a line on standard error for each broker that did not answer."""
    for number, condition in conditions.items():
        if condition.problem is not None:
            complain(f"broker {number} did not answer: {condition.problem}")
