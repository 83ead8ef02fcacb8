"""Batch reads of topics as they were at an older version of the cluster, planned as by Spark, but without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import sparklog
from sparklog.coordinator import Coordinator
from sparklog.errors import DataLossError, InvalidOptionError, InvalidRequestError, UnknownTopicOrPartitionError
from tests.cluster.spark.helpers import cluster, read_rows, reader, write_rows


@pytest.fixture
def steps(tmp_path: Path) -> list[tuple[int, int]]:
    """Version and time after: topics a and b with a record each, a second partition of a with a record, a topic c."""
    log = cluster(tmp_path, a=1, b=1)
    found: list[tuple[int, int]] = []

    def write(topic: str, value: str, partition: int = 0) -> None:
        write_rows(tmp_path, "value string, partition int", [{"value": value, "partition": partition}], topic=topic)

    for topic in ("a", "b"):
        write(topic, f"{topic}0")
    found.append(newest(log))
    with sparklog.AdminClient(bootstrap_servers=str(tmp_path)) as admin:
        admin.create_partitions({"a": sparklog.NewPartitions(2)})
    write("a", "a1", 1)
    found.append(newest(log))
    log.create_topic("c", 1)
    for topic in ("a", "b", "c"):
        write(topic, f"{topic}2")
    found.append(newest(log))
    return found


def newest(log: Coordinator) -> tuple[int, int]:
    state = log.refresh()
    return state.version, state.timestamp_ms


def values(folder: Path, **options: Any) -> list[str]:
    given = {name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()}
    return sorted(row["value"].decode() for row in read_rows(folder, "value binary", **given))


def test_all_topics_end_where_they_ended_at_the_version(tmp_path: Path, steps: list[tuple[int, int]]) -> None:
    expected = [["a0", "b0"], ["a0", "a1", "b0"], ["a0", "a1", "a2", "b0", "b2"]]
    for (version, time_ms), found in zip(steps, expected, strict=True):
        assert values(tmp_path, subscribe="a,b", versionAsOf=version) == found
        at_time = values(tmp_path, subscribe="a,b", timestampAsOf=time_ms)
        assert at_time in expected[expected.index(found) :]  # the newest commit of that millisecond
    assert values(tmp_path, subscribe="a,b") == expected[-1]


def test_a_pattern_matches_the_topics_and_partitions_of_the_version(
    tmp_path: Path, steps: list[tuple[int, int]]
) -> None:
    version = steps[0][0]
    assert values(tmp_path, subscribePattern="[abc]", versionAsOf=version) == ["a0", "b0"]
    assert values(tmp_path, assign={"a": [0, 1]}, versionAsOf=version) == ["a0"]
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'c' did not exist at version"):
        values(tmp_path, subscribe="a,c", versionAsOf=version)


def test_starts_are_within_the_version(tmp_path: Path, steps: list[tuple[int, int]]) -> None:
    version = steps[1][0]
    assert values(tmp_path, subscribe="a", startingOffsets={"a": {"0": 1, "1": 0}}, versionAsOf=version) == ["a1"]
    with pytest.raises(DataLossError, match="the log has 0 to 1"):
        values(tmp_path, subscribe="a", startingOffsets={"a": {"0": 2, "1": 0}}, versionAsOf=version)
    with pytest.raises(InvalidOptionError, match="which this query does not read"):
        values(tmp_path, subscribe="a", startingOffsets={"a": {"0": 0, "1": 0}}, versionAsOf=steps[0][0])


def test_versions_that_are_not_known_are_refused(tmp_path: Path, steps: list[tuple[int, int]]) -> None:
    with pytest.raises(InvalidRequestError, match=f"version {steps[-1][0] + 1} does not exist"):
        values(tmp_path, subscribe="a", versionAsOf=steps[-1][0] + 1)
    with pytest.raises(InvalidRequestError, match="before the first commit"):
        values(tmp_path, subscribe="a", timestampAsOf="0")
    with pytest.raises(InvalidOptionError, match="derived from the commit log"):
        values(tmp_path, subscribe="__consumer_offsets", versionAsOf=steps[0][0])


def test_a_kept_plan_of_an_older_version_is_not_outdated(tmp_path: Path, steps: list[tuple[int, int]]) -> None:
    (part,) = reader(tmp_path, "value binary", subscribe="b", versionAsOf=str(steps[0][0])).partitions()
    assert not part.plan_id  # type: ignore[attr-defined]
