"""Reading from Python: offsets by name and by time, ranges, snapshots and waiting."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster
from sparklog.errors import DataLossError, UnknownTopicOrPartitionError
from sparklog.ids import SeededIds
from sparklog.testing.records import Record, append_records
from sparklog.types import EARLIEST, LATEST

NOW_MS = 1_700_000_000_000


@pytest.fixture
def cluster(tmp_path: Path) -> Coordinator:
    coordinator = create_cluster(str(tmp_path / "cluster"), clock=ManualClock(NOW_MS), ids=SeededIds(1))
    coordinator.create_topic("t", partitions=2)
    return coordinator


def append(cluster: Coordinator, *stamps_ms: int) -> None:
    append_records(cluster, "t", [Record(b"k", b"%d" % ms, timestamp_us=ms * 1000, partition=0) for ms in stamps_ms])


def test_offsets_by_name_and_by_time(cluster: Coordinator) -> None:
    append(cluster, 100, 300)
    append(cluster, 200, 500, 400)
    with LogReader(cluster) as reader:
        assert reader.offset("t", 0, EARLIEST) == 0
        assert reader.offset("t", 0, LATEST) == 5
        assert [reader.offset("t", 0, ms) for ms in (0, 100, 101, 301, 500, 501)] == [0, 0, 1, 3, 3, None]


def test_largest_timestamp_has_the_offset_of_its_first_record(cluster: Coordinator) -> None:
    append(cluster, 100, 500)
    append(cluster, 500, 400)
    with LogReader(cluster) as reader:
        assert reader.max_timestamp("t", 0) == (1, 500_000)
        assert reader.max_timestamp("t", 1) is None


def test_range_is_read_across_files(cluster: Coordinator) -> None:
    append(cluster, 1, 2, 3)
    append(cluster, 4, 5)
    append(cluster, 6)
    with LogReader(cluster) as reader:
        assert [(r.offset, r.value) for r in reader.records("t", 0, 2, 6)] == [
            (2, b"3"), (3, b"4"), (4, b"5"), (5, b"6"),
        ]  # fmt: skip
        assert list(reader.records("t", 0, 6, 100)) == []


def test_projection_reads_fewer_bytes(cluster: Coordinator) -> None:
    append_records(cluster, "t", [Record(b"k", b"v" * 100_000, partition=0)] * 5)
    read: list[int] = []
    for columns in (["key"], ["key", "value", "timestamp", "headers"]):
        with LogReader(cluster) as reader:
            (fetched,) = reader.fetch("t", 0, 0, 5, columns)
            assert fetched.records.batch.schema.names == columns
            assert fetched.end_offset == 5
            read.append(reader.bytes_read)
    assert read[0] < 2_000 < 500_000 < read[1]


def test_missing_topic_and_partition_are_named(cluster: Coordinator) -> None:
    with LogReader(cluster) as reader:
        with pytest.raises(UnknownTopicOrPartitionError, match="'nope'"):
            reader.offset("nope", 0, LATEST)
        with pytest.raises(UnknownTopicOrPartitionError, match="partitions 0 to 1, not 2"):
            list(reader.records("t", 2, 0, 1))


def test_older_state_reads_as_a_snapshot(cluster: Coordinator) -> None:
    append(cluster, 1)
    before = cluster.state
    append(cluster, 2)
    with LogReader(cluster) as reader:
        assert [r.value for r in reader.records("t", 0, 0, 10, state=before)] == [b"1"]
        assert [r.value for r in reader.records("t", 0, 0, 10)] == [b"1", b"2"]


def test_missing_file_is_data_loss_that_names_it(cluster: Coordinator) -> None:
    append(cluster, 1)
    (key,) = [info.key for info in cluster.store.list("") if info.key.endswith(".log")]
    cluster.store.delete(key)
    with LogReader(cluster) as reader, pytest.raises(DataLossError, match=key):
        list(reader.records("t", 0, 0, 1))
