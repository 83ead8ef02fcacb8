"""A ResourceManager and two NodeManagers beside an HDFS. Roots: HDFS and S3."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

import fsspec

from scripts.servers.common import HOST
from scripts.servers.standalone import spark_class
from scripts.servers.yarn import NODES, Yarn
from tests.deployment.clusters import Job, Root, SparkCluster
from tests.deployment.storages import Storages

SIZES = {
    "spark.driver.memory": "800m",
    "spark.driver.memoryOverhead": "500m",
    "spark.executor.memory": "700m",
    "spark.executor.memoryOverhead": "600m",
    "spark.executor.cores": "1",
    "spark.executor.instances": "2",
    "spark.yarn.am.memory": "400m",
}


class YarnCluster(SparkCluster):
    """See ``SparkCluster``."""

    name = "yarn"
    conf = "conf/spark-yarn.conf"

    def __init__(self, work: Path, servers: Yarn, storages: Storages) -> None:
        super().__init__(work)
        self._servers = servers
        self._storages = storages

    def environment(self) -> Mapping[str, str]:
        return self._servers.hadoop.environment

    def overrides(self, mode: str) -> Mapping[str, str]:
        jars = Path(spark_class()[0]).parents[1] / "jars"
        return {"spark.yarn.jars": f"local:{jars}/*", **SIZES}

    def variables(self, environment: Mapping[str, str], mode: str) -> Mapping[str, str]:
        given = {**environment, "SPARK_LOCAL_IP": HOST}
        given.pop("HADOOP_USER_NAME", None)  # Spark tells its containers who submitted
        executors = {f"spark.executorEnv.{name}": value for name, value in given.items()}
        return {**executors, **{f"spark.yarn.appMasterEnv.{name}": value for name, value in given.items()}}

    def package_arguments(self, package: str, mode: str) -> Sequence[str]:
        return self._storages.package_arguments(package)

    def root(self, storage: str = "") -> Root:
        return self._storages.root(storage or "hdfs")

    def upload(self, path: Path) -> str:
        url = f"{self._servers.hadoop.url}/input/{uuid.uuid4().hex}/{path.name}"
        system, target = fsspec.core.url_to_fs(url, user=self._servers.hadoop.environment["HADOOP_USER_NAME"])
        system.makedirs(target.rpartition("/")[0], exist_ok=True)
        with system.open(target, "wb") as file:
            file.write(path.read_bytes())
        return url

    def folder(self) -> str:
        return f"{self._servers.hadoop.url}/{uuid.uuid4().hex}"

    def kill_node(self) -> None:
        self._servers.kill_node(0)

    def start_node(self) -> None:
        self._servers.start_node(0)

    def driver_log(self, job: Job) -> str:
        """The outputs of the containers of the job's ApplicationMasters, in the order of the attempts."""
        logs = [
            folder
            for application in application_ids(job)
            for node in range(NODES)
            for folder in self._servers.logs(node).glob(f"{application}/*_000001")
        ]
        return "".join(
            file.read_text(errors="replace")
            for folder in sorted(logs, key=lambda folder: folder.name)
            for file in sorted(folder.glob("std*"))
        )

    def forget(self, job: Job) -> None:
        for application in application_ids(job):
            address = f"http://{HOST}:{self._servers.http}/ws/v1/cluster/apps/{application}/state?user.name=sparklog"
            request = Request(address, b'{"state": "KILLED"}', {"Content-Type": "application/json"}, method="PUT")
            with suppress(OSError):
                urlopen(request, timeout=10).close()


def application_ids(job: Job) -> list[str]:
    """The applications that a job has submitted so far."""
    return sorted(set(re.findall(r"application_\d+_\d+", job.printed)))
