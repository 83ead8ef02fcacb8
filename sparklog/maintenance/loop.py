"""The maintenance loop: runs the steps that are due, one after the other, and continues when one of them fails.

    report = Loop(steps, clock).once()          # every step once, as cron would
    Loop(steps, clock, check=stop.check).forever()

A step is one kind of work on the whole cluster (see ``steps``). An error in a step is reported with the topic,
partition or broker that it concerns, and the other steps run all the same. Several loops may run at the same time, on
any machines: conflicts between them are resolved by the commit log.

Rules: nothing here decides what to change in a log. Stopping is always safe: a step has either made its commit or
changed nothing.
Not for: the work of the steps.
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
from sparklog.errors import ClusterMovedError, RootReplacedError, SparklogError
from sparklog.maintenance.runner import StopRequested

logger = logging.getLogger(__name__)

SLEEP_SECONDS = 0.5
"""Seconds that the loop sleeps between two checks for a stop request."""

MAX_PROBLEM_LINES = 20
"""Error lines of one step in a report; further errors are only counted."""


@dataclass
class LoopReport:
    """What a step did: counts in the order in which they were added, and problems, each with the place it concerns.

    ``end`` is the error after which this process can do no more work, if any."""

    step: str
    counts: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    end: Exception | None = None

    def count(self, **counts: int) -> None:
        """Add to the counts, which are printed under these names with spaces for ``_``."""
        for name, number in counts.items():
            self.counts[name] = self.counts.get(name, 0) + number

    def lines(self, previous: Sequence[str] | None = None) -> Iterator[str]:
        """Return the report for people: one line of counts, then the remarks.

        With ``previous``, the remarks of the last run, an empty line of counts and remarks that are repeated are left
        out. A step that failed does not report "nothing to do".
        """
        counts = [
            f"{name.replace('_', ' ')} {_format_count(name, number)}" for name, number in self.counts.items() if number
        ]
        if counts or (previous is None and not self.problems):
            yield f"{self.step}: {', '.join(counts) or 'nothing to do'} ({self.seconds:.1f} s)"
        yield from (f"{self.step}: {remark}" for remark in self.remarks() if remark not in (previous or ()))

    def remarks(self) -> list[str]:
        """Return the lines about notes and problems."""
        shown, omitted = self.problems[:MAX_PROBLEM_LINES], len(self.problems) - MAX_PROBLEM_LINES
        failed = [*shown, f"{omitted} more"] if omitted > 0 else shown
        return [*self.notes, *(f"failed: {problem}" for problem in failed)]


def describe_error(error: BaseException) -> str:
    """Return an error as one line, prefixed with its topic and partition unless the message names them."""
    message = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, SparklogError):
        return f"unexpected {type(error).__name__}: {message}"
    subject = "" if error.topic is None else str(error.topic)
    if subject and error.partition is not None:
        subject += f"-{error.partition}"
    return message if not subject or subject in message else f"{subject}: {message}"


def _format_count(name: str, number: int) -> str:
    if not name.startswith("bytes"):
        return f"{number:,}"
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number}"


class Step(NamedTuple):
    """One kind of maintenance. ``run`` adds what it does to the report, and may raise; ``interval_ms`` returns the time
    to the next run and is called after each run. In a loop each lane of steps has a thread of its own."""

    name: str
    run: Callable[[LoopReport], None]
    interval_ms: Callable[[], int]
    lane: str = ""


class Loop:
    """Runs steps when they are due. Use it once.

    ``check`` is called often, by the thread of every lane, and raises StopRequested to end the loop. ``say`` is called
    with each line of a report, ``on_report`` with each report that has a line; both from any lane's thread.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        clock: Clock,
        check: Callable[[], None] = lambda: None,
        say: Callable[[str], None] = logger.info,
        on_report: Callable[[LoopReport], None] = lambda report: None,
    ) -> None:
        self._steps = steps
        self._clock = clock
        self._check_stop = check
        self._say = say
        self._on_report = on_report
        self._lane_ended = threading.Event()

    def _check(self) -> None:
        self._check_stop()
        if self._lane_ended.is_set():
            raise StopRequested  # the other lanes end as well, so that a supervisor notices and restarts the program

    def once(self) -> list[LoopReport]:
        """Run every step once, in order; end early if ``check`` raises StopRequested."""
        reports: list[LoopReport] = []
        try:
            for step in self._steps:
                self._check()
                reports.append(self._run(step))
        except StopRequested:
            self._say("stopped")
        return reports

    def forever(self) -> None:
        """Run each step immediately and then whenever it is due, until ``check`` raises StopRequested.

        Empty reports are not printed, and a problem that lasts only every ``REPEAT_SECONDS``. Raises RootReplacedError
        or ClusterMovedError once the root holds another timeline or has moved: a new process has to open it.
        """
        lanes: dict[str, list[Step]] = {}
        for step in self._steps:
            lanes.setdefault(step.lane, []).append(step)
        _run_in_threads([partial(self._run_lane, lane) for lane in lanes.values()])
        self._say("stopped")

    def _run_lane(self, lane: Sequence[Step]) -> None:
        try:
            self._run_when_due(lane)
        finally:
            self._lane_ended.set()

    def _run_when_due(self, lane: Sequence[Step]) -> None:
        due = dict.fromkeys(lane, self._clock.monotonic())
        remarks: dict[Step, list[str]] = {}
        forgotten_at = self._clock.monotonic() + REPEAT_SECONDS  # a failure that lasts is said again
        with suppress(StopRequested):
            while True:
                for step in lane:
                    if due[step] <= self._clock.monotonic():
                        self._check()
                        report = self._run(step, remarks.get(step, []))
                        if report.end is not None:
                            raise report.end
                        remarks[step] = report.remarks()
                        due[step] = self._clock.monotonic() + self._interval(step)
                if forgotten_at <= self._clock.monotonic():
                    remarks.clear()
                    forgotten_at = self._clock.monotonic() + REPEAT_SECONDS
                self._sleep_until(min(due.values()))

    def _interval(self, step: Step) -> float:
        """Return the seconds until the next run; a minute if the cluster cannot be read now."""
        try:
            return max(step.interval_ms() / 1000, SLEEP_SECONDS)
        except SparklogError as error:
            logger.warning("%s: could not read the interval of this step, using 60 s: %s", step.name, error)
            return 60.0

    def _run(self, step: Step, previous: Sequence[str] | None = None) -> LoopReport:
        """Run a step, print its report (with ``previous``, the remarks of its last run, only new lines), return it."""
        report = LoopReport(step.name)
        started = self._clock.monotonic()
        try:
            step.run(report)
        except Exception as error:
            logger.debug("%s failed", step.name, exc_info=True)
            report.problems.append(describe_error(error))
            report.end = error if isinstance(error, (RootReplacedError, ClusterMovedError)) else None
        finally:  # also if it is stopped half-way: report what was committed by then
            report.seconds = self._clock.monotonic() - started
            lines = list(report.lines(previous))
            for line in lines:
                self._say(line)
            if lines:
                self._on_report(report)
        return report

    def _sleep_until(self, due: float) -> None:
        while (remaining := due - self._clock.monotonic()) > 0:
            self._check()
            self._clock.sleep(min(remaining, SLEEP_SECONDS))


def problems(reports: Sequence[LoopReport]) -> int:
    """Return the number of problems of a pass."""
    return sum(len(report.problems) for report in reports)


def _run_in_threads(functions: Sequence[Callable[[], None]]) -> None:
    """Run all functions concurrently: the last in this thread, the others in daemon threads.

    Raises what the last one raises, else the first error of the others.
    """
    errors: list[BaseException] = []
    threads = [
        threading.Thread(target=_collect_error, args=(function, errors), daemon=True) for function in functions[:-1]
    ]
    for thread in threads:
        thread.start()
    for function in functions[-1:]:
        function()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _collect_error(function: Callable[[], None], errors: list[BaseException]) -> None:
    try:
        function()
    except (RootReplacedError, ClusterMovedError) as error:  # in the report of its step
        errors.append(error)
    except BaseException as error:  # unexpected: errors of a step are in its report
        logger.exception("a thread of the maintenance loop failed")
        errors.append(error)


# -- logging

REPEAT_SECONDS = 600.0
"""Seconds for which a logged line is not repeated."""

MAX_REMEMBERED_LINES = 10_000


class _RepeatFilter(logging.Filter):
    """Drops a line that was logged within the last ``REPEAT_SECONDS``."""

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        line = record.getMessage()
        logged_at = self._logged_at.get(line)
        if logged_at is not None and record.created - logged_at < REPEAT_SECONDS:
            return False
        if len(self._logged_at) >= MAX_REMEMBERED_LINES:
            self._logged_at.clear()
        self._logged_at[line] = record.created
        return True


@contextmanager
def repeats_logged_once() -> Iterator[None]:
    """Send sparklog's warnings to standard error inside the block, without repeating the same ones at every check.

    If the program has set up logging itself, its setup is left unchanged.
    """
    if logging.getLogger().handlers or logging.getLogger("sparklog").handlers:
        yield
        return
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.addFilter(_RepeatFilter())
    logging.getLogger("sparklog").addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger("sparklog").removeHandler(handler)


# -- stopping


class Stop:
    """A stop request for the program. ``request`` may be called from any thread and from signal handlers.

    ``exit_code`` is what a shell expects of a program that a signal ended before its work was done: 128 plus the signal
    number.
    """

    def __init__(self) -> None:
        self.requested = False
        self.exit_code = 0

    def request(self, signal_number: int = 0) -> None:
        self.requested = True
        self.exit_code = 128 + signal_number if signal_number else 0

    def check(self) -> None:
        """Raise StopRequested if a stop was requested."""
        if self.requested:
            raise StopRequested


@contextmanager
def stopped_by_signals(stop: Stop, say: Callable[[str], None]) -> Iterator[None]:
    """Let SIGTERM, SIGINT and SIGHUP request the stop inside the block; a second signal raises KeyboardInterrupt.

    SIGHUP stays ignored if it was, as under ``nohup``.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.request(number)
        say(f"{signal.Signals(number).name}: stopping after the current task; send it again to stop immediately")

    numbers = [signal.SIGTERM, signal.SIGINT]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before: Mapping[int, object] = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
