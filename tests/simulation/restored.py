"""A root that is restored from a snapshot, or created again, while clients run.

Records acknowledged before that may be lost. Records sent and acknowledged afterwards must be stored at the end; so a
client that has read the former timeline must fail with an error that says so, or continue correctly.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from sparklog.coordinator import create_cluster
from sparklog.errors import CorruptMetadataError, FencedError, SparklogError, StorageError, UnknownTopicOrPartitionError
from sparklog.log.layout import commit_version
from sparklog.maintenance.fsck.metadata_repair import end_log_at
from sparklog.protocol.decide.append import AppendRequest
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets
from sparklog.protocol.decide.producers import init_producer
from sparklog.testing.checks import check
from sparklog.testing.faulty_store import (
    CRASH_AFTER,
    CRASH_BEFORE,
    LOST_ANSWER,
    UNAVAILABLE,
    SimulatedCrash,
    SimulatedInterrupt,
)
from sparklog.testing.findings import Finding
from sparklog.testing.history import INFO, OK, READ, SEND, History
from sparklog.types import TopicPartition
from tests.simulation.world import TOPICS, Sent, World, choose_partitions, snapshot, until_known

RATES = {UNAVAILABLE: 0.01, LOST_ANSWER: 0.01, CRASH_BEFORE: 0.002, CRASH_AFTER: 0.002}

NOTICES = (FencedError, UnknownTopicOrPartitionError)
"""Errors that mean that this client cannot continue with the state it has read."""


class RestoredWorld(World):
    """``replaced_at``: the time, on the history's clock, at which the root was replaced.

    ``repairs``: how often the operator ended the log before an unlinked commit, as in docs/repair.md. A client that was
    killed between creating a commit and checking the one before may leave one.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, RATES)
        self.replaced_at = float("inf")
        self.noticed = 0
        self.repairs = 0

    def history(self) -> History:
        """Return the operations to check on the final root: nothing is known of those started before it was
        replaced."""
        complete = self.run()
        kept = []
        for operation in complete.operations:
            before = operation.invoked < self.replaced_at
            if before and operation.kind == SEND and operation.outcome == OK:
                kept.append(replace(operation, outcome=INFO))
            elif not before or operation.kind != READ:
                kept.append(operation)
        return History(kept)

    def _read_all(self) -> None:
        try:
            super()._read_all()
        except CorruptMetadataError as error:  # left by a client that was killed after all others had ended
            self.end_log(error)
            super()._read_all()

    def end_log(self, error: CorruptMetadataError) -> None:
        """End the log before an unlinked commit; raise the error if no client was killed that could have left one."""
        version = commit_version(error.path or "")
        if version is None or not any(store.crashed for store in self.lives):
            raise error
        self.repairs += 1
        repairs = list(end_log_at(self.store, version - 1))
        assert all(repair.done for repair in repairs), repairs

    def findings(self) -> list[Finding]:
        return check(self.history())


class Sender:
    """An idempotent producer that restarts when it detects that the root was replaced."""

    def __init__(self, world: RestoredWorld, name: str, batches: int) -> None:
        self.world = world
        self.name = name
        self.left = batches

    def work(self) -> None:
        while self.left > 0:
            with suppress(SimulatedCrash, SimulatedInterrupt):
                self.live()

    def live(self) -> None:
        try:
            coordinator = self.world.open()
            identity = until_known(lambda: coordinator.submit(init_producer))
        except NOTICES:
            self.world.noticed += 1
            return
        except CorruptMetadataError as error:
            self.world.end_log(error)
            return
        sequences: dict[TopicPartition, int] = {}
        while self.left > 0:
            self.left -= 1
            self.world.simulation.sleep(self.world.random.choice([0, 0, 0.1, 1.0]))
            sent = Sent(f"{self.name}-{self.left}", choose_partitions(self.world, "in"), 1)
            request = AppendRequest(appends=sent.appends(identity, sequences))  # type: ignore[arg-type]
            pending = self.world.log(self.name).invoke(SEND, writes=sent.writes())
            try:
                result = until_known(lambda request=request: coordinator.append(request))  # type: ignore[misc]
            except NOTICES as error:
                pending.info(error)
                self.world.noticed += 1
                return
            except CorruptMetadataError as error:
                pending.info(error)
                self.world.end_log(error)
                return
            pending.ok(writes=sent.writes(result))  # type: ignore[arg-type]
            sequences.update({partition: sequences.get(partition, 0) + 1 for partition in sent.paths})


class Follower:
    """A reader that follows the log, and reopens it when it detects that the root was replaced."""

    def __init__(self, world: RestoredWorld, name: str, rounds: int) -> None:
        self.world = world
        self.name = name
        self.left = rounds

    def work(self) -> None:
        while self.left > 0:
            try:
                with suppress(SimulatedCrash, SimulatedInterrupt, *NOTICES):
                    self.live()
            except CorruptMetadataError as error:
                self.world.end_log(error)

    def live(self) -> None:
        coordinator = self.world.open()
        while self.left > 0:
            self.left -= 1
            self.world.simulation.sleep(self.world.random.uniform(0, 2))
            log = self.world.log(self.name)
            pending = log.invoke(READ)
            try:
                pending.ok(reads=snapshot(coordinator, coordinator.refresh()))
            except StorageError as error:
                pending.info(error)
            except SparklogError as error:
                pending.info(error)
                raise


class Operator:
    """Takes a snapshot of the root and restores it later, or creates the cluster again with the same topics."""

    def __init__(self, world: RestoredWorld) -> None:
        self.world = world

    def work(self) -> None:
        chance, simulation = self.world.random, self.world.simulation
        space = self.world.store.space
        simulation.sleep(chance.uniform(0, 3))
        simulation.step("take a snapshot")
        kept = dict(space.objects)
        simulation.sleep(chance.uniform(0, 4))
        simulation.step("put it back")
        space.objects.clear()
        if chance.random() < 0.3:
            cluster = create_cluster(self.world.store, clock=simulation, ids=simulation.ids())
            for topic, partitions in TOPICS.items():
                cluster.create_topic(topic, partitions)
            cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group="idle", offsets={("in", 0): 0})))
        else:
            space.objects.update(kept)
        self.world.replaced_at = self.world.steps.monotonic()


def build(seed: int) -> RestoredWorld:
    world = RestoredWorld(seed)
    for number in range(3):
        world.spawn(f"s{number}", Sender(world, f"s{number}", 8).work)
    world.spawn("follower", Follower(world, "follower", 8).work)
    world.simulation.spawn("operator", Operator(world).work)
    return world
