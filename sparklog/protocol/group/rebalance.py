"""Membership of a consumer group: (group, change) -> group. The fold uses these, so every reader of the log agrees.

A change of members, subscriptions or partitions begins a generation: the assignor computes a target, each member keeps
the partitions that stay assigned to it, and those it loses are ``revoking`` until it acknowledges, leaves or expires.
Only then may the new owner have them. So two members never own the same partition, and partitions that do not move are
read without interruption. (Kafka's cooperative rebalancing, KIP-429, decided on one side as in KIP-848.)

Rules: pure. Not for: which member gets which partition (``assignors``), when a change of topics begins a generation
(``protocol.fold``), who may join or commit (``decide.groups``), liveness (``coordinator.group_liveness``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from sparklog.protocol.commits import JoinGroup
from sparklog.protocol.group.assignors import MemberSubscription, assign, choose_assignor
from sparklog.protocol.state import GroupState, MemberState, Partitions
from sparklog.types import TopicPartition

_REMEMBERED_ASSIGNMENTS = 64
"""Assignments. A commit that is attempted again, or read by several coordinators of a process, needs the same one."""


def with_member(group: GroupState, join: JoinGroup, counts: Mapping[str, int]) -> GroupState:
    """Return the group after this member joined, changed its subscription, or replaced its static instance.

    ``counts`` are the partition counts of all existing topics.
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
    members = {name: other for name, other in group.members.items() if name != former}
    members[join.member] = member
    joined = replace(group, members=members, empty_since_ms=0)
    if old is None or (old.topics, old.assignors) != (member.topics, member.assignors):
        return rebalance(joined, counts)
    target = {name: share for name, share in group.target.items() if name != former}
    return replace(joined, target={**target, join.member: group.target.get(former, {})})


def member_of_instance(group: GroupState, instance_id: str) -> str:
    """Return the member with this ``group.instance.id``, or an empty text."""
    if not instance_id:
        return ""
    return next((name for name, member in group.members.items() if member.instance_id == instance_id), "")


def without_members(group: GroupState, leaving: Sequence[str], counts: Mapping[str, int], now_ms: int) -> GroupState:
    """Return the group without these members; their partitions are free."""
    members = {name: member for name, member in group.members.items() if name not in leaving}
    remaining = replace(group, members=members, empty_since_ms=0 if members else now_ms)
    return rebalance(remaining, counts)


def acknowledge(group: GroupState, member: str) -> GroupState:
    """Return the group after this member released its revoked partitions. The generation does not change.

    Only these partitions are assigned, since all others are already: a rebalance of many members has as many
    acknowledgements.
    """
    freed = group.members[member].revoking
    members = {**group.members, member: replace(group.members[member], revoking={})}
    for name, other in group.members.items():
        share = group.target.get(name, {})
        if other.assigned == share:
            continue
        gained = {topic: set(share[topic]).intersection(freed[topic]) for topic in share.keys() & freed.keys()}
        if any(gained.values()):
            members[name] = replace(other, assigned=_merge(other.assigned, gained))
    return replace(group, members=members)


def rebalance(group: GroupState, counts: Mapping[str, int]) -> GroupState:
    """Begin the next generation: compute a new target, and assign the partitions of it that no other member holds."""
    if not group.members:
        return replace(group, generation=group.generation + 1, assignor="", target={})
    assignor = choose_assignor({name: member.assignors for name, member in group.members.items()})
    target = _compute_target(group, assignor, counts)
    members = {name: _keep_assigned(member, target[name], counts) for name, member in group.members.items()}
    begun = replace(group, generation=group.generation + 1, assignor=assignor, members=members, target=target)
    return _assign_free(begun)


def held_partitions(member: MemberState) -> set[TopicPartition]:
    """Return the partitions that no other member may have: those assigned, and those being revoked."""
    return {*list_partitions(member.assigned), *list_partitions(member.revoking)}


def list_partitions(partitions: Partitions) -> list[TopicPartition]:
    """Return the partitions as a list, sorted by topic and number."""
    return [TopicPartition(topic, number) for topic in sorted(partitions) for number in partitions[topic]]


def _compute_target(group: GroupState, assignor: str, counts: Mapping[str, int]) -> dict[str, Partitions]:
    wanted = {topic for member in group.members.values() for topic in member.topics}
    existing = tuple(sorted((topic, counts[topic]) for topic in wanted if topic in counts))
    members = tuple(
        (
            name,
            MemberSubscription(
                member.topics, tuple(list_partitions(member.assigned)), group.generation, member.instance_id
            ),
        )
        for name, member in group.members.items()
    )
    return _assign(assignor, existing, members)


@lru_cache(maxsize=_REMEMBERED_ASSIGNMENTS)
def _assign(
    assignor: str, counts: tuple[tuple[str, int], ...], members: tuple[tuple[str, MemberSubscription], ...]
) -> dict[str, Partitions]:
    """Return the assignor's result by member. Cached and shared: must not be modified."""
    return {name: _group_by_topic(share) for name, share in assign(assignor, dict(counts), dict(members)).items()}


def _group_by_topic(partitions: Sequence[TopicPartition] | set[TopicPartition]) -> Partitions:
    numbers_by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers_by_topic.setdefault(topic, []).append(number)
    return {topic: tuple(numbers) for topic, numbers in numbers_by_topic.items()}


def _merge(partitions: Partitions, more: Mapping[str, set[int]]) -> Partitions:
    topics = sorted({*partitions, *(topic for topic, numbers in more.items() if numbers)})
    return {topic: tuple(sorted({*partitions.get(topic, ()), *more.get(topic, ())})) for topic in topics}


def _keep_assigned(member: MemberState, share: Partitions, counts: Mapping[str, int]) -> MemberState:
    """Return the member with the partitions it keeps, and those of existing topics that it must release."""
    target = set(list_partitions(share))
    holding = held_partitions(member)
    revoking = {partition for partition in holding - target if partition.partition < counts.get(partition.topic, 0)}
    return replace(member, assigned=_group_by_topic(holding & target), revoking=_group_by_topic(revoking))


def _assign_free(group: GroupState) -> GroupState:
    """Assign to every member the partitions of its target that no other member holds."""
    holders = {partition: name for name, member in group.members.items() for partition in held_partitions(member)}
    members = dict(group.members)
    for name, member in group.members.items():
        share = group.target.get(name, {})
        if member.assigned != share:
            free = {partition for partition in list_partitions(share) if holders.get(partition, name) == name}
            members[name] = replace(member, assigned=_group_by_topic(free))
    return replace(group, members=members)
