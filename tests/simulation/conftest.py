"""For every simulation: an actor is one greenlet, and background threads of the code under test run within it."""

from __future__ import annotations

import pytest

from sparklog.log import background, parallel
from tests.simulation.scheduler import SideBySide


@pytest.fixture(autouse=True)
def _without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parallel requests take the time of one; a checkpoint is written by the commit that requests it."""
    monkeypatch.setattr(parallel, "ThreadPoolExecutor", SideBySide)
    monkeypatch.setattr(background.BackgroundTask, "request", lambda self: self._work())
