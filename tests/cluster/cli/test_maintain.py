"""``sparklog maintain``: passes and loops, their reports and exit codes, and usage errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.shared import forget_shared
from sparklog.errors import StorageFullError, StoragePermissionError
from sparklog.maintenance import steps
from sparklog.maintenance.segments.replacement import Counts
from sparklog.maintenance.segments.roll import roll
from sparklog.maintenance.step_names import STEP_NAMES as STEPS
from sparklog.protocol.decide.topics import alter_configs
from sparklog.testing.faulty_store import WRITES, Call, FaultyStore
from sparklog.testing.substitutes import substituted

from .conftest import Run


def append(cluster: Coordinator, topic: str, commits: int, partition: int = 0) -> None:
    """Append one record per commit, so that each has a small file of its own."""
    with Producer(bootstrap_servers=cluster.store.root) as producer:
        for number in range(commits):
            producer.send(topic, value=f"{number}".encode(), partition=partition).get()


def values(root: str, topic: str) -> list[bytes]:
    with LogReader(open_cluster(root)) as reader:
        end = reader.state.partition(topic, 0).high_watermark
        return [record.value or b"" for record in reader.records(topic, 0, 0, end)]


@pytest.fixture
def orders(cluster: Coordinator) -> Coordinator:
    """Thirty small files in orders, ten in refunds."""
    for name, commits in (("orders", 30), ("refunds", 10)):
        cluster.create_topic(name)
        append(cluster, name, commits)
    cluster.refresh()
    return cluster


def segments(cluster: Coordinator, topic: str) -> int:
    return cluster.refresh().partition(topic, 0).segments


def test_the_help_lists_all_steps() -> None:
    assert tuple(steps.STEPS) == STEPS


def test_a_pass_runs_every_step_and_reports_its_counts(run: Run, orders: Coordinator) -> None:
    result = run("maintain", "--once", "--mirror", f"{orders.store.root}-mirror")
    assert (result.code, result.err) == (0, "")
    assert "mirror: commits copied " in result.lines[-1]
    assert [line.split(":")[0] for line in result.lines] == list(STEPS)
    (roll,) = [line for line in result.lines if line.startswith("roll: ")]
    assert roll.startswith("roll: files rewritten 40, into files 2, bytes read ")
    assert segments(orders, "orders") == 1
    assert values(orders.store.root, "orders") == [f"{number}".encode() for number in range(30)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_pass_exits_with_the_code_of_the_signal(
    run: Run, orders: Coordinator, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def roll_and_interrupt(*arguments: object) -> Counts:
        counts = roll(*arguments)  # type: ignore[arg-type]
        os.kill(os.getpid(), number)
        return counts

    monkeypatch.setattr(steps, "roll", roll_and_interrupt)
    result = run("maintain", "--once", "--only", "roll,retention")
    assert result.code == 128 + number
    assert segments(orders, "orders") == 1, "the steps before the signal are committed"


def test_a_second_pass_finds_nothing_to_roll(run: Run, orders: Coordinator) -> None:
    run("maintain", "--once")
    assert "roll: nothing to do" in run("maintain", "--once").out


def test_a_pass_can_be_limited_to_steps_and_topics(run: Run, orders: Coordinator) -> None:
    result = run("maintain", "--once", "--only", "roll", "--topic", "ref.*")
    assert [line.split(":")[0] for line in result.lines] == ["roll"]
    assert (segments(orders, "orders"), segments(orders, "refunds")) == (30, 1)


def test_worker_processes_share_the_tasks(run: Run, orders: Coordinator) -> None:
    result = run("maintain", "--once", "--only", "roll", "--workers", "2")
    assert (result.code, result.err) == (0, "")
    assert (segments(orders, "orders"), segments(orders, "refunds")) == (1, 1)


def test_a_damaged_topic_is_reported_and_the_others_are_rolled(run: Run, orders: Coordinator) -> None:
    damaged = sorted(Path(orders.store.root, "orders-0").glob("*.log"))[3]
    damaged.chmod(0o644)
    damaged.write_bytes(b"\0" * damaged.stat().st_size)
    result = run("maintain", "--once", "--only", "roll")
    assert result.code == 1
    (failed,) = [line for line in result.lines if line.startswith("roll: failed: ")]
    assert "orders" in failed
    assert damaged.name in failed
    assert segments(orders, "refunds") == 1
    assert segments(orders, "orders") == 30


def test_a_loop_runs_until_it_is_terminated(orders: Coordinator) -> None:
    command = [sys.executable, "-m", "sparklog.cli", "maintain", "--loop", "--only", "roll,cleanup"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as loop:
        assert loop.stdout is not None
        assert loop.stdout.readline().startswith("roll: files rewritten 40")
        started = time.monotonic()
        loop.send_signal(signal.SIGTERM)
        out, err = loop.communicate(timeout=60)
    assert loop.returncode == 0
    assert time.monotonic() - started < 30
    assert out.splitlines()[-1] == "stopped"
    assert "SIGTERM: stopping after the current task" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Command must include exactly one action: --once or --loop"),
        (["--once", "--loop"], "Command must include exactly one action: --once or --loop"),
        (["--once", "--only", "rol"],
         f"--only: unknown step 'rol'; choose from {', '.join(STEPS)}; did you mean roll?"),
        (["--once", "--only", "mirror"], "--only mirror requires --mirror, the location to mirror the commit log to"),
        (["--once", "--workers", "0"], "invalid --workers 0: must be at least 1"),
        (["--once", "--workers", "2", "--distributed"],
         'Option "[workers]" can\'t be used with option "[distributed]"'),
        (["--once", "--master", "yarn"], "--master and --conf are settings of Spark and require --distributed"),
        (["--once", "--topic", "("], "'(' is an invalid regex: missing ), unterminated subpattern at position 0"),
        (["--once", "--topic", "oders"], "--topic 'oders' matches no topic of the cluster"),
        (["--once", "--distributed", "--conf", "x"], "--conf 'x' is not of the form name=value"),
    ],
)  # fmt: skip
def test_usage_errors_are_reported(run: Run, root: str, arguments: list[str], message: str) -> None:
    result = run("maintain", *arguments)
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[0] == message


def test_distributed_without_pyspark_fails_with_the_package_to_install(root: str, tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('no', name='pyspark')\n")
    command = [sys.executable, "-m", "sparklog.cli", "maintain", "--once", "--distributed"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    assert "lacks pyspark: pip install 'sparklog[spark]'" in result.stderr


def wait_until(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def test_a_loop_replaces_a_lost_leader_and_restores_its_replica_when_it_returns(
    cluster: Coordinator, tmp_path: Path
) -> None:
    add_broker(cluster, str(tmp_path / "disk1"))
    cluster.submit(partial(alter_configs, topic="", changes={"broker.heartbeat.interval.ms": "200"}))
    cluster.create_topic("t", assignment=[[1, 0]])
    append(cluster, "t", 5)

    def partition() -> tuple[int, tuple[int, ...]]:
        state = cluster.refresh().partition("t", 0)
        return state.leader, state.isr

    command = [sys.executable, "-m", "sparklog.cli", "maintain", "--loop"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as loop:
        try:
            assert loop.stdout is not None
            assert loop.stdout.readline().startswith("roll: files rewritten 5")
            (tmp_path / "disk1").rename(tmp_path / "away")
            wait_until(lambda: partition() == (0, (0,)))
            append(cluster, "t", 5)
            (tmp_path / "away").rename(tmp_path / "disk1")
            wait_until(lambda: partition()[1] == (1, 0))
        finally:
            loop.send_signal(signal.SIGTERM)
            out, err = loop.communicate(timeout=60)
    assert loop.returncode == 0
    assert "elections: partitions with another leader or isr 1" in out
    assert f"{out}{err}".count("broker 1: failed: ") == 1, "a repeated problem is printed once"
    assert "elections: failed: broker 1: failed: " in out
    assert "replicas in sync again 1" in out
    assert out.splitlines()[-1] == "stopped"
    assert values(cluster.store.root, "t") == [b"0", b"1", b"2", b"3", b"4"] * 2


def test_a_pass_on_a_read_only_root_fails_although_there_is_nothing_to_do(run: Run, cluster: Coordinator) -> None:
    assert run("maintain", "--once").code == 0
    assert not [info for info in cluster.store.list("leases/") if "maintenance-check" in info.key]

    def refuse(step: int, call: Call) -> None:
        if call.operation in WRITES:
            raise StoragePermissionError(f"write {call.key}: Read-only file system", path=call.key)

    with substituted(FaultyStore(cluster.store, before=refuse)):
        forget_shared(cluster.store.root)
        result = run("maintain", "--once")
    assert result.code == 1
    assert "cleanup: failed: write leases/maintenance-check: Read-only file system" in result.out


def test_a_pass_on_a_full_disk_does_not_fail_for_want_of_space_alone(run: Run, cluster: Coordinator) -> None:
    def fill(step: int, call: Call) -> None:
        if call.key == "leases/maintenance-check" and call.operation == "put":
            raise StorageFullError("no space left on device", path=call.key)

    with substituted(FaultyStore(cluster.store, before=fill)):
        forget_shared(cluster.store.root)
        assert run("maintain", "--once").code == 0
