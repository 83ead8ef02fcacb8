"""kafka-leader-election: elections, output and usage errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator
from sparklog.coordinator.brokers import add_broker
from sparklog.protocol.commits import ChangeBroker

from .conftest import Run, change_partition, commit


@pytest.fixture
def orders(cluster: Coordinator, tmp_path: Path) -> Coordinator:
    """Three partitions with preferred leader 0; broker 1 leads the first and the third."""
    add_broker(cluster, str(tmp_path / "disk1"))
    cluster.create_topic("orders", assignment=[[0, 1], [0, 1], [0, 1]])
    for number in (0, 2):
        change_partition(cluster, "orders", number, leader=1, leader_epoch=1)
    change_partition(cluster, "orders", 2, isr=[1])
    cluster.refresh()
    return cluster


def leaders(cluster: Coordinator) -> list[tuple[int, int]]:
    """Leader and leader epoch of each partition."""
    return [(partition.leader, partition.leader_epoch) for partition in cluster.refresh().topic("orders").partitions]


def test_the_preferred_replica_is_elected(run: Run, orders: Coordinator) -> None:
    elect = ["leader-election", "--election-type", "preferred", "--topic", "orders", "--partition", "0"]
    assert run(*elect) == (0, "Successfully completed leader election (PREFERRED) for partitions orders-0\n", "")
    assert leaders(orders)[0] == (0, 2)
    assert run(*elect) == (0, "Valid replica already elected for partitions orders-0\n", "")


def test_all_partitions_reports_elections_and_failures_only(run: Run, orders: Coordinator) -> None:
    result = run("leader-election", "--election-type", "PREFERRED", "--all-topic-partitions")
    assert result.code == 1
    assert result.lines[0] == "Successfully completed leader election (PREFERRED) for partitions orders-0"
    assert result.lines[1].startswith("Error completing leader election (PREFERRED) for partition: orders-2: broker 0")
    assert len(result.lines) == 2
    assert result.err == "1 replica(s) could not be elected\n"
    assert leaders(orders) == [(0, 2), (0, 0), (1, 1)]


def test_partitions_are_read_from_a_file(run: Run, orders: Coordinator, tmp_path: Path) -> None:
    path = tmp_path / "partitions.json"
    path.write_text(json.dumps({"partitions": [{"topic": "orders", "partition": number} for number in (0, 1)]}))
    result = run("leader-election", "--election-type", "preferred", "--path-to-json-file", str(path))
    assert result == (
        0,
        "Successfully completed leader election (PREFERRED) for partitions orders-0\n"
        "Valid replica already elected for partitions orders-1\n",
        "",
    )


def test_an_unclean_election_elects_a_replica_that_lacks_records(run: Run, orders: Coordinator, tmp_path: Path) -> None:
    with Producer(bootstrap_servers=orders.store.root, acks="all") as producer:
        producer.send("orders", value=b"on both", partition=1).get()
    change_partition(orders, "orders", 1, leader=1, isr=[1])
    with Producer(bootstrap_servers=orders.store.root, acks="all") as producer:
        producer.send("orders", value=b"on one", partition=1).get()
    shutil.rmtree(tmp_path / "disk1")
    commit(orders, ChangeBroker(broker=1, online=False))
    change_partition(orders, "orders", 1, leader=-1)
    end = orders.refresh().partition("orders", 1).log_end_offset
    for path in sorted(Path(orders.store.root, "orders-1").iterdir())[2:]:  # the second record is on broker 1 only
        path.unlink()
    elect = ["leader-election", "--election-type", "unclean", "--topic", "orders", "--partition", "1"]
    assert run(*elect) == (0, "Successfully completed leader election (UNCLEAN) for partitions orders-1\n", "")
    partition = orders.refresh().partition("orders", 1)
    assert (partition.leader, partition.isr, partition.log_end_offset) == (0, (0,), end)
    assert partition.segments == 1
    assert run(*elect).out == "Valid replica already elected for partitions orders-1\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], 'Missing required argument "[election-type]"'),
        (["--election-type", "dirty", "--all-topic-partitions"],
         "invalid --election-type dirty: must be preferred or unclean"),
        (["--election-type", "preferred"],
         "One and only one of the following options is required: topic, all-topic-partitions, path-to-json-file"),
        (["--election-type", "preferred", "--topic", "t"], "Missing required option(s): partition"),
        (["--election-type", "preferred", "--all-topic-partitions", "--partition", "1"],
         "Option partition is only allowed if topic is used"),
    ],
)  # fmt: skip
def test_usage_errors_are_reported(run: Run, root: str, arguments: list[str], message: str) -> None:
    result = run("leader-election", *arguments)
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[0] == message


def test_a_file_with_duplicate_partitions_is_refused(run: Run, orders: Coordinator, tmp_path: Path) -> None:
    path = tmp_path / "partitions.json"
    path.write_text(json.dumps({"partitions": [{"topic": "orders", "partition": 0}] * 2}))
    result = run("leader-election", "--election-type", "preferred", "--path-to-json-file", str(path))
    assert result == (1, "", "Replica election data contains duplicate partitions: orders-0\n")
    assert leaders(orders)[0] == (1, 1)


def test_an_unknown_partition_is_reported(run: Run, orders: Coordinator) -> None:
    for kind in ("preferred", "unclean"):
        result = run("leader-election", "--election-type", kind, "--topic", "orders", "--partition", "9")
        assert result.code == 1
        assert "for partition: orders-9: topic 'orders' has partitions 0 to 2, not 9" in result.out
