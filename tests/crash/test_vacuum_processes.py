"""Real processes suspended by SIGSTOP during a roll, a sweep and a vacuum: a stalled writer gets an error or commits
safely, no acknowledged record is lost, and a reader continues without an error."""

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
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.maintenance.runner import InProcess
from sparklog.maintenance.segments.retention import retain
from sparklog.maintenance.segments.roll import roll

WORKER = Path(__file__).with_name("vacuum_worker.py")


@pytest.fixture
def coordinator(tmp_path: Path) -> Coordinator:
    """Topic t with 8 files of one record each."""
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
def suspended(coordinator: Coordinator, mode: str) -> Iterator[subprocess.Popen[str]]:
    """Start a worker and wait until it has suspended itself; it is resumed after the block."""
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


def read_output(process: subprocess.Popen[str]) -> list[tuple[str, str]]:
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return [(first, second) for first, second in (line.split() for line in output.splitlines())]


def values(root: str) -> list[str]:
    coordinator = open_cluster(root)
    partition = coordinator.state.partition("t", 0)
    with LogReader(coordinator) as reader:
        records = reader.records("t", 0, partition.log_start_offset, partition.log_end_offset)
        return [(record.value or b"").decode() for record in records]


def collect_all_garbage(coordinator: Coordinator) -> None:
    """Run everything that deletes files, as if a long time had passed."""
    roll(coordinator, InProcess())
    retain(coordinator)
    time.sleep(0.01)  # a listing is due from the millisecond of its commit
    sweep(coordinator)
    vacuum(coordinator, older_than_ms=0, dry_run=False, force=True)


@pytest.mark.parametrize(("mode", "error"), [("append", "StaleWriteError"), ("unfinished", "StorageError")])
def test_a_writer_suspended_during_a_vacuum_is_refused_and_the_log_stays_intact(
    coordinator: Coordinator, mode: str, error: str
) -> None:
    with suspended(coordinator, mode) as process:
        time.sleep(0.01)
        collect_all_garbage(coordinator)
    assert read_output(process) == [("refused", error)]
    assert values(coordinator.store.root) == [str(number) for number in range(8)]
    second_vacuum = vacuum(coordinator, older_than_ms=0, dry_run=False, force=True)
    assert values(coordinator.store.root) == [str(number) for number in range(8)]
    assert second_vacuum.problems == []


def test_a_writer_suspended_while_its_files_are_too_young_to_delete_commits_safely(coordinator: Coordinator) -> None:
    with suspended(coordinator, "append") as process:
        roll(coordinator, InProcess())
        time.sleep(0.01)
        sweep(coordinator)
        vacuum(coordinator, dry_run=False)
    assert read_output(process) == [("8", "late")]
    assert values(coordinator.store.root) == [*(str(number) for number in range(8)), "late"]


def test_a_producer_suspended_during_a_vacuum_retries_and_loses_no_acknowledged_record(
    coordinator: Coordinator,
) -> None:
    with suspended(coordinator, "produce") as process:
        time.sleep(0.01)
        collect_all_garbage(coordinator)
        produce(coordinator, range(8, 10))
    acknowledged = read_output(process)
    stored = values(coordinator.store.root)
    assert len(acknowledged) == 10
    for offset, value in acknowledged:
        assert stored[int(offset)] == value
    assert sorted(stored) == sorted({*stored})
    collect_all_garbage(coordinator)
    assert values(coordinator.store.root) == stored


@pytest.mark.parametrize("mode", ["consume", "scan"])
def test_a_reader_suspended_while_its_files_are_rolled_and_deleted_continues(
    coordinator: Coordinator, mode: str
) -> None:
    with suspended(coordinator, mode) as process:
        old = {info.key for info in coordinator.store.list("t-0/")}
        collect_all_garbage(coordinator)
        assert not old & {info.key for info in coordinator.store.list("t-0/")}
        produce(coordinator, range(8, 10))
    assert read_output(process) == [(str(number), str(number)) for number in range(8)]
