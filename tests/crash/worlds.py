"""A cluster in memory with all its storages, put back to how it was before each try, and what must hold after any.

A try is a process in which one call of one storage comes to one outcome (``sparklog.testing.faults``); what was still
under way then may land at once, or after the next process has cleaned up. What must hold: what a client was told to be
in the log is there once, what it was not told of is there once at most, every file that the log names is there and as
it was written, and the cluster takes the next record.
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
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.gc.orphans import vacuum
from sparklog.maintenance.gc.retired_files import sweep
from sparklog.spark.sink import output
from sparklog.store.base import Store
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.store.open import open_store
from sparklog.store.process_local import start_over
from sparklog.testing.faults import KINDS
from sparklog.testing.faulty_store import Call, Fault, FaultyStore, SimulatedCrash, SimulatedInterrupt
from sparklog.testing.substitutes import substituted

SPARK_PATH = "/log"
"""The root as Spark's options name it, which take no address in memory."""

NOW_MS = 2_000_000_000_000
DAY = 86_400.0
ROOT = "root"
WAIT = 60
"""seconds. No try waits that long unless something is broken."""

Place = tuple[str, int]
Found = dict[Place, list[tuple[int, bytes | None]]]


class Told:
    """What the process was told: records it tried to write, those acknowledged with their offsets, offsets of groups.

    ``once``: whether a record may be there only once. ``units`` are records of which all are there or none.
    """

    def __init__(self) -> None:
        self.futures: dict[bytes, tuple[Place, FutureRecordMetadata]] = {}
        self.units: list[set[bytes]] = []
        self.group_offsets: dict[Place, int] = {}
        self.once = True
        self.finished = False

    @property
    def acknowledged(self) -> dict[bytes, tuple[Place, int]]:
        return {
            value: (place, future.get(0).offset)
            for value, (place, future) in self.futures.items()
            if future.succeeded()
        }


class Process(NamedTuple):
    """A process at work in a world, and its view of the storages."""

    world: World
    stores: dict[str, FaultyStore]
    clusters: list[Coordinator]

    @property
    def clock(self) -> ManualClock:
        return self.world.clock

    def open(self) -> Coordinator:
        self.clusters.append(open_cluster(self.stores[ROOT], clock=self.clock))
        return self.clusters[-1]


Run = Callable[[Process, Told], object]
Check = Callable[["World", Coordinator, Told], object]


class Operation(NamedTuple):
    """Something that the project does. ``places`` are the storages at which it is disturbed.

    ``prepare`` makes the cluster; ``recover`` is what people do after a failure before they go on. ``keeps`` says
    whether the records from before stay as they are.
    """

    prepare: Callable[[Process], object]
    run: Run
    places: tuple[str, ...] = (ROOT,)
    check: Check = lambda world, cluster, told: None
    recover: Callable[[Process], object] = lambda process: None
    keeps: bool = True


class World:
    """The storages of one cluster by name, all in one space of memory. Not thread-safe."""

    def __init__(self, operation: Operation, places: tuple[str, ...] = (ROOT, "1", "2", "3", "mirror")) -> None:
        self.operation = operation
        self.places = places
        self._name = uuid.uuid4().hex
        self.clock = ManualClock(NOW_MS)
        self.main = ROOT
        self._space = self.store(ROOT)._space
        with self.process() as process:
            operation.prepare(process)
        self._objects = dict(self._space.objects)
        self._prepared_ms = self.clock.now_ms()
        self.before = self.records() if self._objects else {}

    def forget(self) -> None:
        forget_space(self._name)

    def store(self, place: str) -> MemoryStore:
        return MemoryStore(f"{self._name}/{place}", self.clock)

    def url(self, place: str) -> str:
        return self.store(place).root

    def put_back(self) -> None:
        self._space.objects.clear()
        self._space.objects.update(self._objects)
        self.clock._elapsed = 0.0
        self.clock.set_ms(self._prepared_ms)
        self.main = ROOT

    @contextmanager
    def process(self, place: str = ROOT, fault: Fault | None = None) -> Iterator[Process]:
        """A process that has opened nothing yet; whatever it opens by address is a storage of this world."""
        faults = [] if fault is None else [fault]
        stores = {name: FaultyStore(self.store(name), faults if name == place else []) for name in self.places}
        with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
            for store in stores.values():
                stack.enter_context(substituted(store))
            start_over()
            patch.setattr(shared, "open_store", lambda url, options: _opened(url, stores[ROOT], options))
            patch.setattr(shared, "open_cluster", lambda store, options: open_cluster(store, options, self.clock))
            patch.setattr(output, "FINISH_THREADS", 1)  # a step is the same in every run
            yield Process(self, stores, [])

    def opened(self) -> Coordinator:
        return open_cluster(self.store(self.main), clock=self.clock)

    def records(self) -> Found:
        """Return every record of every partition, through a new coordinator: all of it is verified as it is read."""
        cluster = self.opened()
        found: Found = {}
        with LogReader(cluster) as reader:
            for topic in cluster.state.topics.values():
                for number, held in enumerate(topic.partitions):
                    read = reader.records(topic.name, number, held.log_start_offset, held.log_end_offset)
                    found[topic.name, number] = [(record.offset, record.value) for record in read]
        return found

    # -- tries

    def steps(self, place: str) -> list[Call]:
        """The calls that the operation makes of a storage when nothing disturbs it."""
        self.put_back()
        told = Told()
        with self.process(place) as process:
            self.operation.run(process, told)
            calls = list(process.stores[place].calls)
        with self.process() as process:
            self.operation.recover(process)
        told.finished = True
        self.check(told, "undisturbed")
        return calls

    def attempt(self, place: str, fault: Fault, late_first: bool) -> None:
        """Run and check one attempt. ``late_first``: late effects happen before any process continues."""
        self.put_back()
        told = Told()
        with self.process(place, fault) as process:
            with suppress(SparklogError, SimulatedCrash, SimulatedInterrupt):
                self.operation.run(process, told)
                told.finished = True
            store = process.stores[place]
            store.reopen()
            if KINDS[fault.kind].interrupts:
                if late_first:
                    store.settle()
                for cluster in process.clusters:
                    self._goes_on(cluster, f"{fault} at {place}, late effects {'first' if late_first else 'last'}")
        if late_first:
            store.settle()
        with self.process() as process:
            self.operation.recover(process)
        if not late_first:
            self._clean_up()
            store.settle()
        self.check(told, f"{fault} at {place}, {'late effects first' if late_first else 'late effects last'}")

    def attempt_torn(self, place: str, fault: Fault) -> None:
        """One try with a write that keeps a half: either nothing is the worse for it, or it is found out."""
        self.put_back()
        told = Told()
        with self.process(place, fault) as process:
            with suppress(SparklogError, SimulatedCrash):
                self.operation.run(process, told)
                told.finished = True
            process.stores[place].reopen()
        where = f"{fault} at {place}"
        try:
            with self.process() as process:
                self.operation.recover(process)
            self.check(told, where)
        except CorruptionError:
            pass  # whoever comes across it is told
        except (AssertionError, SparklogError):
            if not self._is_found_out():
                raise

    def _is_found_out(self) -> bool:
        try:
            with self.process():
                return not check_cluster(self.store(self.main), clock=self.clock).report.clean
        except SparklogError:
            return True

    def _clean_up(self) -> None:
        """What maintenance does nine days later: files that no commit names go, and can never be named again."""
        self.clock.advance(9 * DAY)
        with self.process():
            cluster = self.opened()
            sweep(cluster)
            vacuum(cluster, dry_run=False)

    # -- what must hold

    def check(self, told: Told, where: str) -> None:
        found = self.records()
        if self.operation.keeps:
            for place, records in self.before.items():
                assert found[place][: len(records)] == records, f"{where}: {place} has lost what it had"
        counts = Counter(value for records in found.values() for _, value in records)
        for value, (place, offset) in told.acknowledged.items():
            assert offset < 0 or (offset, value) in found[place], f"{where}: {value!r} was acknowledged and is lost"
            assert counts[value] >= 1, f"{where}: {value!r} was acknowledged and is lost"
        for value in told.futures if told.once else ():
            assert counts[value] <= 1, f"{where}: {value!r} is there {counts[value]} times"
        for unit in told.units:
            assert len({counts[value] for value in unit}) <= 1, f"{where}: a part of {sorted(unit)} is there"
        cluster = self.opened()
        for (group, partition), offset in told.group_offsets.items():
            committed = {one.partition: one.offset for one in cluster.state.groups[group].offsets.values()}
            assert committed.get(partition, -1) >= offset, f"{where}: an acknowledged offset of {group} is lost"
        self.operation.check(self, cluster, told)
        with self.process():
            report = check_cluster(self.store(self.main), clock=self.clock).report
        assert report.clean, f"{where}: {[finding.message for finding in report.findings]}"
        self._append_one(where)

    def _goes_on(self, cluster: Coordinator, where: str) -> None:
        """What a process has open is of use after an interrupt, and says what the storage says. What is late may come
        between two looks, so only looks at the same version are compared."""
        try:
            state = cluster.refresh()
        except ClusterMovedError:
            return
        newest = self.opened()
        if state.version == newest.state.version:
            assert state == newest.state, f"{where}: its state is torn"
            for name, topic in state.topics.items():
                own, fresh = cluster.segments(name, state), newest.segments(name, newest.state)
                for number in range(len(topic.partitions)):
                    found = [run.path for run in own.partition(number)]
                    assert found == [run.path for run in fresh.partition(number)], f"{where}: its lists are torn"
        if "further" not in state.topics:
            cluster.create_topic("further", assignment=[[0]])  # no other location, since these come and go
        self._append_one(f"{where}, by the same objects", cluster)

    def _append_one(self, where: str, cluster: Coordinator | None = None) -> None:
        cluster = cluster or self.opened()
        if "further" not in cluster.state.topics:
            cluster.create_topic("further")
        with Producer(cluster=cluster) as producer:
            offset = producer.send("further", b"further").get(WAIT).offset
        assert self.records()["further", 0][-1] == (offset, b"further"), f"{where}: no further record is taken"


def _opened(url: str, root: FaultyStore, options: Mapping[str, object] | None) -> Store:
    return root if url == SPARK_PATH else open_store(url, options)
