"""Shared by all tests: Hypothesis profiles, and a summary of what a run excludes and of the faults it injects."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
from collections.abc import Generator
from contextlib import suppress

import pytest
from hypothesis import settings

from tests.sample import WHOLE, examples

# A shell starts background processes with SIGINT ignored, and the programs that tests interrupt would inherit that.
with suppress(ValueError):  # not in the main thread
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A full collection scans every module and collected test: by default that is a sixth of a simulation's time.
gc.set_threshold(100_000, 20, 100)

# Machines differ in speed, so examples have no deadline; a failure prints the blob that reproduces it.
settings.register_profile("tests", deadline=None, print_blob=True, derandomize=not WHOLE, max_examples=examples())
settings.load_profile("tests")

# marker -> command that runs its tests
ELSEWHERE = {
    "s3": "make test-s3",
    "hdfs": "make test-hdfs",
    "gcs": "make test-gcs",
    "azure": "make test-azure",
    "standalone": "make test-standalone",
    "yarn": "make test-yarn",
    "k8s": "make test-k8s",
    "kafka": "make test-differential",
    "airflow": "make test-airflow",
    "faults": "make test-faults",
    "thirdparty": "make test-thirdparty",
    "ui": "make test-ui",
    "go": "make test-go",
    "programs": "make test-programs",
    "slow": "make test-slow",
    "stress": "make test-stress",
    "soak": "make test-soak",
}

# folder -> command that runs its tests, where another leaves it out
FOLDERS = {"tests/crash": "make test-crash", "tests/simulation": "make test-crash"}

# folders of tests/ with the longest tests, whose faults are counted for the summary of a run
LONGEST = ("crash", "simulation", "interrupts")


@pytest.hookimpl(trylast=True)  # pytest sets a hook of its own
def pytest_configure() -> None:
    """Ignore simulated crashes in background threads: they would fail whichever test runs when the thread ends."""
    reported = threading.excepthook

    def report(args: threading.ExceptHookArgs) -> None:
        from sparklog.testing.faulty_store import SimulatedCrash  # here: coverage does not see what is imported before

        if not issubclass(args.exc_type, SimulatedCrash):
            reported(args)

    threading.excepthook = report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest tests first, so that no process still works on one when all others are done.

    Tests with examples of Hypothesis try a part of them (``tests.sample``).
    """
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("sampled")
    order = {folder: number for number, folder in enumerate(LONGEST)}
    items.sort(key=lambda item: min(order.get(part, len(order)) for part in item.path.parts))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    if not set(LONGEST).intersection(item.path.parts):
        return (yield)
    from tests.injected import counted  # here: coverage does not see what is imported before it starts

    with counted(item):
        return (yield)


def pytest_collection_finish() -> None:
    """Exclude modules and tests from garbage collection: they live as long as the session."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the markers that the marker expression excludes, so that nothing is skipped silently."""
    selection = config.option.markexpr
    excluded = [f"{marker} ({command})" for marker, command in ELSEWHERE.items() if f"not {marker}" in selection]
    ignored = config.getoption("ignore") or []
    excluded += [f"{folder} ({command})" for folder, command in FOLDERS.items() if folder in ignored]
    if excluded:
        terminalreporter.write_line(f"not part of this run: {', '.join(excluded)}")
    reports = terminalreporter.getreports("passed")
    is_worker = hasattr(config, "workerinput")  # its reports are counted by the process that started it
    if "SPARKLOG_TEST_COUNTS" in os.environ and not is_worker:  # scripts/suites.py: all skipped is not a pass
        counts = {"passed": len(reports), "skipped": len(terminalreporter.getreports("skipped"))}
        with open(os.environ["SPARKLOG_TEST_COUNTS"], "a") as file:
            file.write(json.dumps(counts) + "\n")
    points = sum(value for report in reports for name, value in report.user_properties if name == "points")
    if points:
        terminalreporter.write_line(f"tried {points:,} points: steps of operations × what a storage's client can show")
    from tests.injected import lines

    for line in lines(reports):
        terminalreporter.write_line(line)
