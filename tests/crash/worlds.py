"""A cluster in memory with all its storages, reset before each attempt, and the checks after an attempt.

An attempt is a process in which one storage call has one outcome (``sparklog.testing.faults``); its late effects happen
either immediately or after the next process has cleaned up. Checked are: acknowledged records are stored once, others
at most once, every file that the log names exists and is unchanged, and the cluster accepts the next record.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

import pytest

from sparklog.client.producer.futures import FutureRecordMetadata
from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, open_cluster, shared
from sparklog.errors import ClusterMovedError, CorruptionError, SparklogError
from sparklog.log.settings import DEFAULTS, LogSettings
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.gc.sweep import sweep
from sparklog.maintenance.gc.vacuum import vacuum
from sparklog.spark.sink import output
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.store.open import open_store
from sparklog.store.process_local import start_over
from sparklog.testing.faults import KINDS
from sparklog.testing.faulty_store import Call, Fault, FaultyStore, SimulatedCrash, SimulatedInterrupt
from sparklog.testing.substitutes import substituted

SPARK_PATH = "/log"
"""The root in Spark options, which do not accept an in-memory address."""

NOW_MS = 2_000_000_000_000
DAY = 86_400.0
ROOT = "root"
WAIT = 60
"""seconds. No attempt waits that long unless something is broken."""

Partition = tuple[str, int]
Contents = dict[Partition, list[tuple[int, bytes | None]]]


class Expected:
    """What must be stored after an attempt: the records that were sent and acknowledged, and the committed offsets.

    ``once``: whether a record may be stored only once. ``units`` are sets of records of which all or none are stored.
    """

    def __init__(self) -> None:
        self.futures: dict[bytes, tuple[Partition, FutureRecordMetadata]] = {}
        self.units: list[set[bytes]] = []
        self.group_offsets: dict[Partition, int] = {}
        self.once = True
        self.finished = False

    @property
    def acknowledged(self) -> dict[bytes, tuple[Partition, int]]:
        return {
            value: (partition, future.get(0).offset)
            for value, (partition, future) in self.futures.items()
            if future.succeeded()
        }


class Process(NamedTuple):
    """A process in a world, and its view of the storages."""

    world: World
    stores: dict[str, FaultyStore]
    clusters: list[Coordinator]

    @property
    def clock(self) -> ManualClock:
        return self.world.clock

    def open(self, settings: LogSettings = DEFAULTS) -> Coordinator:
        self.clusters.append(open_cluster(self.stores[ROOT], clock=self.clock, settings=settings))
        return self.clusters[-1]


Run = Callable[[Process, Expected], object]
Check = Callable[["World", Coordinator, Expected], object]


class Operation(NamedTuple):
    """An operation of the project. ``locations`` are the storages at which faults are injected.

    ``prepare`` creates the cluster; ``recover`` is what an operator does after a failure. ``keeps`` says whether
    existing records stay unchanged.
    """

    prepare: Callable[[Process], object]
    run: Run
    locations: tuple[str, ...] = (ROOT,)
    check: Check = lambda world, cluster, expected: None
    recover: Callable[[Process], object] = lambda process: None
    keeps: bool = True


class World:
    """The storages of one cluster by name, all in one memory space. Not thread-safe."""

    def __init__(self, operation: Operation, locations: tuple[str, ...] = (ROOT, "1", "2", "3", "mirror")) -> None:
        self.operation = operation
        self.locations = locations
        self._name = uuid.uuid4().hex
        self.clock = ManualClock(NOW_MS)
        self.main = ROOT
        self._space = self.store(ROOT).space
        with self.process() as process:
            operation.prepare(process)
        self._objects = dict(self._space.objects)
        self._prepared_ms = self.clock.now_ms()
        self.before = self.records() if self._objects else {}

    def forget(self) -> None:
        forget_space(self._name)

    def store(self, location: str) -> MemoryStore:
        return MemoryStore(f"{self._name}/{location}", self.clock)

    def url(self, location: str) -> str:
        return self.store(location).root

    def reset(self) -> None:
        self._space.objects.clear()
        self._space.objects.update(self._objects)
        self.clock.advance(-self.clock.monotonic())
        self.clock.set_ms(self._prepared_ms)
        self.main = ROOT

    @contextmanager
    def process(self, location: str = ROOT, fault: Fault | None = None) -> Iterator[Process]:
        """A process that has opened nothing yet; every address it opens is a storage of this world."""
        faults = [] if fault is None else [fault]
        stores = {name: FaultyStore(self.store(name), faults if name == location else []) for name in self.locations}
        with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
            for store in stores.values():
                stack.enter_context(substituted(store))
            start_over()
            patch.setattr(shared, "open_store", lambda url, options: opened(url, stores[ROOT], options))
            patch.setattr(shared, "open_cluster", lambda store, options: open_cluster(store, options, self.clock))
            patch.setattr(output, "FINISH_THREADS", 1)  # a step is the same in every run
            yield Process(self, stores, [])

    def opened(self) -> Coordinator:
        return open_cluster(self.store(self.main), clock=self.clock)

    def records(self) -> Contents:
        """Return every record of every partition, read and verified through a new coordinator."""
        cluster = self.opened()
        contents: Contents = {}
        with LogReader(cluster) as reader:
            for topic in cluster.state.topics.values():
                for number, partition in enumerate(topic.partitions):
                    read = reader.records(topic.name, number, partition.log_start_offset, partition.log_end_offset)
                    contents[topic.name, number] = [(record.offset, record.value) for record in read]
        return contents

    # -- attempts

    def steps(self, location: str) -> list[Call]:
        """Return the calls that the operation makes at a location without faults."""
        self.reset()
        expected = Expected()
        with self.process(location) as process:
            self.operation.run(process, expected)
            calls = list(process.stores[location].calls)
        with self.process() as process:
            self.operation.recover(process)
        expected.finished = True
        self.check(expected, "without a fault")
        return calls

    def attempt(self, location: str, fault: Fault, late_first: bool) -> None:
        """Run and check one attempt. ``late_first``: late effects happen before any process continues."""
        self.reset()
        expected = Expected()
        with self.process(location, fault) as process:
            with suppress(SparklogError, SimulatedCrash, SimulatedInterrupt):
                self.operation.run(process, expected)
                expected.finished = True
            store = process.stores[location]
            store.reopen()
            if KINDS[fault.kind].interrupts:
                if late_first:
                    store.settle()
                for cluster in process.clusters:
                    self._check_usable(
                        cluster, f"{fault} at {location}, late effects {'first' if late_first else 'last'}"
                    )
        if late_first:
            store.settle()
        with self.process() as process:
            self.operation.recover(process)
        if not late_first:
            self._clean_up()
            store.settle()
        self.check(expected, f"{fault} at {location}, {'late effects first' if late_first else 'late effects last'}")

    def attempt_torn(self, location: str, fault: Fault) -> None:
        """Run one attempt with a write that is cut in half: it is either harmless or detected."""
        self.reset()
        expected = Expected()
        with self.process(location, fault) as process:
            with suppress(SparklogError, SimulatedCrash):
                self.operation.run(process, expected)
                expected.finished = True
            process.stores[location].reopen()
        where = f"{fault} at {location}"
        try:
            with self.process() as process:
                self.operation.recover(process)
            self.check(expected, where)
        except CorruptionError:
            pass  # detected
        except (AssertionError, SparklogError) as error:
            if not isinstance(error.__cause__, CorruptionError) and not self._is_detected():
                raise

    def _is_detected(self) -> bool:
        """Whether fsck finds it, or a location is offline since it does not say readably whose it is."""
        try:
            with self.process():
                if not all(broker.online for broker in self.opened().state.brokers.values()):
                    return True
                return not check_cluster(self.store(self.main), clock=self.clock).report.clean
        except SparklogError:
            return True

    def _clean_up(self) -> None:
        """Run the garbage collection of nine days later: it deletes orphans, and no commit can name them any more."""
        self.clock.advance(9 * DAY)
        with self.process():
            cluster = self.opened()
            sweep(cluster)
            vacuum(cluster, dry_run=False)

    # -- checks

    def check(self, expected: Expected, where: str) -> None:
        contents = self.records()
        if self.operation.keeps:
            for partition, records in self.before.items():
                assert contents[partition][: len(records)] == records, f"{where}: {partition} lost old records"
        counts = Counter(value for records in contents.values() for _, value in records)
        for value, (partition, offset) in expected.acknowledged.items():
            assert offset < 0 or (offset, value) in contents[partition], f"{where}: acknowledged {value!r} is lost"
            assert counts[value] >= 1, f"{where}: acknowledged {value!r} is lost"
        for value in expected.futures if expected.once else ():
            assert counts[value] <= 1, f"{where}: {value!r} is stored {counts[value]} times"
        for unit in expected.units:
            assert len({counts[value] for value in unit}) <= 1, f"{where}: only a part of {sorted(unit)} is stored"
        cluster = self.opened()
        for (group, number), offset in expected.group_offsets.items():
            committed = {entry.partition: entry.offset for entry in cluster.state.groups[group].offsets.values()}
            assert committed.get(number, -1) >= offset, f"{where}: an acknowledged offset of {group} is lost"
        self.operation.check(self, cluster, expected)
        with self.process():
            report = check_cluster(self.store(self.main), clock=self.clock).report
        assert report.clean, f"{where}: {[finding.message for finding in report.findings]}"
        self._append_one(where)

    def _check_usable(self, cluster: Coordinator, where: str) -> None:
        """Check that open objects work after an interrupt and agree with the storage. Late effects may happen between
        two reads, so only states of the same version are compared."""
        try:
            state = cluster.refresh()
        except ClusterMovedError:
            return
        newest = self.opened()
        if state.version == newest.state.version:
            assert state == newest.state, f"{where}: its state differs from the stored one"
            for name, topic in state.topics.items():
                own, fresh = cluster.segments(name, state), newest.segments(name, newest.state)
                for number in range(len(topic.partitions)):
                    paths = [run.path for run in own.partition(number)]
                    assert paths == [run.path for run in fresh.partition(number)], (
                        f"{where}: its segment lists differ from the stored ones"
                    )
        if "further" not in state.topics:
            cluster.create_topic("further", assignment=[[0]])  # at the root only: other locations come and go
        self._append_one(f"{where}, by the same objects", cluster)

    def _append_one(self, where: str, cluster: Coordinator | None = None) -> None:
        cluster = cluster or self.opened()
        if "further" not in cluster.state.topics:
            cluster.create_topic("further")
        with Producer(cluster=cluster) as producer:
            offset = producer.send("further", b"further").get(WAIT).offset
        assert self.records()["further", 0][-1] == (offset, b"further"), (
            f"{where}: another record could not be appended"
        )


def opened(url: str, root: FaultyStore, options: Mapping[str, object] | None) -> Store:
    """Return the store of an address, ``root`` for that in Spark options."""
    return root if url == SPARK_PATH else open_store(url, options)
