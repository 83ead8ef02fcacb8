"""A job on a YARN and an HDFS that demand Kerberos: its containers have no ticket, but the tokens of spark-submit."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from scripts.servers import hdfs, kerberos, yarn
from scripts.servers.common import SERVERS, Skipped
from tests.deployment.clusters import Root
from tests.deployment.conftest import node_environment
from tests.deployment.storages import Storages, build, servers
from tests.deployment.yarn_cluster import YarnCluster

pytestmark = pytest.mark.yarn
USER = "sparklog"
ROWS = 1000
PREPARE = """
import sys, hdfs_native
client = hdfs_native.Client(sys.argv[1])
client.mkdirs("/", 0o777, True)
client.set_permission("/", 0o777)
"""
UPLOAD = """
import sys, hdfs_native
client = hdfs_native.Client(sys.argv[1])
with client.create("/trips.csv", hdfs_native.WriteOptions()) as file:
    file.write(sys.stdin.buffer.read())
"""


class Secured(NamedTuple):
    cluster: YarnCluster
    realm: kerberos.Realm
    url: str

    def run(self, variables: dict[str, str], *command: str, data: str = "") -> str:
        """Run a program of the environment as an operator; return what it prints."""
        path = Path(sys.executable).with_name(command[0])
        done = subprocess.run(
            [str(path), *command[1:]],
            env={**self.cluster.shell_environment(), **variables},
            input=data,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    build()
    SERVERS.mkdir(exist_ok=True)
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="secured-", dir=SERVERS)))
        try:
            realm = stack.enter_context(kerberos.realm(work / "realm", [*hdfs.PRINCIPALS, USER]))
            started = stack.enter_context(yarn.started(node_environment(work), realm))
        except Skipped as reason:
            pytest.skip(str(reason))
        start = stack.enter_context(servers(stack))
        cluster = YarnCluster(work, started, Storages(work, start, started.hadoop.url))
        secured = Secured(cluster, realm, started.hadoop.url)
        administrator = realm.log_in(hdfs.DAEMON_PRINCIPAL, "administrator")
        secured.run(administrator, "python", "-c", PREPARE, secured.url)
        yield secured
        cluster.close_jobs()


def test_a_job_writes_with_the_tokens_that_spark_submit_got(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = secured.realm.log_in(USER, "ticket")
    rows = "".join(f"{number},city {number % 97}\n" for number in range(ROWS))
    secured.run(ticket, "python", "-c", UPLOAD, secured.url, data=f"id,city\n{rows}")
    root = f"{secured.url}/log"
    topic = ["--bootstrap-server", root, "--topic", "trips"]
    secured.run(ticket, "sparklog", "cluster", "create", "--bootstrap-server", root)
    secured.run(ticket, "sparklog", "topics", *topic, "--create", "--partitions", "4")

    source = ["--format", "csv", "--path", f"{secured.url}/trips.csv", "--option", "header=true", "--key", "city"]
    containers = Root(root, environment={"JAVA_TOOL_OPTIONS": ticket["JAVA_TOOL_OPTIONS"]})
    monkeypatch.setenv("KRB5CCNAME", ticket["KRB5CCNAME"])
    done = secured.cluster.run("produce", *topic, *source, mode="cluster", package="archive", root=containers)
    assert done.code == 0, done.output[-8000:]
    assert f"produce: {ROWS:,} records written to topic trips in " in done.output
    offsets = secured.run(ticket, "sparklog", "get-offsets", *topic)
    assert sum(int(line.rpartition(":")[2]) for line in offsets.split()) == ROWS
