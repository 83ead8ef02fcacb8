"""Probes which brokers answer now: reads the identity of locations in parallel, with a timeout.

The log has only the result of the controller's last pass, and there may be no controller running. A probe reads, writes
nothing and decides nothing; only the controller's check tells whether a location accepts writes (``health``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import wait
from functools import partial
from threading import Thread
from typing import NamedTuple, TypeVar

from sparklog.clock import Clock
from sparklog.coordinator.coordinator import Coordinator
from sparklog.coordinator.health import check_identity
from sparklog.errors import SparklogError
from sparklog.log.broker_files import read_note
from sparklog.protocol.state import State
from sparklog.threads import call_in_thread

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Probe(NamedTuple):
    """The result of a probe. ``last_seen_ms`` is now if the broker answered, else the time of the latest check that it
    passed, None if none is stored; ``why`` is for people, and empty if it answered."""

    answered: bool
    last_seen_ms: int | None
    why: str = ""


class BrokerProbes:
    """Asks locations for their identity, or other questions. One that hangs occupies one daemon thread until it
    answers, however often it is asked; that thread does not keep the process alive. Not thread-safe."""

    def __init__(self) -> None:
        self._asking: dict[Hashable, Thread] = {}

    def ask(self, coordinator: Coordinator, brokers: Iterable[int], timeout_seconds: float) -> dict[int, str | None]:
        """Return why each broker does not answer properly, or an empty text; None for one that has no answer within
        this time, or for an earlier call."""
        state = coordinator.state
        questions = {number: partial(_ask, coordinator, state, number) for number in brokers}
        return self.ask_each(questions, coordinator.log.clock, timeout_seconds)

    def ask_each(
        self, questions: Mapping[Key, Callable[[], str]], clock: Clock, timeout_seconds: float
    ) -> dict[Key, str | None]:
        """Return the answer to each question, or why there is none; None for one that has no answer within this time,
        or for an earlier call."""
        answers: dict[Key, str | None] = dict.fromkeys(questions)
        asked = [key for key in questions if key not in self._asking or not self._asking[key].is_alive()]
        for key in asked:
            ask = (questions[key], key, answers)
            self._asking[key] = Thread(target=_answer, args=ask, daemon=True, name=f"probe-{key}")
            try:
                self._asking[key].start()
            except RuntimeError:  # no thread can be started now
                _answer(*ask)
        deadline = clock.monotonic() + timeout_seconds
        for key in asked:
            if answers[key] is None:
                self._asking[key].join(max(deadline - clock.monotonic(), 0))
        return dict(answers)  # a copy: later answers are ignored


def run_beside(work: Callable[[], Result], meanwhile: Callable[[], object], pause_seconds: float) -> Result:
    """Return the result of ``work``, or raise its error. It runs in another thread, and until it ends ``meanwhile`` is
    called after each pause."""
    try:
        outcome = call_in_thread(work)
    except RuntimeError:  # no thread can be started now
        return work()
    while not wait([outcome], pause_seconds).done:
        meanwhile()
    return outcome.result()


def probe_brokers(coordinator: Coordinator, timeout_seconds: float) -> dict[int, Probe]:
    """Probe all brokers of the cluster, by id. The root counts as answering: the caller has just read from it. Raises
    StorageError if the root does not answer."""
    brokers = coordinator.state.brokers
    answers = BrokerProbes().ask(
        coordinator, [number for number, broker in brokers.items() if broker.url], timeout_seconds
    )
    silent = f"no answer within {timeout_seconds:g} s"
    reasons = {number: silent if why is None else why for number, why in answers.items()}
    return {number: _to_probe(coordinator, number, reasons.get(number, "")) for number in sorted(brokers)}


def _ask(coordinator: Coordinator, state: State, number: int) -> str:
    """Return an empty text if a broker answers properly. Raises SparklogError if not."""
    check_identity(coordinator.brokers.store_of(state, number), state.cluster_id, number, state.brokers[number].url)
    return ""


def _answer(question: Callable[[], str], key: Key, answers: dict[Key, str | None]) -> None:
    """Store the answer to a question, or why there is none."""
    try:
        answers[key] = question()
    except SparklogError as error:
        answers[key] = error.message
    except Exception as error:  # a client may raise anything, and a thread has no caller to raise it to
        answers[key] = f"{type(error).__name__}: {error}"


def _to_probe(coordinator: Coordinator, number: int, why: str) -> Probe:
    if not why:
        return Probe(True, coordinator.log.clock.now_ms())
    return Probe(False, read_note(coordinator.store, number).time_ms or None, why)
