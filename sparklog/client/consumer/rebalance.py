"""A change of a consumer's partitions while it is applied: what is left to do, in Kafka's order.

    rebalance = plan_rebalance(member.look(), positions)
    while rebalance.steps:
        ...  # the first step
        rebalance.steps.popleft()

An interrupt (Ctrl-C, an alarm) may arrive at any line. A step is the first one until it has ended, and the next
``poll`` begins with it again: each can be repeated, and a listener may be told the same twice. The plan goes by the
partitions that the subscription has, whatever an interrupted change has left there.

Rules: pure. Not for: doing any of it (``group_session``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum

from msgspec.structs import replace

from sparklog.coordinator.group_member import FoundGroup
from sparklog.errors import SparklogError
from sparklog.protocol.decide.groups import GroupCommit
from sparklog.types import TopicPartition


class RebalanceStep(Enum):
    """A part of a change. Its value is the order in which they are done."""

    ADOPT = 1
    """The member has the change."""
    LOSE = 2
    """The listener is told what is lost, and nothing of that is read any more."""
    TELL_REVOKED = 3
    """The listener is told what is revoked, and may commit; then the last offsets are known."""
    DROP_REVOKED = 4
    FINISH_COMMITS = 5
    """Asynchronous commits, as of the listener, have completed: reading resumes at their offsets."""
    ACKNOWLEDGE = 6
    """The last offsets are committed, and others get the partitions."""
    ASSIGN = 7
    """What is assigned is added, and the listener is told."""


@dataclass(eq=False)
class Rebalance:
    """What is left to do. ``last`` are the offsets to commit before others get the partitions, less those of the
    partitions in ``committed``, which the program has committed since the listener was called first: None until then.
    ``failure`` is an error of that commit, which does not keep the consumer from what it is assigned."""

    found: FoundGroup
    lost: frozenset[TopicPartition]
    revoked: frozenset[TopicPartition]
    assigned: frozenset[TopicPartition]
    steps: deque[RebalanceStep]
    last: GroupCommit | None = None
    committed: set[TopicPartition] | None = None
    failure: SparklogError | None = field(default=None, repr=False)

    def note_commit(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that a commit by the program has begun. From the listener on that is the last word in its partitions,
        also if it fails: records are then read again, and none is skipped."""
        if self.committed is not None:
            self.committed.update(partitions)

    def last_offsets(self) -> GroupCommit:
        """Return what is left to commit; called after the listener."""
        assert self.last is not None
        committed = self.committed or ()
        kept = {partition: at for partition, at in self.last.offsets.items() if partition not in committed}
        return replace(self.last, offsets=kept)

    def is_of(self, member: str) -> bool:
        """Return whether it is a change of this member still; one that is out of the group has no id."""
        return member == self.found.member or (self.found.is_out and not member)


def plan_rebalance(found: FoundGroup, positions: Collection[TopicPartition]) -> Rebalance | None:
    """Return the steps from these partitions to those of the member; None if there is nothing to do but to adopt."""
    change, have = found.change, frozenset(positions)
    lost = (have & change.lost) | (have - change.revoked - found.owned)
    revoked = (have & change.revoked) - lost
    assigned = found.owned - (have - lost - revoked)
    steps = {
        RebalanceStep.LOSE: bool(lost),
        RebalanceStep.TELL_REVOKED: bool(revoked) or change.to_acknowledge,
        RebalanceStep.DROP_REVOKED: bool(revoked),
        RebalanceStep.FINISH_COMMITS: bool(revoked) or bool(assigned),
        RebalanceStep.ACKNOWLEDGE: bool(revoked) or change.to_acknowledge,
        RebalanceStep.ASSIGN: bool(assigned) or change.completed,
    }
    if not any(steps.values()):
        return None
    planned = [RebalanceStep.ADOPT, *(step for step, is_needed in steps.items() if is_needed)]
    return Rebalance(found, lost, revoked, assigned, deque(planned))
