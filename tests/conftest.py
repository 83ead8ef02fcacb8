"""What every test run shares: hypothesis' profiles and a word on what the run leaves out."""

from __future__ import annotations

import gc
import os
import signal
from contextlib import suppress

import pytest
from hypothesis import settings

# A shell starts what it runs in the background with SIGINT ignored, and so would be the programs that tests interrupt.
with suppress(ValueError):  # not in the main thread
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A full collection looks at every module and every collected test: by default, a sixth of the time of a simulation.
gc.set_threshold(100_000, 20, 100)

# Machines differ in speed, so no example fails for being slow; a failure prints the blob that repeats it.
settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# marker -> the command that runs its tests
ELSEWHERE = {
    "s3": "make test-s3",
    "hdfs": "make test-hdfs",
    "faults": "make test-faults",
    "thirdparty": "make test-thirdparty",
    "slow": "make test-slow",
    "soak": "pytest -m soak",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The soak, which mostly waits, goes first: the other process has a minute of work to do meanwhile."""
    items.sort(key=lambda item: "soak" not in item.path.parts)


def pytest_collection_finish() -> None:
    """Modules and tests live as long as the session: no collection needs to look at them."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what the marker expression leaves out, so that nothing is missed silently."""
    selection = config.option.markexpr
    left_out = [f"{marker} ({command})" for marker, command in ELSEWHERE.items() if f"not {marker}" in selection]
    if left_out:
        terminalreporter.write_line(f"not part of this run: {', '.join(left_out)}")
    reports = terminalreporter.getreports("passed")
    points = sum(value for report in reports for name, value in report.user_properties if name == "points")
    if points:
        terminalreporter.write_line(f"tried {points:,} points: steps of operations × what a storage's client can show")
