"""Measure rolling and compaction on Spark, against reading and writing the same records with Spark; and the gain of a
roll.

.venv/bin/python benchmarks/run.py --only maintenance
.venv/bin/python benchmarks/maintenance.py --only rolling --rolling-rows 90000000 --runs 1 --warm 0    # 10 GB

Every run works on a copy of a prepared cluster (hard links, since files never change). Rolling merges small files of 8
partitions; the reference is one Spark job that reads the topic and writes it to another one. Compaction takes records
whose keys occur ten times each. The scan is of one partition that was written in many appends, before and after.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks import memory, spark_session
from benchmarks.clusters import KEY_BYTES, record_batch, timestamps
from benchmarks.measure import (
    Figure,
    Settings,
    interleaved,
    median,
    print_table,
    scratch,
    speed_ratio,
    spread,
    timed,
)
from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.compact import compact
from sparklog.maintenance.segments.replacement import Counts
from sparklog.maintenance.segments.roll import roll
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend
from sparklog.spark.jobs.runner import SparkTasks

MIB = 1024 * 1024
TOPIC = "bench"
PARTITIONS = 8
APPENDS_PER_COMMIT = 1000
MEMORY_LIMIT_MIB = 1024


@dataclass(frozen=True)
class Sizes:
    """Records of each part; ``file_rows`` are those of a small file, ``appends`` those of the scan. ``warm`` rounds
    of rolling are not counted."""

    rolling_rows: int = 10_000_000
    file_rows: int = 10_000
    compaction_rows: int = 20_000_000
    compaction_keys: int = 2_000_000
    appends: int = 10_000
    append_rows: int = 100
    runs: int = 3
    warm: int = 1


QUICK = Sizes(2_000_000, 10_000, 2_000_000, 200_000, 1_000, 100, 2)


def run(settings: Settings) -> list[Figure]:
    sizes = QUICK if settings.quick else Sizes(runs=min(settings.runs, 3))
    return [figure for part in PARTS.values() for figure in part(sizes)]


# -- rolling


def rolling(sizes: Sizes) -> list[Figure]:
    """Bytes a second that become segments, against a Spark job that reads and writes the same."""
    with scratch("rolling") as folder, spark_session.spark_session(folder) as spark:
        prepared = folder / "prepared"
        coordinator = create_cluster(str(prepared))
        coordinator.create_topic(TOPIC, PARTITIONS, configs={"segment.bytes": str(128 * MIB)})
        appended = sizes.rolling_rows // sizes.file_rows
        _append(coordinator, ((number % PARTITIONS, sizes.file_rows) for number in range(appended)))
        tasks = SparkTasks(spark)
        size = _bytes(coordinator)

        def rolled() -> float:
            with _copy(prepared) as root:
                counts: list[Counts] = []
                seconds = timed(lambda: counts.append(roll(open_cluster(str(root)), tasks)))
                assert counts[0].files_in == appended, counts[0]
            return seconds

        sides = {"roll": rolled, "read + write": lambda: _read_and_write(spark, prepared)}
        samples = interleaved(sizes.runs, sides, sizes.warm)
        name = f"rolling of {appended:,} files, {size / 1e9:.2f} GB"
        return [_rate_figure(name, size, samples, "roll", 0.8)]


# -- compaction


def compaction(sizes: Sizes) -> list[Figure]:
    """Measure compaction of a topic with repeated keys, and the memory of its workers."""
    with scratch("compaction") as folder, spark_session.spark_session(folder) as spark:
        prepared = folder / "prepared"
        coordinator = create_cluster(str(prepared))
        configs = {"cleanup.policy": "compact", "segment.bytes": str(128 * MIB), "segment.ms": "1"}
        coordinator.create_topic(TOPIC, PARTITIONS, configs=configs)
        file_rows = min(200_000, sizes.compaction_rows // PARTITIONS)
        files = sizes.compaction_rows // file_rows
        _append(coordinator, ((number % PARTITIONS, file_rows) for number in range(files)), sizes.compaction_keys)
        _append(coordinator, ((number, 1) for number in range(PARTITIONS)), late=True)
        size = _bytes(coordinator)
        peaks: list[memory.Peak] = []
        tasks = SparkTasks(spark)

        def compacted() -> float:
            with _copy(prepared) as root:
                took: list[float] = []
                found: list[Counts] = []
                act = lambda: took.append(timed(lambda: found.append(compact(open_cluster(str(root)), tasks))))  # noqa: E731
                peaks.append(memory.peak_of(act))
                left = sizes.compaction_rows - found[0].records_removed
                assert left == _distinct(sizes.compaction_keys, sizes.compaction_rows, file_rows), left
            return took[0]

        sides = {"compact": compacted, "read + write": lambda: _read_and_write(spark, prepared)}
        samples = interleaved(sizes.runs, sides)
        name = f"compaction of {sizes.compaction_rows:,} records with {sizes.compaction_keys:,} keys"
        peak = max(peaks, key=lambda one: one.resident)
        return [
            _rate_figure(name, size, samples, "compact", 0.5),
            Figure(
                "memory of a compaction's worker",
                f"{peak.resident:.0f} MiB, {max(one.anonymous for one in peaks):.0f} its own",
                target=f"<= {MEMORY_LIMIT_MIB} MiB",
                met=peak.resident <= MEMORY_LIMIT_MIB,
            ),
        ]


# -- what a roll is worth


def scan(sizes: Sizes) -> list[Figure]:
    """A full scan of a partition that was written in many small appends, before and after rolling."""
    with scratch("scan") as folder, spark_session.spark_session(folder) as spark:
        small, large = folder / "small", folder / "large"
        coordinator = create_cluster(str(small))
        coordinator.create_topic(TOPIC)
        _append(coordinator, itertools.repeat((0, sizes.append_rows), sizes.appends))
        _link(small, large)
        counts = roll(open_cluster(str(large)), InProcess())
        figures = []
        for name, read in (("from Python", _scan), ("with Spark", lambda root: _drain(spark, root))):
            samples = interleaved(
                sizes.runs,
                {"before": lambda read=read: read(small), "after": lambda read=read: read(large)},  # type: ignore[misc]
            )
            ratio = speed_ratio(samples, "after", "before")
            figures.append(
                Figure(
                    f"scan {name} of {sizes.appends:,} appends in {counts.files_out} files",
                    f"{median(samples['after']):.3f} s",
                    f"before {median(samples['before']):.3f} s",
                    ratio,
                    ">= 5",
                    ratio >= 5,
                    f"neighbouring runs {spread(samples, 'after', 'before')}",
                    samples,
                )
            )
        return figures


PARTS: dict[str, Callable[[Sizes], list[Figure]]] = {"rolling": rolling, "compaction": compaction, "scan": scan}


def _scan(root: Path) -> float:
    coordinator = open_cluster(str(root))
    end = coordinator.state.partition(TOPIC, 0).log_end_offset

    def read() -> None:
        with LogReader(coordinator) as reader:
            rows = sum(part.records.batch.num_rows for part in reader.fetch(TOPIC, 0, 0, end))
        assert rows == end

    return timed(read)


def _drain(spark: SparkSession, root: Path) -> float:
    return timed(lambda: spark_session.drain(spark_session.read(spark, root, TOPIC)))


# -- clusters


def _append(coordinator: Coordinator, files: Iterator[tuple[int, int]], keys: int = 0, late: bool = False) -> None:
    """Append small files, (partition, rows) each, many in a commit. With ``keys`` each record has a random one of that
    many."""
    topic_id = coordinator.refresh().topic(TOPIC).topic_id
    chance = random.Random(1)
    batch = record_batch(1)
    first = 10_000_000_000 if late else 0
    waiting: list[PartitionAppend] = []
    for partition, rows in files:
        if batch.num_rows != rows:
            batch = record_batch(rows)
        batch = batch.set_column(2, "timestamp", timestamps(rows, first))
        if keys:
            batch = batch.set_column(0, "key", _random_keys(chance, rows, keys, partition))
        first += rows
        key = segment_key(TOPIC, partition, first, coordinator.state.version, coordinator.log.ids.write_id())
        writer = SegmentFileWriter(coordinator.store, key)
        writer.start_run(RunTarget(TOPIC, topic_id, partition))
        for start in range(0, rows, 10_000):
            writer.write(batch.slice(start, 10_000))
        waiting += writer.finish()
        if len(waiting) >= APPENDS_PER_COMMIT:
            coordinator.append(AppendRequest(appends=waiting))
            waiting = []
    if waiting:
        coordinator.append(AppendRequest(appends=waiting))


def _random_keys(chance: random.Random, rows: int, keys: int, partition: int) -> pa.Array:
    """Return random keys whose number modulo the partitions is this one."""
    numbers = chance.choices(range(partition, keys, PARTITIONS), k=rows)
    return pa.array([number.to_bytes(KEY_BYTES, "big") for number in numbers], pa.binary())


def _distinct(keys: int, rows: int, file_rows: int) -> int:
    """Count the distinct keys that occur, by drawing them again."""
    chance = random.Random(1)
    seen = {
        number
        for file in range(rows // file_rows)
        for number in chance.choices(range(file % PARTITIONS, keys, PARTITIONS), k=file_rows)
    }
    return len(seen)


def _bytes(coordinator: Coordinator) -> int:
    return sum(partition.size_bytes for partition in coordinator.refresh().topic(TOPIC).partitions)


_numbers = itertools.count()


def _link(source: Path, target: Path) -> None:
    """Copy a cluster by hard links: files of the log never change."""
    shutil.copytree(source, target, copy_function=os.link)


@contextmanager
def _copy(prepared: Path) -> Iterator[Path]:
    root = prepared.parent / f"run-{next(_numbers)}"
    _link(prepared, root)
    os.sync()
    try:
        yield root
    finally:
        shutil.rmtree(root)


def _read_and_write(spark: SparkSession, prepared: Path) -> float:
    """The same records read by Spark and written to another topic of the same kind."""
    with _copy(prepared) as root:
        open_cluster(str(root)).create_topic("copy", PARTITIONS)
        frame = spark_session.read(spark, root, TOPIC).select("key", "value", "partition", "timestamp")
        return timed(lambda: spark_session.write(frame, root, "copy"))


def _rate_figure(name: str, size: int, samples: dict[str, list[float]], ours: str, target: float) -> Figure:
    ratio = speed_ratio(samples, ours, "read + write")
    return Figure(
        name,
        f"{size / median(samples[ours]) / MIB:,.0f} MiB/s",
        f"read + write {size / median(samples['read + write']) / MIB:,.0f} MiB/s",
        ratio,
        f">= {target}",
        ratio >= target,
        f"neighbouring runs {spread(samples, ours, 'read + write')}",
        samples,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(PARTS))
    parser.add_argument("--quick", action="store_true")
    for field in dataclasses.fields(Sizes):
        parser.add_argument("--" + field.name.replace("_", "-"), type=int)
    arguments = vars(parser.parse_args())
    given = {field.name: arguments[field.name] for field in dataclasses.fields(Sizes)}
    asked = {name: value for name, value in given.items() if value is not None}
    sizes = dataclasses.replace(QUICK if arguments["quick"] else Sizes(), **asked)
    print_table([figure for name in arguments["only"] or PARTS for figure in PARTS[name](sizes)])


if __name__ == "__main__":
    main()
