"""Micro-batches under a used number: the same batch adds nothing, and a different one is never dropped silently."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparklog.coordinator import Coordinator, open_cluster
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import InvalidOptionError, InvalidRequestError
from sparklog.protocol.decide.append import AppendRequest
from sparklog.spark.options import sink_options
from sparklog.spark.sink.writer import RowWriter, SparklogWriter
from sparklog.spark.stream.checkpoint import batch_sources
from sparklog.spark.stream.writer import SparklogStreamCommitMessage, SparklogStreamWriter
from tests.cluster.spark.helpers import across, batches, cluster, read_rows, schema_of, values

DDL = "key string, value string, partition int, topic string"


def run_batch(
    folder: Path, number: int, *tasks: Sequence[dict[str, Any]], topic: str = "copies", query: str = "q", **options: str
) -> None:
    """A micro-batch of a query, with these rows in each task. Every run has a new writer, as in Spark."""
    chosen = {"path": str(folder), **({"topic": topic} if topic else {}), **options}
    job = SparklogStreamWriter(sink_options(chosen), schema_of(DDL))
    messages = [
        across(SparklogStreamCommitMessage(RowWriter.write(across(job), iter(batches(DDL, task))), query))
        for task in tasks
    ]
    across(job).commit(messages, number)


def rows(*texts: str, **more: Any) -> list[dict[str, Any]]:
    return [{"value": text, **more} for text in texts]


def texts(folder: Path, topic: str = "copies") -> list[str]:
    return sorted(value.decode() for value in values(folder, subscribe=topic))


# -- the same batch


def test_a_repeated_batch_adds_nothing_for_any_split_into_tasks(tmp_path: Path) -> None:
    log = cluster(tmp_path, copies=3)
    run_batch(tmp_path, 0, rows("a", "b"), rows("c"))
    version = log.refresh().version
    run_batch(tmp_path, 0, rows("c"), [], rows("b", "a"))
    assert log.refresh().version == version
    assert texts(tmp_path) == ["a", "b", "c"]


def test_a_repeated_batch_with_keys_adds_nothing(tmp_path: Path) -> None:
    cluster(tmp_path, copies=3)
    batch = [{"key": f"k{n}", "value": f"v{n}"} for n in range(20)]
    run_batch(tmp_path, 0, batch[:5], batch[5:])
    run_batch(tmp_path, 0, batch[:15], batch[15:])
    assert len(texts(tmp_path)) == 20


def test_a_repeated_batch_that_created_its_topic_adds_nothing(tmp_path: Path) -> None:
    cluster(tmp_path)
    run_batch(tmp_path, 0, rows("a"), topic="made")
    run_batch(tmp_path, 0, rows("a"), topic="made")
    assert texts(tmp_path, "made") == ["a"]


def test_a_repeated_batch_with_topics_named_by_rows_adds_nothing(tmp_path: Path) -> None:
    cluster(tmp_path, one=1, two=2)
    batch = [*rows("a", topic="one"), *rows("b", "c", topic="two")]
    run_batch(tmp_path, 0, batch, topic="")
    run_batch(tmp_path, 0, batch, topic="")
    assert (texts(tmp_path, "one"), texts(tmp_path, "two")) == (["a"], ["b", "c"])


def write_as_before(log: Coordinator, folder: Path, number: int, batch: Sequence[dict[str, Any]], topic: str) -> None:
    """A batch as older versions committed it: its topic was not part of its application id."""
    job = SparklogWriter(sink_options({"path": str(folder), "topic": topic}), schema_of(DDL))
    appends = job.write(iter(batches(DDL, batch))).appends
    log.append(AppendRequest(appends=appends, application="query:q", application_version=number))


def test_a_query_started_before_an_upgrade_keeps_its_application_id(tmp_path: Path) -> None:
    log = cluster(tmp_path, copies=2, other=1)
    write_as_before(log, tmp_path, 7, rows("a", "b"), "copies")
    run_batch(tmp_path, 7, rows("a", "b"))
    run_batch(tmp_path, 8, rows("c"))
    run_batch(tmp_path, 8, rows("c"))
    assert texts(tmp_path) == ["a", "b", "c"]
    assert {name: one.version for name, one in log.refresh().applications.items()} == {"query:q": 8}
    with pytest.raises(InvalidRequestError, match="1 records then, and 2 now"):
        run_batch(tmp_path, 8, rows("d", "e"))


# -- another batch under the same number


def test_a_batch_replanned_with_other_rows_is_refused_with_the_difference(tmp_path: Path) -> None:
    """Its offsets were lost with the machine, and more records can be read now."""
    cluster(tmp_path, copies=2)
    run_batch(tmp_path, 3, rows("a"))
    with pytest.raises(InvalidRequestError) as caught:
        run_batch(tmp_path, 3, rows("a", "b"))
    message = str(caught.value)
    assert "micro-batch 3 of query:q:copies was written before, in commit" in message
    assert "topic copies got 1 records then, and 2 now" in message
    assert "set onBatchMismatch" in message
    assert texts(tmp_path) == ["a"]


def test_a_copied_checkpoint_can_write_to_another_topic(tmp_path: Path) -> None:
    cluster(tmp_path, copies=2, fork=2)
    for number in range(3):
        run_batch(tmp_path, number, rows(f"a{number}"))
    run_batch(tmp_path, 1, rows("b1"), topic="fork")
    run_batch(tmp_path, 2, rows("b2"), topic="fork")
    run_batch(tmp_path, 2, rows("b2"), topic="fork")
    run_batch(tmp_path, 3, rows("a3"))
    assert texts(tmp_path) == ["a0", "a1", "a2", "a3"]
    assert texts(tmp_path, "fork") == ["b1", "b2"]


def test_a_copied_checkpoint_of_an_older_version_can_write_to_another_topic(tmp_path: Path) -> None:
    log = cluster(tmp_path, copies=2, fork=2)
    write_as_before(log, tmp_path, 7, rows("a"), "copies")
    run_batch(tmp_path, 7, rows("a"), topic="fork")
    assert (texts(tmp_path), texts(tmp_path, "fork")) == (["a"], ["a"])


def test_a_repeated_batch_with_another_topic_is_written_there(tmp_path: Path) -> None:
    cluster(tmp_path, copies=1, renamed=1)
    run_batch(tmp_path, 4, rows("a"))
    run_batch(tmp_path, 4, rows("a"), topic="renamed")
    run_batch(tmp_path, 5, rows("b"), topic="renamed")
    assert (texts(tmp_path), texts(tmp_path, "renamed")) == (["a"], ["a", "b"])


def test_a_query_restarted_from_scratch_with_its_old_id_needs_an_option(tmp_path: Path) -> None:
    """The folders offsets and commits of its checkpoint were removed; metadata was kept."""
    cluster(tmp_path, copies=1)
    for number in range(3):
        run_batch(tmp_path, number, rows(f"a{number}"))
    with pytest.raises(InvalidRequestError, match=r"comes after number 2 \(commit"):
        run_batch(tmp_path, 0, rows("b0"))
    for number in (0, 0, 1, 2, 3, 3):  # every batch once, two of them run twice
        run_batch(tmp_path, number, rows(f"b{number}"), onBatchMismatch="append")
    assert texts(tmp_path) == ["a0", "a1", "a2", "b0", "b1", "b2", "b3"]


def test_skip_drops_differing_batches_and_continues_after_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster(tmp_path, copies=1)
    run_batch(tmp_path, 0, rows("a"))
    run_batch(tmp_path, 0, rows("b", "c"), onBatchMismatch="skip")
    run_batch(tmp_path, 1, rows("d"), onBatchMismatch="skip")
    assert texts(tmp_path) == ["a", "d"]
    assert "micro-batch 0 of query:q:copies was written before" in caplog.text
    assert "onBatchMismatch is skip" in caplog.text


@pytest.mark.parametrize("placed_by", ["key", "partition"])
def test_the_same_counts_in_other_partitions_are_another_batch_if_rows_are_placed(
    tmp_path: Path, placed_by: str
) -> None:
    cluster(tmp_path, copies=3)
    batch: Any = {"key": ["1", "2", "3", "4"], "partition": [0, 0, 1, 2]}[placed_by]
    other: Any = {"key": ["9", "9", "9", "9"], "partition": [0, 1, 1, 2]}[placed_by]
    run_batch(tmp_path, 0, [{"value": "v", placed_by: place} for place in batch])
    with pytest.raises(InvalidRequestError, match=r"as many records, but . then and . now in partition"):
        run_batch(tmp_path, 0, [{"value": "v", placed_by: place} for place in other])
    with pytest.raises(InvalidRequestError, match="as many records"):
        run_batch(tmp_path, 0, *[[{"value": "v", placed_by: place}] for place in other])


def test_other_topics_are_another_batch(tmp_path: Path) -> None:
    cluster(tmp_path, one=1, two=1)
    run_batch(tmp_path, 0, rows("a", topic="one"), topic="")
    with pytest.raises(InvalidRequestError, match="it went to one then, and to one, two now"):
        run_batch(tmp_path, 0, [*rows("a", topic="one"), *rows("b", topic="two")], topic="")


def test_a_batch_written_before_its_topic_was_recreated_is_not_repeated(tmp_path: Path) -> None:
    log = cluster(tmp_path, copies=1)
    run_batch(tmp_path, 0, rows("a"))
    delete_topic(log, "copies")
    log.create_topic("copies", 1)
    with pytest.raises(InvalidRequestError, match="topic copies was deleted since"):
        run_batch(tmp_path, 0, rows("a"))
    run_batch(tmp_path, 0, rows("a"), onBatchMismatch="append")
    assert texts(tmp_path) == ["a"]


# -- numbered batch writes, as by write_batch


def job(folder: Path, texts: Sequence[str], version: int, **options: str) -> None:
    chosen = {"path": str(folder), "topic": "copies", "txnAppId": "nightly", "txnVersion": str(version), **options}
    writer = SparklogWriter(sink_options(chosen), schema_of(DDL))
    across(writer).commit([across(writer).write(iter(batches(DDL, rows(*texts))))])


def test_a_numbered_job_is_compared_if_it_asks_for_it(tmp_path: Path) -> None:
    cluster(tmp_path, copies=2)
    job(tmp_path, ["a"], 1, onBatchMismatch="fail")
    job(tmp_path, ["a"], 1, onBatchMismatch="fail")
    job(tmp_path, ["b", "c"], 1)
    with pytest.raises(InvalidRequestError, match="version 1 of nightly was written before"):
        job(tmp_path, ["b", "c"], 1, onBatchMismatch="fail")
    job(tmp_path, ["b", "c"], 1, onBatchMismatch="append")
    job(tmp_path, ["b", "c"], 1, onBatchMismatch="append")
    assert texts(tmp_path) == ["a", "b", "c"]


def test_the_option_accepts_three_words_and_needs_a_write_number(tmp_path: Path) -> None:
    cluster(tmp_path, copies=1)
    with pytest.raises(InvalidOptionError, match="expected one of fail, skip, append"):
        sink_options({"path": "/x", "onBatchMismatch": "ignore"})
    with pytest.raises(InvalidOptionError, match="set txnAppId and txnVersion too"):
        SparklogWriter(sink_options({"path": str(tmp_path), "onBatchMismatch": "skip"}), schema_of(DDL))


def test_rows_of_all_tasks_are_remembered_as_one_range_per_partition(tmp_path: Path) -> None:
    log = cluster(tmp_path, copies=2)
    run_batch(tmp_path, 0, *[[{"value": "v", "partition": place} for place in (0, 1)] for _ in range(5)])
    ranges = log.refresh().applications["query:q:copies"].ranges
    assert sorted((one.partition, one.base_offset, one.records) for one in ranges) == [(0, 0, 5), (1, 0, 5)]
    assert len(read_rows(tmp_path, "value binary", subscribe="copies")) == 10


# -- source offsets at the end of a batch


def checkpoint(folder: Path, number: int, *sources: Any) -> str:
    """The offset log of a query as Spark writes it, with a second line that changes between runs."""
    (folder / "offsets").mkdir(parents=True, exist_ok=True)
    lines = [
        "v1",
        json.dumps({"batchTimestampMs": random.random()}),
        *(source if source == "-" else json.dumps(source) for source in sources),
    ]
    (folder / "offsets" / str(number)).write_text("\n".join(lines))
    return f"file:{folder}"


def test_the_same_counts_from_other_source_offsets_are_another_batch(tmp_path: Path) -> None:
    """Its offsets were planned again under a limit, which is split by the records that each partition has by now."""
    cluster(tmp_path / "log", copies=2)
    location = checkpoint(tmp_path / "c", 0, {"orders": {"0": 5, "1": 5}})
    run_batch(tmp_path / "log", 0, rows("a", "b"), checkpointLocation=location)
    location = checkpoint(tmp_path / "c", 0, {"orders": {"0": 3, "1": 7}})
    with pytest.raises(InvalidRequestError, match="it has read other records of its sources"):
        run_batch(tmp_path / "log", 0, rows("c", "d"), checkpointLocation=location)
    for _ in range(2):
        run_batch(tmp_path / "log", 0, rows("c", "d"), checkpointLocation=location, onBatchMismatch="append")
    assert texts(tmp_path / "log") == ["a", "b", "c", "d"]


SPARKLOG = {"orders": {"0": 5}, "$ids:cluster:orders=id": {}}
KAFKA = {"orders": {"0": 5}}
DELTA = {"sourceVersion": 1, "reservoirId": "7c", "reservoirVersion": 5, "index": -1}


@pytest.mark.parametrize("source", [SPARKLOG, KAFKA, DELTA])
def test_a_nondeterministic_query_is_a_repetition_if_it_has_read_the_same_ranges(
    tmp_path: Path, source: dict[str, object]
) -> None:
    cluster(tmp_path / "log", copies=2)
    checkpoint(tmp_path / "c", 0, source, "-")
    for batch in (rows("a", "b"), rows("b")):
        location = checkpoint(tmp_path / "c", 1, source, "-")
        run_batch(tmp_path / "log", 1, batch, checkpointLocation=location)
    assert texts(tmp_path / "log") == ["a", "b"]


FILES = {"logOffset": 1}


@pytest.mark.parametrize(
    ("number", "starts", "source"),
    [
        (0, (), KAFKA),
        (1, ({"orders": {"0": 4}}, {"orders": {"0": 0}}), KAFKA),
        (1, (FILES, FILES), FILES),
        (1, (5, 5), 6),
    ],
    ids=["first batch", "another start", "files", "rate"],
)
def test_a_batch_that_ends_where_the_first_did_may_have_read_more(
    tmp_path: Path, number: int, starts: Sequence[object], source: object
) -> None:
    """Its checkpoint was restored, or started again from earlier offsets, or its folder has other files by now."""
    cluster(tmp_path / "log", copies=2)
    location = checkpoint(tmp_path / "c", number, source)
    if starts:
        checkpoint(tmp_path / "c", number - 1, starts[0])
    run_batch(tmp_path / "log", number, rows("a"), checkpointLocation=location)
    run_batch(tmp_path / "log", number, rows("a"), checkpointLocation=location)
    if starts:
        checkpoint(tmp_path / "c", number - 1, starts[1])
    with pytest.raises(InvalidRequestError, match="differs: "):
        run_batch(tmp_path / "log", number, rows("x", "y", "a"), checkpointLocation=location)
    assert texts(tmp_path / "log") == ["a"]


@pytest.mark.parametrize("number", [0, 1])
def test_the_same_offsets_of_a_source_that_was_restored_are_other_records(tmp_path: Path, number: int) -> None:
    """They were found in another commit, and with ``maxOffsetsPerTrigger`` there are as many. ``skip`` is for a copy of
    the checkpoint of before, whose batch was planned again from the same records."""
    cluster(tmp_path / "log", copies=2)

    def planned_at(commit: str) -> str:
        for batch, end in ((0, 4), (1, 5)):
            place = checkpoint(tmp_path / "c", batch, {"orders": {"0": end}, f"$ids:c:orders=id,${commit}": {}})
        return place

    first = planned_at("7=5b")
    for _ in range(2):
        run_batch(tmp_path / "log", number, rows("a", "b"), checkpointLocation=first)
    again = planned_at("7=a0")
    with pytest.raises(InvalidRequestError, match="its offsets were looked up again"):
        run_batch(tmp_path / "log", number, rows("new", "records"), checkpointLocation=again)
    run_batch(tmp_path / "log", number, rows("a", "b"), checkpointLocation=again, onBatchMismatch="skip")
    assert texts(tmp_path / "log") == ["a", "b"]


def test_a_batch_that_an_earlier_version_wrote_is_compared_by_its_end_and_by_counts(tmp_path: Path) -> None:
    log = cluster(tmp_path / "log", copies=2)
    checkpoint(tmp_path / "c", 0, {"orders": {"0": 4}})
    location = checkpoint(tmp_path / "c", 1, KAFKA)
    ends = batch_sources(location, {}, 1, str(tmp_path / "log")).ends
    written = SparklogWriter(sink_options({"path": str(tmp_path / "log"), "topic": "copies"}), schema_of(DDL))
    appends = written.write(iter(batches(DDL, rows("a")))).appends
    log.append(AppendRequest(appends=appends, application="query:q:copies", application_version=1, source_digest=ends))
    run_batch(tmp_path / "log", 1, rows("a"), checkpointLocation=location)
    with pytest.raises(InvalidRequestError, match="1 records then, and 2 now"):
        run_batch(tmp_path / "log", 1, rows("a", "b"), checkpointLocation=location)
    assert texts(tmp_path / "log") == ["a"]


@pytest.mark.parametrize("place", ["/nowhere", "dbfs:/c", "s3://another-bucket/c", "hdfs://namenode:1/c"])
def test_batches_are_compared_by_counts_if_the_checkpoint_cannot_be_read(tmp_path: Path, place: str) -> None:
    cluster(tmp_path, copies=1)
    run_batch(tmp_path, 0, rows("a"), checkpointLocation=place)
    run_batch(tmp_path, 0, rows("a"), checkpointLocation=place)
    with pytest.raises(InvalidRequestError, match="1 records then, and 2 now"):
        run_batch(tmp_path, 0, rows("a", "b"), checkpointLocation=place)
    assert texts(tmp_path) == ["a"]


def test_batches_without_known_source_offsets_are_compared_by_counts(tmp_path: Path) -> None:
    """A query that was upgraded between the two runs, or no longer has its checkpoint as an option."""
    cluster(tmp_path / "log", copies=1)
    run_batch(tmp_path / "log", 0, rows("a"))
    location = checkpoint(tmp_path / "c", 0, {"orders": {"0": 5}})
    run_batch(tmp_path / "log", 0, rows("a"), checkpointLocation=location)
    run_batch(tmp_path / "log", 1, rows("b"), checkpointLocation=checkpoint(tmp_path / "c", 1, {"orders": {"0": 6}}))
    run_batch(tmp_path / "log", 1, rows("b"))
    assert texts(tmp_path / "log") == ["a", "b"]
    assert len(open_cluster(str(tmp_path / "log")).state.applications["query:q:copies"].source_digest) == 32
