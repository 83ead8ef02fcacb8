"""Every simulation: an actor is one greenlet, and what the code under test does in threads of its own is done there."""

from __future__ import annotations

import pytest

from sparklog.log import background, parallel
from sparklog.testing.simulation import SideBySide


@pytest.fixture(autouse=True)
def _in_the_actor_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests made side by side count as one in time; a checkpoint is written by the commit that asks for it."""
    monkeypatch.setattr(parallel, "ThreadPoolExecutor", SideBySide)
    monkeypatch.setattr(background.BackgroundTask, "request", lambda self: self._work())
