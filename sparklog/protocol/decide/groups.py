"""What a coordinator answers about consumer groups: who may join, and who may commit which offsets.

As in ``decide``: pure, and valid only against the very state it was made from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from sparklog.config.cluster_configs import ClusterConfig
from sparklog.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
)
from sparklog.protocol.commits import (
    AcknowledgeRevocation,
    CommitOffsets,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    GroupPartition,
    JoinGroup,
    LeaveGroup,
)
from sparklog.protocol.decide.decision import Decision
from sparklog.protocol.group.assignors import ASSIGNORS, choose_assignor
from sparklog.protocol.group.membership import member_of_instance
from sparklog.protocol.names import validate_client_id, validate_group_id, validate_topic_name
from sparklog.protocol.state import GroupOffset, GroupState, MemberState, State
from sparklog.types import OffsetAndMetadata

MAX_METADATA_CHARACTERS = 4096
"""characters of an offset's metadata: Kafka's default of ``offset.metadata.max.bytes``."""

Offsets = Mapping[tuple[str, int], "OffsetAndMetadata | int"]
"""The next offset to read by (topic, partition), with or without metadata."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A member that joins, or one that subscribes to something else. Timeouts are milliseconds."""

    group: str
    member: str
    instance_id: str = ""
    client_id: str = ""
    host: str = ""
    topics: Sequence[str] = ()
    assignors: Sequence[str] = ("range",)
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000


class Joined(NamedTuple):
    """Who the member is, and the generation it is in."""

    member: str
    generation: int


class GroupCommit(msgspec.Struct, frozen=True, kw_only=True):
    """Positions of a group. Without a member they come from outside its membership, as from a tool or a query.

    ``topic_ids`` are those of the topics that were read, by name: offsets of a topic that was made again since are
    refused, since they would pass over its records.
    """

    group: str
    offsets: Offsets
    member: str = ""
    generation: int = -1
    instance_id: str = ""
    topic_ids: Mapping[str, str] = {}


# -- membership


def join_group(state: State, request: JoinRequest) -> Decision:
    """Let a member in, or change its subscription; nothing happens where it is in with the same one.

    Raises InvalidSessionTimeoutError, InconsistentGroupProtocolError, GroupMaxSizeReachedError, InvalidTopicError,
    InvalidRequestError.
    """
    validate_group_id(request.group)
    validate_client_id(request.client_id)
    validate_client_id(request.instance_id, "group.instance.id")
    validate_client_id(request.host, "host")
    for topic in request.topics:
        validate_topic_name(topic)
    if not request.member:
        raise InvalidRequestError(f"a member of group {request.group!r} needs an id", group=request.group)
    group = state.groups.get(request.group, GroupState())
    _check_limits(state, group, request)
    _check_assignors(group, request)
    topics = sorted(set(request.topics))
    known = group.members.get(request.member)
    if known is not None and known.instance_id != request.instance_id:
        raise InvalidRequestError(
            f"member {request.member!r} of group {request.group!r} has group.instance.id {known.instance_id!r} and "
            f"cannot take {request.instance_id!r}; join under another member id",
            group=request.group,
            member=request.member,
        )
    if known is not None and (known.topics, known.assignors) == (tuple(topics), tuple(request.assignors)):
        return Decision([], Joined(request.member, group.generation))
    action = JoinGroup(
        group=request.group,
        member=request.member,
        instance_id=request.instance_id,
        client_id=request.client_id,
        host=request.host,
        topics=topics,
        assignors=list(request.assignors),
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
    )
    return Decision([action], Joined(request.member, _generation_after(group, action)))


def _generation_after(group: GroupState, join: JoinGroup) -> int:
    """A new process for a static member with the same subscription begins no generation."""
    old = group.members.get(member_of_instance(group, join.instance_id))
    same = old is not None and (old.topics, old.assignors) == (tuple(join.topics), tuple(join.assignors))
    return group.generation if same else group.generation + 1


def _check_limits(state: State, group: GroupState, request: JoinRequest) -> None:
    cluster = ClusterConfig.resolve(state.configs)
    least, most = cluster.group_min_session_timeout_ms, cluster.group_max_session_timeout_ms
    if not least <= request.session_timeout_ms <= most:
        raise InvalidSessionTimeoutError(
            f"session_timeout_ms={request.session_timeout_ms} of a member of group {request.group!r} must be {least} "
            f"to {most} (group.min.session.timeout.ms, group.max.session.timeout.ms)",
            group=request.group,
        )
    newcomer = request.member not in group.members and not member_of_instance(group, request.instance_id)
    if newcomer and len(group.members) >= cluster.group_max_size:
        raise GroupMaxSizeReachedError(
            f"group {request.group!r} has {len(group.members)} members, and group.max.size is "
            f"{cluster.group_max_size}; stop one first, or raise the setting",
            group=request.group,
        )


def _check_assignors(group: GroupState, request: JoinRequest) -> None:
    unknown = [name for name in request.assignors if name not in ASSIGNORS]
    if unknown or not request.assignors:
        raise InvalidRequestError(
            f"assignor {unknown[0] if unknown else ''!r} of a member of group {request.group!r} is none of "
            f"{', '.join(ASSIGNORS)}",
            group=request.group,
        )
    others = {name: member.assignors for name, member in group.members.items() if name != request.member}
    others.pop(member_of_instance(group, request.instance_id), None)
    if not choose_assignor({**others, request.member: tuple(request.assignors)}):
        have = sorted({name for assignors in others.values() for name in assignors})
        raise InconsistentGroupProtocolError(
            f"a member with the assignors {', '.join(request.assignors)} cannot join group {request.group!r}, whose "
            f"members have {', '.join(have)}: all need one in common (partition_assignment_strategy)",
            group=request.group,
        )


def leave_group(state: State, group: str, members: Sequence[str], reason: str, generation: int = -1) -> Decision:
    """Take members out; those who are out already are passed over, and the result names who was taken out.

    With a ``generation`` nothing happens unless the group is still in it: an expiry was decided by what was seen then.
    """
    known = state.groups.get(group, GroupState())
    gone = [member for member in members if member in known.members]
    if not gone or generation not in (-1, known.generation):
        return Decision([], [])
    return Decision([LeaveGroup(group=group, members=gone, reason=reason)], gone)


def acknowledge_revocation(state: State, group: str, member: str, generation: int, offsets: Offsets) -> Decision:
    """Commit a member's last offsets of what it gives up, and let others have it. Raises as a commit of offsets."""
    found = _member(state, GroupCommit(group=group, offsets=offsets, member=member, generation=generation))
    if not found.revoking:
        return Decision([], None)
    commit = GroupCommit(group=group, offsets=offsets, member=member, generation=generation)
    return Decision(
        [*commit_group_offsets(state, commit).actions, AcknowledgeRevocation(group=group, member=member)], None
    )


def _member(state: State, commit: GroupCommit) -> MemberState:
    """The member that acts, if it may act in this generation."""
    group = state.groups.get(commit.group, GroupState())
    found = group.members.get(commit.member)
    if found is None:
        if member_of_instance(group, commit.instance_id):
            raise FencedInstanceIdError(
                f"member {commit.member!r} of group {commit.group!r} has lost its group.instance.id "
                f"{commit.instance_id!r} to another process; stop this one",
                group=commit.group,
                member=commit.member,
            )
        raise UnknownMemberIdError(
            f"member {commit.member!r} is not in group {commit.group!r} (any more): it has left, or was expired since "
            "it sent no heartbeat within its session timeout; nothing was committed, poll to join again",
            group=commit.group,
            member=commit.member,
        )
    if commit.generation != group.generation:
        raise IllegalGenerationError(
            f"member {commit.member!r} acts in generation {commit.generation} of group {commit.group!r}, which is in "
            f"{group.generation}: a rebalance has happened; nothing was committed, poll to take part in it",
            group=commit.group,
            member=commit.member,
            generation=group.generation,
        )
    return found


# -- offsets


def commit_group_offsets(state: State, commit: GroupCommit) -> Decision:
    """Positions of a group, of a member in the present generation or, while it has no members, of anybody.

    Raises IllegalGenerationError, UnknownMemberIdError, FencedInstanceIdError, CommitFailedError for a partition that
    another member has, UnknownTopicOrPartitionError, and InvalidRequestError for an offset that none can be.
    """
    validate_group_id(commit.group)
    group = state.groups.get(commit.group, GroupState())
    if commit.member:
        _member(state, commit)
        _check_held_by_no_other(group, commit)
    elif group.members:
        raise UnknownMemberIdError(
            f"group {commit.group!r} has {len(group.members)} members, and only they may commit its offsets; stop them "
            "first, or use another group",
            group=commit.group,
        )
    _check_same_topics(state, commit)
    committed = [_committed(state, topic, partition, at) for (topic, partition), at in sorted(commit.offsets.items())]
    if not committed:
        return Decision([], None)
    generation = commit.generation if commit.member else -1
    return Decision([CommitOffsets(group=commit.group, generation=generation, offsets=committed)], None)


def _check_held_by_no_other(group: GroupState, commit: GroupCommit) -> None:
    """Partitions change hands within a generation, too: what a member has let go of, its late commits must not move."""
    for topic, partition in commit.offsets:
        for name, member in group.members.items():
            holds = partition in member.assigned.get(topic, ()) or partition in member.revoking.get(topic, ())
            if holds and name != commit.member:
                raise CommitFailedError(
                    f"member {commit.member!r} of group {commit.group!r} cannot commit the offset of "
                    f"{topic}-{partition}: member {name!r} has it by now, and reads on from what was committed before",
                    group=commit.group,
                    member=commit.member,
                    topic=topic,
                    partition=partition,
                )


def _check_same_topics(state: State, commit: GroupCommit) -> None:
    for topic, partition in commit.offsets:
        found, read = state.topics.get(topic), commit.topic_ids.get(topic)
        if found is not None and read is not None and found.topic_id != read:
            raise CommitFailedError(
                f"group {commit.group!r} cannot commit the offset of {topic}-{partition}: the topic was deleted and "
                f"created again (id {read} then, {found.topic_id} now), and what was read is of the former one",
                group=commit.group,
                member=commit.member,
                topic=topic,
                partition=partition,
            )


def _committed(state: State, topic: str, partition: int, position: OffsetAndMetadata | int) -> CommittedOffset:
    state.partition(topic, partition)
    at = OffsetAndMetadata(*position) if isinstance(position, tuple) else OffsetAndMetadata(position)
    metadata = at.metadata or ""
    if not 0 <= at.offset < 2**63:
        raise InvalidRequestError(
            f"offset {at.offset!r} of {topic}-{partition} is not a whole number from 0 to 2^63 - 1",
            topic=topic,
            partition=partition,
        )
    if len(metadata) > MAX_METADATA_CHARACTERS:
        raise OffsetMetadataTooLargeError(
            f"the metadata of the offset of {topic}-{partition} has {len(metadata)} characters, and "
            f"{MAX_METADATA_CHARACTERS} are the most",
            topic=topic,
            partition=partition,
        )
    return CommittedOffset(
        topic=topic,
        topic_id=state.topics[topic].topic_id,
        partition=partition,
        offset=at.offset,
        leader_epoch=-1 if at.leader_epoch is None else at.leader_epoch,
        metadata=metadata,
    )


# -- what administrators do


def delete_group(state: State, group: str) -> Decision:
    """Forget a group. Raises GroupIdNotFoundError, NonEmptyGroupError."""
    known = _existing(state, group)
    if known.members:
        raise NonEmptyGroupError(
            f"group {group!r} has {len(known.members)} members; stop them before you delete it", group=group
        )
    return Decision([DeleteGroup(group=group)], None)


def delete_group_offsets(state: State, group: str, partitions: Sequence[tuple[str, int]]) -> Decision:
    """Forget a group's offsets in these partitions; the result says of which there were any.

    Raises GroupIdNotFoundError, and NonEmptyGroupError where a member subscribes to one of the topics.
    """
    known = _existing(state, group)
    subscribed = {topic for member in known.members.values() for topic in member.topics}
    used = sorted({topic for topic, _ in partitions} & subscribed)
    if used:
        raise NonEmptyGroupError(
            f"members of group {group!r} subscribe to topic {used[0]!r}; stop them before you delete its offsets",
            group=group,
            topic=used[0],
        )
    wanted = set(partitions)
    gone = [offset for _, offset in sorted(known.offsets.items()) if (offset.topic, offset.partition) in wanted]
    return _deletion(group, gone)


def _deletion(group: str, gone: Sequence[GroupOffset]) -> Decision:
    found = [GroupPartition(topic=one.topic, topic_id=one.topic_id, partition=one.partition) for one in gone]
    if not found:
        return Decision([], [])
    places = [(one.topic, one.partition) for one in gone]
    return Decision([DeleteOffsets(group=group, partitions=found)], places)


def _existing(state: State, group: str) -> GroupState:
    known = state.groups.get(group)
    if known is None:
        raise GroupIdNotFoundError(
            f"group {group!r} does not exist; `sparklog consumer-groups --list` shows what does", group=group
        )
    return known


def expire_offsets(state: State, now_ms: int) -> Decision:
    """Forget offsets of groups that have been without members for ``offsets.retention.minutes``, and empty groups.

    An offset's time runs from its commit or from when the last member left, whichever is later, as in Kafka.
    """
    oldest_ms = now_ms - ClusterConfig.resolve(state.configs).offsets_retention_minutes * 60_000
    decided: Decision = Decision([], [])
    for name, group in sorted(state.groups.items()):
        if group.members or group.empty_since_ms > oldest_ms:
            continue
        stale = [offset for _, offset in sorted(group.offsets.items()) if offset.timestamp_ms <= oldest_ms]
        if len(stale) == len(group.offsets):
            decided.actions.append(DeleteGroup(group=name))
        elif stale:
            decided.actions.extend(_deletion(name, stale).actions)
        else:
            continue
        decided.result.append(name)
    return decided
