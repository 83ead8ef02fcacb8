"""Measure commits with fsync on a local disk: in a small cluster, with a million live segments, and from 16 processes;
and opening the large cluster in its own process.

The reference makes the same bytes durable under a new name without any of the log: temporary file, fsync, link, fsync
of the folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from benchmarks import clusters
from benchmarks.measure import (
    ROOT,
    Figure,
    Settings,
    interleaved,
    median,
    milliseconds,
    percentile,
    scratch,
    speed_ratio,
    where_time_goes,
)
from sparklog.coordinator import Coordinator, create_cluster, open_cluster

MIB = 1024 * 1024
PROCESSES = 16


def run(settings: Settings) -> list[Figure]:
    with scratch("commit") as folder:
        _small_cluster(folder / "small")
        segments = 100_000 if settings.quick else 1_000_000
        _in_process("wide", folder / "wide", segments)  # what it takes to build must not weigh on this process
        opening = _opening(folder, segments, settings)  # first: commits would shorten the tail that it reads
        return [*_commits(folder, segments, settings), *opening]


def run_racing(settings: Settings) -> list[Figure]:
    """16 processes appending to one partition, against one process alone."""
    seconds = 2 if settings.quick else 5
    with scratch("racing") as folder:
        _small_cluster(folder)
        samples = interleaved(
            2 if settings.quick else 3,
            {"alone": partial(_race, folder, 1, seconds), "racing": partial(_race, folder, PROCESSES, seconds)},
            warm=0,
        )
        found = open_cluster(str(folder))
        partition = found.state.partition("small", 0)
        lengths = [segment.end_offset - segment.base_offset for segment in found.segments("small").partition(0)]
        assert sum(lengths) == partition.log_end_offset, "offsets are not contiguous"
    alone, racing = 1 / median(samples["alone"]), 1 / median(samples["racing"])
    return [
        Figure(
            f"appends of {PROCESSES} processes to one partition",
            f"{racing:,.0f} commits/s",
            f"one process {alone:,.0f} commits/s",
            racing / alone,
            samples=samples,
        )
    ]


def _small_cluster(folder: Path) -> None:
    coordinator = create_cluster(str(folder))
    coordinator.create_topic("small", 4)
    clusters.append_tail(coordinator, "small", 4)


# -- commits


def _commits(folder: Path, segments: int, settings: Settings) -> list[Figure]:
    small, wide = open_cluster(str(folder / "small")), open_cluster(str(folder / "wide"))
    (folder / "raw").mkdir()
    data = (folder / "small/meta/commits" / f"{small.state.version:020d}.json").read_bytes() + bytes(300)
    sides = {
        "small": lambda: clusters.append_small(small, "small"),
        "wide": lambda: clusters.append_small(wide, "topic-3"),
        "raw": lambda: durable_create(folder / "raw", data),
    }
    samples = interleaved(100 if settings.quick else 1000, sides, warm=20)
    where = where_time_goes(lambda: [clusters.append_small(wide, "topic-3") for _ in range(300)])
    seconds, beside = median(samples["small"]), median(samples["wide"])
    return [
        Figure(
            "commit",
            f"{milliseconds(seconds)} (p99 {milliseconds(percentile(samples['small'], 99))})",
            f"durable create {milliseconds(median(samples['raw']))}",
            speed_ratio(samples, "small", "raw"),
            "<= 3 ms",
            seconds <= 0.003,
            samples=samples,
        ),
        Figure(
            f"commit beside {segments:,} segments",
            f"{milliseconds(beside)} (p99 {milliseconds(percentile(samples['wide'], 99))})",
            f"in a small cluster {milliseconds(seconds)}",
            beside / seconds,
            "<= 1.5 times",
            beside <= 1.5 * seconds,
            where,
        ),
    ]


def durable_create(folder: Path, data: bytes) -> None:
    name = f"{folder}/{time.perf_counter_ns()}"
    file = os.open(f"{name}.tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(file, data)
    os.fsync(file)
    os.close(file)
    os.link(f"{name}.tmp", name)
    os.unlink(f"{name}.tmp")
    above = os.open(folder, os.O_RDONLY)
    os.fsync(above)
    os.close(above)


# -- opening


def _opening(folder: Path, segments: int, settings: Settings) -> list[Figure]:
    opened: dict[str, list[dict[str, float]]] = {"small": [], "wide": [], "lists": []}
    for _ in range(3 if settings.quick else 5):
        for side, command in (("small", "open"), ("wide", "open"), ("lists", "open-lists")):
            opened[side].append(_in_process(command, folder / ("small" if side == "small" else "wide")))
    seconds = {side: [result["seconds"] for result in results] for side, results in opened.items()}
    mebibytes = {side: median([result["peak_mib"] for result in results]) for side, results in opened.items()}
    where = where_time_goes(lambda: open_cluster(str(folder / "wide")))
    took, reference = median(seconds["wide"]), median(seconds["small"])
    lists = median(seconds["lists"])
    return [
        Figure(
            f"open a cluster of {segments:,} segments",
            milliseconds(took),
            f"a small cluster {milliseconds(reference)}",
            reference / took,
            "<= 1 s",
            took <= 1,
            where,
            seconds,
        ),
        Figure(
            "memory with it open",
            f"{mebibytes['wide']:.0f} MiB",
            f"a small cluster {mebibytes['small']:.0f} MiB",
            mebibytes["wide"] / mebibytes["small"],
            "<= 500 MiB",
            mebibytes["wide"] <= 500,
        ),
        Figure(
            "with the segment list of every topic",
            f"{milliseconds(lists)}, {mebibytes['lists']:.0f} MiB",
            f"heads alone {milliseconds(took)}",
            took / lists,
        ),
    ]


# -- processes of their own


def _in_process(command: str, folder: Path, *arguments: object) -> dict[str, float]:
    """What ``main`` below prints, run in a fresh interpreter."""
    words = [sys.executable, "-m", "benchmarks.commit", command, str(folder), *map(str, arguments)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _race(folder: Path, processes: int, seconds: float) -> float:
    """Return the seconds of one commit while that many processes append at the same time."""
    words = [sys.executable, "-m", "benchmarks.commit", "append", str(folder), str(seconds)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(words, cwd=ROOT, **pipes) for _ in range(processes)]  # type: ignore[call-overload]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    commits = [json.loads(process.communicate()[0])["commits"] for process in started]
    return seconds / sum(commits)


def _append_for(coordinator: Coordinator, seconds: float) -> int:
    commits, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        clusters.append_small(coordinator, "small")
        commits += 1
    return commits


def main(command: str, folder: str, *arguments: str) -> None:
    """Build, open or append, and print what was measured as JSON."""
    if command == "wide":
        clusters.wide_cluster(Path(folder), int(arguments[0]))
        print("{}")
    elif command == "append":
        coordinator = open_cluster(folder)
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps({"commits": _append_for(coordinator, float(arguments[0]))}))
    else:
        start = time.perf_counter()
        coordinator = open_cluster(folder)
        if command == "open-lists":
            for topic, state in coordinator.state.topics.items():
                segments = coordinator.segments(topic)
                assert sum(len(segments.partition(number)) for number in range(len(state.partitions))) > 0
        seconds = time.perf_counter() - start
        print(json.dumps({"seconds": seconds, "peak_mib": peak_mib()}))


def peak_mib() -> float:
    """Return the peak memory of this process: VmHWM, since ru_maxrss starts from the parent's on Linux."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise OSError("no VmHWM in /proc/self/status: this benchmark needs Linux")


if __name__ == "__main__":
    main(*sys.argv[1:])
