"""kafka-reassign-partitions: output, commits and usage errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparklog.coordinator import Coordinator
from sparklog.protocol.commits import ChangeBroker

from .conftest import Run, add_brokers, change_partition, commit


@pytest.fixture
def orders(cluster: Coordinator) -> Coordinator:
    """Brokers 0 to 3; orders has two partitions on 0 and 1."""
    add_brokers(cluster, 1, 2, 3)
    cluster.create_topic("orders", assignment=[[0, 1], [1, 0]])
    cluster.refresh()
    return cluster


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(tmp_path / "moves.json")


def write(path: str, *partitions: tuple[int, list[int]], topic: str = "orders", **more: Any) -> None:
    entries = [{"topic": topic, "partition": number, "replicas": replicas, **more} for number, replicas in partitions]
    Path(path).write_text(json.dumps({"version": 1, "partitions": entries}))


def replicas(cluster: Coordinator, partition: int = 0) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    state = cluster.refresh().partition("orders", partition)
    return state.replicas, state.adding, state.removing


def test_execute_prints_the_rollback_and_starts_all_moves_in_one_commit(
    run: Run, orders: Coordinator, file: str
) -> None:
    before = orders.state.version
    write(file, (1, [1, 3]), (0, [2, 0]))
    result = run("reassign-partitions", "--execute", "--reassignment-json-file", file)
    assert result == (
        0,
        "Current partition replica assignment\n"
        "\n"
        '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[0,1],"log_dirs":["any","any"]},'
        '{"topic":"orders","partition":1,"replicas":[1,0],"log_dirs":["any","any"]}]}\n'
        "\n"
        "Save this to use as the --reassignment-json-file option during rollback\n"
        "Successfully started partition reassignments for orders-0,orders-1\n",
        "",
    )
    assert replicas(orders) == ((2, 0, 1), (2,), (1,))
    assert replicas(orders, 1) == ((1, 3, 0), (3,), (0,))
    assert orders.state.version == before + 1


def test_list_shows_active_reassignments(run: Run, orders: Coordinator, file: str) -> None:
    assert run("reassign-partitions", "--list").out == "No partition reassignments found.\n"
    write(file, (0, [2, 0]))
    run("reassign-partitions", "--execute", "--reassignment-json-file", file)
    assert run("reassign-partitions", "--list").out == (
        "Current partition reassignments:\norders-0: replicas: 2,0,1. adding: 2. removing: 1.\n"
    )


def test_verify_reports_the_progress_of_each_partition(run: Run, orders: Coordinator, file: str) -> None:
    write(file, (0, [2, 0]), (1, [1, 0]))
    run("reassign-partitions", "--execute", "--reassignment-json-file", file)
    assert run("reassign-partitions", "--verify", "--reassignment-json-file", file).out == (
        "Status of partition reassignment:\n"
        "Reassignment of partition orders-0 is still in progress.\n"
        "Reassignment of partition orders-1 is completed.\n"
        "\n"
    )
    change_partition(orders, "orders", 0, replicas=[2, 0], isr=[2, 0], leader=2)
    write(file, (0, [2, 0]), (1, [3, 0]), (7, [1]))
    assert run("reassign-partitions", "--verify", "--reassignment-json-file", file).out == (
        "Status of partition reassignment:\n"
        "Reassignment of partition orders-0 is completed.\n"
        "There is no active reassignment of partition orders-1, but replica set is 1,0 rather than 3,0.\n"
        "There is no active reassignment of partition orders-7, but replica set is  rather than 1.\n"
        "\n"
        "Clearing broker-level throttles on brokers 0,1,2,3\n"
        "Clearing topic-level throttles on topic orders\n"
    )


def test_a_throttle_is_set_by_execute_and_removed_by_verify_after_completion(
    run: Run, orders: Coordinator, file: str
) -> None:
    write(file, (0, [2, 0]))
    result = run("reassign-partitions", "--execute", "--reassignment-json-file", file, "--throttle", "1000000")
    assert result.lines[-2:] == [
        "The inter-broker throttle limit was set to 1000000 B/s",
        "Successfully started partition reassignment for orders-0",
    ]
    assert result.lines[-3].startswith("Warning: You must run --verify periodically")
    state = orders.refresh()
    assert state.configs["follower.replication.throttled.rate"] == "1000000"
    assert state.topic("orders").configs == {
        "leader.replication.throttled.replicas": "0:0,0:1",
        "follower.replication.throttled.replicas": "0:2",
    }
    run("reassign-partitions", "--verify", "--reassignment-json-file", file)
    assert "follower.replication.throttled.rate" in orders.refresh().configs
    change_partition(orders, "orders", 0, replicas=[2, 0], isr=[2, 0], leader=2)
    run("reassign-partitions", "--verify", "--preserve-throttles", "--reassignment-json-file", file)
    assert "follower.replication.throttled.rate" in orders.refresh().configs
    run("reassign-partitions", "--verify", "--reassignment-json-file", file)
    state = orders.refresh()
    assert state.configs == {}
    assert state.topic("orders").configs == {}


def test_a_reassignment_is_cancelled(run: Run, orders: Coordinator, file: str) -> None:
    write(file, (0, [2, 0]), (1, [1, 3]))
    cancel = ["reassign-partitions", "--cancel", "--preserve-throttles", "--reassignment-json-file", file]
    nothing = "None of the specified partition moves are active.\n"
    assert run(*cancel).out == f"None of the specified partition reassignments are active.\n{nothing}"
    run("reassign-partitions", "--execute", "--reassignment-json-file", file)
    assert run(*cancel).out == (f"Successfully cancelled partition reassignments for: orders-0,orders-1\n{nothing}")
    assert set(replicas(orders)[0]) == {0, 1}
    assert replicas(orders)[1:] == ((), ())


def test_generate_proposes_an_assignment_that_execute_accepts(run: Run, orders: Coordinator, file: str) -> None:
    Path(file).write_text('{"topics":[{"topic":"orders"}]}')
    result = run("reassign-partitions", "--generate", "--topics-to-move-json-file", file, "--broker-list", "2,3")
    assert (result.code, result.err) == (0, "")
    assert result.lines[0] == "Current partition replica assignment"
    assert json.loads(result.lines[1])["partitions"][0]["replicas"] == [0, 1]
    assert result.lines[2:4] == ["", "Proposed partition reassignment configuration"]
    proposed = json.loads(result.lines[4])
    assert [sorted(move["replicas"]) for move in proposed["partitions"]] == [[2, 3], [2, 3]]
    assert len({move["replicas"][0] for move in proposed["partitions"]}) == 2
    Path(file).write_text(result.lines[4])
    assert run("reassign-partitions", "--execute", "--reassignment-json-file", file).code == 0


def test_a_second_reassignment_requires_additional(run: Run, orders: Coordinator, file: str) -> None:
    write(file, (0, [2, 0]))
    execute = ["reassign-partitions", "--execute", "--reassignment-json-file", file]
    run(*execute)
    before = orders.refresh().version
    refused = run(*execute)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("Error: Cannot execute because there is an existing partition assignment.")
    assert orders.refresh().version == before
    write(file, (0, [3, 0]))
    assert run(*execute, "--additional").code == 0
    assert replicas(orders)[1] == (3,)


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        ([], "Partition reassignment list cannot be empty"),
        ([(0, [])], "Partition replica list cannot be empty (partition orders-0)"),
        ([(0, [1, 2]), (0, [2, 1])], "Partition reassignment contains duplicate topic partitions: orders-0"),
        ([(0, [2, 2])],
         "Partition replica lists may not contain duplicate entries: orders-0 contains multiple entries for 2"),
        ([(0, [1, 9])], "Unknown broker id 9; existing ids: [0, 1, 2, 3]"),
        ([(5, [1, 2])], "topic 'orders' has partitions 0 to 1, not 5"),
    ],
)  # fmt: skip
def test_an_invalid_reassignment_is_refused_without_a_commit(
    run: Run, orders: Coordinator, file: str, partitions: list[tuple[int, list[int]]], message: str
) -> None:
    write(file, *partitions)
    before = orders.state.version
    result = run("reassign-partitions", "--execute", "--reassignment-json-file", file)
    assert (result.code, result.out, result.err) == (1, "", f"Error: {message}\n")
    assert orders.refresh().version == before


def test_if_one_partition_cannot_be_moved_no_move_starts(run: Run, orders: Coordinator, file: str) -> None:
    commit(orders, ChangeBroker(broker=3, cordoned=True))
    before = orders.refresh().version
    write(file, (0, [2, 0]), (1, [3, 0]))
    result = run("reassign-partitions", "--execute", "--throttle", "5", "--reassignment-json-file", file)
    assert result.code == 1
    first, second = result.err.splitlines()
    assert first == "Error reassigning partition(s); none of them is moved:"
    assert second.startswith("orders-1: ")
    assert "cordoned" in second
    assert orders.refresh().version == before


def test_log_dirs_other_than_any_are_refused(run: Run, orders: Coordinator, file: str) -> None:
    write(file, (0, [2, 0]), log_dirs=["/disk1", "any"])
    result = run("reassign-partitions", "--execute", "--reassignment-json-file", file)
    assert "partition orders-0: invalid log dir /disk1: a broker has only one" in result.err
    write(file, (0, [2, 0]), log_dirs=["any"])
    result = run("reassign-partitions", "--execute", "--reassignment-json-file", file)
    assert "Size of replicas list [2, 0] is different from size of log dirs list ['any']" in result.err


@pytest.mark.parametrize(
    ("brokers", "topics", "message"),
    [
        ("1,x", ["orders"], "invalid --broker-list '1,x': must be a comma-separated list of broker ids, such as 0,1,2"),
        ("1,1", ["orders"], "Error: Broker list contains duplicate entries: [1]"),
        ("1,2", ["orders", "orders"], "Error: List of topics to reassign contains duplicate entries: [orders]"),
        ("1,2", ["nope"], "Error: topic 'nope' does not exist"),
    ],
)
def test_generate_refuses_invalid_brokers_and_topics(
    run: Run, orders: Coordinator, file: str, brokers: str, topics: list[str], message: str
) -> None:
    Path(file).write_text(json.dumps({"topics": [{"topic": topic} for topic in topics]}))
    result = run("reassign-partitions", "--generate", "--topics-to-move-json-file", file, "--broker-list", brokers)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"),
        (["--list", "--execute"],
         "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"),
        (["--execute"], 'Missing required argument "[reassignment-json-file]"'),
        (["--generate", "--broker-list", "1"], 'Missing required argument "[topics-to-move-json-file]"'),
        (["--list", "--throttle", "5"], 'Option "[throttle]" can\'t be used with action "[list]"'),
        (["--execute", "--reassignment-json-file", "f", "--throttle", "0"],
         "invalid --throttle 0: must be at least 1 (bytes per second), or -1 for no limit"),
        (["--verify", "--reassignment-json-file", "/nowhere.json"],
         "Error: --reassignment-json-file: /nowhere.json cannot be read: [Errno 2] No such file or directory: "
         "'/nowhere.json'"),
    ],
)  # fmt: skip
def test_usage_errors_are_reported(run: Run, root: str, arguments: list[str], message: str) -> None:
    result = run("reassign-partitions", *arguments)
    assert (result.code, result.out) == (1, "")
    assert result.err.splitlines()[0] == message


def test_bootstrap_controller_is_refused_with_a_hint(run: Run, root: str) -> None:
    for action in (["--list"], []):
        result = run("reassign-partitions", *action, "--bootstrap-controller", "localhost:9093")
        assert result.code == 1
        assert result.err.startswith(
            "there is no controller to connect to: give the cluster's root as --bootstrap-server"
        )
