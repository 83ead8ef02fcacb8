"""Probes which brokers answer now: reads the identity of all locations in parallel, with a timeout.

The log has only the result of the controller's last pass, and there may be no controller running. A probe reads, writes
nothing and decides nothing; only the controller's check tells whether a location accepts writes (``health``).
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.health import check_identity
from sparklog.errors import SparklogError
from sparklog.log.broker_files import read_note
from sparklog.protocol.state import State


class Probe(NamedTuple):
    """The result of a probe. ``last_seen_ms`` is now if the broker answered, else the time of the latest check that it
    passed, None if none is stored; ``why`` is for people, and empty if it answered."""

    answered: bool
    last_seen_ms: int | None
    why: str = ""


def probe_brokers(coordinator: Coordinator, timeout_seconds: float) -> dict[int, Probe]:
    """Probe all brokers of the cluster, by id. The root counts as answering: the caller has just read from it.

    A hanging location occupies a daemon thread until it answers, which does not keep the process alive. Raises
    StorageError if the root does not answer.
    """
    state = coordinator.state
    answers: dict[int, str] = {number: "" for number, broker in state.brokers.items() if not broker.url}
    threads = [
        threading.Thread(target=_ask, args=(coordinator, state, number, answers), daemon=True, name=f"probe-{number}")
        for number in state.brokers.keys() - answers.keys()
    ]
    for thread in threads:
        thread.start()
    clock = coordinator.log.clock
    deadline = clock.monotonic() + timeout_seconds
    for thread in threads:
        thread.join(max(deadline - clock.monotonic(), 0))
    reasons = dict(answers)  # a copy: later answers are ignored
    silent = f"no answer within {timeout_seconds:g} s"
    return {number: _to_probe(coordinator, number, reasons.get(number, silent)) for number in sorted(state.brokers)}


def _ask(coordinator: Coordinator, state: State, number: int, answers: dict[int, str]) -> None:
    """Store why a broker does not answer properly, or an empty text."""
    url = state.brokers[number].url
    try:
        check_identity(coordinator.brokers.store_of(state, number), state.cluster_id, number, url)
        answers[number] = ""
    except SparklogError as error:
        answers[number] = error.message
    except Exception as error:  # a client may raise anything, and a thread has no caller to raise it to
        answers[number] = f"{type(error).__name__}: {error}"


def _to_probe(coordinator: Coordinator, number: int, why: str) -> Probe:
    if not why:
        return Probe(True, coordinator.log.clock.now_ms())
    return Probe(False, read_note(coordinator.store, number).time_ms or None, why)
