"""kafka-replica-verification: replicas that are equal, damaged, different, or behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator
from sparklog.coordinator.brokers import add_broker
from sparklog.protocol.commits import ChangeBroker

from .conftest import Run, change_partition, commit

STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: "


@pytest.fixture
def orders(cluster: Coordinator, tmp_path: Path) -> Coordinator:
    """Ten records in orders-0 and in refunds-0, on brokers 0 and 1."""
    add_broker(cluster, str(tmp_path / "disk1"))
    for name in ("orders", "refunds"):
        cluster.create_topic(name, assignment=[[0, 1]])
        with Producer(bootstrap_servers=cluster.store.root, acks="all") as producer:
            for number in range(10):
                producer.send(name, value=b"%d" % number, partition=0).get()
    cluster.refresh()
    return cluster


def without_times(lines: list[str]) -> list[str]:
    """Return the lines without their timestamps."""
    assert all(re.match(STAMP, line) for line in lines)
    return [re.sub(STAMP, "", line, count=1) for line in lines]


def test_equal_replicas_have_no_lag(run: Run, orders: Coordinator) -> None:
    result = run("replica-verification")
    assert (result.code, result.err) == (0, "")
    assert without_times(result.lines) == [
        "verification process is started",
        "max lag is 0 for partition orders-0 at offset 10 among 2 partitions",
    ]


def test_damage_is_reported_with_its_replica(run: Run, orders: Coordinator, tmp_path: Path) -> None:
    damaged = sorted((tmp_path / "disk1" / "orders-0").glob("*.log"))[4]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    result = run("replica-verification")
    assert result.code == 1
    _, line, _ = without_times(result.lines)
    assert line.startswith(f"partition orders-0 at offset 4 on replica 1: damaged-batch: orders-0/{damaged.name}: ")
    assert run("replica-verification", "--topics-include", "ref.*", "--workers", "2").code == 0


def test_sound_copies_that_differ_are_reported(run: Run, orders: Coordinator, tmp_path: Path) -> None:
    first, second = sorted((tmp_path / "disk1" / "orders-0").glob("*.log"))[:2]
    first.write_bytes(second.read_bytes())
    first.with_suffix(".index").write_bytes(second.with_suffix(".index").read_bytes())
    result = run("replica-verification", "--topics-include", "orders")
    assert result.code == 1
    assert "partition orders-0 at offset 0" in without_times(result.lines)[1]


def test_the_lag_of_a_replica_that_is_behind_is_reported(run: Run, orders: Coordinator, tmp_path: Path) -> None:
    change_partition(orders, "orders", 0, isr=[0])
    for path in sorted((tmp_path / "disk1" / "orders-0").iterdir())[2 * 7 :]:
        path.unlink()
    result = run("replica-verification")
    assert result.code == 0
    assert without_times(result.lines)[-1] == "max lag is 3 for partition orders-0 at offset 7 among 2 partitions"


def test_an_offline_broker_is_reported_and_skipped(run: Run, orders: Coordinator) -> None:
    commit(orders, ChangeBroker(broker=1, online=False))
    result = run("replica-verification")
    assert result.code == 0
    assert "broker 1 (" in result.err
    assert "offline" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topics-include", "nope"],
         "No topics found. --topics-include 'nope', if specified, is either filtering out all topics or there is no "
         "topic."),
        (["--topics-include", "("], "'(' is an invalid regex: missing ), unterminated subpattern at position 0"),
        (["--workers", "0"], "invalid --workers 0: must be at least 1"),
    ],
)  # fmt: skip
def test_usage_errors_are_reported(run: Run, root: str, arguments: list[str], message: str) -> None:
    result = run("replica-verification", *arguments)
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[0] == message
