"""Topics at the time of a write, and changes of them before its commit."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import InvalidPartitionsError, SparklogError, UnknownTopicOrPartitionError
from sparklog.format.index import decode_index
from sparklog.protocol.decide.topics import alter_configs, create_partitions
from tests.cluster.spark.helpers import batches, cluster, read_rows, values, write_rows, writer

ROWS = [{"key": f"k{number}", "value": f"v{number}"} for number in range(20)]
DDL = "key string, value string"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def stored_codecs(folder: Path, topic: str) -> set[str]:
    """The codecs that the indexes of a topic's files name."""
    paths = list(folder.glob(f"{topic}-*/*.index"))
    assert paths
    return {decode_index(path.read_bytes(), str(path)).codec for path in paths}


# -- compression.type


@pytest.mark.parametrize("codec", CODECS)
def test_the_codec_of_the_topic_overrides_that_of_the_producer(tmp_path: Path, codec: str) -> None:
    cluster(tmp_path, a=2).submit(
        partial(alter_configs, topic="a", changes={"compression.type": "uncompressed" if codec == "none" else codec})
    )
    asked = "zstd" if codec != "zstd" else "gzip"
    write_rows(tmp_path, DDL, ROWS, topic="a", **{"kafka.compression.type": asked})
    assert stored_codecs(tmp_path, "a") == {codec}
    assert sorted(values(tmp_path, subscribe="a")) == sorted(row["value"].encode() for row in ROWS)


@pytest.mark.parametrize("codec", CODECS)
def test_a_topic_with_codec_producer_uses_the_codec_of_the_producer(tmp_path: Path, codec: str) -> None:
    cluster(tmp_path, a=2)
    write_rows(tmp_path, DDL, ROWS, topic="a", **{"kafka.compression.type": codec})
    assert stored_codecs(tmp_path, "a") == {codec}
    assert sorted(values(tmp_path, subscribe="a")) == sorted(row["value"].encode() for row in ROWS)


def test_records_are_uncompressed_if_neither_topic_nor_producer_sets_a_codec(tmp_path: Path) -> None:
    cluster(tmp_path, a=1)
    write_rows(tmp_path, DDL, ROWS, topic="a")
    assert stored_codecs(tmp_path, "a") == {"none"}


def test_the_codec_of_the_cluster_applies_to_topics_without_one_and_to_new_topics(
    tmp_path: Path,
) -> None:
    coordinator = cluster(tmp_path, a=1, b=1)
    coordinator.submit(partial(alter_configs, topic="", changes={"compression.type": "lz4"}))
    coordinator.submit(partial(alter_configs, topic="b", changes={"compression.type": "gzip"}))
    rows = [{"topic": name, "value": name} for name in ("a", "b", "new")]
    write_rows(tmp_path, "topic string, value string", rows, **{"kafka.compression.type": "zstd"})
    assert stored_codecs(tmp_path, "b") == {"gzip"}
    assert stored_codecs(tmp_path, "a") == {"lz4"}  # with the file of "new", which both topics share
    assert values(tmp_path, subscribe="a,b,new") == [b"a", b"b", b"new"]


def test_a_codec_changed_during_a_write_applies_to_the_next_job(tmp_path: Path) -> None:
    coordinator = cluster(tmp_path, a=1)
    job = writer(tmp_path, DDL, topic="a")
    coordinator.submit(partial(alter_configs, topic="a", changes={"compression.type": "zstd"}))
    job.commit([job.write(iter(batches(DDL, ROWS)))])
    assert stored_codecs(tmp_path, "a") == {"none"}
    write_rows(tmp_path, DDL, ROWS, topic="a")
    assert stored_codecs(tmp_path, "a") == {"none", "zstd"}
    assert len(values(tmp_path, subscribe="a")) == 40


# -- topics that change before the commit


def test_a_topic_recreated_during_a_write_receives_no_rows(tmp_path: Path) -> None:
    coordinator = cluster(tmp_path, a=2, b=1)
    job = writer(tmp_path, "topic string, value string")
    message = job.write(iter(batches("topic string, value string", [{"topic": n, "value": n} for n in "ab"])))
    delete_topic(coordinator, "a")
    coordinator.create_topic("a", 2)
    before = coordinator.refresh().version
    with pytest.raises(UnknownTopicOrPartitionError, match=r"topic 'a' was deleted and created again .* run the write"):
        job.commit([message])
    job.abort([message])
    assert coordinator.refresh().version == before
    assert values(tmp_path, subscribe="a,b") == []
    write_rows(tmp_path, "topic string, value string", [{"topic": "a", "value": "again"}])
    assert values(tmp_path, subscribe="a,b") == [b"again"]


def test_a_topic_deleted_during_a_write_fails_the_job_and_is_not_recreated(tmp_path: Path) -> None:
    coordinator = cluster(tmp_path, a=2, b=1)
    job = writer(tmp_path, DDL, topic="a")
    message = job.write(iter(batches(DDL, ROWS)))
    delete_topic(coordinator, "a")
    with pytest.raises(UnknownTopicOrPartitionError, match="topic 'a' does not exist"):
        job.commit([message])
    assert set(coordinator.refresh().topics) == {"b"}


def test_partitions_added_during_a_write_do_not_affect_the_job(tmp_path: Path) -> None:
    coordinator = cluster(tmp_path, a=2)
    job = writer(tmp_path, DDL, topic="a")
    message = job.write(iter(batches(DDL, ROWS)))
    coordinator.submit(partial(create_partitions, topic="a", total=5))
    job.commit([message])
    read = read_rows(tmp_path, subscribe="a")
    assert sorted(row["value"] for row in read) == sorted(row["value"].encode() for row in ROWS)
    assert {row["partition"] for row in read} == {0, 1}
    write_rows(tmp_path, "value string, partition int", [{"value": "w", "partition": 4}], topic="a")
    assert [row["offset"] for row in read_rows(tmp_path, subscribe="a") if row["partition"] == 4] == [0]


@pytest.mark.parametrize(("partitions", "is_accepted"), [(1, True), (3, False)])
def test_a_topic_created_concurrently_is_used_only_with_the_same_partition_count(
    tmp_path: Path, partitions: int, is_accepted: bool
) -> None:
    coordinator = cluster(tmp_path)
    job = writer(tmp_path, DDL, topic="new")
    message = job.write(iter(batches(DDL, ROWS)))
    coordinator.create_topic("new", partitions)
    problem: SparklogError | None = None
    try:
        job.commit([message])
    except InvalidPartitionsError as error:
        problem = error
    assert (problem is None) == is_accepted
    assert len(values(tmp_path, subscribe="new")) == (len(ROWS) if is_accepted else 0)
