"""The clusters of these suites, each started once in a session; without what one needs, its tests are skipped."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from scripts.servers import standalone, yarn
from scripts.servers.common import SERVERS, Skipped
from tests.deployment.clusters import SparkCluster, bare_python
from tests.deployment.kubernetes_cluster import kubernetes_cluster
from tests.deployment.standalone_cluster import StandaloneCluster
from tests.deployment.storages import Storages, build, servers
from tests.deployment.yarn_cluster import YarnCluster


@contextmanager
def standalone_cluster(work: Path) -> Iterator[SparkCluster]:
    build()
    with ExitStack() as stack:
        start = stack.enter_context(servers(stack))
        started = stack.enter_context(standalone.started(node_environment(work)))
        yield StandaloneCluster(work, started, Storages(work, start))


@contextmanager
def yarn_cluster(work: Path) -> Iterator[SparkCluster]:
    build()
    with ExitStack() as stack:
        start = stack.enter_context(servers(stack))
        started = stack.enter_context(yarn.started(node_environment(work)))
        yield YarnCluster(work, started, Storages(work, start, started.hadoop.url))


CLUSTERS: dict[str, Callable[[Path], AbstractContextManager[SparkCluster]]] = {
    "standalone": standalone_cluster,
    "yarn": yarn_cluster,
    "k8s": kubernetes_cluster,
}


def node_environment(work: Path) -> dict[str, str]:
    """The environment of a node's daemons: its python3 has no packages."""
    return {"PATH": os.pathsep.join((str(bare_python(work)), "/usr/bin", "/bin"))}


@pytest.fixture(scope="session", params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in CLUSTERS])
def every_cluster(request: pytest.FixtureRequest) -> Iterator[SparkCluster]:
    SERVERS.mkdir(exist_ok=True)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jobs-", dir=SERVERS)))
        try:
            started = stack.enter_context(CLUSTERS[request.param](work))
        except Skipped as reason:
            pytest.skip(str(reason))
        yield started
        started.close_jobs()


@pytest.fixture
def cluster(every_cluster: SparkCluster) -> Iterator[SparkCluster]:
    """The cluster, without jobs of other tests."""
    yield every_cluster
    every_cluster.close_jobs()
