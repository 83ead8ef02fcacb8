"""Measure fsck against a full read of the same topic, in one process each, everything in the page cache.

The full read is what any consumer does: every column of every record, verified by checksum, zero copies. fsck reads
the same files whole and their indexes, and all of the metadata. The second figure is a topic of many small files, where
the cost is per file, and the third a check without the batches (``--fast``) there. The last one is fsck as a Spark job
against a full read with Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks import clusters, spark_session
from benchmarks.measure import (
    Figure,
    Settings,
    interleaved,
    median,
    milliseconds,
    scratch,
    throughput,
    where_time_goes,
)
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.log.layout import segment_key
from sparklog.log.records.fetch import Fetcher
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.maintenance.fsck.check import Scope, check_cluster
from sparklog.protocol.decide.append import AppendRequest
from sparklog.spark.jobs.runner import SparkTasks

TOPIC = "bench"
PARTITIONS = 4
BATCH_ROWS = 10_000
"""records of a batch of about a mebibyte."""

SEGMENT_BATCHES = 25
SMALL_ROWS = 100
"""records of a small file, as a producer that lingers for some milliseconds leaves them."""


def run(settings: Settings) -> list[Figure]:
    with scratch("fsck") as folder:
        rows = settings.rows // (PARTITIONS * BATCH_ROWS) * PARTITIONS * BATCH_ROWS
        large = _cluster(folder / "large", rows, BATCH_ROWS, SEGMENT_BATCHES)
        figures = [_against_full_read("fsck", large, rows, settings, 0.8)]
        files = 400 if settings.quick else 4000
        small = _cluster(folder / "small", files * SMALL_ROWS, SMALL_ROWS, 1)
        figures.append(_against_full_read(f"fsck of {files:,} small files", small, files * SMALL_ROWS, settings, 0.8))
        figures.append(_fast(small, files, settings))
        figures.append(_on_spark(folder, large, rows, settings))
        return figures


def _cluster(folder: Path, rows: int, batch_rows: int, batches: int) -> Coordinator:
    """Create a cluster with that many rows, spread over the partitions, in files of that many batches."""
    coordinator = create_cluster(str(folder))
    topic_id = coordinator.create_topic(TOPIC, PARTITIONS)
    batch = clusters.record_batch(batch_rows)
    appends = []
    for number in range(rows // batch_rows // batches):
        partition = number % PARTITIONS
        key = segment_key(TOPIC, partition, 0, coordinator.state.version, coordinator.log.ids.write_id())
        writer = SegmentFileWriter(coordinator.store, key)
        writer.start_run(RunTarget(TOPIC, topic_id, partition))
        for _ in range(batches):
            writer.write(batch)
        appends += writer.finish()
        if len(appends) == 100:
            coordinator.append(AppendRequest(appends=appends))
            appends = []
    if appends:
        coordinator.append(AppendRequest(appends=appends))
    return coordinator


def _full_read(root: str) -> None:
    """Read every record of every partition with a new reader."""
    coordinator = open_cluster(root)
    fetcher = Fetcher(coordinator.store_of)
    for number, partition in enumerate(coordinator.state.topic(TOPIC).partitions):
        segments = coordinator.segments(TOPIC).partition(number)
        end = partition.log_end_offset
        assert sum(found.batch.num_rows for found in fetcher.read(TOPIC, segments, 0, end)) == end
    fetcher.close()


def _check(coordinator: Coordinator, fast: bool = False) -> Callable[[], None]:
    def check() -> None:
        assert check_cluster(coordinator.store, Scope(fast=fast)).report.findings == []

    return check


def _against_full_read(name: str, coordinator: Coordinator, rows: int, settings: Settings, target: float) -> Figure:
    root = coordinator.store.root
    sides: dict[str, Callable[[], object]] = {"full read": lambda: _full_read(root), "fsck": _check(coordinator)}
    samples = interleaved(settings.runs, sides)
    read = sum(info.size for info in coordinator.store.list() if info.key.endswith((".log", ".index")))
    rate = read / median(samples["fsck"]) / 1e9
    where = f"{rate:.2f} GB/s; {where_time_goes(_check(coordinator))}"
    return throughput(name, rows, samples, ("fsck", "full read"), target, where)


def _on_spark(folder: Path, coordinator: Coordinator, rows: int, settings: Settings) -> Figure:
    with spark_session.spark_session(folder) as spark:
        runner = SparkTasks(spark, "fsck")

        def check() -> None:
            assert check_cluster(coordinator.store, runner=runner).report.findings == []

        def read() -> None:
            spark_session.drain(spark_session.read(spark, Path(coordinator.store.root), TOPIC))

        samples = interleaved(settings.runs, {"full read": read, "fsck": check}, warm=2)
    return throughput("fsck as a Spark job", rows, samples, ("fsck", "full read"), 0.8)


def _fast(coordinator: Coordinator, files: int, settings: Settings) -> Figure:
    samples = interleaved(settings.runs, {"fast": _check(coordinator, fast=True)})
    seconds = median(samples["fast"])
    return Figure(
        f"fsck --fast of {files:,} small files",
        milliseconds(seconds),
        where=f"{seconds / files * 1e6:.0f} us a file",
        samples=samples,
    )
