"""Simulated group members that use ``coordinator.group_member.GroupMember`` as the Consumer does."""

from __future__ import annotations

from collections.abc import Callable

from sparklog.coordinator.group_member import GroupMember, MemberChange
from sparklog.errors import CommitFailedError, SparklogError, UnknownMemberIdError
from sparklog.protocol.state import GroupState
from sparklog.testing.history import ASSIGN, READ, REVOKE, Pending, Position
from sparklog.types import TopicPartition
from tests.simulation.members import Life
from tests.simulation.world import GROUP, SESSION_SECONDS, snapshot, until_known


class GroupMemberLife(Life):
    """``Life``, with the membership class that the Consumer uses."""

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
        revoked = [partition for partition in self.positions if partition in change.revoked or partition in change.lost]
        if revoked:
            self.log.record(REVOKE, partitions=revoked, consumer=self.consumer)
        offsets = {partition: self.positions.pop(partition) for partition in revoked}
        self.generation = self.member.generation
        try:
            if change.to_acknowledge:
                self.acknowledge({partition: at for partition, at in offsets.items() if partition in change.revoked})
        finally:  # an assignment is reported once, even if the storage fails here
            if change.assigned or change.completed:
                self.begin(change, since)
        if not self.member.joined:
            self.join_again()
        if self.world.random.random() < 0.2:
            self.log.record(READ, reads=snapshot(self.coordinator, self.coordinator.state))

    def acknowledge(self, offsets: dict[TopicPartition, int]) -> None:
        if self.of.copies:
            offsets = {}  # its transactions commit its offsets
        self.recorded(self.commit_operation(offsets), lambda: self.member.acknowledge(offsets))  # type: ignore[arg-type]

    def begin(self, change: MemberChange, since: float) -> None:
        group = self.coordinator.state.groups.get(GROUP, GroupState())
        committed = {TopicPartition(o.topic, o.partition): o.offset for o in group.offsets.values()}
        owned = sorted(self.member.owned)
        new = {partition: committed.get(partition, 0) for partition in owned if partition in change.assigned}
        self.positions = {partition: new.get(partition, self.positions.get(partition, 0)) for partition in owned}
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

    def commit_alone(self, ahead: dict[TopicPartition, int]) -> None:
        self.recorded(self.commit_operation(ahead), lambda: self.member.commit(dict(ahead)))  # type: ignore[arg-type]

    def recorded(self, pending: Pending, commit: Callable[[], None]) -> None:
        """The member retries unknown outcomes itself, so an error says nothing about earlier attempts."""
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
        """The next ``look`` reports the lost partitions."""
        self.rewind()

    def leave(self) -> None:
        self.lose()
        until_known(self.member.leave)
