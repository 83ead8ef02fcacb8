"""Simulated members of a consumer group, which call the coordinator as ``coordinator.group_member`` does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sparklog.coordinator import Coordinator
from sparklog.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    IndeterminateCommitError,
    ProducerFencedError,
    UnknownMemberIdError,
)
from sparklog.protocol.decide.groups import (
    GroupCommit,
    JoinRequest,
    Offsets,
    acknowledge_revocation,
    commit_group_offsets,
    expire_silent_members,
    join_group,
    leave_group,
)
from sparklog.protocol.group.rebalance import list_partitions
from sparklog.protocol.state import GroupState, MemberState, State
from sparklog.testing.faulty_store import SimulatedCrash, SimulatedInterrupt
from sparklog.testing.history import (
    ASSIGN,
    COMMIT_OFFSETS,
    POLL,
    READ,
    REVOKE,
    SEEK,
    Pending,
    Position,
    Read,
)
from sparklog.types import TopicPartition
from tests.simulation.world import (
    GROUP,
    NOTHING_WRITTEN,
    SESSION_SECONDS,
    Sent,
    Transactions,
    World,
    read,
    snapshot,
    until_known,
)

CALM_ROUNDS = 16
"""Rounds of a quarter of a session: enough to expire dead members, and for two rebalances."""

REFUSED = (IllegalGenerationError, UnknownMemberIdError, FencedInstanceIdError)


class Member:
    """A process that reads "in" as a member of the group; with ``copies`` it copies to "out" in transactions that
    include its offsets."""

    def __init__(
        self,
        world: World,
        name: str,
        rounds: int,
        *,
        copies: bool = False,
        instance: str = "",
        assignors: Sequence[str] = ("cooperative-sticky", "range"),
        life: type[Life] | None = None,
    ) -> None:
        self.world = world
        self.name = name
        self.left = rounds
        self.copies = copies
        self.instance = instance
        self.assignors = assignors
        self.life = life or Life
        self.lives = 0
        self.done = False
        self.log = world.log(name)

    def work(self) -> None:
        while not self.done:
            try:
                self.life(self).run()
            except (SimulatedCrash, SimulatedInterrupt):
                self.world.simulation.sleep(self.world.random.uniform(0, 30))


class Life:
    """One process of a member, from its start to its death."""

    def __init__(self, member: Member) -> None:
        self.of = member
        self.world = member.world
        self.log = member.log
        self.coordinator: Coordinator = self.world.open()
        self.generation = -1
        self.positions: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.id = ""
        self.consumer = ""
        self.transactions = None
        if member.copies:
            self.transactions = Transactions(self.world, self.coordinator, member.name, f"copy-{member.name}")
            self.transactions.init()
        self.join()

    def join(self) -> None:
        self.of.lives += 1
        self.id = self.consumer = f"{self.of.name}.{self.of.lives}"
        self.beat()
        request = JoinRequest(
            group=GROUP,
            member=self.id,
            instance_id=self.of.instance,
            topics=["in"],
            assignors=self.of.assignors,
            session_timeout_ms=int(SESSION_SECONDS * 1000),
        )
        until_known(lambda: self.coordinator.submit(partial(join_group, request=request)))

    def beat(self) -> None:
        self.world.heartbeats[self.id] = self.world.simulation.monotonic()

    def run(self) -> None:
        chance = self.world.random
        while self.of.left > 0:
            self.of.left -= 1
            self.world.simulation.sleep(chance.choice([0.2, 0.5, 1.0, 2.0, 3 * SESSION_SECONDS]))
            # A zombie does not look before it acts: its partitions were reassigned while it stalled.
            if not self.act(look=chance.random() < 0.8):
                return
        if self.world.members and not self.settle():
            return
        self.leave()
        self.of.done = True

    def act(self, look: bool) -> bool:
        """Run one round; return whether this life continues."""
        try:
            if look:
                self.look()
            self.poll()
            self.commit()
        except (IndeterminateCommitError, *NOTHING_WRITTEN, IllegalGenerationError):
            self.rewind()
        except UnknownMemberIdError:
            self.rejoin()
        except (FencedInstanceIdError, ProducerFencedError):
            self.lose()
            return False
        return True

    def settle(self) -> bool:
        """Continue without faults and stalls until all members are done and have looked regularly for some sessions."""
        calm = 0
        while calm < CALM_ROUNDS:
            self.world.rest(self.of.name)
            self.world.simulation.sleep(SESSION_SECONDS / 4)
            if not self.act(look=True):
                return False
            calm = calm + 1 if self.world.all_are_resting() else 0
        self.world.settled[self.of.name] = set(self.positions)
        while len(self.world.settled) < self.world.members:
            self.world.rest(self.of.name)
            self.world.simulation.sleep(SESSION_SECONDS / 4)
            if not self.act(look=True):
                return False
        return True

    # -- membership

    def look(self) -> None:
        """Send a heartbeat, refresh the state, and follow a rebalance."""
        since = self.log.now()
        state = self.coordinator.refresh()
        group = state.groups.get(GROUP, GroupState())
        self.beat()
        self.expire(group)
        me = group.members.get(self.id)
        if me is None:
            raise UnknownMemberIdError(f"{self.id} is not in the group")
        if me.revoking:
            self.revoke(me, group)
        if group.generation != self.generation or set(list_partitions(me.assigned)) != set(self.positions):
            self.take(me, group, since)
        if self.world.random.random() < 0.2:
            self.log.record(READ, reads=snapshot(self.coordinator, state))

    def expire(self, group: GroupState) -> None:
        now = self.world.simulation.monotonic()
        for other in group.members:
            if now - self.world.heartbeats[other] > SESSION_SECONDS:
                self.coordinator.submit(partial(expire_silent_members, group=GROUP, members=[other], seen=group))

    def revoke(self, me: MemberState, group: GroupState) -> None:
        revoked = [partition for partition in list_partitions(me.revoking) if partition in self.positions]
        self.log.record(REVOKE, partitions=revoked, consumer=self.consumer)
        offsets = {partition: self.positions.pop(partition) for partition in revoked}
        self.generation = group.generation
        if self.of.copies:
            offsets = {}  # its transactions commit its offsets
        pending = self.commit_operation(offsets)
        committed: Offsets = {(partition.topic, partition.partition): offset for partition, offset in offsets.items()}
        try:
            self.coordinator.submit(
                partial(
                    acknowledge_revocation,
                    commit=GroupCommit(group=GROUP, member=self.id, generation=group.generation, offsets=committed),
                )
            )
        except (*NOTHING_WRITTEN, *REFUSED) as error:
            pending.fail(error)
            raise
        pending.ok()

    def take(self, me: MemberState, group: GroupState, since: float) -> None:
        owned = list_partitions(me.assigned)
        self.generation = group.generation
        committed = {TopicPartition(o.topic, o.partition): o.offset for o in group.offsets.values()}
        new = {partition: committed.get(partition, 0) for partition in owned if partition not in self.positions}
        self.positions = {partition: self.positions.get(partition, new.get(partition, 0)) for partition in owned}
        self.committed = {partition: self.committed.get(partition, 0) for partition in owned} | new
        self.log.record(
            ASSIGN,
            since,
            group=GROUP,
            member=self.id,
            instance=self.of.instance,
            consumer=self.consumer,
            generation=self.generation,
            partitions=owned,
            positions=[Position(*partition, offset) for partition, offset in new.items()],
            reset="earliest",
        )

    def rejoin(self) -> None:
        """Drop all partitions, and join the group again."""
        self.lose()
        self.join()

    def lose(self) -> None:
        """Drop all partitions: the member is no longer in the group."""
        self.log.record(REVOKE, partitions=list(self.positions), consumer=self.consumer)
        self.positions = {}
        self.generation = -1

    def leave(self) -> None:
        self.lose()
        until_known(
            lambda: self.coordinator.submit(partial(leave_group, group=GROUP, members=[self.id], reason="left"))
        )

    # -- records

    def poll(self) -> None:
        """Read up to three records of each partition it thinks it owns, from its newest state."""
        state: State = self.coordinator.state
        polled = {}
        for partition, position in self.positions.items():
            end = min(position + 3, state.partition(*partition).log_end_offset)
            polled[partition] = read(self.coordinator, state, partition, position, end)
        self.log.record(
            POLL, reads=[Read(*partition, records) for partition, records in polled.items()], consumer=self.consumer
        )
        self.positions = {
            partition: position + len(polled[partition]) for partition, position in self.positions.items()
        }

    def commit(self) -> None:
        ahead = {partition: at for partition, at in self.positions.items() if at > self.committed.get(partition, 0)}
        if not ahead:
            return
        if self.transactions is not None:
            self.copy(self.transactions, ahead)
        else:
            self.commit_alone(ahead)
        self.committed.update(ahead)

    def commit_alone(self, ahead: dict[TopicPartition, int]) -> None:
        pending = self.commit_operation(ahead)
        try:
            self.coordinator.submit(partial(commit_group_offsets, commit=self.group_commit(ahead)))
        except IndeterminateCommitError as error:
            pending.info(error)
            raise
        except (*NOTHING_WRITTEN, *REFUSED) as error:
            pending.fail(error)
            raise
        pending.ok()

    def group_commit(self, offsets: dict[TopicPartition, int]) -> GroupCommit:
        return GroupCommit(
            group=GROUP,
            offsets=dict(offsets),  # type: ignore[arg-type]
            member=self.id,
            generation=self.generation,
            instance_id=self.of.instance,
        )

    def copy(self, transactions: Transactions, ahead: dict[TopicPartition, int]) -> None:
        """Copy each record read to "out" once; the name of the copy contains the ranges of its source records."""
        inputs = ",".join(f"{partition}:{self.committed[partition]}-{at}" for partition, at in sorted(ahead.items()))
        epoch = f"{transactions.identity.producer_id}.{transactions.identity.producer_epoch}"
        sent = Sent(f"copy[{inputs}]{self.id}@{epoch}", [TopicPartition("out", self.world.random.randrange(2))], 1)
        positions = [Position(*partition, at, GROUP) for partition, at in ahead.items()]
        pending = transactions.begin(
            sent, offsets=positions, member=self.id, instance=self.of.instance, generation=self.generation
        )
        transactions.commit(pending, sent, [self.group_commit(ahead)])

    def rewind(self) -> None:
        """Seek to the committed offsets, so that uncommitted records are read again."""
        if self.of.copies:
            positions = [Position(*partition, self.committed.get(partition, 0)) for partition in self.positions]
            self.positions = {TopicPartition(p.topic, p.partition): p.offset for p in positions}
            self.log.record(SEEK, positions=positions, consumer=self.consumer)

    def commit_operation(self, offsets: dict[TopicPartition, int]) -> Pending:
        return self.log.invoke(
            COMMIT_OFFSETS,
            group=GROUP,
            member=self.id,
            instance=self.of.instance,
            consumer=self.consumer,
            generation=self.generation,
            offsets=[Position(*partition, offset) for partition, offset in offsets.items()],
        )
