"""Real producers on one local cluster, racing and killed with SIGKILL at random times."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sparklog.client.reader import LogReader
from sparklog.coordinator import Coordinator, create_cluster, open_cluster

WORKER = Path(__file__).with_name("producer_worker.py")


def start(mode: str, root: str, name: str, seconds: float, output_file: Path | None = None) -> subprocess.Popen[str]:
    """Start a worker, which prints to a pipe or to this file; a file keeps what was written before a kill."""
    command = [sys.executable, str(WORKER), mode, root, name, str(seconds)]
    if output_file is None:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with output_file.open("w") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True)


def read_all(coordinator: Coordinator, topic: str) -> list[str]:
    end = coordinator.refresh().partition(topic, 0).high_watermark
    with LogReader(coordinator) as reader:
        return [(record.value or b"").decode() for record in reader.records(topic, 0, 0, end)]


def acknowledged(output: str) -> dict[int, int]:
    """Return the offset of each number. A last line that was cut by a kill does not count."""
    lines = [line.split() for line in output.splitlines(keepends=True) if line.endswith("\n")]
    return {int(number): int(offset) for number, offset in lines}


def check(stored: list[str], acknowledged_offsets: dict[str, dict[int, int]], seed: int) -> None:
    """Check that each producer's records are stored once, in order, without gaps, and at their acknowledged offsets."""
    numbers: dict[str, list[int]] = {}
    for value in stored:
        name, number = value.split("-")
        numbers.setdefault(name, []).append(int(number))
    for name, sequence in numbers.items():
        assert sequence == list(range(len(sequence))), f"seed {seed}: records of {name} are not once and in order"
    for name, offsets in acknowledged_offsets.items():
        for sent, offset in offsets.items():
            assert stored[offset] == f"{name}-{sent}", f"seed {seed}: an acknowledged record is at another offset"


@pytest.mark.parametrize("mode", ["records", "transactions"])
def test_producers_killed_at_random_lose_no_acknowledged_record_and_write_no_duplicate(
    tmp_path: Path, mode: str
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    root = str(tmp_path / "cluster")
    coordinator = create_cluster(root)
    coordinator.create_topic("t")
    coordinator.create_topic("u")
    acknowledged_offsets: dict[str, dict[int, int]] = {}
    for round_number in range(3):
        names = [f"r{round_number}w{n}" for n in range(3)]
        workers = {name: start(mode, root, name, 60, tmp_path / name) for name in names}
        for name, process in workers.items():
            while not acknowledged((tmp_path / name).read_text()):
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
        for name, process in workers.items():
            time.sleep(chance.uniform(0, 0.3))  # the time of the kill is what varies
            process.kill()
            _, errors = process.communicate(timeout=60)
            assert not errors, errors
            acknowledged_offsets[name] = acknowledged((tmp_path / name).read_text())
            assert acknowledged_offsets[name]
    stored = read_all(open_cluster(root), "t")
    check(stored, acknowledged_offsets, seed)
    if mode == "transactions":
        assert read_all(open_cluster(root), "u") == stored, f"seed {seed}: a partial transaction"


def test_a_process_that_exits_without_closing_its_producer_has_sent_its_records(tmp_path: Path) -> None:
    root = str(tmp_path / "cluster")
    create_cluster(root).create_topic("t")
    program = (
        "import sys; from sparklog.client.producer.producer import Producer\n"
        "producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)\n"
        "for number in range(10): producer.send('t', b'%d' % number)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, root], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert read_all(open_cluster(root), "t") == [str(number) for number in range(10)]
