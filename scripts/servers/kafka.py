#!/usr/bin/env python3
"""Runs a command beside a real Kafka broker (one node, its own controller), and stops it afterwards.

    scripts/servers/kafka.py COMMAND [ARGUMENT ...]

The command finds it in SPARKLOG_BENCH_KAFKA (host:port). The first run fetches the jars with Maven, 44 MB; without
Maven or Java 17 the command is not run, and the exit code is 0. SPARKLOG_SERVERS_TIMEOUT (default 1800) bounds the
command, in seconds.

The broker listens on the loopback address only, keeps its data in a folder of its own below ``.servers``, removed at
the end, and has at most 1 GiB of heap. All other settings that matter for speed are Kafka's defaults.
"""

from __future__ import annotations

import base64
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.servers.common import (
    HOST,
    SERVERS,
    ServerFailed,
    Skipped,
    free_ports,
    only_one,
    run_beside,
    running,
    tail,
    wait_until,
    work_folder,
)
from scripts.servers.jars import fetch_jars, find_java

POM = Path(__file__).with_name("kafka-pom.xml")
REQUIREMENTS = Path(__file__).with_name("kafka-requirements.txt")
VERSION = "4.3.1"
HEAP = "1g"
FORMAT_SECONDS = 120
INSTALL_SECONDS = 300
JAVA_OPTIONS = (
    f"-Xms{HEAP}",
    f"-Xmx{HEAP}",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-Djava.net.preferIPv4Stack=true",
)


@contextmanager
def server(changes: Mapping[str, str] | None = None) -> Iterator[dict[str, str]]:
    """A running broker; yields the environment by which a command finds it. Raises ``Skipped`` or ``ServerFailed``.

    ``changes`` are settings of the broker beside, or instead of, those of ``properties``.
    """
    java = find_java("Kafka")
    jars = broker_jars()
    with work_folder("kafka") as home:
        port, controller = free_ports(2)
        settings = home / "server.properties"
        settings.write_text(properties(home / "data", port, controller, changes or {}))
        (home / "log4j2.xml").write_text(LOGGING)
        base = [java, *JAVA_OPTIONS, f"-Dlog4j2.configurationFile={(home / 'log4j2.xml').as_uri()}", "-cp", f"{jars}/*"]
        _format([*base, "kafka.tools.StorageTool", "format", "-t", cluster_id(uuid.uuid4()), "-c", str(settings)], home)
        with running({"kafka": [*base, "kafka.Kafka", str(settings)]}, home, {}):
            wait_until(lambda: listens(port), "Kafka", home)
            yield {"SPARKLOG_BENCH_KAFKA": f"{HOST}:{port}"}


def broker_jars() -> Path:
    """The folder with the jars of the broker and of Kafka's command-line tools, fetched unless it is there."""
    return fetch_jars(f"Kafka {VERSION}", POM, SERVERS / f"kafka-with-tools-{VERSION}", 44)


def properties(data: Path, port: int, controller: int, changes: Mapping[str, str] | None = None) -> str:
    """The settings of a broker that is its own controller, alone, on the loopback address."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "0",
        "controller.quorum.voters": f"0@{HOST}:{controller}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        **(changes or {}),
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def cluster_id(number: uuid.UUID) -> str:
    """The number as Kafka writes it: 22 characters of URL-safe base64, of which the first is no dash.

    An argument that begins with a dash would be taken for an option.
    """
    text = base64.urlsafe_b64encode(number.bytes).decode().rstrip("=")
    return "A" + text[1:] if text.startswith("-") else text


def listens(port: int) -> bool:
    """Whether clients can connect, which they can once the broker has joined its controller."""
    with socket.create_connection((HOST, port), timeout=5):
        return True


def install_client(name: str) -> Path:
    """Install one of the pinned clients for this interpreter; the folder to put on ``sys.path``.

    Beside the environment, not into it, so that nothing else can come to depend on it. Raises ``Skipped`` where pip
    does not get it as a wheel.
    """
    pin = pinned(name, REQUIREMENTS.read_text())
    folder = SERVERS / f"{pin}-{sys.implementation.cache_tag}"
    with only_one("install-client"):
        if not folder.exists():
            _install(pin, folder)
    return folder


def pinned(name: str, requirements: str) -> str:
    """The line ``name==version`` of a requirements file. Raises ``LookupError`` if it has none."""
    for line in requirements.splitlines():
        if line.partition("==")[0].strip() == name:
            return line.strip()
    raise LookupError(f"{name} is not pinned in {REQUIREMENTS.name}")


def _install(pin: str, folder: Path) -> None:
    with work_folder("pip") as work:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        command += ["--no-deps", "--only-binary", ":all:", "--target", str(work / "packages"), pin]
        print(f"installing {pin} into {SERVERS.name}, once", file=sys.stderr, flush=True)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
            if done.returncode:
                raise Skipped(f"pip cannot install {pin}: {(done.stdout + done.stderr).strip()[-500:]}")
            os.replace(work / "packages", folder)
        except subprocess.TimeoutExpired as error:
            raise Skipped(f"pip took more than {INSTALL_SECONDS} s to install {pin}") from error


def _format(command: list[str], home: Path) -> None:
    log = home / "format.log"
    with open(log, "wb") as output:
        done = subprocess.run(command, stdout=output, stderr=output, timeout=FORMAT_SECONDS, check=False)
    if done.returncode:
        raise ServerFailed(f"formatting Kafka's storage ended with {done.returncode}:\n{tail(log)}")


LOGGING = """<?xml version="1.0" encoding="UTF-8"?>
<!-- Warnings and errors to standard error, which is the broker's log file. -->
<Configuration status="error">
  <Appenders>
    <Console name="stderr" target="SYSTEM_ERR"><PatternLayout pattern="%d %p %c: %m%n"/></Console>
  </Appenders>
  <Loggers><Root level="warn"><AppenderRef ref="stderr"/></Root></Loggers>
</Configuration>
"""


if __name__ == "__main__":
    sys.exit(run_beside(server, __doc__ or ""))
