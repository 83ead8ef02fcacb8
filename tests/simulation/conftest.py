"""For every simulation: an actor is one greenlet, and background threads of the code under test run within it."""

from __future__ import annotations

import pytest

from tests.simulation import locations
from tests.simulation.location_operators import make_templates
from tests.simulation.scheduler import run_without_threads


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    run_without_threads(monkeypatch)
    locations.install(monkeypatch)
    make_templates()
