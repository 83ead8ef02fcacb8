"""A root that is put back to a snapshot, or made again, under living clients.

What was acknowledged before that may be gone. What is asked for afterwards and acknowledged must be there in the end;
so a client that has read the former history has to notice, with an error that says so, or continue correctly.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from sparklog.coordinator import create_cluster
from sparklog.errors import CorruptMetadataError, FencedError, SparklogError, StorageError, UnknownTopicOrPartitionError
from sparklog.log.layout import commit_version
from sparklog.maintenance.fsck.metadata_repair import end_log_at
from sparklog.protocol.decide.append import AppendRequest
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
from tests.simulation.world import TOPICS, Sent, World, snapshot, some_places, until_known

RATES = {UNAVAILABLE: 0.01, LOST_ANSWER: 0.01, CRASH_BEFORE: 0.002, CRASH_AFTER: 0.002}

NOTICES = (FencedError, UnknownTopicOrPartitionError)
"""Errors that say that this client cannot go on with what it has read."""


class RestoredWorld(World):
    """``put_back``: the moment, on the history's clock, at which the root was replaced.

    ``mended``: how often the operator let the log end before a commit that does not follow, as docs/repair.md says. A
    client that was killed between its create and its look at the commit before may leave one.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, RATES)
        self.put_back = float("inf")
        self.noticed = 0
        self.mended = 0

    def history(self) -> History:
        """What must hold of the root as it is in the end: of what was asked for before nothing is known."""
        found = self.run()
        kept = []
        for operation in found.operations:
            before = operation.invoked < self.put_back
            if before and operation.kind == SEND and operation.outcome == OK:
                kept.append(replace(operation, outcome=INFO))
            elif not before or operation.kind != READ:
                kept.append(operation)
        return History(kept)

    def mend(self, error: CorruptMetadataError) -> None:
        """Raises the error where no client was killed: it is to leave nothing that does not follow."""
        version = commit_version(error.path or "")
        if version is None or not any(store.crashed for store in self.lives):
            raise error
        self.mended += 1
        repairs = list(end_log_at(self.store, version - 1))
        assert all(repair.done for repair in repairs), repairs

    def findings(self) -> list[Finding]:
        return check(self.history())


class Sender:
    """An idempotent producer that begins again when it is told that the root is another one."""

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
            identity = until_known(coordinator.init_producer)
        except NOTICES:
            self.world.noticed += 1
            return
        except CorruptMetadataError as error:
            self.world.mend(error)
            return
        sequences: dict[TopicPartition, int] = {}
        while self.left > 0:
            self.left -= 1
            self.world.simulation.sleep(self.world.random.choice([0, 0, 0.1, 1.0]))
            sent = Sent(f"{self.name}-{self.left}", some_places(self.world, "in"), 1)
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
                self.world.mend(error)
                return
            pending.ok(writes=sent.writes(result))  # type: ignore[arg-type]
            sequences.update({place: sequences.get(place, 0) + 1 for place in sent.paths})


class Follower:
    """A reader that keeps up with the log, and opens it again when it is told to."""

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
                self.world.mend(error)

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
    """Takes a snapshot of the root, and puts it back later; or makes the cluster again, with the same topics."""

    def __init__(self, world: RestoredWorld) -> None:
        self.world = world

    def work(self) -> None:
        chance, simulation = self.world.random, self.world.simulation
        space = self.world.store._space
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
            cluster.commit_offsets("idle", {("in", 0): 0})
        else:
            space.objects.update(kept)
        self.world.put_back = self.world.steps.monotonic()


def build(seed: int) -> RestoredWorld:
    world = RestoredWorld(seed)
    for number in range(3):
        world.spawn(f"s{number}", Sender(world, f"s{number}", 8).work)
    world.spawn("follower", Follower(world, "follower", 8).work)
    world.simulation.spawn("operator", Operator(world).work)
    return world
