"""A consumer that is killed: whoever looks at its group sees the end within the session timeout of the first look."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog.client.records import Record, append_records
from sparklog.clock import SystemClock
from sparklog.coordinator import Coordinator, create_cluster

SESSION_SECONDS = 6.0
SETTINGS = ["--command-property", "session.timeout.ms=6000", "--command-property", "heartbeat.interval.ms=2000"]
SLOW_MACHINE_SECONDS = 6.0
"""What a command itself may take until it looks, and to print."""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    cluster = create_cluster(str(tmp_path / "cluster"))
    monkeypatch.setenv("SPARKLOG_BOOTSTRAP_SERVER", cluster.store.root)
    cluster.create_topic("orders")
    append_records(cluster, "orders", [Record(value=b"first"), Record(value=b"second")])
    return cluster


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparklog.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@contextmanager
def consumer(*flags: str) -> Iterator[subprocess.Popen[str]]:
    """A console-consumer in group g, once it has printed its first line."""
    command = [sys.executable, "-m", "sparklog.cli", "console-consumer", "--topic", "orders", "--group", "g", *SETTINGS]
    with subprocess.Popen([*command, "--from-beginning", *flags], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "first\n"
            yield process
        finally:
            process.kill()


def kill_consumer() -> None:
    with consumer() as process:
        process.kill()


def seconds_until(*arguments: str, code: int = 0, shows: str = "") -> float:
    """How long after its first try a command ends so and prints this."""
    clock = SystemClock()
    began = clock.monotonic()
    while True:
        result = run(*arguments)
        if result.returncode == code and shows in result.stdout:
            return clock.monotonic() - began
        assert clock.monotonic() - began < 120, result


LONGEST = SESSION_SECONDS + SLOW_MACHINE_SECONDS


def test_a_description_shows_the_group_without_it(cluster: Coordinator) -> None:
    kill_consumer()
    assert seconds_until("consumer-groups", "--describe", "--group", "g", "--state", shows="Empty") < LONGEST


def test_its_group_can_be_reset_and_deleted(cluster: Coordinator) -> None:
    kill_consumer()
    reset = ("--reset-offsets", "--group", "g", "--topic", "orders", "--to-earliest", "--execute")
    assert seconds_until("consumer-groups", *reset) < LONGEST
    assert cluster.refresh().groups["g"].members == {}
    assert run("consumer-groups", "--delete", "--group", "g").returncode == 0


def test_its_group_can_be_deleted(cluster: Coordinator) -> None:
    kill_consumer()
    assert seconds_until("consumer-groups", "--delete", "--group", "g") < LONGEST


def test_maintenance_takes_it_out(cluster: Coordinator) -> None:
    kill_consumer()
    clock = SystemClock()
    began = clock.monotonic()
    while cluster.refresh().groups["g"].members:
        assert run("maintain", "--once", "--only", "cleanup").returncode == 0
        assert clock.monotonic() - began < LONGEST


def test_the_only_consumer_comes_back_within_its_session_timeout(cluster: Coordinator) -> None:
    kill_consumer()
    clock = SystemClock()
    began = clock.monotonic()
    with consumer():
        assert clock.monotonic() - began < LONGEST


def test_one_that_was_away_for_long_reads_at_once(cluster: Coordinator) -> None:
    kill_consumer()
    seconds_until("consumer-groups", "--describe", "--group", "g", "--state", shows="Empty")
    assert len(cluster.refresh().groups["g"].members) == 1  # a description changes nothing
    clock = SystemClock()
    began = clock.monotonic()
    with consumer():
        assert clock.monotonic() - began < SESSION_SECONDS
