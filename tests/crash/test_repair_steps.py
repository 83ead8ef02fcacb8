"""A repair is killed, or a storage fails, at every step: no file is damaged further, and a rerun repairs everything."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.errors import SparklogError
from sparklog.log.broker_files import encode_identity
from sparklog.log.commits.commit_attempt import CommitOutcome
from sparklog.log.layout import segment_key
from sparklog.log.records.segment_file_writer import RunTarget, SegmentFileWriter
from sparklog.maintenance.fsck.check import check_cluster
from sparklog.maintenance.fsck.kinds import Report
from sparklog.maintenance.fsck.repair import repair_cluster
from sparklog.protocol.commits import ForgetRemovedFiles, RegisterBroker, commit_key
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.file_names import index_path
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.testing.faulty_store import (
    ERROR,
    FULL,
    UNAVAILABLE,
    WRITES,
    Fault,
    FaultyStore,
    SimulatedCrash,
    every_crash,
)
from sparklog.testing.substitutes import substituted
from tests.cluster.maintenance.damaged_clusters import records
from tests.sample import chosen

Contents = dict[str, bytes]


class World:
    """A cluster in memory on two brokers, with a mirror of its commits, that can be reset."""

    def __init__(self) -> None:
        name = uuid.uuid4().hex
        self.names = [f"{name}-{number}" for number in range(2)]
        self.stores = [MemoryStore(name) for name in self.names]
        self.mirror = MemoryStore(f"{name}-mirror")
        coordinator = create_cluster(self.stores[0])
        self.stores[1].put("broker.json", encode_identity(coordinator.state.cluster_id, 1))
        assert coordinator.log.attempt([RegisterBroker(broker=1, url=f"memory://{self.names[1]}")]) is CommitOutcome.WON
        coordinator.create_topic("orders", 2, 2)
        self.paths = [self._append(coordinator) for _ in range(3)]
        coordinator.log.write_checkpoint()
        assert coordinator.log.attempt([ForgetRemovedFiles(listings=[])]) is CommitOutcome.WON
        self.sound, self.sound_state = self.contents(), open_cluster(self.stores[0]).state
        for key, data in self.sound[0].items():
            if key.startswith("meta/"):
                self.mirror.put(key, data)

    def _append(self, coordinator: Coordinator) -> str:
        key = segment_key("orders", 0, 0, coordinator.state.version, coordinator.log.ids.write_id())
        writer = SegmentFileWriter(self.stores[0], key, replicas=[(1, self.stores[1])])
        topic = coordinator.state.topic("orders")
        for partition in (0, 1):
            writer.start_run(RunTarget("orders", topic.topic_id, partition))
            for _ in range(2):
                writer.write(records("orders", partition, 0))
        coordinator.append(AppendRequest(appends=writer.finish()))
        return key

    def contents(self) -> list[Contents]:
        return [{info.key: store.get(info.key) for info in store.list()} for store in self.stores]

    def reset_to(self, contents: list[Contents]) -> None:
        for store, wanted in zip(self.stores, contents, strict=True):
            for info in list(store.list()):
                if info.key not in wanted:
                    store.delete(info.key)
            for key, data in wanted.items():
                store.put(key, data)

    def change(self, broker: int, key: str, position: int) -> None:
        data = bytearray(self.stores[broker].get(key))
        data[position] ^= 1
        self.stores[broker].put(key, bytes(data))

    def checkpoint(self, suffix: str) -> str:
        return next(key for key in self.sound[0] if key.startswith("meta/checkpoints/0") and key.endswith(suffix))


def damage_files(world: World) -> None:
    world.change(1, world.paths[0], 700)
    world.stores[0].delete(world.paths[1])
    world.stores[1].delete(index_path(world.paths[1]))
    world.change(0, index_path(world.paths[2]), 100)
    world.stores[1].delete(index_path(world.paths[2]))


def damage_checkpoint(world: World) -> None:
    world.change(0, world.checkpoint(".heads"), 500)


def damage_manifest(world: World) -> None:
    world.stores[0].put(world.checkpoint(".json"), b"{")


def damage_small_files(world: World) -> None:
    world.stores[0].delete("cluster.json")
    world.stores[0].put("meta/boundary.json", b"{")
    world.stores[0].put("meta/checkpoints/latest.json", b"{")


def damage_commits(world: World) -> None:
    world.stores[0].delete(commit_key(3))
    world.change(0, commit_key(4), 100)


DAMAGES: dict[str, Callable[[World], None]] = {
    "files": damage_files,
    "checkpoint": damage_checkpoint,
    "manifest": damage_manifest,
    "small files": damage_small_files,
    "commits": damage_commits,
}


@contextmanager
def faulty(world: World, broker: int, faults: list[Fault]) -> Iterator[tuple[FaultyStore, FaultyStore]]:
    """Yield the stores of both brokers, one of which has these faults."""
    stores = [FaultyStore(store, faults if number == broker else []) for number, store in enumerate(world.stores)]
    with ExitStack() as stack:
        for store in stores:
            stack.enter_context(substituted(store))
        yield stores[0], stores[1]


def check_and_repair(root: FaultyStore | MemoryStore, world: World) -> Report:
    check = check_cluster(root)
    repair_cluster(check, mirrors=[world.mirror])
    return check.report


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    world = World()
    yield world
    for name in world.names:
        forget_space(name)


def is_data(key: str) -> bool:
    return key.endswith((".log", ".index"))


@pytest.mark.sampled
@pytest.mark.parametrize("broker", [0, 1])
@pytest.mark.parametrize("name", DAMAGES)
def test_a_fault_at_any_step_causes_no_further_damage_and_a_retry_repairs_everything(
    world: World, name: str, broker: int
) -> None:
    world.reset_to(world.sound)
    DAMAGES[name](world)
    damaged = world.contents()
    with faulty(world, broker, []) as stores:
        assert check_and_repair(stores[0], world).clean
        calls = list(stores[broker].calls)
    repaired_contents = world.contents()
    assert is_repaired(world, repaired_contents)
    faults = list(every_crash(calls))
    faults += [Fault(step, kind) for step in range(len(calls)) for kind in (ERROR, UNAVAILABLE)]
    faults += [Fault(step, FULL) for step, call in enumerate(calls) if call.operation in WRITES]
    left: list[list[Contents]] = []  # what the checks below have seen: the same files need them once
    for fault in chosen(faults):
        world.reset_to(damaged)
        with faulty(world, broker, [fault]) as stores, suppress(SimulatedCrash, SparklogError):
            check_and_repair(stores[0], world)
        stores[broker].reopen()
        if world.contents() in left:
            continue
        left.append(world.contents())
        for number, contents in enumerate(left[-1]):
            for key, data in contents.items():
                expected = (damaged[number].get(key), world.sound[number].get(key))
                assert not is_data(key) or data in expected, f"{fault}: {key} is neither unchanged nor repaired"
            lost = [key for key in damaged[number] if is_data(key) and key not in contents]
            assert not lost, f"{fault}: {lost} are missing"
        assert check_and_repair(world.stores[0], world).clean, f"{fault}: not repaired by a rerun"
        assert is_repaired(world, world.contents()), f"{fault}: contents differ from the sound ones"
        assert open_cluster(world.stores[0]).state == world.sound_state, f"{fault}"


def is_repaired(world: World, contents: list[Contents]) -> bool:
    """Whether data files and commits are the original ones; checkpoints may differ."""
    return all(
        contents[number].get(key) == data
        for number in (0, 1)
        for key, data in world.sound[number].items()
        if is_data(key) or key.startswith("meta/commits/") or key == "cluster.json"
    )
