"""Builds the document of ``consumer-groups --describe``: a group with its offsets or members.

A partition that a member is to revoke is listed as that member's until it is revoked.

Not for: printing it (``group_tables``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sparklog.cli.output.documents import ConsumerGroupDetails, MemberDetails, OffsetDetails, PartitionName
from sparklog.protocol.group.rebalance import held_partitions, list_partitions
from sparklog.protocol.state import GroupOffset, GroupState, State
from sparklog.types import TopicPartition

TYPE = "Classic"
"""The members name the assignors, as in Kafka's classic groups."""


class _Owner(NamedTuple):
    consumer_id: str | None = None
    host: str | None = None
    client_id: str | None = None


def describe(state: State, name: str, group: GroupState, offsets: bool, members: bool) -> ConsumerGroupDetails:
    return ConsumerGroupDetails(
        group=name,
        type=TYPE,
        state=group.name_of_state,
        assignor=group.assignor or None,
        generation=group.generation,
        member_count=len(group.members),
        offsets=_offsets(state, name, group) if offsets else None,
        members=[_member(group, consumer) for consumer in sorted(group.members)] if members else None,
    )


def _offsets(state: State, name: str, group: GroupState) -> list[OffsetDetails]:
    """Return each partition that a member holds or that has an offset, ordered by member."""
    offsets = state.committed_offsets(name)
    details: list[OffsetDetails] = []
    owned: set[TopicPartition] = set()
    for consumer, member in sorted(group.members.items(), key=lambda item: (-len(held_partitions(item[1])), item[0])):
        partitions = {partition for partition in held_partitions(member) if _exists(state, partition)}
        owned |= partitions
        owner = _Owner(consumer, member.host or None, member.client_id or None)
        details += [_offset(state, partition, offsets.get(partition), owner) for partition in sorted(partitions)]
    unowned = sorted(offsets.keys() - owned)
    return details + [_offset(state, partition, offsets[partition], _Owner()) for partition in unowned]


def _exists(state: State, partition: TopicPartition) -> bool:
    topic = state.topics.get(partition.topic)
    return topic is not None and partition.partition < len(topic.partitions)


def _offset(state: State, partition: TopicPartition, offset: GroupOffset | None, owner: _Owner) -> OffsetDetails:
    end = state.partition(partition.topic, partition.partition).high_watermark
    return OffsetDetails.of(
        owner,
        topic=partition.topic,
        partition=partition.partition,
        leader_epoch=None if offset is None or offset.leader_epoch < 0 else offset.leader_epoch,
        current_offset=None if offset is None else offset.offset,
        log_end_offset=end,
        lag=None if offset is None else end - offset.offset,
    )


def _member(group: GroupState, consumer: str) -> MemberDetails:
    member = group.members[consumer]
    return MemberDetails(
        consumer_id=consumer,
        group_instance_id=member.instance_id or None,
        host=member.host or None,
        client_id=member.client_id or None,
        assignment=_names(held_partitions(member)),
        target_assignment=_names(list_partitions(group.target.get(consumer, {}))),
    )


def _names(partitions: Iterable[TopicPartition]) -> list[PartitionName]:
    return [PartitionName.of(partition) for partition in sorted(partitions)]
