#!/usr/bin/env python3
"""Runs a command beside a Spark standalone cluster (a master and two workers), and stops it afterwards.

    scripts/servers/standalone.py COMMAND [ARGUMENT ...]

The command finds it in SPARKLOG_TEST_SPARK_MASTER. Spark is that of this environment, which has no start scripts, so
its classes are started directly. SPARKLOG_SERVERS_TIMEOUT (default 1800) bounds the command, in seconds.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.servers.common import HOST, Daemons, Skipped, free_ports, run_beside, running, wait_until, work_folder
from scripts.servers.jars import find_java

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
WORKERS = 2
WORKER_CORES = 2
WORKER_MEMORY = "4g"


@contextmanager
def server() -> Iterator[dict[str, str]]:
    """A running cluster; yields the environment by which tests find it. Raises ``Skipped`` or ``ServerFailed``."""
    with started() as standalone:
        yield {"SPARKLOG_TEST_SPARK_MASTER": standalone.url}


class Standalone(NamedTuple):
    """A running cluster: its master's address and web page, the folder of its files, and its daemons."""

    url: str
    http: int
    home: Path
    daemons: Daemons

    def start_worker(self, number: int) -> None:
        """Start a worker, and wait until the master knows it."""
        before = self.alive_workers()
        command = [*spark_class(), WORKER, "--host", HOST, "--cores", str(WORKER_CORES), "--memory", WORKER_MEMORY]
        command += ["--webui-port", "0", "--work-dir", str(self.work(number)), self.url]
        self.daemons.start(worker_name(number), command)
        wait_until(lambda: self.alive_workers() > before, worker_name(number), self.home)

    def kill_worker(self, number: int) -> None:
        """Kill a worker, and wait until the master has given it up. Its executors notice it and end."""
        before = self.alive_workers()
        self.daemons.kill(worker_name(number))
        wait_until(lambda: self.alive_workers() < before, f"the loss of {worker_name(number)}", self.home)

    def alive_workers(self) -> int:
        with urlopen(f"http://{HOST}:{self.http}/json/", timeout=10) as answer:
            return int(json.load(answer)["aliveworkers"])

    def work(self, number: int) -> Path:
        """The folder with the outputs of a worker's executors."""
        return self.home / f"work-{number}"


@contextmanager
def started(environment: Mapping[str, str] | None = None) -> Iterator[Standalone]:
    """A running cluster, whose daemons have ``environment`` too. Raises ``Skipped`` or ``ServerFailed``."""
    find_java("Spark")
    with work_folder("standalone") as home:
        port, http = free_ports(2)
        variables = {
            **(environment or {}),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LOCAL_DIRS": str(home / "local"),  # workers that are killed leave them
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        command = [*spark_class(), MASTER, "--host", HOST, "--port", str(port), "--webui-port", str(http)]
        with running({"master": command}, home, variables) as daemons:
            standalone = Standalone(f"spark://{HOST}:{port}", http, home, daemons)
            wait_until(lambda: standalone.alive_workers() == 0, "the master", home)
            for number in range(WORKERS):
                standalone.start_worker(number)
            yield standalone


def worker_name(number: int) -> str:
    return f"worker-{number}"


def spark_class() -> list[str]:
    """The start of a command that runs a class of Spark. The script becomes the Java process, with the same id."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise Skipped("a Spark cluster needs pyspark in this environment: make setup")
    return [str(Path(found.origin).parent / "bin" / "spark-class")]


if __name__ == "__main__":
    sys.exit(run_beside(server, __doc__ or ""))
