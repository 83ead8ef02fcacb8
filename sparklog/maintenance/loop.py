"""The maintenance loop: runs the steps that are due, one after the other, and goes on whatever one of them meets.

    report = Loop(steps, clock).once()          # every step once, as cron would
    Loop(steps, clock, check=stop.check).forever()

A step is one kind of work on the whole cluster (see ``steps``). An error in one is noted with what it concerns, and the
others go on. Several loops may run at the same time, on any machines: what two of them do to the same partition is
decided by the commit log.

Rules: nothing here decides what is to be done to a log. Stopping is always safe: a step has either made its commit or
changed nothing.
Not for: the work itself.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import NamedTuple

from sparklog.clock import Clock
from sparklog.errors import SparklogError
from sparklog.maintenance.runner import StopRequested

logger = logging.getLogger(__name__)

SLEEP_SECONDS = 0.5
"""How long the loop sleeps between two looks whether it is to stop."""

MAX_PROBLEMS_SAID = 20
"""lines about errors of one step in a report; the rest are counted."""


@dataclass
class Report:
    """What a step has done: facts in the order they were noted, and what went wrong, each with its place."""

    step: str
    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def count(self, **facts: int) -> None:
        """Add to facts, named as they are printed with ``_`` for spaces."""
        for name, number in facts.items():
            self.counts[name] = self.counts.get(name, 0) + number

    def problem(self, error: BaseException) -> None:
        """Note an error with the topic, partition or broker it is about."""
        self.problems.append(place_and_message(error))

    def lines(self, known: Sequence[str] | None = None) -> Iterator[str]:
        """For people: one line of facts, then the remarks; with ``known``, nothing that is not there or is known.

        A step that failed is not said to have had nothing to do.
        """
        facts = [f"{name.replace('_', ' ')} {_amount(name, number)}" for name, number in self.counts.items() if number]
        if facts or (known is None and not self.problems):
            yield f"{self.step}: {', '.join(facts) or 'nothing to do'} ({self.seconds:.1f} s)"
        yield from (f"{self.step}: {remark}" for remark in self.remarks() if remark not in (known or ()))

    def remarks(self) -> list[str]:
        """Notes and problems."""
        return [*self.notes, *self._problems_said()]

    def _problems_said(self) -> Iterator[str]:
        yield from (f"failed: {problem}" for problem in self.problems[:MAX_PROBLEMS_SAID])
        left_out = len(self.problems) - MAX_PROBLEMS_SAID
        if left_out > 0:
            yield f"failed: {left_out} more"


def place_and_message(error: BaseException) -> str:
    """An error in one line, with its topic and partition in front where the message does not name them."""
    message = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, SparklogError):
        return f"unexpected {type(error).__name__}: {message}"
    place = "" if error.topic is None else str(error.topic)
    if place and error.partition is not None:
        place += f"-{error.partition}"
    return message if not place or place in message else f"{place}: {message}"


def _amount(name: str, number: int) -> str:
    if not name.startswith("bytes"):
        return f"{number:,}"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number}"


class Step(NamedTuple):
    """One kind of maintenance. ``run`` notes in the report what it does, and may raise; ``interval_ms`` is asked after
    each run for the time to the next one. Steps of different lanes do not wait for each other in a loop."""

    name: str
    run: Callable[[Report], None]
    interval_ms: Callable[[], int]
    lane: str = ""


class Loop:
    """Runs steps when they are due. Use it once.

    ``check`` is called often, by every lane's thread, and raises StopRequested to end the loop. ``say`` gets the lines
    of each report, from all of them; ``hand_on`` the reports of which there is a line.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        clock: Clock,
        check: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = logger.info,
        hand_on: Callable[[Report], None] = lambda report: None,
    ) -> None:
        self._steps = steps
        self._clock = clock
        self._is_wanted = check
        self._say = say
        self._hand_on = hand_on
        self._lane_ended = threading.Event()

    def _check(self) -> None:
        self._is_wanted()
        if self._lane_ended.is_set():
            raise StopRequested  # the others go with it, so that whoever restarts the program notices

    def once(self) -> list[Report]:
        """Every step once, in order; ends early where the check says so."""
        reports: list[Report] = []
        try:
            for step in self._steps:
                self._check()
                reports.append(self._run(step))
        except StopRequested:
            self._say("stopped")
        return reports

    def forever(self) -> None:
        """Each step at once and then whenever it is due, until the check says to stop.

        Reports of nothing are not said, nor what is wrong a second time.
        """
        lanes: dict[str, list[Step]] = {}
        for step in self._steps:
            lanes.setdefault(step.lane, []).append(step)
        _in_threads([partial(self._lane, lane) for lane in lanes.values()])
        self._say("stopped")

    def _lane(self, lane: Sequence[Step]) -> None:
        try:
            self._run_when_due(lane)
        finally:
            self._lane_ended.set()

    def _run_when_due(self, lane: Sequence[Step]) -> None:
        due = dict.fromkeys(lane, self._clock.monotonic())
        known: dict[Step, list[str]] = {}
        with suppress(StopRequested):
            while True:
                for step in lane:
                    if due[step] <= self._clock.monotonic():
                        self._check()
                        known[step] = self._run(step, known.get(step, [])).remarks()
                        due[step] = self._clock.monotonic() + self._interval(step)
                self._sleep_until(min(due.values()))

    def _interval(self, step: Step) -> float:
        """Seconds to the next run. A cluster that cannot be read now may be read later."""
        try:
            return max(step.interval_ms() / 1000, SLEEP_SECONDS)
        except SparklogError as error:
            logger.warning("%s: its interval cannot be read: %s", step.name, error)
            return 60.0

    def _run(self, step: Step, known: Sequence[str] | None = None) -> Report:
        """Run a step and say what it did; with ``known``, the remarks of its last run, only if that is new."""
        report = Report(step.name)
        started = self._clock.monotonic()
        try:
            step.run(report)
        except Exception as error:
            logger.debug("%s failed", step.name, exc_info=True)
            report.problem(error)
        finally:  # also where it is stopped half-way: what it has committed by then is done
            report.seconds = self._clock.monotonic() - started
            lines = list(report.lines(known))
            for line in lines:
                self._say(line)
            if lines:
                self._hand_on(report)
        return report

    def _sleep_until(self, due: float) -> None:
        while (left := due - self._clock.monotonic()) > 0:
            self._check()
            self._clock.sleep(min(left, SLEEP_SECONDS))


def problems(reports: Sequence[Report]) -> int:
    """How many things went wrong in a pass."""
    return sum(len(report.problems) for report in reports)


def _in_threads(works: Sequence[Callable[[], None]]) -> None:
    """Do all at once, the last in this thread, and raise what that raises; the others' threads are daemons."""
    errors: list[BaseException] = []
    threads = [threading.Thread(target=_caught, args=(work, errors), daemon=True) for work in works[:-1]]
    for thread in threads:
        thread.start()
    for work in works[-1:]:
        work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _caught(work: Callable[[], None], errors: list[BaseException]) -> None:
    try:
        work()
    except BaseException as error:  # none is expected: a step's errors are its report's
        logger.exception("a lane of the maintenance loop has ended")
        errors.append(error)


# -- logging

REPEAT_SECONDS = 600.0
"""How long a logged line is not said again."""

MAX_LINES_KNOWN = 10_000


class _Repeats(logging.Filter):
    """Lets a line pass that was not there for ``REPEAT_SECONDS``."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        line = record.getMessage()
        known = self._seen.get(line)
        if known is not None and record.created - known < REPEAT_SECONDS:
            return False
        if len(self._seen) >= MAX_LINES_KNOWN:
            self._seen.clear()
        self._seen[line] = record.created
        return True


@contextmanager
def repeats_logged_once() -> Iterator[None]:
    """Meanwhile sparklog's warnings go to standard error, but not the same ones at every check.

    Where the program has set up logging itself, that is left as it is.
    """
    if logging.getLogger().handlers or logging.getLogger("sparklog").handlers:
        yield
        return
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.addFilter(_Repeats())
    logging.getLogger("sparklog").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("sparklog").removeHandler(handler)


# -- stopping


class Stop:
    """Whether the program is to end. ``request`` may be called from anywhere, a signal handler included.

    ``exit_code`` is what a shell expects of a program that a signal ended before its work was done: 128 and its number.
    """

    def __init__(self) -> None:
        self.requested = False
        self.exit_code = 0

    def request(self, signal_number: int = 0) -> None:
        self.requested = True
        self.exit_code = 128 + signal_number if signal_number else 0

    def check(self) -> None:
        """Raises StopRequested once that is wanted."""
        if self.requested:
            raise StopRequested


@contextmanager
def stopped_by_signals(stop: Stop, say: Callable[[str], None]) -> Iterator[None]:
    """Meanwhile SIGTERM, SIGINT and SIGHUP request the stop; a second one interrupts whatever runs (KeyboardInterrupt).

    A SIGHUP that is ignored, as ``nohup`` has it, stays ignored.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.request(number)
        say(f"{signal.Signals(number).name}: stopping as soon as the present task allows; once more to stop at once")

    numbers = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before: Mapping[int, object] = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
