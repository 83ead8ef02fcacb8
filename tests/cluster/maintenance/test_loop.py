"""The loop around the steps: the schedule, the effect of an error on other steps, and how the loop stops."""

from __future__ import annotations

import logging
import os
import signal
import threading
from typing import Any

import pytest

from sparklog.clock import ManualClock, SystemClock
from sparklog.errors import (
    ClusterMovedError,
    CorruptRecordError,
    RootReplacedError,
    SparklogError,
    StorageUnavailableError,
)
from sparklog.maintenance.loop import (
    REPEAT_SECONDS,
    Loop,
    LoopReport,
    Step,
    Stop,
    describe_error,
    problems,
    repeats_logged_once,
    stopped_by_signals,
)
from sparklog.maintenance.runner import StopRequested


class Recorder:
    """Steps that record when they ran."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ran: list[tuple[str, float]] = []
        self.printed: list[str] = []
        self.stop_at: float | None = None

    def step(self, name: str, interval_ms: int = 1000, error: Exception | None = None, takes: float = 0.0) -> Step:
        def run(report: LoopReport) -> None:
            self.ran.append((name, self.clock.monotonic()))
            self.clock.advance(takes)
            report.count(files_merged=1200, bytes_merged=3 * 2**20, bytes_freed=0)
            if error is not None:
                raise error

        return Step(name, run, lambda: interval_ms)

    def check(self) -> None:
        if self.stop_at is not None and self.clock.monotonic() >= self.stop_at:
            raise StopRequested

    def loop(self, *steps: Step) -> Loop:
        return Loop(steps, self.clock, self.check, self.printed.append)


def test_a_pass_runs_every_step_once_in_order_and_prints_what_each_did() -> None:
    recorder = Recorder()
    reports = recorder.loop(recorder.step("roll", takes=2.5), recorder.step("retention")).once()
    assert recorder.ran == [("roll", 0.0), ("retention", 2.5)]
    assert recorder.printed == [
        "roll: files merged 1,200, bytes merged 3.0 MiB (2.5 s)",
        "retention: files merged 1,200, bytes merged 3.0 MiB (0.0 s)",
    ]
    assert problems(reports) == 0


def test_an_error_is_printed_with_its_partition_and_the_other_steps_run() -> None:
    recorder = Recorder()
    broken = recorder.step("roll", error=CorruptRecordError("batch 3 of /x is damaged", topic="orders", partition=7))
    strange = recorder.step("retention", error=ZeroDivisionError("division by zero"))
    reports = recorder.loop(broken, strange, recorder.step("compaction")).once()
    assert [name for name, _ in recorder.ran] == ["roll", "retention", "compaction"]
    assert "roll: failed: orders-7: batch 3 of /x is damaged" in recorder.printed
    assert "retention: failed: unexpected ZeroDivisionError: division by zero" in recorder.printed
    assert problems(reports) == 2


def test_a_report_says_nothing_to_do_only_without_problems_and_does_not_repeat_a_partition() -> None:
    report = LoopReport("roll")
    assert list(report.lines()) == ["roll: nothing to do (0.0 s)"]
    error = StorageUnavailableError("orders-7 cannot be read", topic="orders", partition=7)
    report.problems.append(describe_error(error))
    report.notes.append("orders-8 was changed by another job meanwhile; it is planned again next time")
    assert list(report.lines()) == [
        "roll: orders-8 was changed by another job meanwhile; it is planned again next time",
        "roll: failed: orders-7 cannot be read",
    ]


def test_of_many_problems_the_first_are_printed_and_the_others_counted() -> None:
    report = LoopReport("roll", problems=[f"orders-{number}: broken" for number in range(100)])
    assert len(list(report.lines())) == 21
    assert list(report.lines())[-1] == "roll: failed: 80 more"


def test_each_step_runs_at_its_own_interval() -> None:
    recorder = Recorder()
    recorder.stop_at = 10.0
    recorder.loop(recorder.step("elections", 2_000), recorder.step("retention", 5_000)).forever()
    assert [at for name, at in recorder.ran if name == "elections"] == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert [at for name, at in recorder.ran if name == "retention"] == [0.0, 5.0]
    assert recorder.printed[-1] == "stopped"


def test_a_step_that_takes_longer_than_its_interval_does_not_overlap_itself() -> None:
    recorder = Recorder()
    recorder.stop_at = 30.0
    recorder.loop(recorder.step("roll", 1_000, takes=9.0)).forever()
    assert [at for _, at in recorder.ran] == [0.0, 10.0, 20.0]


def test_a_failed_step_runs_again_when_it_is_due() -> None:
    recorder = Recorder()
    recorder.stop_at = 2.5
    recorder.loop(recorder.step("roll", 1_000, error=StorageUnavailableError("busy"))).forever()
    assert len(recorder.ran) == 3


def test_an_interval_of_zero_does_not_spin() -> None:
    recorder = Recorder()
    recorder.stop_at = 2.0
    recorder.loop(recorder.step("compaction", 0)).forever()
    assert len(recorder.ran) == 4


def test_a_stop_ends_the_pass_before_the_next_step() -> None:
    recorder = Recorder()
    recorder.stop_at = 1.0
    reports = recorder.loop(recorder.step("roll", takes=2.0), recorder.step("retention")).once()
    assert [report.step for report in reports] == ["roll"]
    assert recorder.printed[-1] == "stopped"


def test_lanes_do_not_wait_for_each_other() -> None:
    lines: list[Any] = []
    stop = Stop()
    short_ran = threading.Event()

    def long(report: LoopReport) -> None:
        assert short_ran.wait(60), "the other lane waits for this one"
        stop.request()

    def short(report: LoopReport) -> None:
        short_ran.set()

    steps = [Step("roll", long, lambda: 1000, "segments"), Step("elections", short, lambda: 1000, "elections")]
    for order in (steps, steps[::-1]):
        stop.requested = False
        short_ran.clear()
        Loop(order, SystemClock(), stop.check, lines.append).forever()
    assert lines == ["stopped", "stopped"]


@pytest.mark.parametrize("broken", ["roll", "elections"])
def test_a_lane_that_fails_stops_the_other_lanes_and_the_program(broken: str) -> None:
    def say(line: str) -> None:
        if line.startswith(broken):
            raise BrokenPipeError("nobody reads what is said")

    def run(report: LoopReport) -> None:
        report.count(files=1)

    steps = [Step(name, run, lambda: 1, name) for name in ("elections", "roll")]
    with pytest.raises(BrokenPipeError):
        Loop(steps, SystemClock(), say=say).forever()


def test_a_loop_prints_only_new_problems() -> None:
    recorder = Recorder()
    recorder.stop_at = 4.5
    wrong = iter([["disk full"], ["disk full"], ["disk full", "disk gone"], [], ["disk full"]])

    def run(report: LoopReport) -> None:
        report.problems += next(wrong)

    recorder.loop(Step("roll", run, lambda: 1000)).forever()
    assert recorder.printed == [
        "roll: failed: disk full",
        "roll: failed: disk gone",
        "roll: failed: disk full",
        "stopped",
    ]


@pytest.mark.parametrize("error", [RootReplacedError("replaced"), ClusterMovedError("moved")])
@pytest.mark.parametrize("lane", ["elections", "segments"])
def test_a_loop_whose_root_was_replaced_ends_with_the_error(error: SparklogError, lane: str) -> None:
    lines: list[Any] = []

    def run(report: LoopReport) -> None:
        raise error

    steps = [Step("roll", run, lambda: 1, lane), Step("retention", lambda report: None, lambda: 1, "segments")]
    with pytest.raises(type(error)):
        Loop(steps, SystemClock(), lambda: None, lines.append).forever()
    assert lines[0] == f"roll: failed: {error.message}"


def test_a_problem_that_lasts_is_said_again() -> None:
    recorder = Recorder()
    recorder.stop_at = REPEAT_SECONDS * 2 + 60

    def run(report: LoopReport) -> None:
        report.problems.append("disk full")

    recorder.loop(Step("roll", run, lambda: 10_000)).forever()
    assert recorder.printed == ["roll: failed: disk full"] * 3 + ["stopped"]


def test_a_repeated_warning_is_logged_once(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logger = logging.getLogger("sparklog.coordinator.controller")
    with repeats_logged_once():
        for _ in range(5):
            logger.warning("broker %d: failed", 1)
        logger.warning("broker %d: failed", 2)
    assert capsys.readouterr().err.splitlines() == ["broker 1: failed", "broker 2: failed"]
    assert logging.getLogger("sparklog").handlers == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_requests_a_stop_and_the_second_interrupts(number: signal.Signals) -> None:
    lines: list[Any] = []
    stop = Stop()
    before = signal.getsignal(number)
    stop.check()
    with stopped_by_signals(stop, lines.append):
        os.kill(os.getpid(), number)
        with pytest.raises(StopRequested):
            stop.check()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before
    assert stop.exit_code == 128 + number
    assert lines == [f"{number.name}: stopping after the current task; send it again to stop immediately"]
