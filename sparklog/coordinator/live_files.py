"""The files that hold live segments, and the brokers at which they may be needed: what no garbage collection deletes.

A file may hold runs of several partitions. It may be needed at every broker that is, was or becomes a replica of one of
them, and at the one it was written to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from sparklog.coordinator import Coordinator
from sparklog.log.segments import PartitionSegments, TopicSegments
from sparklog.protocol.state import PartitionState, State


class LivePartition(NamedTuple):
    """A partition and its live segments."""

    topic: str
    number: int
    state: PartitionState
    segments: PartitionSegments

    def with_replica(self, broker: int) -> LivePartition:
        """Return the partition as if a broker were one of its replicas."""
        return self._replace(state=replace(self.state, replicas=(*self.state.replicas, broker)))


def live_partitions(state: State, lists: Mapping[str, TopicSegments]) -> Iterator[LivePartition]:
    """Return the partitions of the topics whose segment lists are given. Raises CorruptMetadataError for a list that is
    not as long as the state says."""
    for name, listed in lists.items():
        for number, partition in enumerate(state.topics[name].partitions):
            yield LivePartition(name, number, partition, listed.partition(number))


def read_live_partitions(coordinator: Coordinator, state: State) -> Iterator[LivePartition]:
    """Return the partitions of all topics that have segments, with one topic's list in memory at a time."""
    for topic in state.topics_in_order():
        if any(partition.segments for partition in topic.partitions):
            yield from live_partitions(state, {topic.name: coordinator.segments(topic.name, state)})


def find_live(coordinator: Coordinator, paths: Collection[str]) -> LiveFiles:
    """Return those of these files that are live in the newest state. Raises StorageError, CorruptMetadataError."""
    return LiveFiles(read_live_partitions(coordinator, coordinator.refresh()), paths)


class AddedFile(NamedTuple):
    """A live ``.log`` that a commit added: the brokers that should have it, and bytes that it has at least."""

    path: str
    brokers: frozenset[int]
    size_bytes: int


class LiveFiles:
    """The ``.log`` files with live segments of these partitions; with ``paths`` only those among them. Immutable.

    ``commits`` are numbers of commits; ``added_by`` returns the live files that one of them added.
    """

    def __init__(
        self, partitions: Iterable[LivePartition], paths: Collection[str] | None = None, commits: Collection[int] = ()
    ) -> None:
        self._replicas: dict[str, frozenset[int]] = {}
        self._written: set[tuple[str, int]] = set()
        self._added: dict[int, dict[str, AddedFile]] = {}
        versions = pa.array(sorted(commits), pa.int64()) if commits else None
        wanted = None if paths is None else pa.array(sorted(paths), pa.string())
        for partition in partitions if paths is None or paths or commits else ():
            state = partition.state
            replicas = frozenset((*state.replicas, *state.isr, *state.adding, *state.removing))
            for table in partition.segments.tables():
                if versions is not None:
                    self._add_added(table.filter(pc.is_in(table.column("version"), value_set=versions)), replicas)
                rows = table.select(["path", "broker"])
                if wanted is not None:
                    rows = rows.filter(pc.is_in(rows.column("path"), value_set=wanted))
                for path, broker in zip(*(column.to_pylist() for column in rows.columns), strict=True):
                    self._add(path, broker, replicas)

    def _add_added(self, rows: pa.RecordBatch, replicas: frozenset[int]) -> None:
        columns = (rows.column(name).to_pylist() for name in ("version", "path", "broker", "size_bytes"))
        for version, path, broker, size_bytes in zip(*columns, strict=True):
            added = self._added.setdefault(version, {})
            before = added.get(path, AddedFile(path, frozenset(), 0))
            added[path] = AddedFile(path, before.brokers | replicas | {broker}, before.size_bytes + size_bytes)

    def added_by(self, commit: int) -> list[AddedFile]:
        """Return the live files that one of ``commits`` added."""
        return list(self._added.get(commit, {}).values())

    def _add(self, path: str, broker: int, replicas: frozenset[int]) -> None:
        present = self._replicas.get(path)
        if present is None or not replicas <= present:
            self._replicas[path] = replicas if present is None else present | replicas
        if broker not in replicas:
            self._written.add((path, broker))

    def __contains__(self, path: str) -> bool:
        return path in self._replicas

    @property
    def paths(self) -> Collection[str]:
        return self._replicas.keys()

    def may_need(self, path: str, broker: int) -> bool:
        """Whether a file may be needed at a broker."""
        return broker in self._replicas.get(path, ()) or (path, broker) in self._written

    def without_replica(self, broker: int) -> set[str]:
        """Return the files of which no partition has a replica at a broker."""
        return {path for path, replicas in self._replicas.items() if broker not in replicas}
