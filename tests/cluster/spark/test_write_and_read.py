"""Write and read jobs as Spark would run them, but without Spark."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog import limits
from sparklog.clock import ManualClock
from sparklog.coordinator.shared import forget_shared
from sparklog.errors import (
    InvalidOptionError,
    InvalidPartitionError,
    InvalidRecordError,
    InvalidRequestError,
    InvalidTimestampError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol.decide.expiry import forget_applications
from sparklog.protocol.decide.topics import alter_configs
from sparklog.spark.sink import output
from sparklog.types import CREATE_TIME, LOG_APPEND_TIME
from tests.cluster.spark.helpers import (
    Row,
    across,
    batches,
    cluster,
    read_rows,
    reader,
    schema_of,
    values,
    write_job,
    write_rows,
    writer,
)
from tests.sample import examples

HEADERS = "headers headers"


def test_a_record_is_read_as_the_columns_of_kafka(tmp_path: Path) -> None:
    coordinator = cluster(tmp_path, orders=1)
    write_rows(tmp_path, "key string, value string", [{"key": "k", "value": "v"}], topic="orders")
    (row,) = read_rows(tmp_path, subscribe="orders")
    stamp = row.pop("timestamp")
    assert row == {
        "key": b"k",
        "value": b"v",
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "timestampType": CREATE_TIME,
    }
    assert abs(stamp.timestamp() * 1000 - coordinator.log.clock.now_ms()) < 60_000


def test_null_and_empty_keys_and_values_are_distinct(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    rows = [{"key": key, "value": value} for key in (None, b"", b"k") for value in (None, b"", b"v")]
    write_rows(tmp_path, "key binary, value binary", rows, topic="a")
    assert sorted(read_rows(tmp_path, "key binary, value binary", subscribe="a"), key=str) == sorted(rows, key=str)


def test_headers_keep_order_and_duplicates_and_no_headers_are_null(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    some = [{"key": "x", "value": b"1"}, {"key": "x", "value": None}, {"key": "a", "value": b""}]
    rows: list[Row] = [
        {"value": b"1", "headers": some},
        {"value": b"2", "headers": None},
        {"value": b"3", "headers": []},
    ]
    write_rows(tmp_path, f"value binary, {HEADERS}", rows, topic="a")
    read = read_rows(tmp_path, subscribe="a", includeHeaders="true")
    assert [row["headers"] for row in read] == [some, None, None]


def test_records_written_without_headers_have_null_headers(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    write_rows(tmp_path, "value binary", [{"value": b"1"}], topic="a")
    assert [row["headers"] for row in read_rows(tmp_path, subscribe="a", includeHeaders="true")] == [None]


def test_columns_that_do_not_belong_to_a_record_are_ignored(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    write_rows(
        tmp_path, "note double, VALUE string, offset bigint", [{"note": 1.0, "VALUE": "v", "offset": 9}], topic="a"
    )
    assert values(tmp_path, subscribe="a") == [b"v"]


def test_wide_types_of_arrow_are_narrowed(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    wide = pa.list_(pa.struct([pa.field("key", pa.large_string()), pa.field("value", pa.large_binary())]))
    batch = pa.record_batch(
        [pa.array(["k"], pa.large_string()), pa.array([b"v"], pa.large_binary()), pa.array([[("h", b"1")]], wide)],
        names=["key", "value", "headers"],
    )
    write_job(tmp_path, f"key string, value binary, {HEADERS}", [[batch]], topic="a")
    (row,) = read_rows(tmp_path, subscribe="a", includeHeaders="true")
    assert (row["key"], row["value"], row["headers"]) == (b"k", b"v", [{"key": "h", "value": b"1"}])


# -- topics and partitions of rows


def test_the_topic_option_overrides_the_topic_column(tmp_path: Path) -> None:
    cluster(tmp_path, a=1, b=1)
    rows = [{"topic": name, "value": str(number)} for number, name in enumerate("abba")]
    write_rows(tmp_path, "topic string, value string", rows)
    assert values(tmp_path, subscribe="a") == [b"0", b"3"]
    assert values(tmp_path, subscribe="b") == [b"1", b"2"]
    write_rows(tmp_path, "topic string, value string", rows, topic="b")
    assert values(tmp_path, subscribe="b") == [b"1", b"2", b"0", b"1", b"2", b"3"]


def test_one_job_to_many_topics_is_one_commit(tmp_path: Path) -> None:
    coordinator = cluster(tmp_path, a=3, b=2)
    before = coordinator.refresh().version
    rows = [{"topic": "ab"[number % 2], "key": str(number), "value": "v"} for number in range(1000)]
    write_job(
        tmp_path,
        "topic string, key string, value string",
        [batches("topic string, key string, value string", rows)] * 3,
    )
    assert coordinator.refresh().version == before + 1


def test_a_given_partition_overrides_the_partitioner(tmp_path: Path) -> None:
    cluster(tmp_path, a=4)
    rows = [{"key": "same", "value": str(number), "partition": number % 4 or None} for number in range(8)]
    write_rows(tmp_path, "key string, value string, partition int", rows, topic="a")
    read = read_rows(tmp_path, subscribe="a")
    given_rows = {row["value"]: row["partition"] for row in read if row["value"] not in (b"0", b"4")}
    assert given_rows == {str(n).encode(): n % 4 for n in range(8) if n % 4}
    assert len({row["partition"] for row in read if row["value"] in (b"0", b"4")}) == 1


@pytest.mark.parametrize("wrong", [-1, 4])
def test_a_partition_that_does_not_exist_is_refused(tmp_path: Path, wrong: int) -> None:
    cluster(tmp_path, a=4)
    with pytest.raises(InvalidPartitionError, match=f"topic 'a' has partitions 0 to 3, not {wrong}"):
        write_rows(tmp_path, "value string, partition int", [{"value": "v", "partition": wrong}], topic="a")


def test_equal_keys_share_a_partition_and_keep_their_order(tmp_path: Path) -> None:
    cluster(tmp_path, a=5)
    rows = [{"key": f"k{number % 50}", "value": f"{number:06d}"} for number in range(5000)]
    write_job(tmp_path, "key string, value string", [batches("key string, value string", rows, 700)], topic="a")
    read = read_rows(tmp_path, subscribe="a")
    partitions_of: dict[bytes, set[int]] = {}
    seen: dict[bytes, list[bytes]] = {}
    for row in read:
        partitions_of.setdefault(row["key"], set()).add(row["partition"])
        seen.setdefault(row["key"], []).append(row["value"])
    assert all(len(partitions) == 1 for partitions in partitions_of.values())
    assert all(ordered == sorted(ordered) for ordered in seen.values())
    assert len(read) == 5000


def test_rows_without_keys_spread_over_partitions_batch_by_batch(tmp_path: Path) -> None:
    cluster(tmp_path, a=4)
    rows = [{"value": str(number)} for number in range(800)]
    write_job(tmp_path, "value string", [batches("value string", rows, 100)], topic="a")
    counts = [sum(row["partition"] == number for row in read_rows(tmp_path, subscribe="a")) for number in range(4)]
    assert counts == [200] * 4


def test_null_keys_among_others_spread_over_partitions(tmp_path: Path) -> None:
    cluster(tmp_path, a=4)
    keys = pa.array([f"k{row}" if row % 10 == 0 else None for row in range(80_000)])
    rows = pa.record_batch([keys, pa.array(["v"] * 80_000)], names=["key", "value"])
    write_job(tmp_path, "key string, value string", [[rows]], topic="a")
    job = reader(tmp_path, subscribe="a")
    counts = [0] * 4
    for part in job.partitions():
        for batch in job.read(part):
            counts[batch.column("partition")[0].as_py()] += batch.column("key").null_count
    assert counts == [18_000] * 4


def test_a_custom_partitioner_is_called(tmp_path: Path) -> None:
    cluster(tmp_path, a=3)
    rows = [{"key": key, "value": key} for key in ("a", "bb", "ccc", None)]
    write_rows(
        tmp_path, "key string, value string", rows, topic="a", partitioner="tests.cluster.spark.partitioners:by_length"
    )
    read = {row["value"]: row["partition"] for row in read_rows(tmp_path, subscribe="a") if row["value"]}
    assert read == {b"a": 1, b"bb": 2, b"ccc": 0}


@pytest.mark.parametrize("name", ["random", "no.such.module:f", "tests.cluster.spark.partitioners:none", "os:sep"])
def test_an_invalid_partitioner_is_refused_before_rows_are_read(tmp_path: Path, name: str) -> None:
    cluster(tmp_path, a=3)
    with pytest.raises(InvalidOptionError, match="for option partitioner: "):
        writer(tmp_path, "value string", topic="a", partitioner=name)


@pytest.mark.parametrize("name", ["too_few", "too_large", "words"])
def test_invalid_results_of_a_partitioner_fail_the_job(tmp_path: Path, name: str) -> None:
    cluster(tmp_path, a=3)
    with pytest.raises(
        InvalidRecordError, match=rf"partitioner tests.cluster.spark.partitioners:{name} (returned|did not return)"
    ):
        write_rows(
            tmp_path,
            "key string, value string",
            [{"key": "a", "value": "b"}] * 2,
            topic="a",
            partitioner=f"tests.cluster.spark.partitioners:{name}",
        )


def test_partitioning_can_ignore_keys(tmp_path: Path) -> None:
    cluster(tmp_path, a=2)
    job = [batches("key string, value string", [{"key": "same", "value": "v"}] * 100, 10)]
    write_job(tmp_path, "key string, value string", job, topic="a", **{"kafka.partitioner.ignore.keys": "true"})
    assert {row["partition"] for row in read_rows(tmp_path, subscribe="a")} == {0, 1}


# -- what is refused


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        ("key string", "no column value"),
        ("value int", "column value must be string or binary, but is int"),
        ("value string, key bigint", "column key must be"),
        ("value string, partition bigint", "column partition must be int"),
        ("value string, timestamp string", "column timestamp must be"),
        ("value string, headers map", "column headers must be"),
        ("value string, headers texts", "column headers must be"),
        ("value string, Value string", "differ only in case"),
    ],
)
def test_schemas_that_are_not_records_are_refused_before_rows_are_read(tmp_path: Path, ddl: str, problem: str) -> None:
    cluster(tmp_path, a=1)
    with pytest.raises(InvalidRecordError, match=problem):
        writer(tmp_path, ddl, topic="a")


def test_rows_need_a_topic(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    with pytest.raises(InvalidRecordError, match=r"no topic given"):
        writer(tmp_path, "value string")
    with pytest.raises(InvalidRecordError, match="null topic"):
        write_rows(tmp_path, "topic string, value string", [{"topic": None, "value": "v"}])


@pytest.mark.parametrize("name", ["../x", ".", "a b", "ä", "x" * 250, "__consumer_offsets"])
def test_a_hostile_topic_name_is_refused(tmp_path: Path, name: str) -> None:
    cluster(tmp_path, a=1)
    with pytest.raises(InvalidTopicError):
        writer(tmp_path, "value string", topic=name)
    with pytest.raises(InvalidTopicError):
        write_rows(tmp_path, "topic string, value string", [{"topic": name, "value": "v"}])


def test_a_missing_topic_is_created_in_the_commit_of_the_write(tmp_path: Path) -> None:
    coordinator = cluster(tmp_path)
    before = coordinator.refresh().version
    write_rows(tmp_path, "topic string, value string", [{"topic": "new", "value": "v"}])
    assert values(tmp_path, subscribe="new") == [b"v"]
    assert coordinator.refresh().version == before + 1


def test_a_missing_topic_is_an_error_if_it_may_not_be_created(tmp_path: Path) -> None:
    cluster(tmp_path).submit(partial(alter_configs, topic="", changes={"auto.create.topics.enable": "false"}))
    with pytest.raises(UnknownTopicOrPartitionError, match=r"auto\.create\.topics\.enable is false"):
        writer(tmp_path, "value string", topic="new")


def test_a_record_over_the_limit_fails_the_job_and_nothing_is_visible(tmp_path: Path) -> None:
    coordinator = cluster(tmp_path, a=2)
    coordinator.submit(partial(alter_configs, topic="a", changes={"max.message.bytes": "100"}))
    before = coordinator.refresh().version
    rows = [{"value": "x" * 88}, {"value": "x" * 89}]
    with pytest.raises(MessageSizeTooLargeError, match=r"topic 'a' has 101 bytes, .* is 100;") as caught:
        write_rows(tmp_path, "value string", rows, topic="a")
    assert (caught.value.topic, caught.value.size) == ("a", 101)
    assert coordinator.refresh().version == before
    assert not list(tmp_path.glob("a-*/*"))
    write_rows(tmp_path, "value string", rows[:1], topic="a")


def test_headers_count_towards_the_limit(tmp_path: Path) -> None:
    cluster(tmp_path, a=1).submit(partial(alter_configs, topic="a", changes={"max.message.bytes": "100"}))
    rows: list[Row] = [
        {"value": b"v", "headers": None},
        {"value": b"x" * 80, "headers": [{"key": "kk", "value": b"1234567"}]},
    ]
    with pytest.raises(MessageSizeTooLargeError, match="101 bytes"):
        write_rows(tmp_path, f"value binary, {HEADERS}", rows, topic="a")


# -- timestamps


def time_of(milliseconds: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(milliseconds / 1000, datetime.timezone.utc)


def test_timestamps_are_kept_and_default_to_the_time_of_the_write(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    clock = ManualClock(5_000)
    job = writer(tmp_path, "value string, timestamp timestamp", clock, topic="a")
    rows: list[Row] = [{"value": "v", "timestamp": time_of(1234)}, {"value": "w", "timestamp": None}]
    job.commit([job.write(iter(batches("value string, timestamp timestamp", rows)))])
    assert [row["timestamp"] for row in read_rows(tmp_path, subscribe="a")] == [time_of(1234), time_of(5000)]


def test_the_timestamp_column_is_ignored_if_it_is_not_included(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    for kind, value in (("timestamp", time_of(1234)), ("string", "yesterday")):
        ddl = f"value string, timestamp {kind}"
        job = writer(tmp_path, ddl, ManualClock(5000), topic="a", includeTimestamp="false")
        job.commit([job.write(iter(batches(ddl, [{"value": "v", "timestamp": value}])))])
    assert [row["timestamp"] for row in read_rows(tmp_path, subscribe="a")] == [time_of(5000), time_of(5000)]


@pytest.mark.parametrize("wrong", [8_999, 11_001])
def test_a_timestamp_too_far_from_now_is_refused(tmp_path: Path, wrong: int) -> None:
    bounds = {"message.timestamp.before.max.ms": "1000", "message.timestamp.after.max.ms": "1000"}
    cluster(tmp_path, a=1).submit(partial(alter_configs, topic="a", changes=bounds))
    job = writer(tmp_path, "value string, timestamp timestamp", ManualClock(10_000), topic="a")
    for fine in (9_000, 11_000):
        job.write(iter(batches("value string, timestamp timestamp", [{"value": "v", "timestamp": time_of(fine)}])))
    with pytest.raises(InvalidTimestampError, match=rf"timestamp {wrong} ms, 1,001 ms .*, and message\.timestamp\."):
        job.write(iter(batches("value string, timestamp timestamp", [{"value": "v", "timestamp": time_of(wrong)}])))


def test_records_of_a_log_append_time_topic_have_the_time_of_the_commit(tmp_path: Path) -> None:
    coordinator = cluster(tmp_path, a=1)
    coordinator.submit(partial(alter_configs, topic="a", changes={"message.timestamp.type": "LogAppendTime"}))
    rows: list[Row] = [{"value": "v", "timestamp": time_of(1)}, {"value": "w", "timestamp": None}]
    write_rows(tmp_path, "value string, timestamp timestamp", rows, topic="a")
    read = read_rows(tmp_path, subscribe="a")
    stamped = time_of(coordinator.refresh().timestamp_ms)
    assert [(row["timestamp"], row["timestampType"]) for row in read] == [(stamped, LOG_APPEND_TIME)] * 2


# -- jobs


def test_a_repeated_numbered_job_writes_nothing(tmp_path: Path) -> None:
    coordinator = cluster(tmp_path, a=1)
    for _ in range(2):
        write_rows(tmp_path, "value string", [{"value": "v"}], topic="a", txnAppId="job", txnVersion="7")
    assert values(tmp_path, subscribe="a") == [b"v"]
    assert coordinator.refresh().topics["a"].partitions[0].segments == 1
    assert len(list(tmp_path.glob("a-0/*.log"))) == 1
    write_rows(tmp_path, "value string", [{"value": "w"}], topic="a", txnAppId="job", txnVersion="8")
    assert values(tmp_path, subscribe="a") == [b"v", b"w"]


def test_two_runs_of_a_numbered_job_at_the_same_time_write_once(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    jobs = [writer(tmp_path, "value string", topic="a", txnAppId="job", txnVersion="1") for _ in range(2)]
    for job in jobs:
        job.commit([job.write(iter(batches("value string", [{"value": "v"}])))])
    assert values(tmp_path, subscribe="a") == [b"v"]


def test_a_numbered_job_without_rows_is_remembered(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    write_rows(tmp_path, "value string", [], topic="a", txnAppId="job", txnVersion="1")
    write_rows(tmp_path, "value string", [{"value": "v"}], topic="a", txnAppId="job", txnVersion="1")
    assert values(tmp_path, subscribe="a") == []


@pytest.mark.parametrize("how", ["restored", "forgotten"])
def test_a_repeated_job_whose_number_is_not_known_any_more_is_run_again(tmp_path: Path, how: str) -> None:
    """Its tasks have dropped their rows, before the root was restored or the application deleted."""
    root, ddl, rows = tmp_path / "root", "value string", [{"value": "v"}]
    options: dict[str, Any] = {"topic": "a", "txnAppId": "job", "txnVersion": "7"}
    coordinator = cluster(root, a=1)
    shutil.copytree(root, tmp_path / "copy")
    write_rows(root, ddl, rows, **options)
    job = writer(root, ddl, **options)
    messages = [across(across(job).write(iter(batches(ddl, rows))))]
    if how == "restored":
        shutil.rmtree(root)
        shutil.copytree(tmp_path / "copy", root)
    else:
        coordinator.submit(partial(forget_applications, applications=["job"]))
    forget_shared(str(root))  # Spark commits in another process
    with pytest.raises(InvalidRequestError, match="run the job again"):
        across(job).commit(messages)
    write_rows(root, ddl, rows, **options)
    assert values(root, subscribe="a") == [b"v"] * (1 if how == "restored" else 2)


def test_a_job_without_rows_commits_nothing(tmp_path: Path) -> None:
    coordinator = cluster(tmp_path, a=1)
    before = coordinator.refresh().version
    write_rows(tmp_path, "value string", [], topic="a")
    assert coordinator.refresh().version == before


def test_a_failed_job_leaves_no_files(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    job = writer(tmp_path, "value string", topic="a")
    message = job.write(iter(batches("value string", [{"value": "v"}])))
    job.abort([message, None])
    assert not list(tmp_path.glob("a-0/*"))


def test_aborting_after_a_commit_of_unknown_outcome_deletes_nothing(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    job = writer(tmp_path, "value string", topic="a")
    message = job.write(iter(batches("value string", [{"value": "v"}])))
    job.commit([message])
    job.abort([message])
    assert values(tmp_path, subscribe="a") == [b"v"]


def test_a_task_that_fails_midway_leaves_no_files(tmp_path: Path) -> None:
    cluster(tmp_path, a=2)

    def rows_then_failure() -> Iterator[pa.RecordBatch]:
        yield from batches("value string", [{"value": "v" * 1000}] * 30_000)
        raise OSError("the network is gone")

    job = writer(tmp_path, "value string", topic="a")
    with pytest.raises(OSError, match="the network is gone"):
        job.write(rows_then_failure())
    assert not list(tmp_path.glob("a-*/*"))


# -- files


def test_a_task_that_writes_little_to_many_partitions_makes_one_file(tmp_path: Path) -> None:
    cluster(tmp_path, a=64)
    rows = [{"key": f"k{number}", "value": "v"} for number in range(10_000)]
    write_rows(tmp_path, "key string, value string", rows, topic="a")
    assert len(list(tmp_path.glob("a-*/*.log"))) == 1
    read = read_rows(tmp_path, subscribe="a")
    assert len({row["partition"] for row in read}) == 64
    assert sorted(row["key"] for row in read) == sorted(row["key"].encode() for row in rows)


def test_a_large_partition_gets_a_file_of_its_own_named_by_its_offset(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    rows = [{"value": "x" * 1000}] * 20_000
    for _ in range(2):
        write_rows(tmp_path, "value string", rows, topic="a")
    names = sorted(path.name[:20] for path in tmp_path.glob("a-0/*.log"))
    assert names == [f"{0:020d}", f"{20_000:020d}"]
    assert [row["offset"] for row in read_rows(tmp_path, "offset bigint", subscribe="a")] == list(range(40_000))


def test_memory_is_bounded_and_order_kept_when_many_partitions_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "OWN_FILE_BYTES", 60_000)
    monkeypatch.setattr(output, "MAX_BUFFERED_BYTES", 100_000)
    monkeypatch.setattr(output, "MAX_OPEN_FILES_LOCAL", 2)
    cluster(tmp_path, a=6).submit(partial(alter_configs, topic="a", changes={"segment.bytes": "1048576"}))
    rows = [{"key": f"k{number % 90}", "value": f"{number:08d}" + "x" * 100} for number in range(30_000)]
    write_job(tmp_path, "key string, value string", [batches("key string, value string", rows, 500)], topic="a")
    seen: dict[bytes, list[bytes]] = {}
    for row in read_rows(tmp_path, subscribe="a"):
        seen.setdefault(row["key"], []).append(row["value"])
    assert sum(map(len, seen.values())) == 30_000
    assert all(read == sorted(read) for read in seen.values())


def test_rare_rows_do_not_keep_all_batches_in_memory(tmp_path: Path) -> None:
    cluster(tmp_path, a=3)
    job = writer(tmp_path, "value string, partition int", topic="a")

    def tasks_rows() -> Iterator[pa.RecordBatch]:
        for number in range(150):
            partitions = pa.array([2 if row == number else 1 for row in range(1000)], pa.int32())
            yield pa.record_batch([pa.array(["x" * 2000] * 1000), partitions], names=["value", "partition"])

    before = pa.total_allocated_bytes()
    largest = 0

    def watched() -> Iterator[pa.RecordBatch]:
        nonlocal largest
        for batch in tasks_rows():
            largest = max(largest, pa.total_allocated_bytes() - before)
            yield batch

    message = job.write(watched())
    assert sum(append.run.records for append in message.appends) == 150_000
    assert largest < 160 * 1024 * 1024
    job.abort([message, None])


def test_batches_in_files_are_of_about_one_mebibyte(tmp_path: Path) -> None:
    coordinator = cluster(tmp_path, a=1)
    rows = [{"value": "x" * 100_000}] * 100
    write_job(
        tmp_path, "value string", [[*batches("value string", rows), *batches("value string", rows, 1)]], topic="a"
    )
    (segment,) = coordinator.segments("a", coordinator.refresh()).partition(0)
    assert 15 <= segment.batches <= 30
    assert segment.size_bytes / segment.batches < 1.5 * limits.TARGET_BATCH_BYTES


# -- arbitrary rows


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.none() | st.binary(max_size=5),
            "value": st.none() | st.binary(max_size=20),
            "partition": st.none() | st.integers(0, 2),
            "topic": st.sampled_from(["a", "b"]),
        }
    ),
    max_size=60,
)


@settings(max_examples=examples(25))
@given(st.lists(ROWS, min_size=1, max_size=3), st.integers(1, 20))
def test_every_row_is_in_the_log_once(
    tmp_path_factory: pytest.TempPathFactory, tasks: list[list[dict[str, object]]], size: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    cluster(folder, a=3, b=3)
    ddl = "topic string, partition int, key binary, value binary"
    write_job(folder, ddl, [batches(ddl, task, size) for task in tasks])
    read = read_rows(folder, subscribe="a,b")
    expected = [(row["topic"], row["key"], row["value"]) for task in tasks for row in task]
    assert sorted([(row["topic"], row["key"], row["value"]) for row in read], key=str) == sorted(expected, key=str)
    for row in read:
        matching = [one for task in tasks for one in task if (one["key"], one["value"]) == (row["key"], row["value"])]
        assert any(one["partition"] in (None, row["partition"]) for one in matching)
    offsets: dict[tuple[str, int], list[int]] = {}
    for row in read:
        offsets.setdefault((row["topic"], row["partition"]), []).append(row["offset"])
    assert all(numbers == list(range(len(numbers))) for numbers in offsets.values())


def test_the_write_schema_may_be_nullable_or_not(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    batch = pa.record_batch([pa.array(["v"])], schema=pa.schema([pa.field("value", pa.string(), nullable=False)]))
    write_job(tmp_path, "value string not null", [[batch]], topic="a")
    assert values(tmp_path, subscribe="a") == [b"v"]
    assert schema_of("value string not null").fields[0].nullable is False
