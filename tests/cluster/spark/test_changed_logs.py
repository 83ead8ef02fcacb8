"""Tasks that read while segments are rolled, compacted or deleted, and while replicas fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.clock import ManualClock, SystemClock
from sparklog.coordinator import Coordinator, open_cluster, shared_cluster
from sparklog.coordinator.reader_leases import read_reader_lease, read_reader_leases
from sparklog.coordinator.topic_deletion import delete_topic
from sparklog.errors import DataLossError, InvalidOptionError, StorageUnavailableError
from sparklog.spark.group.consume import prepare
from sparklog.spark.group.task import ConsumeContext, ConsumeSettings, ConsumeTask
from sparklog.spark.source import range_reader
from sparklog.spark.source.range_reader import RangeReader
from sparklog.spark.source.reader import SparklogPartition
from sparklog.spark.source.rows import read_schema
from sparklog.spark.stream.options import stream_options
from sparklog.spark.stream.reader import SparklogStreamReader
from sparklog.spark.versions.api import ReadAllAvailable
from sparklog.store.open import open_store
from tests.cluster.log.replicated import append_copies, copies, replicated_cluster
from tests.cluster.log.rewriting import delete_files, drop_segments, rewrite
from tests.cluster.spark.helpers import across, cluster, read_rows, reader, write_rows


def twelve(folder: Path) -> Coordinator:
    """Offsets 0 to 11 of t-0, three in each of four files."""
    cluster(folder, t=1)
    for first in range(0, 12, 3):
        write_rows(folder, "value string", [{"value": str(n)} for n in range(first, first + 3)], topic="t")
    return open_cluster(str(folder))


def rows_of(job: Any, part: Any) -> list[tuple[int, bytes]]:
    return [(r["offset"], r["value"]) for batch in across(job).read(across(part)) for r in batch.to_pylist()]


def numbered(*offsets: int) -> list[tuple[int, bytes]]:
    return [(offset, b"%d" % offset) for offset in offsets]


# -- gaps


@pytest.mark.parametrize("ddl", ["", "value binary, offset bigint", "offset bigint", "offset bigint, topic string"])
def test_rows_keep_their_offsets_across_gaps(tmp_path: Path, ddl: str) -> None:
    rewrite(twelve(tmp_path), 1, 3, keep={4, 8, 9}.__contains__)
    read = read_rows(tmp_path, ddl, subscribe="t")
    assert [row["offset"] for row in read] == [0, 1, 2, 4, 8, 9]
    if "value" in read[0]:
        assert [row["value"] for row in read] == [b"0", b"1", b"2", b"4", b"8", b"9"]


def test_counting_without_columns_respects_gaps(tmp_path: Path) -> None:
    rewrite(twelve(tmp_path), 1, 3, keep={4, 8, 9}.__contains__)

    def count(**options: str) -> tuple[int, int]:
        job = reader(tmp_path, "partition int", subscribe="t", **options)
        parts = job.partitions()
        return sum(batch.num_rows for part in parts for batch in job.read(part)), job.bytes_read

    assert count() == (6, 0)
    rows, size = count(startingOffsets='{"t":{"0":5}}')
    assert (rows, size > 0) == (2, True)
    assert count(startingOffsets='{"t":{"0":10}}')[0] == 0


def test_ranges_of_a_log_with_gaps_are_split_without_losing_or_repeating_a_row(tmp_path: Path) -> None:
    rewrite(twelve(tmp_path), keep={0, 3, 4, 9, 11}.__contains__)
    for parts in ("1", "3", "5", "12"):
        read = read_rows(tmp_path, "offset bigint", subscribe="t", minPartitions=parts)
        assert [row["offset"] for row in read] == [0, 3, 4, 9, 11]


def stream(folder: Path, **options: str) -> SparklogStreamReader:
    checked = stream_options({"path": str(folder), "startingOffsets": "earliest", "subscribe": "t", **options})
    return SparklogStreamReader(checked, read_schema(False))


def test_a_stream_skips_gaps_and_reaches_the_end(tmp_path: Path) -> None:
    rewrite(twelve(tmp_path), keep={1, 5}.__contains__)
    job = stream(tmp_path, maxOffsetsPerTrigger="4")
    start, seen, ends = job.initialOffset(), [], []
    for _ in range(3):
        end = job.latestOffset(start, job.getDefaultReadLimit())
        seen += [row for part in job.partitions(start, end) for row in rows_of(job, part)]
        ends.append(end["t"]["0"])
        start = end
    assert (seen, ends) == (numbered(1, 5), [4, 8, 12])


# -- deleted and replaced files


def test_a_task_continues_in_the_files_that_replaced_its_own(tmp_path: Path) -> None:
    admin = twelve(tmp_path)
    job = reader(tmp_path, subscribe="t")
    (part,) = job.partitions()
    delete_files(admin.store, rewrite(admin, 0, 2))
    delete_files(admin.store, rewrite(admin, 1, 2, keep={6, 10}.__contains__))
    assert rows_of(job, part) == numbered(0, 1, 2, 3, 4, 5, 6, 10)


def test_a_task_of_a_stream_continues_in_replacing_files(tmp_path: Path) -> None:
    admin = twelve(tmp_path)
    job = stream(tmp_path)
    start = job.initialOffset()
    (part,) = job.partitions(start, job.latestOffset(start, ReadAllAvailable()))
    delete_files(admin.store, rewrite(admin))
    assert rows_of(job, part) == numbered(*range(12))


def test_a_task_reads_only_its_own_range_of_a_larger_file(tmp_path: Path) -> None:
    admin = twelve(tmp_path)
    job = reader(tmp_path, subscribe="t", maxRecordsPerPartition="3")
    parts = job.partitions()
    delete_files(admin.store, rewrite(admin))
    assert [rows_of(job, part) for part in parts] == [numbered(n, n + 1, n + 2) for n in (0, 3, 6, 9)]


def test_records_deleted_by_retention_before_their_task_are_data_loss(tmp_path: Path) -> None:
    admin = twelve(tmp_path)
    job, lenient = reader(tmp_path, subscribe="t"), reader(tmp_path, subscribe="t", failOnDataLoss="false")
    (part,) = job.partitions()
    delete_files(admin.store, drop_segments(admin, 2))
    with pytest.raises(DataLossError, match=r"the log starts at 6 now.*failOnDataLoss=false"):
        rows_of(job, part)
    assert rows_of(lenient, part) == numbered(*range(6, 12))


def test_a_missing_live_file_is_data_loss_that_can_be_skipped(tmp_path: Path) -> None:
    admin = twelve(tmp_path)
    job, lenient = reader(tmp_path, subscribe="t"), reader(tmp_path, subscribe="t", failOnDataLoss="false")
    (part,) = job.partitions()
    delete_files(admin.store, [admin.segments("t").partition(0)[1].path])
    delete_files(admin.store, rewrite(admin, 2, 2))
    with pytest.raises(DataLossError, match="records 3 to 5 of t-0"):
        rows_of(job, part)
    assert rows_of(lenient, part) == numbered(0, 1, 2, *range(6, 12))


def test_a_recreated_topic_is_not_read_instead_of_the_old_one(tmp_path: Path) -> None:
    admin = twelve(tmp_path)
    job = reader(tmp_path, subscribe="t")
    (part,) = job.partitions()
    files = [segment.path for segment in admin.segments("t").partition(0)]
    delete_topic(admin, "t")
    admin.create_topic("t")
    delete_files(admin.store, files)
    with pytest.raises(DataLossError, match="records 0 to 2 of t-0"):
        rows_of(job, part)


def test_a_search_by_time_uses_the_current_segments(tmp_path: Path) -> None:
    admin = twelve(tmp_path)
    shared_cluster(str(tmp_path))
    delete_files(admin.store, rewrite(admin, keep={4, 8}.__contains__))
    assert [row["offset"] for row in read_rows(tmp_path, subscribe="t", startingTimestamp="1")] == [4, 8]


# -- replicas


def test_a_task_reads_from_a_follower_if_the_leader_fails(tmp_path: Path) -> None:
    admin = replicated_cluster(tmp_path)
    first, second = append_copies(admin, [0, 1]), append_copies(admin, [2])
    job = reader(tmp_path / "root", subscribe="t")
    (part,) = job.partitions()
    stores = dict(copies(admin))
    stores[0].delete(first)
    stores[0].put(second, stores[0].get(second)[:100])
    stores[1].delete(second)
    assert [value for _, value in rows_of(job, part)] == [b"value-0", b"value-1", b"value-2"]
    delete_files(stores[2], [second])
    with pytest.raises(Exception, match=r"broker 0.*broker 1.*broker 2"):
        rows_of(job, part)


def test_a_task_without_its_planned_replicas_looks_up_the_current_ones(tmp_path: Path) -> None:
    admin = replicated_cluster(tmp_path)
    append_copies(admin, [0, 1, 2])
    job = reader(tmp_path / "root", subscribe="t")
    (part,) = job.partitions()
    part.stores = {}  # type: ignore[attr-defined]
    assert len(rows_of(job, part)) == 3


# -- groups


def consume(folder: Path, log: Coordinator, process: Any, **more: Any) -> None:
    ends = prepare(log, "g", ["t"], "earliest")
    settings = ConsumeSettings(root=str(folder), group="g", topics=("t",), ends=ends, **more)
    ConsumeTask(settings, process, 0).run()


def committed(log: Coordinator) -> int:
    (one,) = log.refresh().groups["g"].offsets.values()
    return one.offset


@pytest.mark.parametrize("kept", [{1, 5, 6, 7}, {11}, set()])
def test_a_group_reads_the_remaining_records_and_finishes_at_the_end(tmp_path: Path, kept: set[int]) -> None:
    rewrite(twelve(tmp_path), keep=kept.__contains__)
    log = shared_cluster(str(tmp_path))
    processed: list[int] = []

    def process(records: pa.RecordBatch, context: ConsumeContext) -> None:
        assert context.start_offset <= records.column("offset")[0].as_py()
        assert records.column("offset")[-1].as_py() < context.end_offset
        processed.extend(records.column("offset").to_pylist())

    consume(tmp_path, log, process, max_records=2)
    assert (processed, committed(log)) == (sorted(kept), 12)


def test_a_group_continues_when_files_are_rolled_or_deleted_between_calls(tmp_path: Path) -> None:
    admin = twelve(tmp_path)
    log = shared_cluster(str(tmp_path))
    processed: list[int] = []

    def process(records: pa.RecordBatch, context: ConsumeContext) -> None:
        processed.extend(records.column("offset").to_pylist())
        if len(processed) == 2:
            delete_files(admin.store, rewrite(admin, 0, 2))
            delete_files(admin.store, rewrite(admin, 1, 2))
        if len(processed) == 4:
            delete_files(admin.store, drop_segments(admin, 1))

    consume(tmp_path, log, process, max_records=2)
    assert (processed, committed(log)) == ([0, 1, 2, 3, *range(6, 12)], 12)


def test_a_group_finishes_when_all_its_records_are_deleted(tmp_path: Path) -> None:
    admin = twelve(tmp_path)
    log = shared_cluster(str(tmp_path))

    def process(records: pa.RecordBatch, context: ConsumeContext) -> None:
        delete_files(admin.store, drop_segments(admin, 4))

    consume(tmp_path, log, process, max_records=2)
    assert committed(log) == 12


# -- reader leases


def leases(folder: Path) -> list[tuple[int, int]]:
    """The version of each reader lease, and its end by the reader's own clock."""
    store = open_store(str(folder))
    stored = [read_reader_lease(store, one.key) for one in read_reader_leases(store, SystemClock().now_ms()).valid]
    return [(found.version, found.until_ms) for found in stored if found is not None]


def test_tasks_of_a_read_share_one_lease_on_its_version(tmp_path: Path) -> None:
    twelve(tmp_path)
    version = shared_cluster(str(tmp_path)).state.version
    for _ in range(3):
        assert len(read_rows(tmp_path, subscribe="t", readerLeaseMs="50000")) == 12
    assert [found for found, _ in leases(tmp_path)] == [version]


def test_a_read_that_is_empty_or_opted_out_takes_no_lease(tmp_path: Path) -> None:
    twelve(tmp_path)
    read_rows(tmp_path, subscribe="t", readerLeaseMs="0")
    assert read_rows(tmp_path, subscribe="t", startingOffsets='{"t":{"0":12}}', readerLeaseMs="60000") == []
    job = stream(tmp_path, startingOffsets="latest")
    start = job.initialOffset()
    assert job.partitions(start, job.latestOffset(start, ReadAllAvailable())) == []
    assert leases(tmp_path) == []


def test_batches_of_a_stream_share_a_lease(tmp_path: Path) -> None:
    twelve(tmp_path)
    job = stream(tmp_path, maxOffsetsPerTrigger="2", readerLeaseMs="70000")
    start = job.initialOffset()
    for _ in range(6):
        end = job.latestOffset(start, job.getDefaultReadLimit())
        assert len(job.partitions(start, end)) == 1
        start = end
    assert len(leases(tmp_path)) == 1


def test_a_long_task_renews_the_lease(tmp_path: Path) -> None:
    twelve(tmp_path)
    job = reader(tmp_path, subscribe="t", readerLeaseMs="600000")
    part: Any = job.partitions()[0]
    ((version, until_ms),) = leases(tmp_path)
    clock = ManualClock(until_ms - 299_000)
    reading = RangeReader(part.ranges[0], part.stores, job.options, part.lease, clock)
    assert sum(records.batch.num_rows for records in reading.records(["value"])) == 12
    assert leases(tmp_path) == [(version, clock.now_ms() + 600_000)]


def test_a_task_renews_a_lease_whose_age_its_own_clock_does_not_tell(tmp_path: Path) -> None:
    """Its machine's clock is behind, and it began long after the plan: the lease seems to be new."""
    twelve(tmp_path)
    job = reader(tmp_path, subscribe="t", readerLeaseMs="600000")
    part: Any = job.partitions()[0]
    clock = ManualClock(part.lease.until_ms - 590_000)
    reading = RangeReader(part.ranges[0], part.stores, job.options, part.lease, clock)
    renewed = []
    for _ in reading.records(["value"]):
        renewed.append(leases(tmp_path)[0][1] - part.lease.until_ms)
        clock.advance(20)
    assert renewed == [0, 0, 50_000, 50_000]  # once, after 40 s, although 550 s seem to be left


def test_a_task_that_cannot_renew_its_lease_continues(tmp_path: Path) -> None:
    twelve(tmp_path)
    job = reader(tmp_path, subscribe="t")
    part: Any = job.partitions()[0]
    open_store(str(tmp_path)).put(part.lease.key, b"damaged")
    clock = ManualClock(part.lease.until_ms)
    reading = RangeReader(part.ranges[0], part.stores, job.options, part.lease, clock)
    assert sum(records.batch.num_rows for records in reading.records(["value"])) == 12


@pytest.mark.parametrize("text", ["-1", "1", "999", "86400001", "soon"])
def test_a_lease_that_is_too_short_or_too_long_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidOptionError, match="readerLeaseMs"):
        reader(tmp_path, subscribe="t", readerLeaseMs=text)


def test_records_are_not_skipped_as_lost_while_the_root_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files were merged into others, and the new location of the records is unknown."""
    admin = twelve(tmp_path)
    job = reader(tmp_path, subscribe="t", failOnDataLoss="false")
    (part,) = job.partitions()
    assert isinstance(part, SparklogPartition)
    delete_files(admin.store, rewrite(admin))
    reading = RangeReader(part.ranges[0], part.stores, job.options, part.lease)

    def open_unavailable(*_: object) -> Coordinator:
        raise StorageUnavailableError("the root does not answer")

    monkeypatch.setattr(range_reader, "shared_cluster", open_unavailable)
    with pytest.raises(StorageUnavailableError, match="the root does not answer"):
        list(reading.records(["value"]))
