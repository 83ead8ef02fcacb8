"""A killed consumer: all tools see that it is gone once its lease is older than its session timeout.

How old a lease is, the storage's times say, so the tests set those: a session timeout lasts half an hour, and
``let_pass`` puts the lease of the dead one back. What happens in less was not waited for, however slow the machine is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog.coordinator import Coordinator, create_cluster
from sparklog.coordinator.leases import lease_key
from sparklog.testing.records import Record, append_records

SESSION_SECONDS = 1800
PROPERTIES = (f"session.timeout.ms={SESSION_SECONDS * 1000}", "heartbeat.interval.ms=1000", "enable.auto.commit=false")
SETTINGS = [part for each in PROPERTIES for part in ("--command-property", each)]
PATIENCE_SECONDS = SESSION_SECONDS / 4
"""After it a consumer that prints nothing is given up, and the test fails: it waits for a session timeout."""
STATE = ("consumer-groups", "--describe", "--group", "g", "--state")
CLEANUP = ("maintain", "--once", "--only", "cleanup")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    cluster = create_cluster(str(tmp_path / "cluster"))
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP_SERVER", cluster.store.root)
    cluster.create_topic("orders", 2)
    append_records(cluster, "orders", [Record(value=b"first", partition=number) for number in (0, 1)])
    return cluster


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparklog.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS)


@contextmanager
def consumer() -> Iterator[subprocess.Popen[str]]:
    """A console-consumer in group g."""
    command = [sys.executable, "-m", "sparklog.cli", "console-consumer", "--topic", "orders", "--group", "g", *SETTINGS]
    with subprocess.Popen([*command, "--from-beginning"], stdout=subprocess.PIPE, text=True) as process:
        given_up = threading.Timer(PATIENCE_SECONDS, process.kill)
        given_up.start()
        try:
            yield process
        finally:
            given_up.cancel()
            process.kill()


def reads(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "first\n"


def members(cluster: Coordinator) -> list[str]:
    """As the log has them."""
    groups = cluster.refresh().groups
    return list(groups["g"].members) if "g" in groups else []


@pytest.fixture
def dead(cluster: Coordinator) -> str:
    """A member that read, and was killed a moment ago."""
    with consumer() as process:
        assert reads(process)
        process.kill()
        process.wait()
    (member,) = members(cluster)
    return member


def let_pass(cluster: Coordinator, member: str) -> None:
    """Its session timeout: the storage says that its last heartbeat was twice as long ago."""
    lease = Path(cluster.store.root, lease_key("g", member))
    found = lease.stat()
    os.utime(lease, (found.st_atime, found.st_mtime - 2 * SESSION_SECONDS))


def test_a_description_shows_the_group_without_it(cluster: Coordinator, dead: str) -> None:
    assert "Stable" in run(*STATE).stdout
    let_pass(cluster, dead)
    assert "Empty" in run(*STATE).stdout
    assert members(cluster) == [dead]  # a description changes nothing


def test_its_group_can_be_reset_and_deleted(cluster: Coordinator, dead: str) -> None:
    reset = ("consumer-groups", "--reset-offsets", "--group", "g", "--topic", "orders", "--to-earliest", "--execute")
    assert run(*reset).returncode == 1
    let_pass(cluster, dead)
    assert run(*reset).returncode == 0
    assert members(cluster) == []
    assert run("consumer-groups", "--delete", "--group", "g").returncode == 0


def test_its_group_can_be_deleted(cluster: Coordinator, dead: str) -> None:
    delete = ("consumer-groups", "--delete", "--group", "g")
    assert run(*delete).returncode == 1
    let_pass(cluster, dead)
    assert run(*delete).returncode == 0


def test_maintenance_takes_it_out(cluster: Coordinator, dead: str) -> None:
    assert run(*CLEANUP).returncode == 0
    assert members(cluster) == [dead]
    let_pass(cluster, dead)
    assert run(*CLEANUP).returncode == 0
    assert members(cluster) == []


def test_the_only_consumer_comes_back_once_its_session_timeout_is_over(cluster: Coordinator, dead: str) -> None:
    with consumer() as process:
        while dead in members(cluster) and len(members(cluster)) < 2 and process.poll() is None:
            pass
        assert len(members(cluster)) == 2  # it waits for the partition that the dead one is to give up
        let_pass(cluster, dead)
        assert reads(process)
        assert dead not in members(cluster)


def test_one_that_was_away_for_long_reads_at_once(cluster: Coordinator, dead: str) -> None:
    let_pass(cluster, dead)
    with consumer() as process:
        assert reads(process)
        assert dead not in members(cluster)
