"""kafka-e2e-latency: measures the time from send to read of each record."""

from __future__ import annotations

import re

import pytest

from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator

from .conftest import Run

NEEDED = ["--topic", "t", "--num-records", "3", "--producer-acks", "1", "--record-size", "20"]


def test_latencies_of_records_of_the_given_shape_are_printed(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t", 2)
    shape = [
        "--record-key-size",
        "4",
        "--num-headers",
        "2",
        "--record-header-key-size",
        "3",
        "--record-header-size",
        "5",
    ]
    result = run("e2e-latency", *NEEDED, *shape)
    assert (result.code, result.err) == (0, "")
    first, average, percentiles = result.lines
    assert re.fullmatch(r"0\t\d+\.\d+", first)
    assert re.fullmatch(r"Avg latency: \d+\.\d{4} ms", average)
    assert re.fullmatch(r"Percentiles: 50th = \d+, 99th = \d+, 99\.9th = \d+", percentiles)
    state = cluster.refresh()
    with LogReader(cluster) as reader:
        records = [
            record
            for number in (0, 1)
            for record in reader.records("t", number, 0, state.partition("t", number).high_watermark)
        ]
    assert [(len(record.key or b""), len(record.value or b"")) for record in records] == [(4, 20)] * 3
    assert [[(len(name), len(value or b"")) for name, value in record.headers] for record in records] == [
        [(3, 5)] * 2
    ] * 3


def test_a_missing_topic_is_created(run: Run, cluster: Coordinator) -> None:
    result = run("e2e-latency", *NEEDED)
    assert result.code == 0
    assert 'Topic "t" does not exist.' in result.err
    assert len(cluster.refresh().topic("t").partitions) == 1


def test_existing_records_of_the_topic_are_skipped(run: Run, cluster: Coordinator) -> None:
    cluster.create_topic("t")
    assert run("console-producer", "--topic", "t", stdin=b"old\n").code == 0
    assert run("e2e-latency", *NEEDED).code == 0


def test_positional_arguments_are_accepted_with_a_deprecation_warning(run: Run, root: str) -> None:
    result = run("e2e-latency", root, "t", "2", "all", "10")
    assert result.code == 0
    assert "arguments without names are deprecated" in result.err
    too_few = run("e2e-latency", root, "t")
    assert (too_few.code, too_few.err.splitlines()[0]) == (1, f"{root!r} does not belong to any option")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--topic", "t"], 'Missing required argument "[num-records]"'),
        ([*NEEDED[:5], "0", *NEEDED[6:]], "Invalid value for --producer-acks: must be 1 or all"),
        ([*NEEDED[:3], "0", *NEEDED[4:]], "Value for --num-records must be a positive integer."),
        ([*NEEDED[:7], "-1"], "Value for --record-size must be a non-negative integer."),
        ([*NEEDED, "--num-headers", "-1"], "Value for --num-headers must be a non-negative integer."),
    ],
)
def test_invalid_arguments_are_refused(run: Run, root: str, arguments: list[str], message: str) -> None:
    result = run("e2e-latency", *arguments)
    assert (result.code, result.out) == (1, "")
    assert message in result.err
