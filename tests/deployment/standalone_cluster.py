"""Spark's own master and workers. Roots: a local folder, since all workers are on this machine, HDFS and S3."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.servers.standalone import Standalone
from tests.deployment.clusters import Root, SparkCluster
from tests.deployment.storages import Storages

SIZES = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "700m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
}


class StandaloneCluster(SparkCluster):
    """See ``SparkCluster``."""

    name = "standalone"
    conf = "conf/spark-standalone.conf"
    modes = ("client",)

    def __init__(self, work: Path, servers: Standalone, storages: Storages) -> None:
        super().__init__(work)
        self._servers = servers
        self._storages = storages

    def overrides(self, mode: str) -> Mapping[str, str]:
        return {"spark.master": self._servers.url, **SIZES}

    def variables(self, environment: Mapping[str, str], mode: str) -> Mapping[str, str]:
        return {f"spark.executorEnv.{name}": value for name, value in environment.items()}

    def package_arguments(self, package: str, mode: str) -> Sequence[str]:
        return self._storages.package_arguments(package)

    def root(self, storage: str = "") -> Root:
        return self._storages.root(storage or "local")

    def upload(self, path: Path) -> str:
        return str(path)

    def folder(self) -> str:
        return str(self.work / uuid.uuid4().hex)

    def kill_node(self) -> None:
        self._servers.kill_worker(0)

    def start_node(self) -> None:
        self._servers.start_worker(0)
