"""Registering, checking, electing, catching up and moving replicas, killed or failing at every step at every storage:
readable records stay readable, in-sync replicas have every record, and a rerun completes as if nothing had failed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

import pytest

from sparklog.client.producer.producer import Producer
from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.brokers import add_broker, remove_broker
from sparklog.errors import BrokerIdNotRegisteredError, DuplicateBrokerRegistrationError, SparklogError
from sparklog.log.broker_files import encode_identity
from sparklog.maintenance.replicas.file_copies import is_sound
from sparklog.maintenance.replicas.replication import replicate
from sparklog.maintenance.runner import InProcess
from sparklog.protocol.decide.elections import elect_preferred
from sparklog.protocol.decide.topics import alter_configs
from sparklog.protocol.state import PartitionState
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.store.process_local import start_over
from sparklog.testing.faulty_store import (
    ERROR,
    FULL,
    PERMISSION,
    UNAVAILABLE,
    WRITES,
    Fault,
    FaultyStore,
    SimulatedCrash,
    every_crash,
)
from sparklog.testing.substitutes import substituted
from tests.cluster.maintenance.reassignment import reassign
from tests.controllers import check_once
from tests.sample import chosen

TOPIC = "orders"
LOCATIONS = ("root", "1", "2", "3")
VALUES = [b"%d" % number for number in range(4)]
Objects = dict[str, tuple[bytes, int]]
"""Those of all storages of a world, each with its time."""


class World(NamedTuple):
    """The storages of one cluster, by name. Broker n is at the location of the same name."""

    name: str

    def store(self, location: str) -> MemoryStore:
        return MemoryStore(f"{self.name}/{location}")

    def url(self, location: str) -> str:
        return f"memory://{self.name}/{location}"

    def objects(self) -> Objects:
        return dict(self.store("root").space.objects)

    def reset(self, objects: Objects) -> None:
        """Go back to these objects, for a process that has opened nothing yet."""
        space = self.store("root").space
        space.objects.clear()
        space.objects.update(objects)
        start_over()

    def opened(self, faulty: FaultyStore | None = None, location: str = "") -> Coordinator:
        root = faulty if faulty is not None and location == "root" else self.store("root")
        return open_cluster(root, clock=ManualClock())

    def partition(self) -> PartitionState:
        return self.opened().state.partition(TOPIC, 0)

    def records(self) -> list[bytes | None]:
        cluster = self.opened()
        with LogReader(cluster) as reader:
            partition = cluster.state.partition(TOPIC, 0)
            records = reader.records(TOPIC, 0, partition.log_start_offset, partition.log_end_offset, cluster.state)
            return [record.value for record in records]


def new_world() -> World:
    world = World(uuid.uuid4().hex)
    cluster = create_cluster(world.store("root"), clock=ManualClock())
    for number in (1, 2, 3):
        assert add_broker(cluster, world.url(str(number))) == number
    cluster.create_topic(TOPIC, assignment=[[1, 2]])
    return world


def written(world: World, acks: Any = "all") -> World:
    for value in VALUES:
        with Producer(cluster=world.opened(), acks=acks) as producer:
            producer.send(TOPIC, value).get(10)
    return world


def in_sync() -> World:
    return written(new_world())


def behind() -> World:
    return written(new_world(), acks=1)


def without_1(world: World) -> World:
    """The location of broker 1 is not mounted."""
    world.store("1").delete(IDENTITY_KEY)
    return world


def led_by_2() -> World:
    world = without_1(in_sync())
    cluster = world.opened()
    check_once(cluster)
    world.store("1").put(IDENTITY_KEY, encode_identity(cluster.state.cluster_id, 1))
    check_once(cluster)
    replicate(cluster, InProcess())
    return world


def unclean() -> World:
    world = written(new_world())
    world.opened().submit(partial(alter_configs, topic=TOPIC, changes={"unclean.leader.election.enable": "true"}))
    with Producer(cluster=world.opened(), acks=1) as producer:
        producer.send(TOPIC, b"lost").get(10)
    return without_1(world)


def add(cluster: Coordinator, world: World) -> None:
    with suppress(DuplicateBrokerRegistrationError):
        assert add_broker(cluster, world.url("4"), 4) == 4


def remove(cluster: Coordinator, world: World) -> None:
    with suppress(BrokerIdNotRegisteredError):
        remove_broker(cluster, 3)


class Job(NamedTuple):
    """``done`` is the condition after the job. ``kept``: whether all records are readable throughout."""

    prepare: Callable[[], World]
    run: Callable[[Coordinator, World], object]
    done: Callable[[World], bool]
    locations: tuple[str, ...] = LOCATIONS
    kept: bool = True


JOBS = {
    "add a broker": Job(in_sync, add, lambda w: w.opened().state.brokers[4].url == w.store("4").root, ("root", "4")),
    "remove a broker": Job(in_sync, remove, lambda w: 3 not in w.opened().state.brokers, ("root", "3")),
    "a pass of the controller": Job(
        lambda: without_1(in_sync()),
        lambda c, w: check_once(c),
        lambda w: (w.partition().leader, w.partition().isr) == (2, (2,)) and not w.opened().state.brokers[1].online,
    ),
    "an unclean election": Job(
        unclean,
        lambda c, w: check_once(c),
        lambda w: (w.partition().leader, w.partition().isr, w.partition().log_end_offset) == (2, (2,), 5),
        kept=False,
    ),
    "a preferred election": Job(
        led_by_2, lambda c, w: c.submit(elect_preferred), lambda w: w.partition().leader == 1, ("root",)
    ),
    "catching up": Job(behind, lambda c, w: replicate(c, InProcess()), lambda w: w.partition().isr == (1, 2)),
    "a reassignment": Job(
        in_sync,
        lambda c, w: reassign(c, {(TOPIC, 0): [3, 2]}, InProcess()),
        lambda w: (w.partition().replicas, set(w.partition().isr), w.partition().leader) == ((3, 2), {2, 3}, 3),
    ),
}


def run_with(job: Job, world: World, location: str, fault: Fault | None) -> tuple[FaultyStore, bool]:
    """Run the job on a world whose storage at ``location`` fails once; return that store and whether the job
    finished."""
    store = FaultyStore(world.store(location))
    with ExitStack() as stack:
        if location != "root":
            stack.enter_context(substituted(store))
        cluster = world.opened(store, location)
        store.reset_counts()
        if fault is not None:
            store.inject(fault)
        try:
            job.run(cluster, world)
        except (SimulatedCrash, SparklogError):
            return store, False
    return store, True


def faults(job: Job, world: World, location: str) -> Iterator[Fault]:
    store, finished = run_with(job, world, location, None)
    assert finished
    yield from every_crash(store.calls)
    for step, call in enumerate(store.calls):
        yield from (Fault(step, kind) for kind in (ERROR, UNAVAILABLE))
        if call.operation in WRITES:
            yield from (Fault(step, kind) for kind in (FULL, PERMISSION))


def check_in_sync_replicas(world: World, where: str) -> None:
    cluster = world.opened()
    paths = [segment.path for segment in cluster.segments(TOPIC).partition(0)]
    for broker in cluster.state.partition(TOPIC, 0).isr:
        for path in paths:
            assert is_sound(world.store(str(broker)), path), f"{where}: broker {broker} is in sync without {path}"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("name", "location"),
    [(name, location) for name, job in JOBS.items() for location in job.locations],
    ids=lambda text: text,
)
def test_a_fault_at_any_step_loses_no_record_and_a_retry_completes_the_job(name: str, location: str) -> None:
    job = JOBS[name]
    world = job.prepare()
    prepared = world.objects()
    all_faults = list(faults(job, world, location))
    for fault in chosen(all_faults):
        world.reset(prepared)
        where = f"{name}, {fault} at {location}"
        store, _ = run_with(job, world, location, fault)
        store.reopen()
        if job.kept:
            assert world.records() == VALUES, f"{where}: records are missing"
            check_in_sync_replicas(world, where)
        job.run(world.opened(), world)
        if not job.done(world):  # a broker whose check failed has to pass one and catch up again
            check_once(world.opened())
            job.run(world.opened(), world)
        assert job.done(world), f"{where}: not done after a retry"
        assert world.records() == VALUES, f"{where}: records are missing after a retry"
        if name != "a pass of the controller":
            check_in_sync_replicas(world, where)
    assert len(all_faults) > 3 or location not in ("root",)
    forget_space(world.name)
