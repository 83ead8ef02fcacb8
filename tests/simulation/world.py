"""Simulated producers and group members on one storage. The seed decides every choice, and all operations are recorded
in a history for ``sparklog.testing.check``.

Records are only names: values are derived from the run's path (``path/row``), and no file is written, so a seed takes
milliseconds. Actors call the coordinator as the clients do. The storage fails; actors are killed, or stall for longer
than their session and continue as zombies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from sparklog import limits
from sparklog.coordinator import Coordinator, create_cluster, open_cluster
from sparklog.coordinator.group_liveness import DeadMembers
from sparklog.errors import CommitConflictError, IndeterminateCommitError, ProducerFencedError, StorageError
from sparklog.log.commits.cleanup import clean_up
from sparklog.log.commits.commit_log import CommitLog
from sparklog.log.settings import LogSettings
from sparklog.protocol import levels
from sparklog.protocol.commits import CommitOffsets, Run
from sparklog.protocol.decide.append import AppendRequest, AppendResult, PartitionAppend
from sparklog.protocol.decide.features import raise_level
from sparklog.protocol.decide.groups import GroupCommit, commit_group_offsets, expire_offsets
from sparklog.protocol.decide.producers import ProducerIdentity, init_producer
from sparklog.protocol.state import State
from sparklog.store.memory import MemoryStore, forget_space
from sparklog.testing.faulty_store import (
    CRASH_AFTER,
    CRASH_BEFORE,
    KINDS,
    LOST_ANSWER,
    OUTAGE,
    TRUNCATED,
    UNAVAILABLE,
    Call,
    FaultyStore,
    SimulatedCrash,
    SimulatedInterrupt,
)
from sparklog.testing.history import (
    COMMITTED,
    INIT_PRODUCER,
    OFFSET_LOG,
    READ,
    SEND,
    TRANSACTION,
    History,
    OperationLog,
    Pending,
    Position,
    Read,
    Write,
)
from sparklog.types import TopicPartition
from tests.simulation.machines import set_clock_now_and_then, some_machines
from tests.simulation.scheduler import Machine, Simulation

USUAL = {UNAVAILABLE: 0.02, LOST_ANSWER: 0.03, OUTAGE: 0.004, CRASH_BEFORE: 0.003, CRASH_AFTER: 0.003}
OTHER_RATE = 0.02
"""The rate of all other kinds of faults together, except crashes and silently truncated writes."""


def with_other_kinds(usual: Mapping[str, float], rate: float) -> dict[str, float]:
    """Return these rates, and a total of ``rate`` for all other kinds of faults in ``faulty_store``."""
    left_out = ("half", "crash", "never")
    others = [
        kind for kind in KINDS if kind not in usual and kind != TRUNCATED and not any(part in kind for part in left_out)
    ]
    return {**usual, **dict.fromkeys(others, rate / len(others))}


RATES = with_other_kinds(USUAL, OTHER_RATE)
SUSPEND_RATE = 0.0003
"""The rate of storage calls before which the machine is suspended, for up to a few sessions."""
TOPICS = {"in": 3, "out": 2}
GROUP = "g"
IDLE_GROUP = "idle"
"""A group without members, whose offsets must not expire."""

MACHINES = 5
"""Number of computers that the processes run on."""

SESSION_SECONDS = 10.0
NOTHING_WRITTEN = (StorageError, CommitConflictError)


class _Steps:
    """A clock that ticks at every read: only one actor runs at a time, so it orders all operations."""

    def __init__(self) -> None:
        self._now = 0

    def monotonic(self) -> float:
        self._now += 1
        return float(self._now)

    def now_ms(self) -> int:
        return self._now

    def sleep(self, seconds: float) -> None:
        raise AssertionError("sleeping on the history's clock")


MANY_CHECKPOINTS = LogSettings(checkpoint_interval_commits=5)
NO_CHECKPOINTS = LogSettings(checkpoint_interval_commits=10_000)


class World:
    """One run: the storage, the actors and their logs.

    ``at_work`` are the members that wait for one another at the end, so that ``settled`` has the owners of partitions
    once the storage has worked for some sessions.
    """

    def __init__(
        self,
        seed: int,
        rates: Mapping[str, float] = RATES,
        settings: LogSettings = MANY_CHECKPOINTS,
        level: int = levels.CURRENT,
    ) -> None:
        self.settings = settings
        self.at_work: set[str] = set()
        self.members = 0
        self.rested: dict[str, float] = {}
        self.settled: dict[str, set[TopicPartition]] = {}
        self.simulation = Simulation(seed)
        self.random: random.Random = self.simulation.random
        self.rates = rates
        self.name = f"world-{seed}"
        self.store = MemoryStore(self.name, self.simulation)
        self.machines = some_machines(self.simulation, MACHINES)
        self.calm = False
        self.broken: list[str] = []
        self.steps = _Steps()
        self.logs: dict[str, OperationLog] = {}
        self.lives: list[FaultyStore] = []
        self.heartbeats: dict[str, float] = {}
        cluster = create_cluster(
            self.store, clock=self.simulation, ids=self.simulation.ids(), settings=settings, level=level
        )
        for topic, partitions in TOPICS.items():
            cluster.create_topic(topic, partitions)
        cluster.submit(partial(commit_group_offsets, commit=GroupCommit(group=IDLE_GROUP, offsets={("in", 0): 0})))

    def log(self, process: str) -> OperationLog:
        return self.logs.setdefault(process, OperationLog(process, clock=self.steps))

    def open(self) -> Coordinator:
        """Start a new process: its own view of the storage, with its own faults."""
        store = self.simulation.store(self.store, self.rates, self._stop)
        self.lives.append(store)
        while True:
            try:
                return Coordinator(
                    CommitLog.open(store, self.simulation.clock, self.simulation.ids(), settings=self.settings)
                )
            except StorageError:
                continue

    def _stop(self, call: Call) -> float:
        if self.calm:
            return 0.0
        set_clock_now_and_then(self.simulation)
        machine = self.simulation.clock
        if isinstance(machine, Machine) and self.random.random() < SUSPEND_RATE:
            machine.suspend(self.random.uniform(1, 4 * SESSION_SECONDS))
        return 0.0

    def settle_at_end(self, *members: str) -> None:
        """Make these members wait for one another before they leave."""
        self.at_work, self.members = set(members), len(members)

    def rest(self, member: str) -> None:
        """Note that a member is done and still looks. Once all members are done, the storage works again."""
        self.at_work.discard(member)
        self.rested[member] = self.simulation.monotonic()
        if not self.at_work:
            self.rates = {}
            self.calm = True
            for store in self.lives:
                store.heal()

    def all_are_resting(self) -> bool:
        """Whether all members are done, and none has been suspended or dead since."""
        oldest = self.simulation.monotonic() - SESSION_SECONDS
        return not self.at_work and all(at > oldest for at in self.rested.values())

    def spawn(self, name: str, work: Callable[[], None]) -> None:
        """Start an actor on one of the machines."""
        self.simulation.spawn(name, work, self.random.choice(self.machines))

    def run(self, strict: bool = True) -> History:
        """Run all actors and the final read, then release the storage. ``strict``: no actor may fail."""
        try:
            with nullcontext() if strict else suppress(AssertionError):
                self.simulation.run()
            self._read_all()
        finally:
            forget_space(self.name)
        return History.collect(self.logs.values())

    def _read_all(self) -> None:
        coordinator = open_cluster(self.store)
        state = coordinator.state
        log = self.log("reader")
        log.record(READ, reads=snapshot(coordinator, state), final=True)
        offsets = state.groups[GROUP].offsets.values() if GROUP in state.groups else ()
        committed = sorted(Position(o.topic, o.partition, o.offset) for o in offsets)
        log.record(COMMITTED, group=GROUP, offsets=committed, final=True)
        positions = [
            Position(o.topic, o.partition, o.offset, action.group)
            for commit in coordinator.log.commits(0, state.version)
            for action in commit.actions
            if isinstance(action, CommitOffsets)
            for o in action.offsets
        ]
        log.record(OFFSET_LOG, offsets=positions)
        self._check_clocks(state)

    def _check_clocks(self, state: State) -> None:
        """Check that no machine's wrong clock has expired offsets or moved the log's time ahead."""
        if IDLE_GROUP not in state.groups:
            self.broken.append(f"the offsets of group {IDLE_GROUP} expired within an hour")
        ahead_ms = state.timestamp_ms - self.simulation.now_ms()
        if ahead_ms > limits.MAX_CLOCK_SKEW_MS:
            self.broken.append(f"the log's time is {ahead_ms} ms ahead")


def snapshot(coordinator: Coordinator, state: State) -> list[Read]:
    """Return all records of all partitions at one version."""
    reads = []
    for topic, partitions in TOPICS.items():
        for partition in range(partitions):
            end = state.partition(topic, partition).log_end_offset
            records = read(coordinator, state, TopicPartition(topic, partition), 0, end)
            reads.append(Read(topic, partition, records, 0, end))
    return reads


def read(
    coordinator: Coordinator, state: State, partition: TopicPartition, start: int, end: int
) -> list[tuple[int, str]]:
    """Return the records ``[start, end)`` of a partition, derived from the names of its runs."""
    records = []
    for segment in coordinator.segments(partition.topic, state).partition(partition.partition).between(start, end):
        for offset in range(max(start, segment.base_offset), min(end, segment.end_offset)):
            records.append((offset, f"{segment.path}/{offset - segment.base_offset}"))
    return records


class Sent:
    """The records of one request, and their form in the history."""

    def __init__(self, name: str, partitions: Sequence[TopicPartition], records: int) -> None:
        self.paths = {partition: f"{name}.{partition}" for partition in partitions}
        self.records = records

    def writes(self, result: AppendResult | None = None) -> list[Write]:
        bases = {TopicPartition(a.topic, a.partition): a.base_offset for a in result.appended} if result else {}
        return [
            Write(*partition, f"{path}/{row}", bases[partition] + row if partition in bases else -1)
            for partition, path in self.paths.items()
            for row in range(self.records)
        ]

    def appends(self, identity: ProducerIdentity, sequences: Mapping[TopicPartition, int]) -> list[PartitionAppend]:
        return [
            PartitionAppend(
                topic=partition.topic,
                topic_id="",
                partition=partition.partition,
                run=Run(
                    path=path,
                    batches=1,
                    records=self.records,
                    size_bytes=1,
                    min_timestamp_us=0,
                    max_timestamp_us=0,
                ),
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                base_sequence=sequences.get(partition, 0),
            )
            for partition, path in self.paths.items()
        ]


def choose_partitions(world: World, topic: str) -> list[TopicPartition]:
    partitions = range(TOPICS[topic])
    chosen = world.random.sample(partitions, world.random.randint(1, len(partitions)))
    return [TopicPartition(topic, partition) for partition in sorted(chosen)]


class IdempotentProducer:
    """Sends batches, and retries each with the same sequences until its outcome is known."""

    def __init__(self, world: World, name: str, batches: int) -> None:
        self.world = world
        self.name = name
        self.left = batches

    def work(self) -> None:
        while self.left > 0:
            try:
                self.live()
            except (SimulatedCrash, SimulatedInterrupt):
                continue

    def live(self) -> None:
        coordinator = self.world.open()
        identity = until_known(lambda: coordinator.submit(init_producer))
        assert isinstance(identity, ProducerIdentity)
        sequences: dict[TopicPartition, int] = {}
        while self.left > 0:
            self.left -= 1
            sent = Sent(
                f"{self.name}-{self.left}", choose_partitions(self.world, "in"), self.world.random.randint(1, 3)
            )
            request = AppendRequest(appends=sent.appends(identity, sequences))
            pending = self.world.log(self.name).invoke(
                SEND, writes=sent.writes(), producer_id=identity.producer_id, epoch=identity.producer_epoch
            )
            result = self.append(coordinator, request, pending)
            if result is not None:
                pending.ok(writes=sent.writes(result))
                sequences.update({partition: sequences.get(partition, 0) + sent.records for partition in sent.paths})
            self.world.simulation.sleep(self.world.random.uniform(0, 2))

    def append(self, coordinator: Coordinator, request: AppendRequest, pending: Pending) -> AppendResult | None:
        """Retry until there is an answer, or give up, so that the next batch reuses the sequences."""
        unknown = False
        while True:
            try:
                return coordinator.append(request)
            except (IndeterminateCommitError, *NOTHING_WRITTEN) as error:
                unknown = unknown or isinstance(error, IndeterminateCommitError)
                if self.may_give_up(unknown) and self.world.random.random() < 0.3:
                    pending.fail(error)
                    return None

    def may_give_up(self, unknown: bool) -> bool:
        """Whether it is certain that no attempt was written."""
        return not unknown


def until_known(ask: Callable[[], object]) -> object:
    """Retry until there is an answer; the requests are idempotent."""
    while True:
        try:
            return ask()
        except (IndeterminateCommitError, *NOTHING_WRITTEN):
            continue


class Transactions:
    """One instance of a transactional producer: its identity, and transactions that are one commit each."""

    def __init__(self, world: World, coordinator: Coordinator, process: str, transactional_id: str) -> None:
        self.world = world
        self.coordinator = coordinator
        self.log = world.log(process)
        self.transactional_id = transactional_id
        self.identity = ProducerIdentity(-1, -1)

    def init(self) -> None:
        pending = self.log.invoke(INIT_PRODUCER, transactional_id=self.transactional_id)
        decide = partial(init_producer, transactional_id=self.transactional_id)
        self.identity = until_known(lambda: self.coordinator.submit(decide))  # type: ignore[assignment]
        pending.ok(producer_id=self.identity.producer_id, epoch=self.identity.producer_epoch)

    def begin(self, sent: Sent, **facts: Any) -> Pending:
        return self.log.invoke(
            TRANSACTION,
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            epoch=self.identity.producer_epoch,
            writes=sent.writes(),
            **facts,
        )

    def commit(self, pending: Pending, sent: Sent, groups: Sequence[GroupCommit] = ()) -> None:
        """Retry the request until its outcome is known; record and raise a refusal."""
        request = AppendRequest(appends=sent.appends(self.identity, {}), groups=groups, transaction=self.identity)
        pending.committing()
        unknown = False
        while True:
            try:
                result = self.coordinator.append(request)
            except IndeterminateCommitError:
                unknown = True
            except NOTHING_WRITTEN:
                continue
            except ProducerFencedError as error:
                # Once an answer was lost, the transaction may be committed, and others after it.
                (pending.info if unknown else pending.fail)(error)
                raise
            except Exception as error:
                pending.fail(error)
                raise
            else:
                pending.ok(writes=sent.writes(result))
                if result.producer is None:
                    self.init()
                else:
                    self.identity = result.producer
                return


class TransactionalProducer:
    """One of several processes with the same transactional id: each takes over from the others when it is fenced."""

    def __init__(self, world: World, name: str, transactional_id: str, transactions: int) -> None:
        self.world = world
        self.name = name
        self.transactional_id = transactional_id
        self.left = transactions

    def work(self) -> None:
        while self.left > 0:
            try:
                self.live()
            except (SimulatedCrash, SimulatedInterrupt, ProducerFencedError):
                self.world.simulation.sleep(self.world.random.uniform(0, 20))

    def live(self) -> None:
        chance = self.world.random
        transactions = Transactions(self.world, self.world.open(), self.name, self.transactional_id)
        transactions.init()
        while self.left > 0:
            self.left -= 1
            partitions = [*choose_partitions(self.world, "in"), *choose_partitions(self.world, "out")]
            sent = Sent(f"{self.name}-{self.left}", partitions, 1)
            pending = transactions.begin(sent)
            self.world.simulation.sleep(chance.choice([0.1, 0.1, 15.0]))
            if chance.random() < 0.2:
                pending.fail("aborted")
                continue
            transactions.commit(pending, sent)


class Operator:
    """Raises the feature level at some time, and tries until that is done."""

    def __init__(self, world: World) -> None:
        self.world = world

    def work(self) -> None:
        self.world.simulation.sleep(self.world.random.uniform(0, 4 * SESSION_SECONDS))
        done = False
        while not done:
            with suppress(SimulatedCrash, SimulatedInterrupt, IndeterminateCommitError, *NOTHING_WRITTEN):
                self.world.open().submit(partial(raise_level, level=levels.CURRENT))
                done = True


class Janitor:
    """The maintenance of groups and commits, on a machine whose clock may be wrong."""

    def __init__(self, world: World, rounds: int, dead_members: bool) -> None:
        """``dead_members``: the members write leases, so that dead ones can be detected."""
        self.world = world
        self.left = rounds
        self.dead_members = dead_members

    def work(self) -> None:
        while self.left > 0:
            with suppress(SimulatedCrash, SimulatedInterrupt):
                self.live()

    def live(self) -> None:
        coordinator = self.world.open()
        dead = DeadMembers(coordinator)
        while self.left > 0:
            self.left -= 1
            self.world.simulation.sleep(self.world.random.uniform(0, 2 * SESSION_SECONDS))
            with suppress(IndeterminateCommitError, *NOTHING_WRITTEN):
                clean_up(
                    coordinator.store, coordinator.log.expiry_clock, coordinator.refresh().configs, self.world.settings
                )
                coordinator.submit(partial(expire_offsets, now_ms=coordinator.log.expiry_clock.now_ms()))
                if self.dead_members:
                    dead.expire()
