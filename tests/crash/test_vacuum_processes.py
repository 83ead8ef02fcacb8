"""Real processes stopped by SIGSTOP across a roll, a sweep and a vacuum: a writer that goes on later gets an error or
commits safely, and no record that was acknowledged is lost; a reader goes on without one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.maintenance.gc.orphans import vacuum
from sparklog.maintenance.gc.retired_files import sweep
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll

WORKER = Path(__file__).with_name("vacuum_worker.py")


@pytest.fixture
def coordinator(tmp_path: Path) -> Coordinator:
    """Topic t with 8 files of a record each."""
    coordinator = create_cluster(str(tmp_path / "cluster"))
    coordinator.create_topic("t", configs={"file.delete.delay.ms": "0", "internal.segment.bytes": "100000"})
    produce(coordinator, range(8))
    return coordinator


def produce(coordinator: Coordinator, numbers: range) -> None:
    with Producer(cluster=coordinator) as producer:
        for number in numbers:
            producer.send("t", b"%d" % number)
            producer.flush()


@contextmanager
def stopped(coordinator: Coordinator, mode: str) -> Iterator[subprocess.Popen[str]]:
    """A worker that has stopped itself; the block is what happens meanwhile. It goes on and ends afterwards."""
    command = [sys.executable, str(WORKER), mode, coordinator.store.root]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"the worker ended: {process.stderr.read() if process.stderr else ''}"
        yield process
    except BaseException:
        process.kill()
        raise
    process.send_signal(signal.SIGCONT)


def told(process: subprocess.Popen[str]) -> list[tuple[str, str]]:
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return [(first, second) for first, second in (line.split() for line in output.splitlines())]


def values(root: str) -> list[str]:
    coordinator = open_cluster(root)
    held = coordinator.state.partition("t", 0)
    with LogReader(coordinator) as reader:
        found = reader.records("t", 0, held.log_start_offset, held.log_end_offset)
        return [(record.value or b"").decode() for record in found]


def clean_everything(coordinator: Coordinator) -> None:
    """All that takes files away, as if a long time had passed."""
    roll(coordinator, InProcess())
    retain(coordinator)
    time.sleep(0.01)  # commits are a millisecond apart, and a listing is due from its commit's on
    sweep(coordinator)
    vacuum(coordinator, older_than_ms=0, dry_run=False, force=True)


@pytest.mark.parametrize(("mode", "error"), [("append", "StaleWriteError"), ("unfinished", "StorageError")])
def test_a_writer_stopped_across_a_vacuum_is_refused_and_the_log_is_whole(
    coordinator: Coordinator, mode: str, error: str
) -> None:
    with stopped(coordinator, mode) as process:
        time.sleep(0.01)
        clean_everything(coordinator)
    assert told(process) == [("refused", error)]
    assert values(coordinator.store.root) == [str(number) for number in range(8)]
    again = vacuum(coordinator, older_than_ms=0, dry_run=False, force=True)
    assert values(coordinator.store.root) == [str(number) for number in range(8)]
    assert again.problems == []


def test_a_writer_stopped_across_everything_but_a_vacuum_commits_safely(coordinator: Coordinator) -> None:
    with stopped(coordinator, "append") as process:
        roll(coordinator, InProcess())
        time.sleep(0.01)
        sweep(coordinator)
        vacuum(coordinator, dry_run=False)
    assert told(process) == [("8", "late")]
    assert values(coordinator.store.root) == [*(str(number) for number in range(8)), "late"]


def test_a_producer_stopped_across_a_vacuum_writes_again_and_loses_nothing_it_acknowledged(
    coordinator: Coordinator,
) -> None:
    with stopped(coordinator, "produce") as process:
        time.sleep(0.01)
        clean_everything(coordinator)
        produce(coordinator, range(8, 10))
    acknowledged = told(process)
    found = values(coordinator.store.root)
    assert len(acknowledged) == 10
    for offset, value in acknowledged:
        assert found[int(offset)] == value
    assert sorted(found) == sorted({*found})
    clean_everything(coordinator)
    assert values(coordinator.store.root) == found


@pytest.mark.parametrize("mode", ["consume", "scan"])
def test_a_reader_stopped_while_its_files_are_merged_and_deleted_reads_on(coordinator: Coordinator, mode: str) -> None:
    with stopped(coordinator, mode) as process:
        old = {info.key for info in coordinator.store.list("t-0/")}
        clean_everything(coordinator)
        assert not old & {info.key for info in coordinator.store.list("t-0/")}
        produce(coordinator, range(8, 10))
    assert told(process) == [(str(number), str(number)) for number in range(8)]
