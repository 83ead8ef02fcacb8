"""A root on an HDFS that demands Kerberos: with a ticket, with a delegation token, and with neither."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from scripts.servers import hdfs, kerberos
from scripts.servers.common import SERVERS, Skipped

pytestmark = pytest.mark.hdfs
USER = "sparklog"
MAKE_HOMES = "import sys, hdfs_native; hdfs_native.Client(sys.argv[1]).mkdirs('/logs', 0o777, True)"
PRODUCE = """
import sys
from sparklog import Producer
from sparklog.coordinator import create_cluster, open_cluster

root = sys.argv[1]
create_cluster(root).create_topic("orders")
with Producer(bootstrap_servers=root) as producer:
    for number in range(10):
        producer.send("orders", str(number).encode())
print(open_cluster(root).state.partition("orders", 0).high_watermark)
"""


class Secured(NamedTuple):
    hadoop: hdfs.FileSystem
    realm: kerberos.Realm

    def run(self, program: str, path: str, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a program of Python in a new process: hdfs-native reads the variables once."""
        return subprocess.run(
            [sys.executable, "-c", program, f"{self.hadoop.url}{path}"],
            env={**os.environ, **self.hadoop.environment, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def fetch_token(self, file: Path, variables: Mapping[str, str]) -> None:
        """Get a delegation token, as Spark and YARN do for their containers."""
        fetcher = "org.apache.hadoop.hdfs.tools.DelegationTokenFetcher"
        subprocess.run(
            [*self.hadoop.java, fetcher, "--renewer", USER, str(file)],
            env={**os.environ, **self.hadoop.environment, **variables},
            check=True,
            timeout=120,
        )


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    home = tmp_path_factory.mktemp("kerberos") / "realm"
    SERVERS.mkdir(exist_ok=True)
    try:
        with kerberos.realm(home, [*hdfs.PRINCIPALS, USER]) as realm, hdfs.file_system(realm=realm) as hadoop:
            cluster = Secured(hadoop, realm)
            made = cluster.run(MAKE_HOMES, "", realm.log_in(hdfs.DAEMON_PRINCIPAL, "administrator"))
            assert made.returncode == 0, made.stderr
            yield cluster
    except Skipped as reason:
        pytest.skip(str(reason))


def test_a_ticket_is_enough(secured: Secured) -> None:
    done = secured.run(PRODUCE, "/logs/by-ticket", secured.realm.log_in(USER, "ticket"))
    assert done.stdout == "10\n", done.stderr


def test_a_delegation_token_is_enough(secured: Secured, tmp_path: Path) -> None:
    token = tmp_path / "token"
    secured.fetch_token(token, secured.realm.log_in(USER, "ticket"))
    nobody = {"KRB5CCNAME": f"FILE:{tmp_path / 'none'}", "HADOOP_TOKEN_FILE_LOCATION": str(token)}
    done = secured.run(PRODUCE, "/logs/by-token", nobody)
    assert done.stdout == "10\n", done.stderr


def test_without_either_the_error_says_how_to_log_in(secured: Secured, tmp_path: Path) -> None:
    done = secured.run(PRODUCE, "/logs/by-nobody", {"KRB5CCNAME": f"FILE:{tmp_path / 'none'}"})
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "StoragePermissionError: read hdfs://" in last
    assert "No Kerberos credentials available" in last
    assert "kinit" in last
    assert "HADOOP_TOKEN_FILE_LOCATION" in last
