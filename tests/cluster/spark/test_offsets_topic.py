"""``__consumer_offsets`` as Spark reads it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sparklog.coordinator.offsets_topic import RECORDS_PER_COMMIT, group_key, offset_key, partition_of
from sparklog.errors import InvalidOptionError
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets, delete_group
from sparklog.spark.stream.options import stream_options
from tests.cluster.spark.helpers import cluster, read_rows

TOPIC = "__consumer_offsets"


def rows(folder: Path, **options: str) -> list[dict[str, Any]]:
    return read_rows(folder, **{"subscribe": TOPIC, **options})


def test_a_batch_query_reads_committed_offsets(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=2)
    log.submit(
        partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): 3, ("orders", 1): 4}))
    )
    first = log.refresh().version
    log.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): 5})))
    read = rows(tmp_path, includeHeaders="true")
    keys = [offset_key("g", "orders", 0), offset_key("g", "orders", 1), offset_key("g", "orders", 0)]
    assert [row["key"] for row in read] == keys
    base = first * RECORDS_PER_COMMIT
    assert [row["offset"] for row in read] == [base, base + 1, base + RECORDS_PER_COMMIT]
    assert {(row["topic"], row["partition"], row["headers"]) for row in read} == {(TOPIC, partition_of("g"), None)}
    times = [row["timestamp"] for row in read]
    assert times == sorted(times)


def test_offsets_timestamps_and_partitions_select_records_as_for_any_topic(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1)
    log.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): 3})))
    log.submit(partial(commit_group_offsets, commit=GroupCommit(group="h", offsets={("orders", 0): 4})))
    number = partition_of("h")
    assert number != partition_of("g")
    read = rows(tmp_path)
    last = max(row["offset"] for row in read)
    assigned = {"assign": f'{{"{TOPIC}":[{number}]}}'}
    assert [row["offset"] for row in read_rows(tmp_path, **assigned)] == [last]
    limit = {"endingOffsets": f'{{"{TOPIC}":{{"{number}":{last}}}}}'}
    assert read_rows(tmp_path, **assigned, **limit) == []
    after = str(int(read[-1]["timestamp"].timestamp() * 1000) + 60_000)
    later = {"startingTimestamp": after, "startingOffsetsByTimestampStrategy": "latest"}
    assert rows(tmp_path, **later) == []
    assert len(rows(tmp_path, startingTimestamp="0", startingOffsetsByTimestampStrategy="latest")) == 2
    assert len(rows(tmp_path, subscribe=f"{TOPIC},orders")) == 2
    assert len(rows(tmp_path, minPartitions="100")) == 2


def test_a_deleted_group_is_shown_by_tombstones_as_in_kafka(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1)
    log.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): 3})))
    log.submit(partial(delete_group, group="g"))
    assert (rows(tmp_path)[-1]["key"], rows(tmp_path)[-1]["value"]) == (group_key("g"), None)


def test_the_topic_is_excluded_from_patterns_and_streams(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1)
    log.submit(partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): 3})))
    assert read_rows(tmp_path, subscribePattern=".*") == []
    with pytest.raises(InvalidOptionError, match="batch queries and Consumer can read it, streaming queries cannot"):
        stream_options({"path": str(tmp_path), "subscribe": TOPIC})
