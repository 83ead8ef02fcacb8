"""Measure look-ups of one record by offset and by time, in a partition of ten million records in a thousand segments.

Warm: an open reader, the files in the page cache. Cold: the cluster is opened again for every look-up, so the process
holds none of its state; and once more with the page cache emptied of its files. The reference reads a whole segment,
which is one stored batch at a known position, with one system call.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks import clusters
from benchmarks.measure import (
    Figure,
    Settings,
    interleaved,
    median,
    milliseconds,
    percentile,
    scratch,
    speed_ratio,
    timed,
    where_time_goes,
)
from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, open_cluster

ROWS = 10_000
"""records of a segment"""


def run(settings: Settings) -> list[Figure]:
    segments = 100 if settings.quick else 1000
    with scratch("lookup") as folder:
        coordinator = clusters.segment_cluster(folder, segments, ROWS)
        places = [f"{coordinator.store.root}/{found.path}" for found in coordinator.segments("lookup").partition(0)]
        figures = []
        for name in WAYS:
            figures.append(_warm(name, coordinator, places, settings))
            figures += _cold(name, folder, places, settings)
        return figures


def by_offset(reader: LogReader, offset: int) -> None:
    found = list(reader.records("lookup", 0, offset, offset + 1))
    assert [record.offset for record in found] == [offset]


def by_time(reader: LogReader, offset: int) -> None:
    """Look up the time of record ``offset`` less half a step: finds that record and no earlier one."""
    found = reader.find_timestamp("lookup", 0, clusters.START_US + offset * clusters.STEP_US - clusters.STEP_US // 2)
    assert found is not None
    assert found.offset == offset
    by_offset(reader, offset)


def read_known_place(path: str) -> None:
    """The reference: read the same bytes from the same file, without a search or a check."""
    file = os.open(path, os.O_RDONLY)
    try:
        assert len(os.pread(file, os.fstat(file).st_size, 0)) > 0
    finally:
        os.close(file)


Lookup = Callable[[LogReader, int], None]
WAYS: dict[str, Lookup] = {"offset": by_offset, "time": by_time}


def _warm(name: str, coordinator: Coordinator, places: list[str], settings: Settings) -> Figure:
    way, choose = WAYS[name], random.Random(7)
    with LogReader(coordinator) as reader:

        def look_up() -> None:
            way(reader, choose.randrange(len(places) * ROWS))

        sides = {"lookup": look_up, "pread": lambda: read_known_place(choose.choice(places))}
        samples = interleaved(200 if settings.quick else 2000, sides, warm=200)
        before = reader.bytes_read
        for _ in range(20):
            look_up()
        read = (reader.bytes_read - before) // 20
        where = where_time_goes(lambda: [look_up() for _ in range(300)])
    return _figure(f"lookup by {name}, warm", samples, "lookup", 0.001, f"{read:,} bytes read; {where}")


def _cold(name: str, folder: Path, places: list[str], settings: Settings) -> list[Figure]:
    way, choose = WAYS[name], random.Random(8)

    def look_up() -> None:
        _open_and_look_up(folder, way, choose.randrange(len(places) * ROWS))

    def look_up_on_disk() -> float:
        evict(folder)
        return timed(look_up)

    sides = {"cold": look_up, "pread": lambda: read_known_place(choose.choice(places))}
    samples = interleaved(20 if settings.quick else 200, sides, warm=5)
    where = where_time_goes(lambda: [look_up() for _ in range(20)])
    disk = interleaved(5, {"cold": look_up_on_disk, "pread": partial(_pread_on_disk, places, choose)}, warm=1)
    return [
        _figure(f"lookup by {name}, cold", samples, "cold", 0.01, where),
        _figure(f"lookup by {name}, cold, page cache emptied too", disk, "cold", None, ""),
    ]


def _pread_on_disk(places: list[str], choose: random.Random) -> float:
    path = choose.choice(places)
    evict(Path(path).parent)
    return timed(partial(read_known_place, path))


def _open_and_look_up(folder: Path, way: Lookup, offset: int) -> None:
    with LogReader(open_cluster(str(folder))) as reader:
        way(reader, offset)


def evict(folder: Path) -> None:
    """Evict a folder's files from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def _figure(name: str, samples: dict[str, list[float]], side: str, target: float | None, where: str) -> Figure:
    seconds = median(samples[side])
    return Figure(
        name,
        f"{milliseconds(seconds)} (p99 {milliseconds(percentile(samples[side], 99))})",
        f"one pread {milliseconds(median(samples['pread']))}",
        speed_ratio(samples, side, "pread"),
        f"<= {target * 1000:g} ms" if target else "",
        seconds <= target if target else None,
        where,
        samples,
    )
