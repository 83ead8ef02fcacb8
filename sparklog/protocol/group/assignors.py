"""The assignors of Apache Kafka: which member of a group reads which partition.

``range``, ``roundrobin``, ``sticky`` and ``cooperative-sticky`` give for the same members, subscriptions and partitions
the same result as Kafka's Java clients, including the order in a member's list (tests/golden/assignors was written by
those).

Where Kafka's own result would be wrong, the correct one is given instead: no member gets a partition that does not
exist or of a topic it does not subscribe to, whatever it claims to have owned.

Rules: pure, and independent of the order of the arguments' entries. Racks are ignored. Not for: generations, joining
and leaving members, and the transition to a new assignment (``rebalance``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparklog.errors import InconsistentGroupProtocolError
from sparklog.protocol.group import sticky
from sparklog.protocol.group.subscriptions import (
    MemberSubscription,
    java_key,
    java_sorted,
    member_order,
    subscribed_partitions,
    table_order,
)
from sparklog.types import TopicPartition

__all__ = ["ASSIGNORS", "MemberSubscription", "assign", "choose_assignor", "withhold_owned"]

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")

Assignment = dict[str, list[TopicPartition]]


def assign(assignor: str, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
    """Return the partitions of each member; every member is a key, possibly with an empty list.

    Args:
        assignor: one of ``ASSIGNORS``.
        partitions: the partition count of each existing topic; other topics are not assigned.
        members: subscription and owned partitions of each member, by member id.

    For ``cooperative-sticky`` this is the target: ``withhold_owned`` returns the part of it that members may have
    while others still own some. Raises InconsistentGroupProtocolError for an unknown assignor.
    """
    if assignor not in ASSIGNORS:
        raise InconsistentGroupProtocolError(f"unknown assignor {assignor!r}; choose from {', '.join(ASSIGNORS)}")
    if not members:
        return {}
    order = member_order(members)
    topics = subscribed_partitions(partitions, members, order)
    if assignor == "range":
        return _assign_ranges(topics, members, order)
    if assignor == "roundrobin":
        return _assign_round_robin(topics, members, order)
    return sticky.assign(topics, members, order, grouped=assignor == "sticky")


def withhold_owned(
    target: Mapping[str, Sequence[TopicPartition]], members: Mapping[str, MemberSubscription]
) -> Assignment:
    """Return the part of a ``cooperative-sticky`` target without partitions that another member must release first.

    ``members`` is the argument that ``target`` was computed from. The order of each member's partitions is kept.
    """
    withheld = sticky.changing_owner(target, members, member_order(members))
    return {
        member: [partition for partition in partitions if partition not in withheld]
        for member, partitions in target.items()
    }


def choose_assignor(preferences: Mapping[str, Sequence[str]]) -> str:
    """Return the assignor of a group whose members support these, each in order of preference; "" if none is common.

    Each member votes for the first of its assignors that all support; most votes win. As in Kafka, a tie goes to the
    one that comes first in a hash table of the votes (``ClassicGroup.selectProtocol``).
    """
    lists = list(preferences.values())
    common = set(lists[0]).intersection(*lists[1:]) if lists else set()
    if not common:
        return ""
    votes = [next(name for name in supported if name in common) for supported in lists]
    return max(table_order(java_sorted(votes)), key=votes.count)


def _static_first(members: Mapping[str, MemberSubscription], order: Sequence[str]) -> list[str]:
    """Sort static members first, by ``group.instance.id``, then the others by member id."""

    def key(member: str) -> tuple[bool, bytes]:
        instance_id = members[member].instance_id
        return not instance_id, java_key(instance_id or member)

    return sorted(order, key=key)


def _assign_ranges(
    topics: Mapping[str, int], members: Mapping[str, MemberSubscription], order: Sequence[str]
) -> Assignment:
    """Split each topic into as many ranges as it has subscribers; the first ones are longer by one if necessary."""
    subscribers = _find_subscribers(topics, members, _static_first(members, order))
    assigned: Assignment = {member: [] for member in members}
    for topic, count in topics.items():
        size, longer = divmod(count, len(subscribers[topic]))
        start = 0
        for number, member in enumerate(subscribers[topic]):
            if start == count:
                break
            end = start + size + (number < longer)
            assigned[member].extend([TopicPartition(topic, partition) for partition in range(start, end)])
            start = end
    return assigned


def _find_subscribers(
    topics: Mapping[str, int], members: Mapping[str, MemberSubscription], order: Sequence[str]
) -> Mapping[str, Sequence[str]]:
    """Return the subscribers of each topic, in this order of the members."""
    if len({members[member].topics for member in order}) == 1:
        return dict.fromkeys(topics, order)
    subscribers: dict[str, list[str]] = {topic: [] for topic in topics}
    for member in order:
        for topic in dict.fromkeys(members[member].topics):
            if topic in subscribers:
                subscribers[topic].append(member)
    return subscribers


def _assign_round_robin(
    topics: Mapping[str, int], members: Mapping[str, MemberSubscription], order: Sequence[str]
) -> Assignment:
    """Assign all partitions in order to the members in turn; members that do not subscribe to the topic are skipped."""
    circle = _static_first(members, order)
    wanted = {names: frozenset(names) for names in {members[member].topics for member in circle}}
    turns = [wanted[members[member].topics] for member in circle]
    assigned: Assignment = {member: [] for member in members}
    turn = 0
    for topic in java_sorted(topics):
        for partition in range(topics[topic]):
            while topic not in turns[turn]:
                turn = (turn + 1) % len(circle)
            assigned[circle[turn]].append(TopicPartition(topic, partition))
            turn = (turn + 1) % len(circle)
    return assigned
