"""The memory of Spark's Python processes while they write and read one segment of more than 1 GiB, and a small one.

Peaks are taken from /proc every few milliseconds. A memory-mapped file counts as resident while its pages are mapped,
so the part that is the process's own (anonymous) is shown too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks import spark_session
from benchmarks.measure import Figure, Settings, scratch
from sparklog.coordinator import create_cluster, open_cluster

MIB = 1024 * 1024
LIMIT_MIB = 400
INTERVAL_SECONDS = 0.02


def run(settings: Settings) -> list[Figure]:
    large = 1_000_000 if settings.quick else 10_000_000
    with scratch("memory") as folder, spark_session.spark_session(folder) as spark:
        small = _measure(spark, folder / "small", large // 20)
        return [
            Figure(
                f"Python worker memory, {name} {size / MIB:,.0f} MiB in one segment",
                f"{peak.resident:.0f} MiB, {peak.anonymous:.0f} its own",
                f"{small[name][0] / MIB:,.0f} MiB: {small[name][1].resident:.0f} MiB",
                peak.resident / small[name][1].resident,
                f"<= {LIMIT_MIB} MiB",
                peak.resident <= LIMIT_MIB,
            )
            for name, (size, peak) in _measure(spark, folder / "large", large).items()
        ]


def _measure(spark: SparkSession, folder: Path, rows: int) -> dict[str, tuple[int, Peak]]:
    create_cluster(str(folder)).create_topic("bench", 1, configs={"segment.bytes": str(2**31 - 1)})
    frame = spark_session.rows(spark, rows, partitions=1)
    writing = peak_of(lambda: spark_session.write(frame, folder, "bench"))
    reading = peak_of(lambda: spark_session.drain(spark_session.read(spark, folder, "bench")))
    segments = open_cluster(str(folder)).segments("bench").partition(0)
    size = max(segment.size_bytes for segment in segments)
    assert len(segments) == 1 or size > 1024 * MIB
    return {"write": (size, writing), "read": (size, reading)}


class Peak:
    """The largest MiB seen in any one Python process below this one."""

    def __init__(self) -> None:
        self.resident = 0.0
        self.anonymous = 0.0

    def look(self) -> None:
        for process in _python_descendants(os.getpid()):
            with suppress(OSError):
                status = (process / "status").read_text()
                self.resident = max(self.resident, _mebibytes(status, "VmRSS:"))
                self.anonymous = max(self.anonymous, _mebibytes(status, "RssAnon:"))


def peak_of(action: Callable[[], object]) -> Peak:
    with _sampling() as peak:
        action()
    return peak


@contextmanager
def _sampling() -> Iterator[Peak]:
    peak, done = Peak(), threading.Event()

    def sample() -> None:
        while not done.wait(INTERVAL_SECONDS):
            peak.look()

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


def _python_descendants(parent: int) -> Iterator[Path]:
    for task in Path(f"/proc/{parent}/task").iterdir():
        with suppress(OSError):
            for child in (task / "children").read_text().split():
                process = Path("/proc") / child
                with suppress(OSError):
                    if "python" in os.path.basename(os.readlink(process / "exe")):
                        yield process
                yield from _python_descendants(int(child))


def _mebibytes(status: str, field: str) -> float:
    for line in status.splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    return 0.0
