"""One cluster with something on every page, and a server that shows it, for all tests of the web page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparklog.coordinator import Coordinator
from tests.shown_cluster import make_shown_cluster
from tests.web import Web, serving


@pytest.fixture(scope="session")
def shown() -> Coordinator:
    return make_shown_cluster()


@pytest.fixture(scope="session")
def web(shown: Coordinator) -> Iterator[Web]:
    with serving(shown, clock=shown.log.clock) as running:
        yield running
