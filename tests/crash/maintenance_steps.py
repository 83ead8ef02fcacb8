"""Run a maintenance job repeatedly, each time with a different fault at a different storage step.

After each run readers see the log as before or after the job, a reader that started before reads to its end, and a
rerun of the job completes as if nothing had failed.

All runs use the same ids, so many faults leave identical objects. What readers and a rerun see depends only on these
objects, so each set of objects is checked once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sparklog.client.reader import LogReader
from sparklog.clock import ManualClock
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import IndeterminateCommitError, SparklogError
from sparklog.ids import SeededIds
from sparklog.log.broker_files import encode_identity
from sparklog.protocol.commits import Action, ChangePartition, RegisterBroker
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.file_names import index_path
from sparklog.store.location import IDENTITY_KEY
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.store.open import open_store
from sparklog.testing.faulty_store import (
    ERROR,
    FULL,
    LOST_ANSWER,
    PERMISSION,
    TRUNCATED,
    UNAVAILABLE,
    WRITES,
    Fault,
    FaultyStore,
    SimulatedCrash,
    every_crash,
)
from sparklog.testing.substitutes import substituted
from tests.cluster.maintenance.logs import Read, live, log_files, records
from tests.crash.copies import Objects, copy_of, objects_of
from tests.sample import chosen

NOW_MS = 2_000_000_000_000

Contents = dict[str, list[Read]]
Segments = dict[str, list[tuple[int, int, bool]]]
Job = Callable[[Coordinator], object]


@dataclass(frozen=True)
class Scene:
    """A cluster, the same for each run, and the job."""

    prepare: Callable[[Coordinator], None]
    job: Job

    def prepared(self) -> MemoryStore:
        return copy_of(self._built)

    @cached_property
    def _built(self) -> MemoryStore:
        store = MemoryStore(uuid.uuid4().hex)
        coordinator = create_cluster(store, clock=ManualClock(NOW_MS))
        self.prepare(coordinator)
        coordinator.log.write_checkpoint()
        return store


class Outcome(NamedTuple):
    acknowledged: bool
    refused: bool


class Left(NamedTuple):
    """What a run has left: the segments that a new reader sees, and the log files that are too many or missing."""

    segments: Segments
    unexpected: set[str]


def opened(store: object, seed: int | None = None) -> Coordinator:
    """Open as a new process. Processes with the same ``seed`` give the same ids, others different ones."""
    ids = None if seed is None else SeededIds(seed)
    return open_cluster(store, clock=ManualClock(NOW_MS + 3_600_000), ids=ids)  # type: ignore[arg-type]


def contents(store: MemoryStore) -> Contents:
    """Return every record of every partition, read through a new coordinator."""
    coordinator = opened(store)
    return {
        f"{topic.name}-{number}": records(coordinator, topic.name, number)
        for topic in coordinator.state.topics.values()
        for number in range(len(topic.partitions))
    }


def segments(store: MemoryStore) -> Segments:
    """Return base offset, end offset and whether it is closed, for each live segment."""
    coordinator = opened(store)
    return {
        f"{topic.name}-{number}": [
            (segment.base_offset, segment.end_offset, segment.closed)
            for segment in live(coordinator, topic.name, number)
        ]
        for topic in coordinator.state.topics.values()
        for number in range(len(topic.partitions))
    }


def live_files(store: MemoryStore) -> set[str]:
    coordinator = opened(store)
    return {
        segment.path
        for topic in coordinator.state.topics.values()
        for number in range(len(topic.partitions))
        for segment in live(coordinator, topic.name, number)
    }


def faults_of(scene: Scene) -> list[Fault]:
    """Every fault at every step of the job."""
    store = FaultyStore(scene.prepared())
    coordinator = opened(store)
    store.reset_counts()
    scene.job(coordinator)
    calls = list(store.calls)
    faults = list(every_crash(calls))
    for step, call in enumerate(calls):
        faults += [Fault(step, kind) for kind in (ERROR, UNAVAILABLE)]
        if call.operation in WRITES:
            faults += [Fault(step, kind) for kind in (FULL, PERMISSION)]
    assert TRUNCATED not in {fault.kind for fault in faults}, "fsck detects silently torn writes"
    return faults


def run(scene: Scene, coordinator: Coordinator) -> Outcome:
    try:
        scene.job(coordinator)
    except (SimulatedCrash, IndeterminateCommitError):
        return Outcome(False, False)  # outcome unknown
    except SparklogError:
        return Outcome(False, True)
    return Outcome(True, False)


def check_every_step(scene: Scene) -> None:
    clean = scene.prepared()
    files = log_files(opened(clean))
    before, segments_before = contents(clean), segments(clean)
    scene.job(opened(clean))
    wanted, segments_wanted = contents(clean), segments(clean)
    assert segments_wanted != segments_before
    faults = faults_of(scene)
    assert len(faults) > 50
    checked: dict[Objects, Left] = {}
    for fault in chosen(faults):
        inner = scene.prepared()
        store = FaultyStore(inner)
        coordinator = opened(store, seed=1)
        started_before = opened(inner)
        readers = [Reader(started_before, partition) for partition in before]
        store.reset_counts()
        store.inject(fault)
        outcome = run(scene, coordinator)
        store.reopen()
        objects = objects_of(inner)
        is_new = objects not in checked
        if is_new:
            after, segments_after = contents(inner), segments(inner)
            for partition in before:
                assert after[partition] in (before[partition], wanted[partition]), (
                    f"{fault}: {partition} is neither as before nor as after the job"
                )
                expected = {*segments_before[partition], *segments_wanted[partition]}
                assert set(segments_after[partition]) <= expected, f"{fault}: {partition}"
            unexpected = set(log_files(opened(inner))) ^ {*files, *live_files(inner)}
            checked[objects] = Left(segments_after, unexpected)
        left = checked[objects]
        assert not outcome.acknowledged or left.segments == segments_wanted, (
            f"{fault}: the job was acknowledged, but its result is missing"
        )
        if outcome.refused and fault.kind in (ERROR, FULL, PERMISSION):
            assert not left.unexpected, f"{fault}: left files behind"
        if is_new:
            scene.job(opened(inner))
            assert (contents(inner), segments(inner)) == (wanted, segments_wanted), f"{fault}: after a rerun"
            for reader in readers:
                reader.check(before)


# -- with a second replica


def replicated(store: MemoryStore, name: str) -> MemoryStore:
    """Make broker 1 an in-sync follower of every partition. Its store, which is returned, gets this name."""
    forget_space(name)
    coordinator = opened(store, seed=2)
    url = f"memory://{name}"
    open_store(url).put(IDENTITY_KEY, encode_identity(coordinator.state.cluster_id, 1))
    coordinator.submit(lambda state: Decision([RegisterBroker(broker=1, url=url)], None))
    follower = coordinator.store_of(1)
    for info in coordinator.store.list():
        if info.key.endswith((".log", ".index")):
            follower.put(info.key, coordinator.store.get(info.key))
    changes: list[Action] = [
        ChangePartition(
            topic=topic.name, topic_id=topic.topic_id, partition=number,
            leader=0, leader_epoch=partition.leader_epoch, isr=[0, 1], replicas=[0, 1],
        )
        for topic in coordinator.state.topics.values()
        for number, partition in enumerate(topic.partitions)
    ]  # fmt: skip
    coordinator.submit(lambda state: Decision(changes, None))
    assert isinstance(follower, MemoryStore)
    return follower


def with_follower(store: MemoryStore, follower: FaultyStore) -> Coordinator:
    """A coordinator that sees the follower's storage with its faults."""
    coordinator = opened(store, seed=1)
    with substituted(follower):
        coordinator.brokers.store_of(coordinator.state, 1)
    return coordinator


def check_every_step_of_a_follower(scene: Scene) -> None:
    clean, name = scene.prepared(), uuid.uuid4().hex
    counted = FaultyStore(replicated(clean, name))
    before = contents(clean)
    scene.job(with_follower(clean, counted))
    wanted, segments_wanted = contents(clean), segments(clean)
    writes = [step for step, call in enumerate(counted.calls) if call.operation in WRITES]
    assert len(writes) > 3
    checked: set[tuple[Objects, Objects]] = set()
    for fault in chosen(Fault(step, kind) for step in writes for kind in (ERROR, UNAVAILABLE, FULL, LOST_ANSWER)):
        inner = scene.prepared()
        follower = replicated(inner, name)
        run(scene, with_follower(inner, FaultyStore(follower, [fault])))
        objects = objects_of(inner), objects_of(follower)
        if objects in checked:
            continue
        checked.add(objects)
        after = contents(inner)
        assert all(after[partition] in (before[partition], wanted[partition]) for partition in before), fault
        scene.job(opened(inner))
        assert (contents(inner), segments(inner)) == (wanted, segments_wanted), f"{fault}: wrong contents after a rerun"
        assert {partition.isr for topic in opened(inner).state.topics.values() for partition in topic.partitions} == {
            (0, 1)
        }, f"{fault}: out of sync"
        for path in live_files(inner):
            assert follower.get(path) == inner.get(path), f"{fault}: {path} differs"
            assert follower.get(index_path(path)) == inner.get(index_path(path)), f"{fault}: the index of {path}"
    forget_space(name)


class Reader:
    """Reads one record of a partition before the job runs and the rest afterwards, from the state it started with."""

    def __init__(self, coordinator: Coordinator, partition: str) -> None:
        self._partition = partition
        topic, number = partition.rsplit("-", 1)
        end = coordinator.state.partition(topic, int(number)).log_end_offset
        self._records = LogReader(coordinator).records(topic, int(number), 0, end)
        self._first = next(self._records, None)

    def check(self, before: Contents) -> None:
        read = [record for record in (self._first, *self._records) if record is not None]
        expected = [(record.offset, record.value) for record in before[self._partition]]
        assert [(record.offset, record.value) for record in read] == expected, self._partition
