"""Each row of "Spark's connector" in docs/differences.md is shown by a test named after its id.

Rows that need a session are shown by the integration tests in ``WITH_SPARK``.
"""

from __future__ import annotations

import ast
import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import NullType, StructField, StructType

from sparklog.coordinator.offsets_topic import offset_key
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import DataLossError, InvalidOptionError
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.spark.options import sink_options, source_options
from sparklog.spark.source.filters import EqualTo
from sparklog.spark.source.ranges import split_ranges
from sparklog.spark.source.rows import check_write_schema
from sparklog.spark.stream.lag_listener import find_lag
from sparklog.spark.stream.options import stream_options
from sparklog.spark.stream.reader import SparklogStreamReader
from sparklog.types import OffsetRange
from tests.cluster.spark import test_source, test_stream_planner, test_write_and_read
from tests.cluster.spark.helpers import cluster, read_rows, reader, values, write_rows

ROOT = Path(__file__).resolve().parents[2]
INTEGRATION = ROOT / "tests" / "integration"
WITH_SPARK = {
    "plan-of-a-query": "test_spark_batch.py::test_a_source_without_a_filter_reuses_the_plan_of_its_first_query",
    "save-mode": "test_spark_batch.py::test_save_modes_other_than_append_are_refused",
    "exactly-once": "test_stream_queries.py::test_a_rerun_batch_adds_nothing",
    "consumer-group": "test_stream_more.py::test_a_named_query_commits_to_the_group_of_its_name_by_default",
    "update-mode": "test_stream_more.py::test_update_mode_works_through_foreach_batch_only",
    "connect-query-id": "test_stream_more.py::test_write_batch_outside_of_a_query_needs_the_query_id",
}


def ids() -> list[str]:
    """The first column of the section's table."""
    section = (ROOT / "docs" / "differences.md").read_text().split("\n## Spark's connector\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \|", section, re.MULTILINE)
    return [row.strip() for row in rows if row.strip() not in ("id", "---")]


def functions_of(path: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}


def test_rows_and_tests_correspond() -> None:
    own = test_rows_and_tests_correspond.__name__
    here = {name for name in functions_of(Path(__file__)) if name.startswith("test_")} - {own}
    listed = ids()
    assert len(listed) == len(set(listed)) > 20
    assert {f"test_{one.replace('-', '_')}" for one in listed} - here == {
        f"test_{one.replace('-', '_')}" for one in WITH_SPARK
    }
    assert here <= {f"test_{one.replace('-', '_')}" for one in listed}
    for place in WITH_SPARK.values():
        file, name = place.split("::")
        assert name in functions_of(INTEGRATION / file), place


def test_address() -> None:
    with pytest.raises(InvalidOptionError, match="looks like Kafka brokers; a sparklog cluster has none"):
        source_options({"kafka.bootstrap.servers": "a:9092,b:9092", "subscribe": "orders"})


def test_schema(tmp_path: Path) -> None:
    cluster(tmp_path, orders=1)
    write_rows(tmp_path, "key string, value string", [{"key": "k", "value": "v"}], topic="orders")
    assert read_rows(tmp_path, "key binary", subscribe="orders") == [{"key": b"k"}]


def test_filters(tmp_path: Path) -> None:
    cluster(tmp_path, orders=2)
    write_rows(
        tmp_path, "value string, partition int", [{"value": "v", "partition": n} for n in (0, 1)], topic="orders"
    )
    read = reader(tmp_path, filters=[EqualTo(("partition",), 1)], subscribe="orders")
    assert [planned.partition for one in read.partitions() for planned in one.ranges] == [1]  # type: ignore[attr-defined]


def test_offset_ids(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1)
    write_rows(tmp_path, "value string", [{"value": "v"}], topic="orders")
    job = test_stream_planner.reader(tmp_path)
    end = job.latestOffset(job.initialOffset(), test_stream_planner.ALL)
    state = log.refresh()
    ids = f"orders={state.topic('orders').topic_id}"
    name = f"$ids:{state.cluster_id}:{ids},orders/0=0,${state.version}={state.digest}"
    assert end == {"orders": {"0": 1}, name: {}}
    assert job.reportLatestOffset() == {"orders": {"0": 1}}


def test_topic_created_again(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1)
    test_stream_planner.produce(tmp_path, "orders", 5)
    job = test_stream_planner.reader(tmp_path)
    end = job.latestOffset(job.initialOffset(), test_stream_planner.ALL)
    delete_topic(log, "orders")
    log.create_topic("orders")
    test_stream_planner.produce(tmp_path, "orders", 9)
    with pytest.raises(DataLossError, match="created again"):
        test_stream_planner.reader(tmp_path).latestOffset(end, test_stream_planner.ALL)


def test_deleted_topic(tmp_path: Path) -> None:
    log = cluster(tmp_path, orders=1, clicks=1)
    both: dict[str, Any] = {"subscribe": "orders,clicks", "failOnDataLoss": "false"}
    job = test_stream_planner.reader(tmp_path, **both)
    end = job.latestOffset(job.initialOffset(), test_stream_planner.ALL)
    delete_topic(log, "orders")
    test_stream_planner.produce(tmp_path, "clicks", 2)
    following = test_stream_planner.reader(tmp_path, **both).latestOffset(end, test_stream_planner.ALL)
    assert test_stream_planner.positions(following) == {"clicks": {"0": 2}}


def test_lost_ranges(tmp_path: Path) -> None:
    cluster(tmp_path, orders=1)
    write_rows(tmp_path, "value string", [{"value": "v"}], topic="orders")
    beyond = {"subscribe": "orders", "startingOffsets": '{"orders":{"0":7}}'}
    with pytest.raises(DataLossError):
        values(tmp_path, **beyond)
    assert values(tmp_path, **beyond, failOnDataLoss="false") == []


def test_one_commit(tmp_path: Path) -> None:
    test_write_and_read.test_a_record_over_the_limit_fails_the_job_and_nothing_is_visible(tmp_path)


def test_timestamp_column(tmp_path: Path) -> None:
    test_write_and_read.test_timestamps_are_kept_and_default_to_the_time_of_the_write(tmp_path / "a")
    test_write_and_read.test_the_timestamp_column_is_ignored_if_it_is_not_included(tmp_path / "b")


def test_null_value() -> None:
    check_write_schema(StructType([StructField("value", NullType())]), has_topic_option=True)


def test_column_case(tmp_path: Path) -> None:
    cluster(tmp_path, orders=2)
    write_rows(tmp_path, "VALUE string, Partition int", [{"VALUE": "v", "Partition": 1}], topic="orders")
    found = [(row["partition"], row["value"]) for row in read_rows(tmp_path, subscribe="orders")]
    assert found == [(1, b"v")]


def test_pattern() -> None:
    assert source_options({"path": "/log", "subscribePattern": r"(?P<year>\d+)"}).subscription.pattern
    with pytest.raises(InvalidOptionError, match="not a Python regular expression"):
        source_options({"path": "/log", "subscribePattern": r"\p{Lu}+"})


def test_partitioner() -> None:
    with pytest.raises(InvalidOptionError, match="Java classes cannot run here"):
        sink_options({"path": "/log", "kafka.partitioner.class": "com.example.Mine"})
    assert sink_options({"path": "/log", "partitioner": "mine:choose"}).partitioner == "mine:choose"


def test_misspelt_option(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InvalidOptionError, match="did you mean startingOffsets"):
        source_options({"path": "/log", "subscribe": "a", "startingOffset": "earliest"})
    source_options({"path": "/log", "subscribe": "a", "favouriteColour": "blue"})
    assert "unknown option favouritecolour" in caplog.text


def test_client_options(caplog: pytest.LogCaptureFixture) -> None:
    plain = source_options({"path": "/log", "subscribe": "a"})
    more = {"kafka.fetch.max.bytes": "1", "groupIdPrefix": "mine", "kafkaConsumer.pollTimeoutMs": "5"}
    with caplog.at_level(logging.INFO):
        assert source_options({"path": "/log", "subscribe": "a", **more}) == plain
    assert caplog.text == ""


def test_number_of_tasks() -> None:
    assert split_ranges([OffsetRange("orders", 0, 0, 1_000_000)], min_partitions=1_000_000)
    with pytest.raises(InvalidOptionError, match="would create 2,000,000 tasks"):
        split_ranges([OffsetRange("orders", 0, 0, 2_000_000)], min_partitions=2_000_000)


def test_lag() -> None:
    source = {"endOffset": {"a": {"0": 5}, "$ids:c:a=x": {}}, "latestOffset": {"a": {"0": 9}}}
    found = find_lag({"id": "q", "name": "copier", "batchId": 3, "sources": [source]})
    assert found is not None
    assert (found.min_offsets_behind_latest, found.max_offsets_behind_latest) == (4, 4)
    assert not hasattr(SparklogStreamReader, "metrics")


def test_task_metrics(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    test_lost_ranges(tmp_path)
    assert "reading what there is, since failOnDataLoss is false" in caplog.text


def test_consumer_offsets(tmp_path: Path) -> None:
    cluster(tmp_path, orders=1).submit(
        partial(commit_group_offsets, commit=GroupCommit(group="g", offsets={("orders", 0): 3}))
    )
    found = read_rows(tmp_path, subscribe="__consumer_offsets")
    assert [row["key"] for row in found] == [offset_key("g", "orders", 0)]
    with pytest.raises(InvalidOptionError, match="streaming queries cannot"):
        stream_options({"path": str(tmp_path), "subscribe": "__consumer_offsets"})


def test_columns_of_a_table(tmp_path: Path) -> None:
    test_source.test_a_table_has_the_columns_of_its_option()
    test_source.test_an_altered_table_keeps_its_options_and_the_meaning_of_columns(tmp_path / "a")
    test_source.test_an_insert_into_an_altered_table_refuses_columns_that_a_log_cannot_keep(tmp_path / "b")
    test_source.test_the_error_for_a_table_without_options_says_how_to_create_it(tmp_path)
