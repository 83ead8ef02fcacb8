"""Membership of a consumer group: (group, change) -> group. The fold uses these, so every reader of the log agrees.

A change of members, subscriptions or partitions begins a generation: the assignor says who is to have what, each member
keeps what stays its own, and what it has to give up is ``revoking`` until it acknowledges, leaves or is expired. Only
then may its new owner have it. So two members never own one partition, and what does not move is read on all the time.
(Kafka's cooperative rebalancing, KIP-429, decided on one side as in KIP-848.)

Rules: pure. Not for: who may join or commit (``decide_groups``), liveness (``coordinator.membership``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from sparklog.protocol.commits import JoinGroup
from sparklog.protocol.group.assignors import Subscription, assign, choose_assignor
from sparklog.protocol.state import GroupState, MemberState, Partitions
from sparklog.types import TopicPartition

_REMEMBERED_ASSIGNMENTS = 64
"""A commit is folded up to three times where it is decided: once for the decision, the checksum, and the state."""


def with_member(group: GroupState, join: JoinGroup, counts: Mapping[str, int]) -> GroupState:
    """The group once this member has joined, changed its subscription, or taken the place of its instance.

    ``counts`` are the numbers of partitions of all topics that exist.
    """
    former = join.member if join.member in group.members else member_of_instance(group, join.instance_id)
    old = group.members.get(former) if former else None
    member = MemberState(
        instance_id=join.instance_id,
        client_id=join.client_id,
        host=join.host,
        topics=tuple(sorted(set(join.topics))),
        assignors=tuple(join.assignors),
        session_timeout_ms=join.session_timeout_ms,
        rebalance_timeout_ms=join.rebalance_timeout_ms,
        assigned=old.assigned if old else {},
        revoking=old.revoking if old else {},
    )
    members = {name: known for name, known in group.members.items() if name != former}
    members[join.member] = member
    joined = replace(group, members=members, empty_since_ms=0)
    if old is None or (old.topics, old.assignors) != (member.topics, member.assignors):
        return rebalanced(joined, counts)
    target = {name: share for name, share in group.target.items() if name != former}
    return replace(joined, target={**target, join.member: group.target.get(former, {})})


def member_of_instance(group: GroupState, instance_id: str) -> str:
    """The member with this ``group.instance.id``, or an empty text."""
    if not instance_id:
        return ""
    return next((name for name, member in group.members.items() if member.instance_id == instance_id), "")


def without_members(group: GroupState, gone: Sequence[str], counts: Mapping[str, int], now_ms: int) -> GroupState:
    """The group without these members; what they held is free."""
    members = {name: member for name, member in group.members.items() if name not in gone}
    left = replace(group, members=members, empty_since_ms=0 if members else now_ms)
    return rebalanced(left, counts)


def acknowledged(group: GroupState, member: str) -> GroupState:
    """The group once this member has let go of what it had to give up. The generation goes on.

    Only that is handed out, since everything else was: a rebalance of many members is as many acknowledgements.
    """
    freed = group.members[member].revoking
    members = {**group.members, member: replace(group.members[member], revoking={})}
    for name, other in group.members.items():
        share = group.target.get(name, {})
        if other.assigned == share:
            continue
        gained = {topic: set(share[topic]).intersection(freed[topic]) for topic in share.keys() & freed.keys()}
        if any(gained.values()):
            members[name] = replace(other, assigned=_joined(other.assigned, gained))
    return replace(group, members=members)


def rebalanced(group: GroupState, counts: Mapping[str, int]) -> GroupState:
    """The next generation: a new target, and of it whatever nobody else holds."""
    if not group.members:
        return replace(group, generation=group.generation + 1, assignor="", target={})
    assignor = choose_assignor({name: member.assignors for name, member in group.members.items()})
    target = _target(group, assignor, counts)
    members = {name: _keeping(member, target[name], counts) for name, member in group.members.items()}
    begun = replace(group, generation=group.generation + 1, assignor=assignor, members=members, target=target)
    return _handed_out(begun)


def held(member: MemberState) -> set[TopicPartition]:
    """What nobody else may have: what it owns, and what it is still to give up."""
    return {*listed(member.assigned), *listed(member.revoking)}


def listed(partitions: Partitions) -> list[TopicPartition]:
    """The partitions one by one, by topic and number."""
    return [TopicPartition(topic, number) for topic in sorted(partitions) for number in partitions[topic]]


def _target(group: GroupState, assignor: str, counts: Mapping[str, int]) -> dict[str, Partitions]:
    wanted = {topic for member in group.members.values() for topic in member.topics}
    known = tuple(sorted((topic, counts[topic]) for topic in wanted if topic in counts))
    members = tuple(
        (name, Subscription(member.topics, tuple(listed(member.assigned)), group.generation, member.instance_id))
        for name, member in group.members.items()
    )
    return _assignment(assignor, known, members)


@lru_cache(maxsize=_REMEMBERED_ASSIGNMENTS)
def _assignment(
    assignor: str, counts: tuple[tuple[str, int], ...], members: tuple[tuple[str, Subscription], ...]
) -> dict[str, Partitions]:
    """What the assignor says, by member. Shared by whoever asks the same: not to be changed."""
    return {name: _grouped(share) for name, share in assign(assignor, dict(counts), dict(members)).items()}


def _grouped(partitions: Sequence[TopicPartition] | set[TopicPartition]) -> Partitions:
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return {topic: tuple(numbers) for topic, numbers in found.items()}


def _joined(partitions: Partitions, more: Mapping[str, set[int]]) -> Partitions:
    topics = sorted({*partitions, *(topic for topic, numbers in more.items() if numbers)})
    return {topic: tuple(sorted({*partitions.get(topic, ()), *more.get(topic, ())})) for topic in topics}


def _keeping(member: MemberState, share: Partitions, counts: Mapping[str, int]) -> MemberState:
    """The member with what stays its own, and what it has to give up of topics that still exist."""
    target = set(listed(share))
    holds = held(member)
    given_up = {place for place in holds - target if place.partition < counts.get(place.topic, 0)}
    return replace(member, assigned=_grouped(holds & target), revoking=_grouped(given_up))


def _handed_out(group: GroupState) -> GroupState:
    """Every member gets of its target what nobody else holds."""
    holders = {place: name for name, member in group.members.items() for place in held(member)}
    members = dict(group.members)
    for name, member in group.members.items():
        share = group.target.get(name, {})
        if member.assigned != share:
            free = {place for place in listed(share) if holders.get(place, name) == name}
            members[name] = replace(member, assigned=_grouped(free))
    return replace(group, members=members)
