#!/usr/bin/env python3
"""Runs a command beside a real HDFS (a NameNode and three DataNodes), and stops it afterwards.

    scripts/servers/hdfs.py COMMAND [ARGUMENT ...]

The command finds it in SPARKLOG_TEST_HDFS_URL (an empty file system) and HADOOP_CONF_DIR. The first run fetches the
jars with Maven, 124 MB; without Maven or Java 17 the command is not run, and the exit code is 0.
SPARKLOG_SERVERS_TIMEOUT (default 1800) bounds the command, in seconds.

Three DataNodes, because with a single one every small write waits half a second for its report.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.request import urlopen
from xml.sax.saxutils import escape

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.servers.common import (
    HOST,
    SERVERS,
    ServerFailed,
    free_ports,
    run_beside,
    running,
    tail,
    wait_until,
    work_folder,
)
from scripts.servers.jars import fetch_jars, find_java
from scripts.servers.kerberos import REALM, Realm

POM = Path(__file__).with_name("hadoop-pom.xml")
VERSION = "3.5.0"
DATANODES = 3
NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
DAEMON_PRINCIPAL = "hdfs/localhost"
WEB_PRINCIPAL = "HTTP/localhost"
PRINCIPALS = (DAEMON_PRINCIPAL, WEB_PRINCIPAL)
OPENED = ("java.lang", "java.io", "java.net", "java.nio", "java.util", "java.util.concurrent", "sun.nio.ch")


class FileSystem(NamedTuple):
    """A running file system, and what other daemons of Hadoop need: the command line without the name of the class,
    the environment, and the folder for their files, whose subfolder ``conf`` is Hadoop's configuration."""

    url: str
    home: Path
    java: list[str]
    environment: dict[str, str]


@contextmanager
def server(host: str = HOST) -> Iterator[dict[str, str]]:
    """A running HDFS; yields the environment by which tests find it. Raises ``Skipped`` or ``ServerFailed``."""
    with file_system(host) as hadoop:
        yield {
            "SPARKLOG_TEST_HDFS_URL": hadoop.url,
            "HADOOP_USER_NAME": "sparklog",
            "HADOOP_CONF_DIR": str(hadoop.home / "conf"),
        }


@contextmanager
def file_system(host: str = HOST, realm: Realm | None = None) -> Iterator[FileSystem]:
    """As ``server``. ``host`` is the address that all clients reach; containers with a network of their own need
    another than the default. In a Kerberos realm, which must have PRINCIPALS, clients must log in."""
    java = find_java("Hadoop")
    jars = fetch()
    with work_folder("hdfs") as home:
        rpc, http = free_ports(2)
        configure(home / "conf", home, host, rpc, http, realm)
        base = [java, "-XX:+UseSerialGC", "-Xmx256m", "-Djava.net.preferIPv4Stack=true", f"-Dhadoop.log.dir={home}"]
        (home / "tmp").mkdir()
        base.append(f"-Djava.io.tmpdir={home / 'tmp'}")  # where Jetty unpacks its pages
        base += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED]
        base += ["-cp", f"{home / 'conf'}:{jars}/*"]
        environment = {"HADOOP_CONF_DIR": str(home / "conf"), "HADOOP_USER_NAME": "sparklog"}
        if realm:
            environment |= realm.environment
        _format([*base, NAMENODE, "-format", "-nonInteractive"], home, environment)
        commands = {"namenode": [*base, NAMENODE]}
        for number in range(DATANODES):
            folder = (home / f"data-{number}").as_uri()
            commands[f"datanode-{number}"] = [*base, DATANODE, f"-Ddfs.datanode.data.dir={folder}"]
        with running(commands, home, environment):
            wait_until(lambda: live_datanodes(host, http) == DATANODES, "HDFS", home)
            yield FileSystem(f"hdfs://{host}:{rpc}", home, base, environment)


def fetch() -> Path:
    """The folder with Hadoop's jars, fetched unless it is there."""
    return fetch_jars(f"Hadoop {VERSION}", POM, SERVERS / f"hadoop-daemons-{VERSION}", 124)


def configure(folder: Path, home: Path, host: str, rpc: int, http: int, realm: Realm | None = None) -> None:
    """The settings of a file system on one address; DataNodes choose their own ports."""
    folder.mkdir(parents=True)
    core = {"fs.defaultFS": f"hdfs://{host}:{rpc}", "hadoop.tmp.dir": str(home / "tmp")}
    hdfs = {
        "dfs.replication": str(DATANODES),
        "dfs.permissions.superusergroup": "sparklog",
        "dfs.namenode.rpc-address": f"{host}:{rpc}",
        "dfs.namenode.http-address": f"{host}:{http}",
        "dfs.namenode.name.dir": (home / "name").as_uri(),
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.safemode.extension": "0",
        "dfs.datanode.address": f"{host}:0",
        "dfs.datanode.http.address": f"{host}:0",
        "dfs.datanode.ipc.address": f"{host}:0",
        "dfs.datanode.hostname": "localhost" if host == HOST else host,
    }
    if realm:
        core |= {"hadoop.security.authentication": "kerberos", "hadoop.security.authorization": "true"}
        hdfs |= kerberos_settings(realm)
    write_site(folder / "core-site.xml", core)
    write_site(folder / "hdfs-site.xml", hdfs)
    (folder / "log4j.properties").write_text(
        "log4j.rootLogger=INFO,stderr\n"
        "log4j.appender.stderr=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.stderr.target=System.err\n"
        "log4j.appender.stderr.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.stderr.layout.ConversionPattern=%d %p %c: %m%n\n"
    )


def kerberos_settings(realm: Realm) -> dict[str, str]:
    """The settings by which the daemons log in. DataNodes take ports that anybody may open, without TLS, which Hadoop
    allows for tests."""
    daemons = {}
    for daemon in ("namenode", "datanode"):
        daemons[f"dfs.{daemon}.kerberos.principal"] = f"{DAEMON_PRINCIPAL}@{REALM}"
        daemons[f"dfs.{daemon}.keytab.file"] = str(realm.keytab)
    return {
        **daemons,
        "dfs.web.authentication.kerberos.principal": f"{WEB_PRINCIPAL}@{REALM}",
        "dfs.web.authentication.kerberos.keytab": str(realm.keytab),
        "dfs.block.access.token.enable": "true",
        "ignore.secure.ports.for.testing": "true",
    }


def live_datanodes(host: str, http: int) -> int:
    """How many DataNodes the NameNode knows, as it says on its own metrics page; -1 in safe mode."""
    query = "Hadoop:service=NameNode,name=FSNamesystemState"
    with urlopen(f"http://{host}:{http}/jmx?qry={query}", timeout=5) as answer:
        state = json.load(answer)["beans"][0]
    return int(state["NumLiveDataNodes"]) if state["FSState"] == "Operational" else -1


def _format(command: list[str], home: Path, environment: Mapping[str, str]) -> None:
    log = home / "format.log"
    with open(log, "wb") as output:
        done = subprocess.run(
            command, env={**os.environ, **environment}, stdout=output, stderr=output, timeout=120, check=False
        )
    if done.returncode:
        raise ServerFailed(f"formatting the NameNode ended with {done.returncode}:\n{tail(log)}")


def write_site(file: Path, settings: Mapping[str, str]) -> None:
    properties = "".join(
        f"  <property><name>{escape(name)}</name><value>{escape(value)}</value></property>\n"
        for name, value in settings.items()
    )
    file.write_text(f'<?xml version="1.0"?>\n<configuration>\n{properties}</configuration>\n')


if __name__ == "__main__":
    sys.exit(run_beside(server, __doc__ or ""))
