"""Reads as Spark would run them, but without Spark: columns, bytes read, starts and ends."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from sparklog.errors import (
    DataLossError,
    InvalidOptionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from sparklog.spark.source.filters import EqualTo, GreaterThanOrEqual, LessThan
from tests.cluster.spark.helpers import cluster, read_rows, reader, values, write_rows


def time_of(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.timezone.utc)


def test_a_schema_selects_columns_in_its_own_order(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    write_rows(tmp_path, "key string, value string", [{"key": "k", "value": "v"}], topic="a")
    found = read_rows(tmp_path, "Offset bigint, topic string not null, key binary", subscribe="a")
    assert found == [{"Offset": 0, "topic": "a", "key": b"k"}]


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [("nothing int", "unknown column 'nothing'"), ("value string", "value is binary"), ("offset int", "is bigint")],
)
def test_a_schema_with_unknown_columns_is_refused(tmp_path: Path, ddl: str, problem: str) -> None:
    with pytest.raises(InvalidOptionError, match=problem):
        reader(tmp_path, ddl, subscribe="a")


def test_a_projection_reads_only_the_bytes_of_its_columns(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    rows = [{"key": f"{number:08d}", "value": "x" * 1000} for number in range(10_000)]
    write_rows(tmp_path, "key string, value string", rows, topic="a")
    read = {}
    for ddl in ("key binary, value binary", "key binary", "timestamp timestamp", "offset bigint, partition int"):
        job = reader(tmp_path, ddl, subscribe="a")
        assert sum(batch.num_rows for part in job.partitions() for batch in job.read(part)) == 10_000
        read[ddl] = job.bytes_read
    assert read["key binary, value binary"] > 10_000_000
    assert read["key binary"] < 200_000
    assert read["timestamp timestamp"] < 150_000
    assert read["offset bigint, partition int"] == 0


def test_filters_on_partition_offset_and_time_prune_reads(tmp_path: Path) -> None:
    cluster(tmp_path, a=4)
    ddl = "key string, value string, partition int, timestamp timestamp"
    for job in range(3):
        written = [
            {"key": str(n), "value": "x" * 1000, "partition": n % 4, "timestamp": time_of(job * 1000 + n // 10)}
            for n in range(8000)
        ]
        write_rows(tmp_path, ddl, written, topic="a")

    def read(*filters: object) -> tuple[Any, Any]:
        job = reader(tmp_path, filters=filters, subscribe="a")
        rows = sum(batch.num_rows for part in job.partitions() for batch in job.read(part))
        return rows, job.bytes_read

    everything, all_bytes = read()
    assert everything == 24_000
    rows, size = read(EqualTo(("partition",), 2))
    assert (rows, size) == (6000, pytest.approx(all_bytes / 4, rel=0.05))
    rows, size = read(EqualTo(("partition",), 2), GreaterThanOrEqual(("offset",), 2000), LessThan(("offset",), 2010))
    assert rows == 10
    assert size < all_bytes / 10
    rows, size = read(GreaterThanOrEqual(("timestamp",), time_of(2000)))
    assert rows == pytest.approx(8000, abs=10)
    assert size < all_bytes / 2
    assert read(EqualTo(("topic",), "b")) == (0, 0)


def test_small_appends_are_read_in_large_batches(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    for number in range(20):
        write_rows(tmp_path, "value string", [{"value": str(number)}], topic="a")
    job = reader(tmp_path, subscribe="a")
    (part,) = job.partitions()
    (batch,) = job.read(part)
    assert batch.column("offset").to_pylist() == list(range(20))


def test_the_dummy_task_that_spark_runs_without_partitions_reads_nothing(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    job = reader(tmp_path, subscribe="a")
    assert job.partitions() == []
    assert list(job.read(InputPartition(None))) == []


def test_a_missing_topic_is_an_error_and_a_missing_assigned_partition_is_not(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'b' does not exist"):
        read_rows(tmp_path, subscribe="a,b")
    write_rows(tmp_path, "value string", [{"value": "v"}], topic="a")
    assert values(tmp_path, assign='{"a":[0,7]}') == [b"v"]


def test_an_assigned_topic_that_is_misspelt_is_an_error(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    for assign in ('{"b":[0]}', '{"a":[0],"b":[0]}'):
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 'b' does not exist"):
            read_rows(tmp_path, assign=assign)


@pytest.mark.parametrize("name", ["startingTimestamp", "endingTimestamp"])
def test_the_largest_timestamp_is_after_every_record(tmp_path: Path, name: str) -> None:
    cluster(tmp_path, a=1)
    write_rows(tmp_path, "value string", [{"value": "v"}], topic="a")
    options = {name: str(2**63 - 1), "startingOffsetsByTimestampStrategy": "latest"}
    assert values(tmp_path, subscribe="a", **options) == ([] if name == "startingTimestamp" else [b"v"])


def test_a_pattern_matches_any_part_of_a_name(tmp_path: Path) -> None:
    cluster(tmp_path, orders_eu=1, orders_us=1, clicks=1)
    for name in ("orders_eu", "orders_us", "clicks"):
        write_rows(tmp_path, "value string", [{"value": name}], topic=name)
    assert values(tmp_path, subscribePattern="ders") == [b"orders_eu", b"orders_us"]
    assert values(tmp_path, subscribePattern="^clicks$") == [b"clicks"]
    assert values(tmp_path, subscribePattern="nothing") == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingOffsets": '{"a":{"0":3}}'}, range(3, 10)),
        ({"startingOffsets": '{"a":{"0":-2}}', "endingOffsets": '{"a":{"0":4}}'}, range(4)),
        ({"endingOffsets": '{"a":{"0":-1}}'}, range(10)),
        ({"startingOffsets": '{"a":"earliest"}', "endingOffsets": '{"a":"latest"}'}, range(10)),
        ({"startingOffsets": '{"a":{"0":10}}'}, range(0)),
        ({"startingTimestamp": "1005"}, range(5, 10)),
        ({"endingTimestamp": "1005"}, range(5)),
        ({"endingTimestamp": "9999"}, range(10)),
        ({"startingOffsetsByTimestamp": '{"a":{"0":1002}}', "endingTimestamp": "1004"}, range(2, 4)),
        ({"startingTimestamp": "9999", "startingOffsetsByTimestampStrategy": "latest"}, range(0)),
    ],
)
def test_a_read_starts_and_ends_as_its_options_say(tmp_path: Path, options: dict[str, str], expected: range) -> None:
    cluster(tmp_path, a=1)
    rows = [{"value": str(number), "timestamp": time_of(1000 + number)} for number in range(10)]
    for part in (rows[:3], rows[3:]):
        write_rows(tmp_path, "value string, timestamp timestamp", part, topic="a")
    assert values(tmp_path, subscribe="a", **options) == [str(number).encode() for number in expected]


def test_a_start_time_without_records_is_an_error(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    write_rows(tmp_path, "value string", [{"value": "v"}], topic="a")
    with pytest.raises(OffsetOutOfRangeError, match="no record of a-0 has a timestamp of 99999999999999 or later"):
        read_rows(tmp_path, subscribe="a", startingTimestamp="99999999999999")


def test_errors_about_offsets_fit_the_option(tmp_path: Path) -> None:
    cluster(tmp_path, a=2)
    with pytest.raises(InvalidOptionError, match=r"leaves out .*with a time in milliseconds, or set startingTimestamp"):
        read_rows(tmp_path, subscribe="a", startingOffsetsByTimestamp='{"a":{"0":0}}')
    with pytest.raises(
        InvalidOptionError, match=r"option endingOffsetsByTimestamp leaves out .*or set endingTimestamp"
    ):
        read_rows(tmp_path, subscribe="a", endingOffsetsByTimestamp='{"a":{"0":0}}')
    with pytest.raises(InvalidOptionError, match=r"leaves out .*-1 for latest.*the word latest"):
        read_rows(tmp_path, subscribe="a", endingOffsets='{"a":{"0":0}}')


def test_a_start_after_an_end_given_by_a_timestamp_is_refused(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    for second in range(3):
        rows = [{"value": "v", "timestamp": datetime.datetime.fromtimestamp(second, datetime.timezone.utc)}]
        write_rows(tmp_path, "value string, timestamp timestamp", rows, topic="a")
    with pytest.raises(InvalidOptionError, match="a-0 would start at offset 2, after its end at 1"):
        read_rows(tmp_path, subscribe="a", startingOffsets='{"a":{"0":2}}', endingTimestamp="1000")
    assert values(tmp_path, subscribe="a", startingOffsets='{"a":{"0":1}}', endingTimestamp="1000") == []


def test_offsets_by_partition_must_name_exactly_the_read_partitions(tmp_path: Path) -> None:
    cluster(tmp_path, a=2)
    with pytest.raises(InvalidOptionError, match=r'option startingOffsets leaves out {"a":\[1\]}; .*-2 for earliest'):
        read_rows(tmp_path, subscribe="a", startingOffsets='{"a":{"0":0}}')
    with pytest.raises(
        InvalidOptionError, match=r'option endingOffsets names {"b":\[0\]}, which this query does not read'
    ):
        read_rows(tmp_path, subscribe="a", endingOffsets='{"a":{"0":0,"1":0},"b":{"0":1}}')
    with pytest.raises(InvalidOptionError, match="topic 'b'"):
        read_rows(tmp_path, subscribe="a", endingOffsets='{"a":"latest","b":"latest"}')


@pytest.mark.parametrize("options", [{"startingOffsets": '{"a":{"0":4}}'}, {"endingOffsets": '{"a":{"0":4}}'}])
def test_offsets_beyond_the_log_are_data_loss(tmp_path: Path, options: dict[str, str]) -> None:
    cluster(tmp_path, a=1)
    write_rows(tmp_path, "value string", [{"value": "v"}] * 3, topic="a")
    with pytest.raises(DataLossError, match=r"of a-0 were requested, but the log has 0 to 3"):
        read_rows(tmp_path, subscribe="a", **options)
    found = values(tmp_path, subscribe="a", failOnDataLoss="false", **options)
    assert len(found) == (0 if "startingOffsets" in options else 3)


def test_a_missing_file_is_data_loss_that_can_be_skipped(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    for value in ("1", "2", "3"):
        write_rows(tmp_path, "value string", [{"value": value}], topic="a")
    sorted(tmp_path.glob("a-0/*.log"))[1].unlink()
    with pytest.raises(DataLossError, match=r"records 1 to 1 of a-0 .*failOnDataLoss=false"):
        values(tmp_path, subscribe="a")
    assert values(tmp_path, subscribe="a", failOnDataLoss="false") == [b"1", b"3"]


def test_ranges_are_split_over_tasks(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    write_rows(tmp_path, "value string", [{"value": str(number)} for number in range(100)], topic="a")
    job = reader(tmp_path, subscribe="a", minPartitions="4")
    assert len(job.partitions()) == 4
    assert values(tmp_path, subscribe="a", maxRecordsPerPartition="7") == [str(n).encode() for n in range(100)]


def test_one_task_reads_several_partitions_each_in_offset_order(tmp_path: Path) -> None:
    cluster(tmp_path, a=3, b=2)
    schema = "topic string, value string, partition int"
    rows = [{"topic": "ab"[n % 2], "value": str(n), "partition": n % (3 - n % 2)} for n in range(100)]
    write_rows(tmp_path, schema, rows)
    for most, tasks in (("2", 2), ("auto", 1)):
        job = reader(tmp_path, subscribe="a,b", maxPartitions=most)
        assert len(job.partitions()) == tasks
        read = read_rows(tmp_path, "topic string, partition int, offset bigint", subscribe="a,b", maxPartitions=most)
        places = [(row["topic"], row["partition"], row["offset"]) for row in read]
        for topic, partition in {place[:2] for place in places}:
            offsets = [offset for *of, offset in places if of == [topic, partition]]
            assert offsets == list(range(len(offsets)))
        found = values(tmp_path, subscribe="a,b", maxPartitions=most)
        assert sorted(found) == sorted(str(n).encode() for n in range(100))


def test_a_lost_range_of_a_task_of_several_is_skipped_alone(tmp_path: Path) -> None:
    cluster(tmp_path, a=2)
    for number in range(4):
        row = {"value": str(number), "partition": number % 2}
        write_rows(tmp_path, "value string, partition int", [row], topic="a")
    sorted(tmp_path.glob("a-0/*.log"))[1].unlink()
    with pytest.raises(DataLossError, match=r"records 1 to 1 of a-0"):
        values(tmp_path, subscribe="a", maxPartitions="1")
    assert values(tmp_path, subscribe="a", maxPartitions="1", failOnDataLoss="false") == [b"0", b"1", b"3"]


def test_pushed_filters_prune_only_if_the_read_asks_for_it(tmp_path: Path) -> None:
    cluster(tmp_path, a=2)
    write_rows(tmp_path, "value string, partition int", [{"value": "v", "partition": n} for n in (0, 1)], topic="a")
    for asked, expected in (("true", 1), ("false", 2)):
        job = reader(tmp_path, subscribe="a", pushDownPredicate=asked)
        filters = [EqualTo(("partition",), 1)]
        assert list(job.pushFilters(list(filters))) == filters
        assert len(job.partitions()) == expected
