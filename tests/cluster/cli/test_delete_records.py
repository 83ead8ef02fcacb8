"""kafka-delete-records: what it prints, deletes and refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.coordinator import Coordinator

from .conftest import Run


@pytest.fixture
def orders(cluster: Coordinator) -> Coordinator:
    """Two partitions of ten records each, and a compacted topic."""
    cluster.create_topic("orders", 2)
    cluster.create_topic("latest", configs={"cleanup.policy": "compact"})
    with Producer(bootstrap_servers=cluster.store.root) as producer:
        for number in range(20):
            producer.send("orders", value=b"v", partition=number % 2)
    cluster.refresh()
    return cluster


def offsets_file(folder: Path, *partitions: tuple[object, object, object], **more: Any) -> str:
    path = folder / "offsets.json"
    entries = [dict(zip(("topic", "partition", "offset"), partition, strict=True)) for partition in partitions]
    path.write_text(json.dumps({"partitions": entries, **more}))
    return str(path)


def start_offsets(cluster: Coordinator) -> list[int]:
    return [partition.log_start_offset for partition in cluster.refresh().topic("orders").partitions]


def test_start_offsets_of_all_partitions_are_moved_in_one_commit(run: Run, orders: Coordinator, tmp_path: Path) -> None:
    before = orders.state.version
    path = offsets_file(tmp_path, ("orders", 0, 3), ("orders", 1, -1), version=1)
    assert run("delete-records", "--offset-json-file", path) == (
        0,
        "Executing records delete operation\n"
        "Records delete operation completed:\n"
        "partition: orders-0\tlow_watermark: 3\n"
        "partition: orders-1\tlow_watermark: 10\n",
        "",
    )
    assert start_offsets(orders) == [3, 10]
    assert orders.state.version == before + 1


def test_an_error_is_printed_on_the_line_of_its_partition_and_the_others_succeed(
    run: Run, orders: Coordinator, tmp_path: Path
) -> None:
    wrong = [("nope", 0, 1), ("orders", 9, 1), ("__consumer_offsets", 0, 0), ("latest", 0, 0)]
    path = offsets_file(tmp_path, ("orders", 0, 11), ("orders", 1, 5), *wrong)
    result = run("delete-records", "--offset-json-file", path)
    assert result.code == 1
    assert [line.split("\t")[0] for line in result.lines[2:]] == [
        "partition: orders-0", "partition: orders-1", "partition: nope-0", "partition: orders-9",
        "partition: __consumer_offsets-0", "partition: latest-0",
    ]  # fmt: skip
    assert "error: orders-0 cannot start at offset 11" in result.out
    assert "partition: orders-1\tlow_watermark: 5" in result.lines
    assert "error: topic 'nope' does not exist" in result.out
    assert "error: cannot delete records of the internal topic __consumer_offsets" in result.out
    assert "cleanup.policy does not contain delete" in result.lines[-1]
    assert start_offsets(orders) == [0, 5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Input data was truncated"),
        ("[]", "Expected `object`, got `array`"),
        ("{}", "Object missing required field `partitions`"),
        ('{"partitions":[{"topic":"orders","partition":"0","offset":3}]}', "Expected `int`, got `str` - at"),
        ('{"partitions":[{"topic":"orders","partition":0}]}', "missing required field `offset`"),
        ('{"partitions":[],"version":2}', "Not supported version field value 2"),
        ("\udcff", "invalid file"),
    ],
)
def test_an_invalid_file_is_refused_before_anything_is_deleted(
    run: Run, orders: Coordinator, tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "offsets.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    before = orders.state.version
    result = run("delete-records", "--offset-json-file", str(path))
    assert (result.code, result.out) == (1, "")
    assert message in result.err
    assert str(path) in result.err
    assert result.err.count("\n") == 1
    assert orders.refresh().version == before


def test_a_partition_named_twice_is_refused(run: Run, orders: Coordinator, tmp_path: Path) -> None:
    path = offsets_file(tmp_path, ("orders", 0, 3), ("orders", 1, 1), ("orders", 0, 4))
    result = run("delete-records", "--offset-json-file", path)
    assert result == (1, "", "Offset json file contains duplicate topic partitions: orders-0\n")
    assert start_offsets(orders) == [0, 0]


def test_a_missing_file_is_reported(run: Run, root: str) -> None:
    assert run("delete-records").err.startswith('Missing required argument "[offset-json-file]"\n')
    result = run("delete-records", "--offset-json-file", "/nowhere/offsets.json")
    assert result.code == 1
    assert "/nowhere/offsets.json cannot be read" in result.err
