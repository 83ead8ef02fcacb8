"""kafka-get-offsets: selection of partitions, times, and errors."""

from __future__ import annotations

import pytest

from sparklog.coordinator import Coordinator
from sparklog.testing.records import Record, append_records

from .conftest import Run

FAILED = "Error occurred: "


@pytest.fixture
def filled(cluster: Coordinator) -> Coordinator:
    """Topic a with partitions of 3, 1 and no records at 100 to 400 ms, topic b with one record."""
    cluster.create_topic("a", partitions=3)
    cluster.create_topic("b")
    for partition, stamps in ((0, [100, 300, 200]), (1, [400])):
        append_records(cluster, "a", [Record(value=b"v", timestamp_us=ms * 1000, partition=partition) for ms in stamps])
    append_records(cluster, "b", [Record(value=b"v", timestamp_us=0)])
    return cluster


def test_latest_offsets_of_all_topics_are_the_default(run: Run, filled: Coordinator) -> None:
    assert run("get-offsets") == (0, "a:0:3\na:1:1\na:2:0\nb:0:1\n", "")


def test_partitions_are_sorted_by_number(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t", partitions=11)
    assert run("get-offsets").lines == [f"t:{partition}:0" for partition in range(11)]


@pytest.mark.parametrize(
    ("time", "lines"),
    [
        ("latest", ["a:0:3", "a:1:1", "a:2:0"]),
        ("-1", ["a:0:3", "a:1:1", "a:2:0"]),
        ("earliest", ["a:0:0", "a:1:0", "a:2:0"]),
        ("-2", ["a:0:0", "a:1:0", "a:2:0"]),
        ("max-timestamp", ["a:0:1", "a:1:0"]),
        ("-3", ["a:0:1", "a:1:0"]),
        ("earliest-local", ["a:0:0", "a:1:0", "a:2:0"]),
        ("-4", ["a:0:0", "a:1:0", "a:2:0"]),
        ("latest-tiered", []),
        ("-5", []),
        ("earliest-pending-upload", []),
        ("-6", []),
        ("0", ["a:0:0", "a:1:0"]),
        ("150", ["a:0:1", "a:1:0"]),
        ("301", ["a:1:0"]),
        ("401", []),
    ],
)
def test_offsets_by_time(run: Run, filled: Coordinator, time: str, lines: list[str]) -> None:
    result = run("get-offsets", "--topic", "a", "--time", time)
    assert (result.code, result.lines, result.err) == (0, lines, "")


@pytest.mark.parametrize(
    ("arguments", "partitions"),
    [
        (["--topic", "a|b"], ["a:0", "a:1", "a:2", "b:0"]),
        (["--topic", "a", "--partitions", "0,2"], ["a:0", "a:2"]),
        (["--partitions", "1"], ["a:1"]),
        (["--topic-partitions", "a:1,b"], ["a:1", "b:0"]),
        (["--topic-partitions", "a:0-2"], ["a:0", "a:1"]),
        (["--topic-partitions", "a:1-"], ["a:1", "a:2"]),
        (["--topic-partitions", "a:-1"], ["a:0"]),
        (["--topic-partitions", "a:"], ["a:0", "a:1", "a:2"]),
        (["--topic-partitions", ":2"], ["a:2"]),
        (["--topic-partitions", "[ab]:0-1"], ["a:0", "b:0"]),
    ],
)
def test_partitions_are_chosen_by_patterns(
    run: Run, filled: Coordinator, arguments: list[str], partitions: list[str]
) -> None:
    lines = run("get-offsets", *arguments).lines
    assert [line.rpartition(":")[0] for line in lines] == partitions


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "nope"], "Could not match any topic-partitions with the specified filters"),
        (["--topic-partitions", "a:7"], "Could not match any topic-partitions with the specified filters"),
        (["--topic-partitions", "a", "--topic", "a"], "--topic-partitions cannot be used with --topic or --partitions"),
        (["--topic-partitions", "a:x"], "Invalid rule specification: a:x"),
        (["--topic-partitions", "a:1:2"], "Invalid rule specification: a:1:2"),
        (["--partitions", "1,x"],
         "--partitions expects a comma separated list of numeric partition ids, but received: 1,x"),
        (["--time", "yesterday"],
         "Malformed time argument yesterday. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / -4 or "
         "earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format timestamp"),
    ],
)  # fmt: skip
def test_filters_that_match_nothing_or_are_malformed_are_refused(
    run: Run, filled: Coordinator, arguments: list[str], message: str
) -> None:
    assert run("get-offsets", *arguments) == (1, "", f"{FAILED}{message}\n")


def test_an_undefined_negative_time_returns_no_offsets(run: Run, filled: Coordinator) -> None:
    result = run("get-offsets", "--topic", "a", "--time", "-7")
    assert (result.code, result.out) == (0, "")
    assert result.err.startswith("Skip getting offsets due to: invalid offset spec -7 for a-0")


@pytest.mark.parametrize("time", [str(2**63), "-" + "9" * 30, "9" * 5000, "٣"])
def test_a_hostile_time_is_refused_or_returns_no_offsets(run: Run, filled: Coordinator, time: str) -> None:
    result = run("get-offsets", "--time", time)
    assert "Traceback" not in result.err
    assert result.code in (0, 1)
