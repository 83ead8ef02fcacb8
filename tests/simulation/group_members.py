"""Simulated members of a consumer group that are ``coordinator.membership.GroupMember``, as the Consumer drives it."""

from __future__ import annotations

from collections.abc import Callable

from sparklog.coordinator.membership import Change, GroupMember
from sparklog.errors import CommitFailedError, SparklogError, UnknownMemberIdError
from sparklog.protocol.state import GroupState
from sparklog.testing.history import ASSIGN, READ, REVOKE, Pending, Position
from sparklog.types import TopicPartition
from tests.simulation.members import Life
from tests.simulation.world import GROUP, SESSION_SECONDS, snapshot, until_known


class GroupMemberLife(Life):
    """What ``Life`` does with the coordinator, done with the class that the Consumer uses."""

    def join(self) -> None:
        self.of.lives += 1
        self.consumer = f"{self.of.name}.{self.of.lives}"
        self.member = GroupMember(
            self.coordinator,
            GROUP,
            client_id=self.of.name,
            host="simulated",
            instance_id=self.of.instance,
            assignors=self.of.assignors,
            session_timeout_ms=int(SESSION_SECONDS * 1000),
        )
        self.join_again()

    def join_again(self) -> None:
        until_known(lambda: self.member.join(["in"]))
        self.id = self.member.member_id

    def look(self) -> None:
        since = self.log.now()
        self.member.beat()
        change = self.member.reconcile()
        gone = [place for place in self.positions if place in change.revoked or place in change.lost]
        if gone:
            self.log.record(REVOKE, partitions=gone, consumer=self.consumer)
        offsets = {place: self.positions.pop(place) for place in gone}
        self.generation = self.member.generation
        try:
            if change.to_acknowledge:
                self.acknowledge({place: at for place, at in offsets.items() if place in change.revoked})
        finally:  # what the group has given is told once, also where the storage fails meanwhile
            if change.assigned or change.completed:
                self.begin(change, since)
        if not self.member.joined:
            self.join_again()
        if self.world.random.random() < 0.2:
            self.log.record(READ, reads=snapshot(self.coordinator, self.coordinator.state))

    def acknowledge(self, offsets: dict[TopicPartition, int]) -> None:
        if self.of.copies:
            offsets = {}  # its offsets are those of its transactions
        self.recorded(self.commit_operation(offsets), lambda: self.member.acknowledge(offsets))  # type: ignore[arg-type]

    def begin(self, change: Change, since: float) -> None:
        group = self.coordinator.state.groups.get(GROUP, GroupState())
        committed = {TopicPartition(o.topic, o.partition): o.offset for o in group.offsets.values()}
        owned = sorted(self.member.owned)
        new = {place: committed.get(place, 0) for place in owned if place in change.assigned}
        self.positions = {place: new.get(place, self.positions.get(place, 0)) for place in owned}
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

    def commit_alone(self, ahead: dict[TopicPartition, int]) -> None:
        self.recorded(self.commit_operation(ahead), lambda: self.member.commit(dict(ahead)))  # type: ignore[arg-type]

    def recorded(self, pending: Pending, commit: Callable[[], None]) -> None:
        """It repeats by itself what was unclear, so an error says nothing about the tries before."""
        try:
            commit()
        except CommitFailedError as error:
            pending.info(error)
            raise UnknownMemberIdError("out") from error
        except SparklogError as error:
            pending.info(error)
            raise
        pending.ok()

    def out(self) -> None:
        """The next look tells what it has lost."""
        self.rewind()

    def leave(self) -> None:
        self.lose()
        until_known(self.member.leave)
