"""For every simulation: an actor is one greenlet, and background threads of the code under test run within it. Faults
are counted for the summary of the run."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.injected import counted
from tests.simulation import locations
from tests.simulation.scheduler import run_without_threads


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    run_without_threads(monkeypatch)
    locations.install(monkeypatch)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with counted(item):
        return (yield)
