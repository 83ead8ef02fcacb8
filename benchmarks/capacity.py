"""Count what a log takes: bytes and requests per record and commit, and objects at the root.

    python benchmarks/capacity.py                print the tables of docs/capacity.md
    python benchmarks/capacity.py --write        put them into it

Everything is counted on a storage in memory, with its own clock and ids, so that two runs print the same.

Not for: time, which depends on the storage (``benchmarks/run.py``).
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.ids import SeededIds
from sparklog.log.commits.cleanup import clean_up
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.roll import roll
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.testing.faulty_store import CountingStore
from sparklog.testing.records import Record, append_records

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "capacity.md"
MARKS = re.compile(r"(<!-- measured: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

NOW_MS = 1_790_000_000_000
VALUE_BYTES = 100
APPENDS = 200
"""appends that are averaged over, so that checkpoints, one every 100 commits, are in it."""


KEPT_SECONDS = 7 * 24 * 3600
"""seconds: the default of ``metadata.max.retention.ms``."""


class Log:
    """A cluster in memory that counts, with one topic of one partition."""

    def __init__(self, name: str) -> None:
        forget_space(name)
        self.clock = ManualClock(NOW_MS)
        self.store = CountingStore(MemoryStore(name, self.clock))
        self.coordinator = create_cluster(self.store, clock=self.clock, ids=SeededIds(1))
        self.coordinator.create_topic("events")
        self._values = random.Random(1)
        self.store.reset_counts()

    def append(self, records: int, compression: str = "none") -> None:
        """One append of random values."""
        self.clock.advance(1)
        values = [self._values.randbytes(VALUE_BYTES) for _ in range(records)]
        append_records(self.coordinator, "events", [Record(value=value) for value in values], compression=compression)

    def opened(self) -> Coordinator:
        return open_cluster(self.store, clock=self.clock, ids=SeededIds(2))

    def size(self, prefix: str = "", suffix: str = "") -> int:
        return sum(held.size for held in self.store.list(prefix) if held.key.endswith(suffix))

    def objects(self, prefix: str) -> int:
        return sum(1 for _ in self.store.list(prefix))

    def requests(self) -> Requests:
        """Requests since the last call."""
        counts = self.store.counts
        self.store.reset_counts()
        return Requests(sum(counts[name] for name in READS), sum(counts[name] for name in WRITES))


class Requests(NamedTuple):
    """Requests to an object store, by what they cost there."""

    reads: float
    writes: float

    def __str__(self) -> str:
        return f"{self.reads:g} | {self.writes:g}"


READS = ("get", "get_range", "info", "open_input", "read_at")
WRITES = ("put", "put_if_absent", "close", "list")
"""``close`` ends an upload; a listing is priced like a write."""


def records_table() -> Iterator[str]:
    """Bytes of a record by the size of its append."""
    yield "| records in an append | `.log` | `.index` | commit | bytes of a record in all |"
    yield "|---|---|---|---|---|"
    for count in (1, 100, 10_000):
        log = Log("capacity-records")
        before = log.size("meta/commits/")
        log.append(count)
        parts = [log.size("events-0/", ".log"), log.size("events-0/", ".index"), log.size("meta/commits/") - before]
        yield f"| {count:,} | {' | '.join(f'{part:,}' for part in parts)} | {sum(parts) / count:,.1f} |"


def requests_table() -> Iterator[str]:
    """Requests to an object store, by what is done."""
    log = Log("capacity-requests")
    log.append(1)
    log.requests()
    for _ in range(APPENDS):
        log.append(1)
    total = log.requests()
    writing = Requests(round(total.reads / APPENDS, 1), round(total.writes / APPENDS, 1))
    opened = log.opened()
    opening = log.requests()
    reading = _read(log, opened, APPENDS)
    rolled = roll(opened, InProcess())
    rolling = log.requests()
    after = _read(log, opened, APPENDS)
    yield "| what | reads | writes |"
    yield "|---|---|---|"
    yield f"| an append to one partition, checkpoints included | {writing} |"
    yield f"| opening a cluster of {APPENDS} commits | {opening} |"
    yield f"| reading {APPENDS} appends of one record each, as written | {reading} |"
    yield f"| the same, rolled into {rolled.files_out} file | {after} |"
    yield f"| rolling these {rolled.files_in} files | {rolling} |"


def _read(log: Log, coordinator: Coordinator, records: int) -> Requests:
    with LogReader(coordinator) as reader:
        assert sum(fetched.records.batch.num_rows for fetched in reader.fetch("events", 0, 0, records)) == records
    return log.requests()


def growth_table() -> Iterator[str]:
    """What commits leave below meta/."""
    yield "| commits | objects in `meta/` | bytes | after the step `cleanup` | bytes |"
    yield "|---|---|---|---|---|"
    for commits in (100, 1_000, 2_000):
        log = Log("capacity-growth")
        for _ in range(commits):
            log.append(1)
        before = (log.objects("meta/"), log.size("meta/"))
        log.clock.advance(KEPT_SECONDS + 3600)
        log.append(1)
        clean_up(log.store, log.coordinator.log.expiry_clock, log.coordinator.refresh().configs)
        after = (log.objects("meta/"), log.size("meta/"))
        yield f"| {commits:,} | {before[0]:,} | {before[1]:,} | {after[0]:,} | {after[1]:,} |"


TABLES = {"records": records_table, "requests": requests_table, "growth": growth_table}


def measured(text: str) -> str:
    """The document with the tables of this run."""
    return MARKS.sub(lambda found: found[1] + "\n".join(TABLES[found[2]]()) + "\n" + found[3], text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put the tables into docs/capacity.md")
    if parser.parse_args().write:
        DOCUMENT.write_text(measured(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        for name, table in TABLES.items():
            print(f"{name}\n", *table(), sep="\n", end="\n\n")
