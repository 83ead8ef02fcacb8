"""The files that readers keep open: how many, which are closed first, and what happens when the system has no more."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sparklog.coordinator import create_cluster
from sparklog.log.records.open_files import FEWEST_FILES, FileBudget, OpenFiles
from sparklog.testing.records import Record, append_records

CONSUME = """
import resource, sys
from sparklog import Consumer
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)
consumers = [
    Consumer("t", bootstrap_servers=sys.argv[1], auto_offset_reset="earliest", **{more}) for _ in range(5)
]
counts = [0] * 5
while min(counts) < 200:
    for number, consumer in enumerate(consumers):
        counts[number] += sum(map(len, consumer.poll(20).values()))
print(counts)
"""


class File:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def opened(reader: OpenFiles[File], path: str) -> File:
    with reader.lock:
        reader.make_room()
        file = File()
        reader.add(path, file)
        return file


@pytest.fixture
def budget() -> FileBudget:
    return FileBudget(most=FEWEST_FILES)


def test_readers_share_one_limit_and_close_the_least_recently_used_files(
    budget: FileBudget,
) -> None:
    first, second = OpenFiles[File](budget), OpenFiles[File](budget)
    files = [opened(first, str(number)) for number in range(FEWEST_FILES)]
    with first.lock:
        assert first.get("0") is files[0]
    opened(second, "a")
    opened(second, "b")
    assert (len(first), len(second)) == (FEWEST_FILES - 2, 2)
    assert [number for number, file in enumerate(files) if file.closed] == [1, 2]


def test_files_of_a_reader_that_is_reading_are_kept_open(budget: FileBudget) -> None:
    busy, other = OpenFiles[File](budget), OpenFiles[File](budget)
    files = [opened(busy, str(number)) for number in range(FEWEST_FILES)]
    with busy.lock:
        thread = threading.Thread(target=lambda: [opened(other, name) for name in "abc"])
        thread.start()
        thread.join()
    assert not any(file.closed for file in files)
    assert len(other) == 1  # only its own files could be closed
    opened(other, "d")
    assert len(busy) + len(other) == FEWEST_FILES


def test_a_refused_file_halves_the_open_files_and_the_limit_for_a_while() -> None:
    budget = FileBudget()
    reader = OpenFiles[File](budget)
    for number in range(4 * FEWEST_FILES):
        opened(reader, str(number))
    with reader.lock:
        assert reader.spare()
    assert len(reader) == budget.limit == 2 * FEWEST_FILES
    for number in range(FEWEST_FILES):
        opened(reader, f"more {number}")
    assert len(reader) == 3 * FEWEST_FILES - 1
    assert budget.limit == 3 * FEWEST_FILES
    with reader.lock:
        reader.drop_all()
        assert not reader.spare()


def test_files_of_deleted_readers_do_not_count(budget: FileBudget) -> None:
    opened(OpenFiles[File](budget), "a")
    reader = OpenFiles[File](budget)
    for number in range(FEWEST_FILES):
        opened(reader, str(number))
    assert len(reader) == FEWEST_FILES


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A topic of 200 records, each in its own file."""
    cluster = create_cluster(str(tmp_path))
    cluster.create_topic("t")
    for number in range(200):
        append_records(cluster, "t", [Record(value=b"%d" % number)])
    return str(tmp_path)


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("descriptors", "more"), [("128", "{}"), ("70", "{'max_partition_fetch_bytes': 1}")])
def test_many_consumers_of_a_process_read_many_files_with_few_descriptors(
    root: str, descriptors: str, more: str
) -> None:
    """Each consumer would keep more files open than the process may have."""
    assert run(CONSUME.replace("{more}", more), root, descriptors) == f"{[200] * 5}\n"


def test_a_consumer_waits_while_no_descriptors_are_free(root: str) -> None:
    program = """
import os, resource, sys
from sparklog import Consumer
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
consumer = Consumer(
    "t", bootstrap_servers=sys.argv[1], auto_offset_reset="earliest", max_partition_fetch_bytes=1, max_poll_records=10
)
count = 0
def poll():
    global count
    count += sum(map(len, consumer.poll(50).values()))
while not count: poll()
descriptors = []
try:
    while True: descriptors.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for _ in range(10): poll()
print(count < 200)
for file in descriptors: os.close(file)
while count < 200: poll()
print(count)
"""
    assert run(program, root) == "True\n200\n"
