"""Which member of a group reads which partition: the assignors of Apache Kafka, with its results.

``range``, ``roundrobin``, ``sticky`` and ``cooperative-sticky`` give for the same members, subscriptions and partitions
what Kafka's Java clients give, down to the order in a member's list (tests/golden/assignors was written by those).

Where Kafka's own result would be wrong, partitions are assigned rightly instead: no member is ever given a partition
that does not exist or of a topic it does not subscribe to, whatever it claims to have owned.

Pure, and the same for any order of the arguments' entries. Racks are not looked at. Not for: generations, members
that come and go, and what to do with a new assignment (the group's state).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparklog.errors import InconsistentGroupProtocolError
from sparklog.protocol.group import sticky
from sparklog.protocol.group.subscriptions import (
    Subscription,
    java_key,
    java_sorted,
    member_order,
    subscribed_partitions,
    table_order,
)
from sparklog.types import TopicPartition

__all__ = ["ASSIGNORS", "Subscription", "assign", "choose_assignor", "withhold_owned"]

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")

Assignment = dict[str, list[TopicPartition]]


def assign(assignor: str, partitions: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
    """The partitions of each member; every member is a key, some perhaps with nothing.

    Args:
        assignor: one of ``ASSIGNORS``.
        partitions: the number of partitions of each topic that exists; other topics are assigned to nobody.
        members: what each member asks for and owns, by member id.

    For ``cooperative-sticky`` this is where the group is going: ``withhold_owned`` says what of it the members may
    have while others still own some.

    Raises:
        InconsistentGroupProtocolError: there is no such assignor.
    """
    if assignor not in ASSIGNORS:
        raise InconsistentGroupProtocolError(f"no assignor is called {assignor!r}; take one of {', '.join(ASSIGNORS)}")
    if not members:
        return {}
    order = member_order(members)
    topics = subscribed_partitions(partitions, members, order)
    if assignor == "range":
        return _by_range(topics, members, order)
    if assignor == "roundrobin":
        return _by_round_robin(topics, members, order)
    return sticky.assign(topics, members, order, grouped=assignor == "sticky")


def withhold_owned(target: Mapping[str, Sequence[TopicPartition]], members: Mapping[str, Subscription]) -> Assignment:
    """What of a ``cooperative-sticky`` target the members may have now: not what another member has to give up first.

    ``members`` is what ``target`` was made from. The order of each member's partitions is kept.
    """
    withheld = sticky.changing_owner(target, members, member_order(members))
    return {member: [one for one in given if one not in withheld] for member, given in target.items()}


def choose_assignor(preferences: Mapping[str, Sequence[str]]) -> str:
    """The assignor of a group whose members support these, each in its order of preference; "" if none is common.

    Each member votes for the first of its assignors that all support; most votes win. Kafka takes the one that comes
    first in its hash table of votes if several have as many (``ClassicGroup.selectProtocol``), and so does this.
    """
    lists = list(preferences.values())
    common = set(lists[0]).intersection(*lists[1:]) if lists else set()
    if not common:
        return ""
    votes = [next(name for name in supported if name in common) for supported in lists]
    return max(table_order(java_sorted(votes)), key=votes.count)


def _static_first(members: Mapping[str, Subscription], order: Sequence[str]) -> list[str]:
    """Static members by ``group.instance.id``, then the others by member id."""

    def key(member: str) -> tuple[bool, bytes]:
        instance_id = members[member].instance_id
        return not instance_id, java_key(instance_id or member)

    return sorted(order, key=key)


def _by_range(topics: Mapping[str, int], members: Mapping[str, Subscription], order: Sequence[str]) -> Assignment:
    """Each topic is cut into as many runs as it has subscribers; the first ones are longer by one if need be."""
    subscribers = _subscribers(topics, members, _static_first(members, order))
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


def _subscribers(
    topics: Mapping[str, int], members: Mapping[str, Subscription], order: Sequence[str]
) -> Mapping[str, Sequence[str]]:
    """Who subscribes to each topic, in this order of the members."""
    if len({members[member].topics for member in order}) == 1:
        return dict.fromkeys(topics, order)
    found: dict[str, list[str]] = {topic: [] for topic in topics}
    for member in order:
        for topic in dict.fromkeys(members[member].topics):
            if topic in found:
                found[topic].append(member)
    return found


def _by_round_robin(topics: Mapping[str, int], members: Mapping[str, Subscription], order: Sequence[str]) -> Assignment:
    """All partitions in order are dealt to the members in turn; who does not subscribe to the topic is passed over."""
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
