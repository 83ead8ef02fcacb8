"""Which brokers answer now: each location is asked who it is, all at once, and no longer than the caller has time.

The log says what the controller knew at its last pass, and there may be no controller at work. A probe reads, writes
nothing and decides nothing; whether a location takes writes, only the controller's check tells (``health``).
"""

from __future__ import annotations

import threading
from typing import NamedTuple

from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.health import check_identity
from sparklog.errors import SparklogError
from sparklog.log.broker_files import note_key, read_check
from sparklog.protocol.state import State


class Probe(NamedTuple):
    """What came of it. ``last_seen_ms`` is now where it answered, else the time of the latest check that it passed,
    None where none is noted; ``why`` is for people, and empty where it answered."""

    answered: bool
    last_seen_ms: int | None
    why: str = ""


def probe_brokers(coordinator: Coordinator, timeout_seconds: float) -> dict[int, Probe]:
    """All brokers of the cluster by id. The root is taken to answer: the caller has just read from it.

    A location that hangs keeps a thread until it answers; it does not keep the process. Raises StorageError where the
    root does not answer.
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
    found = dict(answers)  # what comes later is too late
    silent = f"no answer within {timeout_seconds:g} s"
    return {number: _probe(coordinator, number, found.get(number, silent)) for number in sorted(state.brokers)}


def _ask(coordinator: Coordinator, state: State, number: int, answers: dict[int, str]) -> None:
    """Note why a broker is not well, or an empty text."""
    url = state.brokers[number].url
    try:
        check_identity(coordinator.brokers.store_of(state, number), state.cluster_id, number, url)
        answers[number] = ""
    except SparklogError as error:
        answers[number] = error.message
    except Exception as error:  # a storage's client may raise anything, and a thread has nobody to tell
        answers[number] = f"{type(error).__name__}: {error}"


def _probe(coordinator: Coordinator, number: int, why: str) -> Probe:
    if not why:
        return Probe(True, coordinator.log.clock.now_ms())
    return Probe(False, read_check(coordinator.store, note_key(number)).time_ms or None, why)
