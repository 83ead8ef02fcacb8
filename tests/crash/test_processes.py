"""Real processes on one local cluster, racing and killed with SIGKILL at random times."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.log.records.fetch import Fetcher

WORKER = Path(__file__).with_name("append_worker.py")


def start(root: str, name: str, seconds: float) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKER), root, "t", name, str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def read_all(coordinator: Coordinator) -> list[tuple[int, str]]:
    state = coordinator.refresh()
    end = state.partition("t", 0).log_end_offset
    fetcher = Fetcher(lambda broker: coordinator.store)
    stored: list[tuple[int, str]] = []
    for records in fetcher.read("t", coordinator.segments("t", state).partition(0), 0, end, ["value"]):
        values = records.batch.column(0).to_pylist()
        stored += [(offset, value.decode()) for offset, value in zip(records.all_offsets(), values, strict=True)]
    fetcher.close()
    return stored


def acknowledged(name: str, output: str) -> dict[int, str]:
    """Return the acknowledged values by offset. A last line that was cut by a kill does not count."""
    values: dict[int, str] = {}
    for line in output.splitlines(keepends=True):
        if line.endswith("\n"):
            base, number, count = map(int, line.split())
            values.update({base + i: f"{name}-{number + i}" for i in range(count)})
    return values


def check_offsets(records: list[tuple[int, str]]) -> None:
    assert [offset for offset, _ in records] == list(range(len(records))), "offsets are not contiguous"
    assert len({value for _, value in records}) == len(records), "a record is stored twice"


@pytest.mark.stress
@pytest.mark.parametrize("seconds", [30])
def test_16_processes_appending_to_one_partition_get_contiguous_offsets_without_duplicates(
    tmp_path: Path, seconds: int
) -> None:
    root = str(tmp_path / "cluster")
    create_cluster(root).create_topic("t")
    workers = {f"w{number}": start(root, f"w{number}", seconds) for number in range(16)}
    all_acknowledged: dict[int, str] = {}
    for name, process in workers.items():
        output, errors = process.communicate(timeout=seconds + 120)
        assert process.returncode == 0, errors
        mine = acknowledged(name, output)
        assert mine, f"{name} committed nothing"
        assert not all_acknowledged.keys() & mine.keys(), "two processes got the same offset"
        all_acknowledged.update(mine)
    records = read_all(open_cluster(root))
    check_offsets(records)
    assert dict(records) == all_acknowledged


@pytest.mark.stress
def test_processes_killed_at_random_lose_no_acknowledged_record_and_leave_no_partial_append(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    root = str(tmp_path / "cluster")
    create_cluster(root).create_topic("t")
    all_acknowledged: dict[int, str] = {}
    for round_number in range(5):
        workers = {f"r{round_number}w{n}": start(root, f"r{round_number}w{n}", 20) for n in range(3)}
        for process in workers.values():  # every worker has appended before the first is killed
            assert process.stdout is not None
        heads = {name: process.stdout.readline() for name, process in workers.items() if process.stdout}
        for name, process in workers.items():
            time.sleep(chance.uniform(0, 0.2))
            process.kill()
            output, _ = process.communicate(timeout=60)
            all_acknowledged.update(acknowledged(name, heads[name] + output))
    coordinator = open_cluster(root)
    records = read_all(coordinator)
    check_offsets(records)
    assert all_acknowledged.items() <= dict(records).items(), f"seed {seed}: an acknowledged record is missing"
    numbers: dict[str, list[int]] = {}
    for _, value in records:
        name, number = value.split("-")
        numbers.setdefault(name, []).append(int(number))
    assert all(appended == list(range(len(appended))) for appended in numbers.values()), (
        f"seed {seed}: a partial append"
    )
    assert coordinator.create_topic("still-works")
