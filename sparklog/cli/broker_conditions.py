"""How each broker is now, for every command that shows brokers: what the cluster says of it, and whether it answers.

The cluster counts on a location until a controller has noticed that it is gone, and there may be none at work; so each
location is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from sparklog.cli.common import complain

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator

TIMEOUT_MS = 5000
"""ms that the locations have to answer, where no option says otherwise."""

Word = Literal["online", "unreachable", "offline"]


class Condition(NamedTuple):
    """``last_seen_ms`` is None where it is not known; ``problem`` says why a broker did not answer."""

    word: Word
    last_seen_ms: int | None
    problem: str | None


def conditions_of(coordinator: Coordinator, timeout_ms: int = TIMEOUT_MS) -> dict[int, Condition]:
    """All brokers by id; all are asked at once. Raises StorageError where the root does not answer."""
    from sparklog.coordinator.probes import probe_brokers

    probes = probe_brokers(coordinator, timeout_ms / 1000)
    found: dict[int, Condition] = {}
    for number, probe in probes.items():
        answered: Word = "online" if probe.answered else "unreachable"
        word = answered if coordinator.state.brokers[number].online else "offline"
        found[number] = Condition(word, probe.last_seen_ms, probe.why or None)
    return found


def complain_of(conditions: Mapping[int, Condition]) -> None:
    """A line on standard error for each broker that did not answer."""
    for number, condition in conditions.items():
        if condition.problem is not None:
            complain(f"broker {number} did not answer: {condition.problem}")
