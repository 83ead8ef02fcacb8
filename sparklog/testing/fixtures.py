"""pytest fixtures for programs that use sparklog. A ``conftest.py`` enables them with one line::

    pytest_plugins = ["sparklog.testing.fixtures"]

Not for: Spark; a test that starts a session needs ``sparklog_cluster_in_files`` and its own session.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparklog.testing.clusters import Cluster, cluster


@pytest.fixture
def sparklog_cluster() -> Iterator[Cluster]:
    """An empty cluster in memory, new for each test."""
    with cluster() as test_cluster:
        yield test_cluster


@pytest.fixture
def sparklog_cluster_in_files(tmp_path: Path) -> Iterator[Cluster]:
    """An empty cluster in a temporary folder, new for each test, that other processes can open too."""
    with cluster(folder=tmp_path / "cluster") as test_cluster:
        yield test_cluster
