"""Exactly-once while the driver survives: executors of a copy query are killed, and tasks fail or run twice.

Records are copied by key into a topic with a different number of partitions, so the order within each key is kept.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
import pytest

from sparklog.coordinator import Coordinator
from tests.integration.test_stream_exactly_once import LIMIT, CopyQuery, check_copy_by_key, produce

COPIES = 5
LONGEST_DELAY_SECONDS = 1.0

needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds executors through /proc")


def executors_of(driver: int) -> list[int]:
    """Return the executors below a process: the JVMs that a local cluster starts."""
    parents: dict[int, int] = {}
    executors = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                executors.append(int(process.name))
    return [process for process in executors if is_below(driver, process, parents)]


def is_below(ancestor: int, process: int, parents: dict[int, int]) -> bool:
    while process in parents and process != ancestor:
        process = parents[process]
    return process == ancestor


def kill_executors(query: CopyQuery, seed: int, kills: int) -> set[int]:
    """Kill executors one by one, at random times while the query runs. Return which were killed."""
    chance = random.Random(seed)
    killed: set[int] = set()
    while len(killed) < kills and query.batches(chance.randrange(1, 4)):
        with suppress(subprocess.TimeoutExpired):
            query.process.wait(chance.uniform(0, LONGEST_DELAY_SECONDS))
        running = [process for process in executors_of(query.process.pid) if process not in killed]
        if running:
            victim = chance.choice(sorted(running))
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
    return killed


def copy_with_killed_executors(tmp_path: Path, seed: int, kills: int) -> None:
    log = produce(tmp_path / "log", (5 * kills + 5) * LIMIT, COPIES)
    query = CopyQuery(tmp_path / "log", tmp_path, "copy_on_executors").start()
    try:
        killed = kill_executors(query, seed, kills)
        query.batches(sys.maxsize)
    finally:
        status = query.close()
    assert status == 0, f"seed {seed}: {query.error_text}"
    assert len(killed) == kills, f"seed {seed}: the query ended before"
    check_copy_by_key(tmp_path / "log", log, seed)


@needs_proc
@pytest.mark.slow
def test_a_query_whose_executors_are_killed_copies_every_record_once_and_in_order(tmp_path: Path) -> None:
    copy_with_killed_executors(tmp_path, seed=int(os.environ.get("SPARKLOG_TEST_SEED", "20260102")), kills=3)


@pytest.mark.programs
def test_a_query_whose_tasks_fail_after_writing_copies_every_record_once(tmp_path: Path) -> None:
    log = produce(tmp_path / "log", 2 * LIMIT, COPIES)
    before = log.refresh().version
    query = CopyQuery(tmp_path / "log", tmp_path, "copy_with_failing_tasks").start()
    query.batches(sys.maxsize)
    assert query.close() == 0, query.error_text
    check_copy_by_key(tmp_path / "log", log, seed=0)
    assert log.refresh().version == before + batches(tmp_path), "one commit for each batch"
    committed, written = files(log, tmp_path / "log")
    assert committed < written
    assert len(written) == 2 * len(committed), "two attempts of each task, one of them committed"


def batches(scratch: Path) -> int:
    """Return the number of batches that the query has finished."""
    return len(list((scratch / "checkpoint" / "commits").glob("[0-9]*")))


def files(log: Coordinator, folder: Path) -> tuple[set[str], set[str]]:
    """Return the committed files of topic copies, and all stored ones."""
    segments = log.segments("copies", log.refresh())
    committed = {segment.path for number in range(COPIES) for segment in segments.partition(number)}
    return committed, {str(path.relative_to(folder)) for path in folder.glob("copies-*/*.log")}


@pytest.fixture
def two_hosts(tmp_path: Path) -> Iterator[str]:
    """A Spark cluster with workers on two addresses of this machine: speculative tasks run on another host only."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    address = f"spark://127.0.0.1:{port}"
    master = start("master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
    started = [master]
    try:
        assert master.stdout is not None
        assert any(b"elected leader" in line for line in master.stdout), "the master did not start"
        for host in ("127.0.0.1", "127.0.0.2"):
            options = ["--host", host, "--webui-port", "0", "--work-dir", str(tmp_path / f"work-{host}")]
            started.append(start("worker.Worker", *options, "--cores", "1", "--memory", "1g", address))
        yield address
    finally:
        for process in reversed(started):
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def start(daemon: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a daemon of Spark's standalone cluster manager in its own process group."""
    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    return subprocess.Popen(
        [program, f"org.apache.spark.deploy.{daemon}", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


@needs_proc
@pytest.mark.slow
def test_only_one_of_two_attempts_that_have_both_written_is_committed(
    tmp_path: Path, two_hosts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARKLOG_TEST_MASTER", two_hosts)
    log = produce(tmp_path / "log", 3 * LIMIT, COPIES)
    query = CopyQuery(tmp_path / "log", tmp_path, "copy_with_speculation").start()
    query.batches(sys.maxsize)
    assert query.close() == 0, query.error_text
    check_copy_by_key(tmp_path / "log", log, seed=0)
    committed, written = files(log, tmp_path / "log")
    assert committed < written
    assert len(written) == len(committed) + batches(tmp_path), "one uncommitted attempt in each batch"
