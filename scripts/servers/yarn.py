#!/usr/bin/env python3
"""Runs a command beside a real YARN (a ResourceManager and two NodeManagers) and its HDFS, and stops both afterwards.

    scripts/servers/yarn.py COMMAND [ARGUMENT ...]

The command finds them in HADOOP_CONF_DIR, as spark-submit does, and in SPARKLOG_TEST_HDFS_URL. What is needed and
fetched, and the limit of time, are those of scripts/servers/hdfs.py.

Rules: this YARN is not secured: containers run as the user of the NodeManagers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.servers.common import HOST, Daemons, free_ports, run_beside, running, wait_until
from scripts.servers.hdfs import DAEMON_PRINCIPAL, FileSystem, file_system, write_site
from scripts.servers.kerberos import REALM, Realm

RESOURCE_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager"
NODE_MANAGER = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
NODES = 2
NODE_MIB = 4096
NODE_CORES = 4
EXPIRY_MS = 20_000
"""A node that is silent for so long is lost, ten minutes by default."""


@contextmanager
def server() -> Iterator[dict[str, str]]:
    """A running YARN; yields the environment by which tests find it. Raises ``Skipped`` or ``ServerFailed``."""
    with started() as yarn:
        yield {
            "SPARKLOG_TEST_HDFS_URL": yarn.hadoop.url,
            "HADOOP_CONF_DIR": str(yarn.hadoop.home / "conf"),
            "HADOOP_USER_NAME": "sparklog",
        }


class Yarn(NamedTuple):
    """A running YARN: the HDFS beside it, the port of the ResourceManager's web pages, and its daemons."""

    hadoop: FileSystem
    http: int
    daemons: Daemons

    def start_node(self, number: int) -> None:
        """Start a NodeManager, and wait until the ResourceManager knows it."""
        self.daemons.start(node_name(number), self._node(number))
        wait_until(lambda: self.is_running(number), node_name(number), self.hadoop.home)

    def kill_node(self, number: int) -> None:
        """Kill a NodeManager and wait until the ResourceManager has given it up. Its containers stay alive."""
        self.daemons.kill(node_name(number))
        wait_until(lambda: not self.is_running(number), f"the loss of {node_name(number)}", self.hadoop.home)

    def is_running(self, number: int) -> bool:
        names = {str(node["nodeHTTPAddress"]) for node in self.nodes() if node["state"] == "RUNNING"}
        return (self.hadoop.home / f"port-{number}").exists() and any(
            name.endswith(f":{self._http_port(number)}") for name in names
        )

    def nodes(self) -> list[dict[str, object]]:
        """The nodes that the ResourceManager knows, as its REST API says."""
        return list((self.get("cluster/nodes?states=running,lost,unhealthy")["nodes"] or {}).get("node", []))

    def get(self, path: str) -> dict[str, dict[str, list[dict[str, object]]]]:
        with urlopen(f"http://{HOST}:{self.http}/ws/v1/{path}", timeout=10) as answer:
            return dict(json.load(answer))

    def _http_port(self, number: int) -> int:
        return int((self.hadoop.home / f"port-{number}").read_text())

    def _node(self, number: int) -> list[str]:
        """The command of a NodeManager with folders and ports of its own."""
        address, localizer, http = free_ports(3)
        (self.hadoop.home / f"port-{number}").write_text(str(http))
        settings = {
            "yarn.nodemanager.address": f"localhost:{address}",
            "yarn.nodemanager.localizer.address": f"localhost:{localizer}",
            "yarn.nodemanager.webapp.address": f"localhost:{http}",
            "yarn.nodemanager.local-dirs": str(self.hadoop.home / f"node-{number}"),
            "yarn.nodemanager.log-dirs": str(self.logs(number)),
        }
        options = [f"-D{name}={value}" for name, value in settings.items()]
        return [*self.hadoop.java, NODE_MANAGER, *options]

    def logs(self, number: int) -> Path:
        """The folder with the outputs of a node's containers."""
        return self.hadoop.home / f"logs-{number}"


@contextmanager
def started(node_environment: Mapping[str, str] | None = None, realm: Realm | None = None) -> Iterator[Yarn]:
    """A running YARN, whose daemons have ``node_environment`` too, and in a Kerberos realm log in as those of HDFS.
    Raises ``Skipped`` or ``ServerFailed``."""
    with file_system(realm=realm) as hadoop:
        http = configure(hadoop.home / "conf", realm)
        environment = {**hadoop.environment, **(node_environment or {})}
        with running({"resourcemanager": [*hadoop.java, RESOURCE_MANAGER]}, hadoop.home, environment) as daemons:
            yarn = Yarn(hadoop, http, daemons)
            wait_until(lambda: "nodes" in yarn.get("cluster/nodes"), "the ResourceManager", hadoop.home)
            for number in range(NODES):
                yarn.start_node(number)
            yield yarn


def node_name(number: int) -> str:
    return f"nodemanager-{number}"


def configure(folder: Path, realm: Realm | None = None) -> int:
    """Add the settings of a YARN on the loopback address; the port of the ResourceManager's web pages."""
    client, scheduler, tracker, admin, http = free_ports(5)
    yarn = {
        "yarn.resourcemanager.hostname": HOST,
        "yarn.resourcemanager.address": f"{HOST}:{client}",
        "yarn.resourcemanager.scheduler.address": f"{HOST}:{scheduler}",
        "yarn.resourcemanager.resource-tracker.address": f"{HOST}:{tracker}",
        "yarn.resourcemanager.admin.address": f"{HOST}:{admin}",
        "yarn.resourcemanager.webapp.address": f"{HOST}:{http}",
        "yarn.resourcemanager.bind-host": HOST,
        "yarn.nodemanager.bind-host": HOST,
        "yarn.node-attribute.fs-store.root-dir": f"file://{folder.parent}/node-attributes",  # else below /tmp
        "yarn.nodemanager.resource.memory-mb": str(NODE_MIB),
        "yarn.nodemanager.resource.cpu-vcores": str(NODE_CORES),
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "99",
        "yarn.scheduler.minimum-allocation-mb": "128",
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
        "yarn.nm.liveness-monitor.expiry-interval-ms": str(EXPIRY_MS),
        "yarn.resourcemanager.am.max-attempts": "2",
    }
    if realm:
        for daemon in ("resourcemanager", "nodemanager"):
            yarn[f"yarn.{daemon}.principal"] = f"{DAEMON_PRINCIPAL}@{REALM}"
            yarn[f"yarn.{daemon}.keytab"] = str(realm.keytab)
    scheduler_settings = {
        "yarn.scheduler.capacity.root.queues": "default",
        "yarn.scheduler.capacity.root.default.capacity": "100",
        "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
    }
    write_site(folder / "yarn-site.xml", yarn)
    write_site(folder / "capacity-scheduler.xml", scheduler_settings)
    return http


if __name__ == "__main__":
    sys.exit(run_beside(server, __doc__ or ""))
