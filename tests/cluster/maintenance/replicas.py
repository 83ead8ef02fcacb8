"""A cluster whose replicas are in folders, for the tests of replication and of failing locations."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import create_cluster
from sparklog.coordinator.brokers import add_broker
from sparklog.coordinator.controller import Controller
from sparklog.protocol.state import PartitionState
from sparklog.store.open import open_store

TOPIC = "orders"


class Replicas:
    """A root and locations beside it, topic orders on brokers 1 and 2 (led by 1), and a controller."""

    def __init__(self, folder: Path, locations: int = 2, assignment: Sequence[Sequence[int]] = ((1, 2),)) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.cluster = create_cluster(open_store(str(folder / "root")), clock=self.clock)
        for number in range(1, locations + 1):
            add_broker(self.cluster, str(self.disk(number)))
        self.cluster.create_topic(TOPIC, assignment=[list(replicas) for replicas in assignment])
        self.controller = Controller(self.cluster)
        self.sent: dict[int, list[bytes]] = {number: [] for number in range(len(assignment))}

    def disk(self, number: int) -> Path:
        return self.folder / f"disk{number}"

    def away(self, number: int) -> Path:
        return self.folder / f"away{number}"

    def unmount(self, number: int) -> None:
        self.disk(number).rename(self.away(number))

    def mount(self, number: int) -> None:
        self.away(number).rename(self.disk(number))

    def copy_of(self, number: int) -> Path:
        """Copy a location in its current state."""
        copy = self.folder / f"copy{number}"
        shutil.copytree(self.disk(number), copy)
        return copy

    def put_back(self, copy: Path, number: int) -> None:
        """Replace a location with an older copy."""
        shutil.rmtree(self.disk(number))
        copy.rename(self.disk(number))

    def partition(self, number: int = 0) -> PartitionState:
        return self.cluster.refresh().partition(TOPIC, number)

    def produce(self, count: int = 3, number: int = 0, **config: Any) -> None:
        """Produce this many acknowledged records, each in its own file."""
        for _ in range(count):
            value = f"{number}:{len(self.sent[number])}".encode()
            with Producer(cluster=self.cluster, **config) as producer:
                producer.send(TOPIC, value, partition=number).get(10)
            self.sent[number].append(value)

    def read(self, number: int = 0) -> list[bytes | None]:
        with LogReader(self.cluster) as reader:
            state = self.cluster.refresh()
            partition = state.partition(TOPIC, number)
            records = reader.records(TOPIC, number, partition.log_start_offset, partition.log_end_offset, state)
            return [record.value for record in records]

    def files(self, number: int) -> dict[str, bytes]:
        """The segment files of a location."""
        return {
            str(path.relative_to(self.disk(number))): path.read_bytes()
            for path in sorted(self.disk(number).rglob("*"))
            if path.suffix in (".log", ".index")
        }

    def live_paths(self, number: int = 0) -> Iterator[str]:
        for segment in self.cluster.segments(TOPIC).partition(number):
            yield segment.path


def truncate(path: Path) -> None:
    """Keep the first half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
