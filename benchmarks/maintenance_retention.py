"""Measure retention of a topic with 100,000 segments that are too old, in one commit; then the sweep of as many files.

The topic has 16 partitions and is opened again for every run, as by a cron job: read the lists from the checkpoint,
decide, store the listing, commit. There is no reference: the target is a time.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from benchmarks.measure import Figure, Settings, median, scratch, timed
from sparklog.coordinator import create_cluster, open_cluster
from sparklog.log.commits.retired_files import read_removed
from sparklog.log.layout import segment_key
from sparklog.maintenance.gc.sweep import SweepResult, sweep
from sparklog.maintenance.segments.retention import RetentionResult, retain
from sparklog.protocol.commits import Run, commit_key
from sparklog.protocol.decide.append import AppendRequest, PartitionAppend

PARTITIONS = 16
APPENDS_PER_COMMIT = 5_000
KEPT = PARTITIONS * 10
SECONDS = 5.0
FILE_BYTES = 64


def run(settings: Settings) -> list[Figure]:
    segments = 10_000 if settings.quick else 100_000
    with scratch("retention") as folder:
        prepared = folder / "prepared"
        _prepare(str(prepared), segments)
        seconds: list[float] = []
        commit_bytes = 0
        for number in range(settings.runs):
            root = folder / str(number)
            shutil.copytree(prepared, root, symlinks=True)
            done: list[RetentionResult] = []
            seconds.append(timed(lambda root=root, done=done: done.append(retain(open_cluster(str(root))))))  # type: ignore[misc]
            assert done[0].segments == segments - KEPT
            assert done[0].commits == 1
            commit_bytes = Path(root, commit_key(open_cluster(str(root)).state.version)).stat().st_size
        swept = _sweep(folder / "0", segments - KEPT)
    took = median(seconds)
    return [
        Figure(
            f"retention of {segments - KEPT:,} segments, in one commit of {commit_bytes:,} bytes",
            f"{took:.2f} s",
            target=f"<= {SECONDS:.0f} s",
            met=took <= SECONDS,
            samples={"seconds": seconds},
        ),
        Figure(f"deletion of their {2 * (segments - KEPT):,} files", f"{swept:.2f} s"),
    ]


def _prepare(root: str, segments: int) -> None:
    """A topic whose segments were appended by some commits and are in a checkpoint; all but the newest are too old."""
    coordinator = create_cluster(root)
    configs = {"retention.ms": "3600000", "file.delete.delay.ms": "0", "internal.segment.bytes": "1"}
    topic_id = coordinator.create_topic("retention", PARTITIONS, configs=configs)
    now_us = time.time_ns() // 1000
    for first in range(0, segments, APPENDS_PER_COMMIT):
        numbers = range(first, min(first + APPENDS_PER_COMMIT, segments))
        coordinator.append(
            AppendRequest(
                appends=[
                    PartitionAppend(
                        topic="retention",
                        topic_id=topic_id,
                        partition=number % PARTITIONS,
                        run=_run(number, coordinator.state.version, now_us if number >= segments - KEPT else 0),
                    )
                    for number in numbers
                ]
            )
        )
    coordinator.log.write_checkpoint()


def _run(number: int, version: int, timestamp_us: int) -> Run:
    return Run(
        path=segment_key("retention", number % PARTITIONS, number // PARTITIONS, version, f"w{number:020d}"),
        batches=1,
        records=1,
        size_bytes=FILE_BYTES,
        min_timestamp_us=timestamp_us,
        max_timestamp_us=timestamp_us,
    )


def _sweep(root: Path, files: int) -> float:
    """Return the seconds to delete that many files with their indexes, which are created first."""
    coordinator = open_cluster(str(root))
    for number in range(PARTITIONS):
        (root / f"retention-{number}").mkdir()
    (listing,) = coordinator.state.removed_files
    for file in read_removed(coordinator.store, listing):
        (root / file.path).touch()
        (root / file.path).with_suffix(".index").touch()
    found: list[SweepResult] = []
    seconds = timed(lambda: found.append(sweep(coordinator)))
    assert found[0].files == files
    return seconds
