"""kafka-consumer-groups: groups of streaming queries, their lag, and where a new query starts."""

from __future__ import annotations

import pytest

from sparklog.cli.consumer_groups import CHECKPOINT_NOTE
from sparklog.client.records import Record, append_records
from sparklog.coordinator import Coordinator

from .conftest import Run


@pytest.fixture
def filled(cluster: Coordinator) -> Coordinator:
    """Topic orders with 4 and 2 records at 0, 100, 200 … ms; group billing stands at 1 of partition 0."""
    cluster.create_topic("orders", partitions=2)
    for partition, count in ((0, 4), (1, 2)):
        records = [Record(value=b"v", timestamp_us=n * 100_000, partition=partition) for n in range(count)]
        append_records(cluster, "orders", records)
    cluster.commit_offsets("billing", {("orders", 0): 1})
    return cluster


def offsets(cluster: Coordinator) -> dict[int, int]:
    return {one.partition: one.offset for one in cluster.refresh().groups["billing"].offsets.values()}


def test_groups_are_listed(run: Run, filled: Coordinator) -> None:
    filled.commit_offsets("audit", {("orders", 0): 1})
    assert run("consumer-groups", "--list").lines == ["audit", "billing"]


def test_a_group_is_described_with_its_lag(run: Run, filled: Coordinator) -> None:
    lines = run("consumer-groups", "--describe", "--group", "billing").lines
    assert "Consumer group 'billing' has no active members." in lines
    assert lines[-2].split() == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG",
                                 "CONSUMER-ID", "HOST", "CLIENT-ID"]  # fmt: skip
    assert lines[-1].split() == ["billing", "orders", "0", "1", "4", "3", "-", "-", "-"]


def test_offsets_of_a_topic_that_was_created_again_are_not_shown(run: Run, filled: Coordinator) -> None:
    filled.delete_topic("orders")
    filled.create_topic("orders", partitions=2)
    assert "orders" not in run("consumer-groups", "--describe", "--all-groups").out


def test_a_group_that_is_not_there_is_an_error(run: Run, filled: Coordinator) -> None:
    assert run("consumer-groups", "--describe", "--group", "x") == (
        1,
        "",
        "Error: Consumer group 'x' does not exist.\n",
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--to-earliest", "--topic", "orders"], {0: 0, 1: 0}),
        (["--to-latest", "--topic", "orders"], {0: 4, 1: 2}),
        (["--to-latest", "--all-topics"], {0: 4}),
        (["--to-offset", "0", "--topic", "orders:0"], {0: 0}),
        (["--to-offset", "3", "--topic", "orders:0,1"], {0: 3, 1: 2}),
        (["--to-current", "--topic", "orders"], {0: 1, 1: 2}),
        (["--shift-by", "2", "--all-topics"], {0: 3}),
        (["--shift-by", "-5", "--all-topics"], {0: 0}),
        (["--to-datetime", "1970-01-01T00:00:00.150", "--topic", "orders"], {0: 2, 1: 2}),
    ],
)
def test_offsets_are_set_for_a_new_checkpoint_and_the_note_says_so(
    run: Run, filled: Coordinator, arguments: list[str], expected: dict[int, int]
) -> None:
    result = run("consumer-groups", "--reset-offsets", "--group", "billing", *arguments, "--execute")
    assert result[0] == 0
    assert offsets(filled) == expected
    assert CHECKPOINT_NOTE in result[2]


def test_nothing_is_set_without_execute(run: Run, filled: Coordinator) -> None:
    result = run("consumer-groups", "--reset-offsets", "--group", "billing", "--to-latest", "--topic", "orders")
    assert result.lines[-1].split() == ["billing", "orders", "1", "2"]
    assert "No action will be performed as the --execute option is missing." in result[2]
    assert offsets(filled) == {0: 1}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--list", "--describe"],
        ["--describe"],
        ["--reset-offsets", "--group", "billing", "--all-topics"],
        ["--reset-offsets", "--group", "billing", "--all-topics", "--to-latest", "--to-earliest"],
        ["--reset-offsets", "--group", "billing", "--to-latest"],
        ["--reset-offsets", "--group", "billing", "--topic", "orders:x", "--to-latest"],
        ["--reset-offsets", "--group", "billing", "--topic", "orders", "--to-datetime", "soon"],
        ["--reset-offsets", "--group", "billing", "--topic", "orders", "--shift-by", "1"],
    ],
)
def test_contradictions_are_refused(run: Run, filled: Coordinator, arguments: list[str]) -> None:
    assert run("consumer-groups", *arguments)[0] == 1
    assert offsets(filled) == {0: 1}
