"""The document of ``consumer-groups --describe``: a group with its offsets or its members (``group_tables`` prints it).

A partition that a member has to give up is the member's for as long as it holds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from sparklog.cli.output.documents import ConsumerGroupDetails, MemberDetails, OffsetDetails, PartitionName
from sparklog.protocol.group.membership import held_partitions, list_partitions
from sparklog.protocol.state import GroupOffset, GroupState, State
from sparklog.types import TopicPartition

if TYPE_CHECKING:
    from sparklog.protocol.state import MemberState

TYPE = "Classic"
"""Assignors are named by the members, as in Kafka's classic groups."""


class _Owner(NamedTuple):
    consumer_id: str | None = None
    host: str | None = None
    client_id: str | None = None


def describe(state: State, name: str, group: GroupState, offsets: bool, members: bool) -> ConsumerGroupDetails:
    """The group, with its offsets or its members where they are asked for."""
    return ConsumerGroupDetails(
        group=name,
        type=TYPE,
        state=group.name_of_state,
        assignor=group.assignor or None,
        generation=group.generation,
        member_count=len(group.members),
        offsets=_offsets(state, group) if offsets else None,
        members=[_member(group, consumer) for consumer in sorted(group.members)] if members else None,
    )


def committed_offsets(state: State, group: GroupState) -> dict[TopicPartition, GroupOffset]:
    """What a group has committed of topics that exist; offsets of a topic that was created again do not count."""
    live = {(name, topic.topic_id) for name, topic in state.topics.items()}
    found = [one for _, one in sorted(group.offsets.items()) if (one.topic, one.topic_id) in live]
    return {TopicPartition(one.topic, one.partition): one for one in found}


def _offsets(state: State, group: GroupState) -> list[OffsetDetails]:
    """Each partition that a member holds or that has an offset, by member."""
    committed = committed_offsets(state, group)
    found: list[OffsetDetails] = []
    owned: set[TopicPartition] = set()
    for consumer, member in sorted(group.members.items(), key=lambda item: (-len(held_partitions(item[1])), item[0])):
        places = {place for place in held_partitions(member) if _exists(state, place)}
        owned |= places
        owner = _Owner(consumer, member.host or None, member.client_id or None)
        found += [_offset(state, place, committed.get(place), owner) for place in sorted(places)]
    return found + [_offset(state, place, committed[place], _Owner()) for place in sorted(committed.keys() - owned)]


def _exists(state: State, place: TopicPartition) -> bool:
    topic = state.topics.get(place.topic)
    return topic is not None and place.partition < len(topic.partitions)


def _offset(state: State, place: TopicPartition, offset: GroupOffset | None, owner: _Owner) -> OffsetDetails:
    end = state.partition(place.topic, place.partition).high_watermark
    return OffsetDetails(
        topic=place.topic,
        partition=place.partition,
        leader_epoch=None if offset is None or offset.leader_epoch < 0 else offset.leader_epoch,
        current_offset=None if offset is None else offset.offset,
        log_end_offset=end,
        lag=None if offset is None else end - offset.offset,
        consumer_id=owner.consumer_id,
        host=owner.host,
        client_id=owner.client_id,
    )


def _member(group: GroupState, consumer: str) -> MemberDetails:
    member: MemberState = group.members[consumer]
    return MemberDetails(
        consumer_id=consumer,
        group_instance_id=member.instance_id or None,
        host=member.host or None,
        client_id=member.client_id or None,
        assignment=_names(held_partitions(member)),
        target_assignment=_names(list_partitions(group.target.get(consumer, {}))),
    )


def _names(places: Iterable[TopicPartition]) -> list[PartitionName]:
    return [PartitionName(topic=place.topic, partition=place.partition) for place in sorted(places)]
