"""Simulated members of a consumer group, which call the coordinator as ``coordinator.membership`` does."""

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
    join_group,
)
from sparklog.protocol.group.membership import list_partitions
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
"""of a quarter of a session each: to expire who has died, and for two rebalances."""

REFUSED = (IllegalGenerationError, UnknownMemberIdError, FencedInstanceIdError)


class Member:
    """A process that reads "in" as a member of the group; with ``copies``, it writes what it reads to "out" in
    transactions that carry its offsets."""

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
            # A zombie does not look before it acts: what it holds was taken from it while it stalled.
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
            self.out()
        except (FencedInstanceIdError, ProducerFencedError):
            self.lose()
            return False
        return True

    def settle(self) -> bool:
        """Continue until all have done their work and looked regularly for some sessions, without faults and stalls."""
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
        """Heartbeat, see what others did, and do what a rebalance asks for."""
        since = self.log.now()
        state = self.coordinator.refresh()
        group = state.groups.get(GROUP, GroupState())
        self.beat()
        self.expire(group)
        me = group.members.get(self.id)
        if me is None:
            raise UnknownMemberIdError(f"{self.id} is out")
        if me.revoking:
            self.give_up(me, group)
        if group.generation != self.generation or set(list_partitions(me.assigned)) != set(self.positions):
            self.take(me, group, since)
        if self.world.random.random() < 0.2:
            self.log.record(READ, reads=snapshot(self.coordinator, state))

    def expire(self, group: GroupState) -> None:
        now = self.world.simulation.monotonic()
        for other in group.members:
            if now - self.world.heartbeats[other] > SESSION_SECONDS:
                self.coordinator.leave_group(GROUP, [other], "expired", group.generation)

    def give_up(self, me: MemberState, group: GroupState) -> None:
        gone = [place for place in list_partitions(me.revoking) if place in self.positions]
        self.log.record(REVOKE, partitions=gone, consumer=self.consumer)
        offsets = {place: self.positions.pop(place) for place in gone}
        self.generation = group.generation
        if self.of.copies:
            offsets = {}  # its offsets are those of its transactions
        with_commit = self.commit_operation(offsets)
        committed: Offsets = {(place.topic, place.partition): offset for place, offset in offsets.items()}
        try:
            self.coordinator.submit(
                partial(
                    acknowledge_revocation,
                    group=GROUP,
                    member=self.id,
                    generation=group.generation,
                    offsets=committed,
                )
            )
        except (*NOTHING_WRITTEN, *REFUSED) as error:
            with_commit.fail(error)
            raise
        with_commit.ok()

    def take(self, me: MemberState, group: GroupState, since: float) -> None:
        owned = list_partitions(me.assigned)
        self.generation = group.generation
        committed = {TopicPartition(o.topic, o.partition): o.offset for o in group.offsets.values()}
        new = {place: committed.get(place, 0) for place in owned if place not in self.positions}
        self.positions = {place: self.positions.get(place, new.get(place, 0)) for place in owned}
        self.committed = {place: self.committed.get(place, 0) for place in owned} | new
        self.log.record(
            ASSIGN,
            since,
            group=GROUP,
            member=self.id,
            instance=self.of.instance,
            consumer=self.consumer,
            generation=self.generation,
            partitions=owned,
            positions=[Position(*place, offset) for place, offset in new.items()],
            reset="earliest",
        )

    def out(self) -> None:
        """A request was refused, since it is in the group no more."""
        self.lose()
        self.join()

    def lose(self) -> None:
        """It is out of the group: it lets go of everything."""
        self.log.record(REVOKE, partitions=list(self.positions), consumer=self.consumer)
        self.positions = {}
        self.generation = -1

    def leave(self) -> None:
        self.lose()
        until_known(lambda: self.coordinator.leave_group(GROUP, [self.id]))

    # -- records

    def poll(self) -> None:
        """Up to a few records of each partition it believes to own, of the newest state it knows."""
        state: State = self.coordinator.state
        found = {}
        for place, position in self.positions.items():
            end = min(position + 3, state.partition(*place).log_end_offset)
            found[place] = read(self.coordinator, state, place, position, end)
        self.log.record(POLL, reads=[Read(*place, records) for place, records in found.items()], consumer=self.consumer)
        self.positions = {place: position + len(found[place]) for place, position in self.positions.items()}

    def commit(self) -> None:
        ahead = {place: at for place, at in self.positions.items() if at > self.committed.get(place, 0)}
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
        """Each record that was read, once to "out": the name of the copy says of which records it is."""
        inputs = ",".join(f"{place}:{self.committed[place]}-{at}" for place, at in sorted(ahead.items()))
        epoch = f"{transactions.identity.producer_id}.{transactions.identity.producer_epoch}"
        sent = Sent(f"copy[{inputs}]{self.id}@{epoch}", [TopicPartition("out", self.world.random.randrange(2))], 1)
        positions = [Position(*place, at, GROUP) for place, at in ahead.items()]
        pending = transactions.begin(
            sent, offsets=positions, member=self.id, instance=self.of.instance, generation=self.generation
        )
        transactions.commit(pending, sent, [self.group_commit(ahead)])

    def rewind(self) -> None:
        """What was read and not committed is read again: a consumer that seeks to its committed offsets."""
        if self.of.copies:
            places = [Position(*place, self.committed.get(place, 0)) for place in self.positions]
            self.positions = {TopicPartition(p.topic, p.partition): p.offset for p in places}
            self.log.record(SEEK, positions=places, consumer=self.consumer)

    def commit_operation(self, offsets: dict[TopicPartition, int]) -> Pending:
        return self.log.invoke(
            COMMIT_OFFSETS,
            group=GROUP,
            member=self.id,
            instance=self.of.instance,
            consumer=self.consumer,
            generation=self.generation,
            offsets=[Position(*place, offset) for place, offset in offsets.items()],
        )
