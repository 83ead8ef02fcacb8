"""Facts of consumer groups, their members, and how far they are behind.

The log says who joined a group and never left; whether they are alive, only their leases say, which are files. So who
shows groups passes them on as it knows them: ``state.groups``, as the log has them, or without the dead
(``coordinator.group_liveness.abandoned_emptied``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sparklog.monitoring.facts.columns import Count, NullableTime, Number, Text, Texts
from sparklog.protocol.state import GroupState, Partitions, State

Groups = Mapping[str, GroupState]
"""Groups by name, as far as it is known who of their members is alive."""


def unread(lag: int) -> int:
    """Return how many offsets of a partition a group has not read: what it adds to the lag of several partitions. An
    offset past the end, a negative lag, does not make up for what was not read of another partition."""
    return max(lag, 0)


class GroupFacts(NamedTuple):
    """A consumer group. ``topics`` are those that members subscribe to or that have committed offsets, ``partitions``
    counts the latter's; ``lag`` is the number of unread offsets in them."""

    group: Text
    state: Text
    generation: Number
    assignor: Text
    members: Number
    topics: Texts
    partitions: Number
    lag: Count
    last_commit: NullableTime


def group_facts(state: State, name: str, group: GroupState) -> GroupFacts:
    """Return the facts of a group."""
    offsets = state.committed_offsets(name)
    subscribed = {topic for member in group.members.values() for topic in member.topics}
    return GroupFacts(
        group=name,
        state=group.name_of_state,
        generation=group.generation,
        assignor=group.assignor,
        members=len(group.members),
        topics=sorted(subscribed | {partition.topic for partition in offsets}),
        partitions=len(offsets),
        lag=sum(unread(state.partition(*at).log_end_offset - offset.offset) for at, offset in offsets.items()),
        last_commit=max((offset.timestamp_ms for offset in offsets.values()), default=None),
    )


def groups(state: State, known: Groups) -> Iterator[GroupFacts]:
    """Yield the facts of groups, in the order of their names."""
    return (group_facts(state, name, group) for name, group in sorted(known.items()))


class MemberFacts(NamedTuple):
    """A member of a group, with its partitions as ``topic-partition``."""

    group: Text
    member: Text
    instance_id: Text
    client_id: Text
    host: Text
    topics: Texts
    assigned: Texts
    revoking: Texts
    session_timeout_ms: Number


def members(known: Groups) -> Iterator[MemberFacts]:
    """Yield the facts of the members of groups, in the order of groups and ids."""
    for name, group in sorted(known.items()):
        for member_id, member in sorted(group.members.items()):
            yield MemberFacts(
                group=name,
                member=member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.host,
                topics=list(member.topics),
                assigned=_names(member.assigned),
                revoking=_names(member.revoking),
                session_timeout_ms=member.session_timeout_ms,
            )


def _names(held: Partitions) -> list[str]:
    return [f"{topic}-{number}" for topic, numbers in sorted(held.items()) for number in numbers]
