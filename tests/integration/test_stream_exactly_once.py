"""Exactly-once: a copy query is repeatedly killed with SIGKILL at random times within its batches and restarted.

A kill counts if the checkpoint has the offsets of a batch that it does not have as committed. Before Spark 4.2 a batch
takes all the records there are, so they are written step by step, one batch after the other, while the query runs.
The whole process group of the driver is killed: Python, the JVM and its threads. Spark's Python workers are in another
group and exit a moment later, so some of them still write or commit while the next instance of the query starts:
zombies, as on a cluster. A failure prints the seed.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from sparklog.coordinator import Coordinator, create_cluster
from sparklog.spark.versions.api import HAS_LIMITS
from tests.cluster.spark.helpers import read_rows, write_rows

PARTITIONS = 3
LIMIT = 60
RUN_SECONDS = 300
LONGEST_DELAY_SECONDS = 0.6
BACKLOG = 12
"""Batches: more than a run finishes before it is killed, even on a fast machine, so that it does not end early."""
KILLS_BETWEEN_BATCHES = 0.25
"""Chance of a kill, which does not count, where a batch is finished before the time to kill."""
PROGRAMS = ("copy_as_records_arrive", "copy") if HAS_LIMITS else ("copy_as_records_arrive",)
"""Run by turns with one checkpoint. Where ``availableNow`` is one batch, such a run ends too early to be killed."""


def produce(folder: Path, count: int, copies: int = PARTITIONS) -> Coordinator:
    """Create a cluster with ``count`` records in topic orders, and a topic copies with ``copies`` partitions."""
    log = create_cluster(str(folder))
    log.create_topic("orders", PARTITIONS)
    log.create_topic("copies", copies)
    write_orders(folder, 0, count)
    return log


def write_orders(folder: Path, first: int, count: int) -> None:
    rows = [{"key": f"k{number % 17}", "value": f"v{number}"} for number in range(first, first + count)]
    write_rows(folder, "key string, value string", rows, topic="orders")


def records(folder: Path, topic: str) -> dict[int, list[tuple[bytes, bytes]]]:
    """Return keys and values of each partition in the order of their offsets."""
    partitions: dict[int, list[tuple[bytes, bytes]]] = {number: [] for number in range(PARTITIONS)}
    for row in sorted(read_rows(folder, subscribe=topic), key=lambda row: (row["partition"], row["offset"])):
        partitions.setdefault(row["partition"], []).append((row["key"], row["value"]))
    return partitions


def by_key(partitions: dict[int, list[tuple[bytes, bytes]]]) -> dict[bytes, list[bytes]]:
    """Return the values of each key in order; fail if a key is in two partitions, where it has no order."""
    values: dict[bytes, list[bytes]] = {}
    for partition in partitions.values():
        keys = {key for key, _ in partition}
        assert not keys & values.keys(), "records of one key are in several partitions"
        for key, value in partition:
            values.setdefault(key, []).append(value)
    return values


class CopyQuery:
    """One run of a copy program, in its own process group. It waits for ``start``."""

    def __init__(self, folder: Path, scratch: Path, program: str = "copy") -> None:
        repository = str(Path(__file__).parents[2])
        self.checkpoint = scratch / "checkpoint"
        arguments = [program, str(folder), str(self.checkpoint), str(LIMIT), str(scratch / "spark")]
        self.errors: IO[bytes] = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115  closed by close()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.stream_programs", *arguments],
            cwd=repository,
            env={**os.environ, "PYTHONPATH": repository},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            start_new_session=True,
        )
        self.watchdog = threading.Timer(RUN_SECONDS, self.kill)
        self.watchdog.start()

    def start(self) -> CopyQuery:
        """Let the query begin."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has failed; its exit status shows that
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        return self

    def batches(self, count: int) -> bool:
        """Wait until ``count`` more batches are finished; return False if the query ended before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(b"done"):
                return False
            count -= 1
            if count <= 0:
                return True
        return False

    def finish(self) -> None:
        """Let a query that waits for records end once it has copied those there are."""
        self.start()

    def stop_in_a_batch(self, delay: float) -> bool:
        """Wait for a batch and stop the processes ``delay`` seconds after; if it is finished by then, let them go on
        and return False, as after the query's end."""
        while self.process.poll() is None:
            if not self.in_a_batch():
                time.sleep(0.002)
                continue
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(delay)
                break
            os.killpg(self.process.pid, signal.SIGSTOP)
            if self.in_a_batch():
                return True
            os.killpg(self.process.pid, signal.SIGCONT)
            break
        return False

    def in_a_batch(self) -> bool:
        """Whether the checkpoint has the offsets of a batch that it does not have as committed."""
        return self.last("commits") < self.last("offsets")

    def last(self, log: str) -> int:
        """Return the number of the last batch in a log of the checkpoint, -1 without one."""
        return max(
            (int(path.name) for path in (self.checkpoint / log).glob("[0-9]*") if path.name.isdigit()), default=-1
        )

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> int:
        status = self.process.wait(RUN_SECONDS)
        self.watchdog.cancel()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        self.errors.seek(0)
        self.error_text = self.errors.read().decode(errors="replace")[-3000:]
        self.errors.close()
        return status


def kill_in_a_batch(query: CopyQuery, chance: random.Random, write: Callable[[], None]) -> bool:
    """Kill the query at a random time within a batch, for which records are written, and sometimes between two batches.
    Return whether a batch was cut off, which it is not if the query ended before."""
    longest = LONGEST_DELAY_SECONDS
    stopped = False
    while not stopped and query.process.poll() is None:
        write()
        stopped = query.stop_in_a_batch(chance.uniform(0, longest))
        if stopped or chance.random() < KILLS_BETWEEN_BATCHES:
            with suppress(ProcessLookupError):  # it has ended by itself
                query.kill()
            break
        longest /= 2
    query.close()
    return stopped and query.in_a_batch()


def copy_with_kills(folder: Path, scratch: Path, seed: int, kills: int) -> int:
    """Run a copy query to its end, killing it within a batch ``kills`` times. Return the number of these kills."""
    chance = random.Random(seed)
    steps = itertools.count(BACKLOG)
    programs = itertools.cycle(PROGRAMS)
    killed = 0
    ready = CopyQuery(folder, scratch, next(programs))

    def write() -> None:
        write_orders(folder, next(steps) * LIMIT, LIMIT)

    try:
        for run in range(1, 10 * kills + 2):
            query = ready.start()
            if killed < kills:
                ready = CopyQuery(folder, scratch, next(programs))
                for _ in range(chance.randrange(1, 5)):
                    write()
                    query.batches(1)
                killed += kill_in_a_batch(query, chance, write)
                continue
            query.finish()
            query.batches(sys.maxsize)
            status = query.close()
            assert status == 0, f"seed {seed}, run {run}: {query.error_text}"
            return killed
    finally:
        if ready.process.poll() is None:
            ready.kill()
            ready.close()
    raise AssertionError(f"seed {seed}: the query was killed {killed} times or never finished")


def check_copy(folder: Path, log: Coordinator, seed: int) -> None:
    source, copied = records(folder, "orders"), records(folder, "copies")
    assert copied == source, f"seed {seed}: the copy differs from the source"
    check_group(log, source, seed)


def check_copy_by_key(folder: Path, log: Coordinator, seed: int) -> None:
    """Check a copy into a different number of partitions, which keeps only the order within each key."""
    source, copied = records(folder, "orders"), records(folder, "copies")
    assert by_key(copied) == by_key(source), f"seed {seed}: the copy differs from the source"
    check_group(log, source, seed)


def check_group(log: Coordinator, source: dict[int, list[tuple[bytes, bytes]]], seed: int) -> None:
    """Check that the consumer group's offsets are the end offsets of the source."""
    group = log.refresh().groups["copier"]
    ends = {entry.partition: entry.offset for entry in group.offsets.values()}
    assert ends == {number: len(records) for number, records in source.items()}, f"seed {seed}: the group's offsets"


@pytest.mark.stress
def test_a_killed_query_copies_every_record_once_and_in_order(tmp_path: Path) -> None:
    seed = 20260101
    log = produce(tmp_path / "log", BACKLOG * LIMIT)
    assert copy_with_kills(tmp_path / "log", tmp_path, seed, kills=3) == 3
    check_copy(tmp_path / "log", log, seed)


@pytest.mark.slow
def test_a_query_killed_fifty_times_copies_every_record_once_and_in_order(tmp_path: Path) -> None:
    seed = int(os.environ.get("SPARKLOG_TEST_SEED", "1"))
    log = produce(tmp_path / "log", BACKLOG * LIMIT)
    assert copy_with_kills(tmp_path / "log", tmp_path, seed, kills=50) == 50
    check_copy(tmp_path / "log", log, seed)
