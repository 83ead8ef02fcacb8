"""A killed consumer: all tools regard it as dead once its lease is older than its session timeout.

The age of a lease is computed from the storage's times, so the tests set those: the session timeout is half an hour,
and ``expire_lease`` makes the lease older. So nothing waits for a session timeout, however slow the machine is.
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
SETTINGS = [part for setting in PROPERTIES for part in ("--command-property", setting)]
TIMEOUT_SECONDS = SESSION_SECONDS / 4
"""A consumer that prints nothing for this long is killed, and the test fails."""
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
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)


@contextmanager
def consumer() -> Iterator[subprocess.Popen[str]]:
    """Run a console-consumer in group g."""
    command = [sys.executable, "-m", "sparklog.cli", "console-consumer", "--topic", "orders", "--group", "g", *SETTINGS]
    with subprocess.Popen([*command, "--from-beginning"], stdout=subprocess.PIPE, text=True) as process:
        kill_timer = threading.Timer(TIMEOUT_SECONDS, process.kill)
        kill_timer.start()
        try:
            yield process
        finally:
            kill_timer.cancel()
            process.kill()


def reads_first_record(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    return process.stdout.readline() == "first\n"


def members(cluster: Coordinator) -> list[str]:
    """Return the members of the group in the log."""
    groups = cluster.refresh().groups
    return list(groups["g"].members) if "g" in groups else []


@pytest.fixture
def dead_member(cluster: Coordinator) -> str:
    """A member that has read a record and was killed just now."""
    with consumer() as process:
        assert reads_first_record(process)
        process.kill()
        process.wait()
    (member,) = members(cluster)
    return member


def expire_lease(cluster: Coordinator, member: str) -> None:
    """Set the time of the last heartbeat back by twice the session timeout."""
    lease = Path(cluster.store.root, lease_key("g", member))
    status = lease.stat()
    os.utime(lease, (status.st_atime, status.st_mtime - 2 * SESSION_SECONDS))


def test_a_description_omits_an_expired_member(cluster: Coordinator, dead_member: str) -> None:
    assert "Stable" in run(*STATE).stdout
    expire_lease(cluster, dead_member)
    assert "Empty" in run(*STATE).stdout
    assert members(cluster) == [dead_member]  # a description changes nothing


def test_the_group_of_an_expired_member_can_be_reset_and_deleted(cluster: Coordinator, dead_member: str) -> None:
    reset = ("consumer-groups", "--reset-offsets", "--group", "g", "--topic", "orders", "--to-earliest", "--execute")
    assert run(*reset).returncode == 1
    expire_lease(cluster, dead_member)
    assert run(*reset).returncode == 0
    assert members(cluster) == []
    assert run("consumer-groups", "--delete", "--group", "g").returncode == 0


def test_the_group_of_an_expired_member_can_be_deleted(cluster: Coordinator, dead_member: str) -> None:
    delete = ("consumer-groups", "--delete", "--group", "g")
    assert run(*delete).returncode == 1
    expire_lease(cluster, dead_member)
    assert run(*delete).returncode == 0


def test_maintenance_removes_an_expired_member(cluster: Coordinator, dead_member: str) -> None:
    assert run(*CLEANUP).returncode == 0
    assert members(cluster) == [dead_member]
    expire_lease(cluster, dead_member)
    assert run(*CLEANUP).returncode == 0
    assert members(cluster) == []


def test_a_restarted_consumer_takes_over_after_the_session_timeout_of_the_old_one(
    cluster: Coordinator, dead_member: str
) -> None:
    with consumer() as process:
        while dead_member in members(cluster) and len(members(cluster)) < 2 and process.poll() is None:
            pass
        assert len(members(cluster)) == 2  # it waits for the partition of the dead member
        expire_lease(cluster, dead_member)
        assert reads_first_record(process)
        assert dead_member not in members(cluster)


def test_a_restarted_consumer_reads_immediately_if_the_old_one_has_expired(
    cluster: Coordinator, dead_member: str
) -> None:
    expire_lease(cluster, dead_member)
    with consumer() as process:
        assert reads_first_record(process)
        assert dead_member not in members(cluster)
