"""Decisions about consumer groups: which members may join, and who may commit which offsets.

Rules: as in ``decide``. Not for: how a group changes (``group.rebalance``), liveness (``coordinator.group_liveness``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict

from sparklog import limits
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
    RecordListTooLargeError,
    UnknownMemberIdError,
)
from sparklog.protocol.commits import (
    AcknowledgeRevocation,
    Action,
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
from sparklog.protocol.group.rebalance import held_partitions, member_of_instance
from sparklog.protocol.names import validate_client_id, validate_group_id, validate_topic_name
from sparklog.protocol.state import GroupOffset, GroupState, MemberState, State, offset_key
from sparklog.types import OffsetAndMetadata, as_python

MAX_METADATA_CHARACTERS = 4096
"""characters of an offset's metadata: Kafka's default of ``offset.metadata.max.bytes``."""

Offsets = Mapping[tuple[str, int], "OffsetAndMetadata | int"]
"""The next offset to read by (topic, partition), with or without metadata."""


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A member that joins, or changes its subscription; fields as in ``JoinGroup``. Timeouts are milliseconds."""

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
    """The member's id and its generation."""

    member: str
    generation: int


class GroupCommit(msgspec.Struct, frozen=True, kw_only=True):
    """Positions of a group. Without a member they come from outside its membership, as from a tool or a query.

    ``topic_ids`` are those of the topics that were read, by name: offsets of a topic that was re-created since are
    refused, since they would skip its records. Make it when the offsets are found, however much later it is decided:
    ids, member and generation of a later state may be those of other records. ``timeline`` is
    ``CommitLog.unlinked_jumps`` of then: the coordinator refuses offsets of another timeline. None if a tool sets them.
    ``replaces`` maps partitions to the offsets that were committed then: a partition whose committed offset has changed
    since keeps that one, or with ``refuses_replaced``, for an administrator, refuses all. With ``leaves_out_deleted``,
    for what a consumer commits by itself, offsets of topics that were deleted, or created again, do not refuse the
    others.
    """

    group: str
    offsets: Offsets
    member: str = ""
    generation: int = -1
    instance_id: str = ""
    topic_ids: Mapping[str, str] = {}
    timeline: int | None = None
    replaces: Mapping[tuple[str, int], int | None] = {}
    refuses_replaced: bool = False
    leaves_out_deleted: bool = False


# -- membership


def join_group(state: State, request: JoinRequest) -> Decision[Joined]:
    """Add a member, or change its subscription; no action if it is a member with the same subscription.

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
    member = group.members.get(request.member)
    if member is not None and member.instance_id != request.instance_id:
        raise InvalidRequestError(
            f"member {request.member!r} of group {request.group!r} has group.instance.id {member.instance_id!r} and "
            f"cannot take {request.instance_id!r}; join under another member id",
            group=request.group,
            member=request.member,
        )
    if member is not None and (member.topics, member.assignors) == (tuple(topics), tuple(request.assignors)):
        return Decision([], Joined(request.member, group.generation))
    action = JoinGroup(**{**asdict(request), "topics": topics, "assignors": list(request.assignors)})
    return Decision([action], Joined(request.member, _generation_after(group, action)))


def _generation_after(group: GroupState, join: JoinGroup) -> int:
    """Return the generation after a join: a new process for a static member with the same subscription keeps it."""
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
            f"unknown assignor {unknown[0] if unknown else ''!r} of a member of group {request.group!r}; choose from "
            f"{', '.join(ASSIGNORS)}",
            group=request.group,
        )
    others = {name: member.assignors for name, member in group.members.items() if name != request.member}
    others.pop(member_of_instance(group, request.instance_id), None)
    if not choose_assignor({**others, request.member: tuple(request.assignors)}):
        supported = sorted({name for assignors in others.values() for name in assignors})
        raise InconsistentGroupProtocolError(
            f"a member with the assignors {', '.join(request.assignors)} cannot join group {request.group!r}, whose "
            f"members have {', '.join(supported)}: all members need one in common (partition_assignment_strategy)",
            group=request.group,
        )


def leave_group(state: State, group: str, members: Sequence[str], reason: str) -> Decision[list[str]]:
    """Remove members from a group; the result names those that were removed, others are ignored."""
    group_state = state.groups.get(group, GroupState())
    leaving = [member for member in members if member in group_state.members]
    return Decision([LeaveGroup(group=group, members=leaving, reason=reason)] if leaving else [], leaving)


def expire_silent_members(state: State, group: str, members: Sequence[str], seen: GroupState) -> Decision[list[str]]:
    """Remove members that sent no heartbeat since the group was as ``seen``; the result names those removed.

    None is in another generation, and none that has released partitions or committed offsets since: it is alive.
    """
    now = state.groups.get(group, GroupState())

    def is_unchanged(member: str) -> bool:
        keys = [
            offset_key(state.topics[topic].topic_id, partition)
            for topic, partition in held_partitions(seen.members[member])
            if topic in state.topics
        ]
        offsets_kept = all(now.offsets.get(key) == seen.offsets.get(key) for key in keys)
        return offsets_kept and now.members[member] == seen.members[member]

    return _expire(state, group, members, seen, is_unchanged)


def expire_stuck_members(state: State, group: str, members: Sequence[str], seen: GroupState) -> Decision[list[str]]:
    """Remove members that did not revoke their partitions; the result names those removed.

    None is in another generation than the group as ``seen``, and none that has released partitions since.
    """
    now = state.groups.get(group, GroupState())
    return _expire(
        state, group, members, seen, lambda member: now.members[member].revoking == seen.members[member].revoking
    )


def _expire(
    state: State, group: str, members: Sequence[str], seen: GroupState, is_expired: Callable[[str], bool]
) -> Decision[list[str]]:
    now = state.groups.get(group, GroupState())
    if now.generation != seen.generation:
        return Decision([], [])
    present = [member for member in members if member in now.members]
    return leave_group(state, group, [member for member in present if is_expired(member)], "expired")


def acknowledge_revocation(state: State, commit: GroupCommit) -> Decision[None]:
    """Commit a member's last offsets of its revoked partitions and release them. Raises as ``commit_group_offsets``."""
    if not _find_member(state, commit).revoking:
        return Decision([], None)
    released = AcknowledgeRevocation(group=commit.group, member=commit.member)
    return Decision([*commit_group_offsets(state, commit).actions, released], None)


def _find_member(state: State, commit: GroupCommit) -> MemberState:
    """Return the member that acts, if it is in the group's current generation."""
    group = state.groups.get(commit.group, GroupState())
    member = group.members.get(commit.member)
    if member is None:
        if member_of_instance(group, commit.instance_id):
            raise FencedInstanceIdError(
                f"member {commit.member!r} of group {commit.group!r} has lost its group.instance.id "
                f"{commit.instance_id!r} to another process; stop this one",
                group=commit.group,
                member=commit.member,
            )
        raise UnknownMemberIdError(
            f"member {commit.member!r} is not in group {commit.group!r} (any more): it has left, or it expired since "
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
    return member


# -- offsets


def split_offsets(offsets: Offsets) -> list[Offsets]:
    """Return the offsets in parts of which each fits one commit; one empty part for none."""
    listed, most = list(offsets.items()), limits.MAX_OFFSETS_PER_COMMIT
    return [dict(listed[start : start + most]) for start in range(0, max(len(listed), 1), most)]


def count_offset_changes(action: Action) -> int:
    """Return how many records of ``__consumer_offsets`` an action makes."""
    if isinstance(action, CommitOffsets):
        return len(action.offsets)
    if isinstance(action, DeleteOffsets):
        return len(action.partitions)
    return int(isinstance(action, DeleteGroup))


def check_offset_changes(actions: Iterable[Action]) -> None:
    """Raise RecordListTooLargeError if the actions change more offsets of groups than one commit may."""
    count = sum(map(count_offset_changes, actions))
    if count > limits.MAX_OFFSETS_PER_COMMIT:
        raise RecordListTooLargeError(
            f"one commit cannot change {count:,} offsets of groups, more than {limits.MAX_OFFSETS_PER_COMMIT:,}; "
            "nothing was committed; commit them in several calls or transactions"
        )


def commit_group_offsets(state: State, commit: GroupCommit) -> Decision[None]:
    """Commit positions of a group, for a member in the current generation or, if the group has no members, for any
    caller.

    Raises IllegalGenerationError, UnknownMemberIdError, FencedInstanceIdError, CommitFailedError for a partition that
    another member has or a changed offset that it is relative to, UnknownTopicOrPartitionError, and InvalidRequestError
    for an invalid offset.
    """
    validate_group_id(commit.group)
    commit = without_deleted_topics(state, commit)
    group = state.groups.get(commit.group, GroupState())
    if commit.member:
        _find_member(state, commit)
        _check_held_by_no_other(group, commit)
    elif group.members:
        raise UnknownMemberIdError(
            f"group {commit.group!r} has {len(group.members)} members, and only they may commit its offsets; stop them "
            "first, or use another group",
            group=commit.group,
        )
    _check_same_topics(state, commit)
    committed = [
        _make_committed_offset(state, topic, partition, at)
        for (topic, partition), at in sorted(commit.offsets.items())
        if _is_still_replaced(state, commit, topic, partition)
    ]
    if not committed:
        return Decision([], None)
    generation = commit.generation if commit.member else -1
    return Decision([CommitOffsets(group=as_python(commit.group), generation=generation, offsets=committed)], None)


def _is_still_replaced(state: State, commit: GroupCommit, topic: str, partition: int) -> bool:
    """Return whether the committed offset is still the one that is to be replaced. Raises CommitFailedError."""
    if (topic, partition) not in commit.replaces:
        return True
    before, current = commit.replaces[topic, partition], find_offset(state, commit.group, topic, partition)
    if commit.refuses_replaced and current != before:
        raise CommitFailedError(
            f"the offset of group {commit.group!r} in {topic}-{partition} was not set: the new one is relative to the "
            f"committed one, which was {before} and is {current} now; nothing was committed, plan it again",
            group=commit.group,
            topic=topic,
            partition=partition,
        )
    return current == before


def find_offset(state: State, group: str, topic: str, partition: int) -> int | None:
    """Return the offset that a group has committed, None without one."""
    found = state.committed(group, topic, partition)
    return None if found is None else found.offset


def _check_held_by_no_other(group: GroupState, commit: GroupCommit) -> None:
    """Refuse offsets of partitions that another member has: partitions change owners within a generation, too, and late
    commits of a former owner must not move them."""
    by_topic: dict[str, set[int]] = {}
    for topic, partition in commit.offsets:
        by_topic.setdefault(topic, set()).add(partition)
    for name, member in group.members.items():
        if name == commit.member:
            continue
        for topic, partitions in by_topic.items():
            held = partitions.intersection(chain(member.assigned.get(topic, ()), member.revoking.get(topic, ())))
            if held:
                partition = min(held)
                raise CommitFailedError(
                    f"member {commit.member!r} of group {commit.group!r} cannot commit the offset of "
                    f"{topic}-{partition}: it is assigned to member {name!r} now, which reads on from the previously "
                    "committed offset",
                    group=commit.group,
                    member=commit.member,
                    topic=topic,
                    partition=partition,
                )


def topic_ids(state: State, partitions: Iterable[tuple[str, int]]) -> dict[str, str]:
    """Return the ids of the topics of these partitions in this state, for a ``GroupCommit`` that is decided later."""
    return {topic: state.topics[topic].topic_id for topic, _ in partitions if topic in state.topics}


def without_deleted_topics(state: State, commit: GroupCommit) -> GroupCommit:
    """Return what a commit commits in this state, if it leaves out deleted topics; else the commit."""
    if not commit.leaves_out_deleted:
        return commit
    current = topic_ids(state, commit.offsets)
    offsets = {
        (topic, partition): offset
        for (topic, partition), offset in commit.offsets.items()
        if topic in current and current[topic] == commit.topic_ids.get(topic)
    }
    return msgspec.structs.replace(commit, offsets=offsets)


def merge_offsets(earlier: GroupCommit, later: GroupCommit) -> GroupCommit:
    """Return a commit with the offsets of both, the later one's where both have one. Of a topic that was created again
    in between, the earlier id stays: it refuses the earlier offsets. So does the earliest known timeline."""
    offsets = {**earlier.offsets, **later.offsets}
    timelines = [each.timeline for each in (earlier, later) if each.offsets and each.timeline is not None]
    timeline = min(timelines, default=None)
    ids = {topic: earlier.topic_ids[topic] for topic, _ in earlier.offsets if topic in earlier.topic_ids}
    replaces = {**earlier.replaces, **later.replaces}
    ids = {**later.topic_ids, **ids}
    return msgspec.structs.replace(later, offsets=offsets, topic_ids=ids, timeline=timeline, replaces=replaces)


def _check_same_topics(state: State, commit: GroupCommit) -> None:
    for topic, partition in commit.offsets:
        topic_state, read_id = state.topics.get(topic), commit.topic_ids.get(topic)
        if topic_state is not None and read_id is not None and topic_state.topic_id != read_id:
            raise CommitFailedError(
                f"group {commit.group!r} cannot commit the offset of {topic}-{partition}: the topic was deleted and "
                f"created again (id {read_id} then, {topic_state.topic_id} now), and the offset is of the former one",
                group=commit.group,
                member=commit.member,
                topic=topic,
                partition=partition,
            )


def _make_committed_offset(
    state: State, topic: str, partition: int, position: OffsetAndMetadata | int
) -> CommittedOffset:
    state.partition(topic, partition)
    committed = OffsetAndMetadata(*position) if isinstance(position, tuple) else OffsetAndMetadata(position)
    metadata = as_python(committed.metadata)
    if not isinstance(metadata, str | None):
        raise InvalidRequestError(
            f"invalid metadata {metadata!r} of the offset of {topic}-{partition}: give a text, or None",
            topic=topic,
            partition=partition,
        )
    metadata = metadata or ""
    if not 0 <= committed.offset < 2**63:
        raise InvalidRequestError(
            f"invalid offset {committed.offset!r} of {topic}-{partition}: it must be from 0 to 2^63 - 1",
            topic=topic,
            partition=partition,
        )
    if len(metadata) > MAX_METADATA_CHARACTERS:
        raise OffsetMetadataTooLargeError(
            f"the metadata of the offset of {topic}-{partition} has {len(metadata)} characters, more than the limit of "
            f"{MAX_METADATA_CHARACTERS}",
            topic=topic,
            partition=partition,
        )
    return CommittedOffset(
        topic=as_python(topic),
        topic_id=state.topics[topic].topic_id,
        partition=partition,
        offset=committed.offset,
        leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
        metadata=metadata,
    )


# -- requests of administrators


def delete_group(state: State, group: str) -> Decision[None]:
    """Delete a group. Raises GroupIdNotFoundError, NonEmptyGroupError."""
    group_state = _find_group(state, group)
    if group_state.members:
        raise NonEmptyGroupError(
            f"group {group!r} has {len(group_state.members)} members; stop them before you delete it", group=group
        )
    return Decision([DeleteGroup(group=group)], None)


def delete_group_offsets(
    state: State, group: str, partitions: Sequence[tuple[str, int]]
) -> Decision[list[tuple[str, int]]]:
    """Delete a group's offsets of these partitions; the result lists the partitions that had one.

    Raises GroupIdNotFoundError, and NonEmptyGroupError if a member subscribes to one of the topics.
    """
    group_state = _find_group(state, group)
    subscribed = {topic for member in group_state.members.values() for topic in member.topics}
    subscribed_topics = sorted({topic for topic, _ in partitions} & subscribed)
    if subscribed_topics:
        raise NonEmptyGroupError(
            f"members of group {group!r} subscribe to topic {subscribed_topics[0]!r}; stop them before you delete its "
            "offsets",
            group=group,
            topic=subscribed_topics[0],
        )
    wanted = set(partitions)
    offsets = [
        offset for _, offset in sorted(group_state.offsets.items()) if (offset.topic, offset.partition) in wanted
    ]
    return _delete_offsets(group, offsets)


def _delete_offsets(group: str, offsets: Sequence[GroupOffset]) -> Decision[list[tuple[str, int]]]:
    if not offsets:
        return Decision([], [])
    partitions = [
        GroupPartition(topic=offset.topic, topic_id=offset.topic_id, partition=offset.partition) for offset in offsets
    ]
    deleted = [(offset.topic, offset.partition) for offset in offsets]
    return Decision([DeleteOffsets(group=group, partitions=partitions)], deleted)


def _find_group(state: State, group: str) -> GroupState:
    group_state = state.groups.get(group)
    if group_state is None:
        raise GroupIdNotFoundError(
            f"group {group!r} does not exist; `sparklog consumer-groups --list` shows the groups", group=group
        )
    return group_state


def expire_offsets(state: State, now_ms: int) -> Decision[list[str]]:
    """Delete offsets of groups that have had no members for ``offsets.retention.minutes``, and groups without offsets.

    An offset's age counts from its commit or from when the last member left, whichever is later, as in Kafka. One
    decision deletes as many as fit a commit: repeat it until it names no group.
    """
    oldest_ms = now_ms - ClusterConfig.resolve(state.configs).offsets_retention_minutes * 60_000
    actions: list[Action] = []
    groups: list[str] = []
    room = limits.MAX_OFFSETS_PER_COMMIT
    for name, group in sorted(state.groups.items()):
        if room <= 0:
            break
        if group.members or group.empty_since_ms > oldest_ms:
            continue
        expired = [offset for _, offset in sorted(group.offsets.items()) if offset.timestamp_ms <= oldest_ms]
        if len(expired) == len(group.offsets):
            actions.append(DeleteGroup(group=name))
        elif expired:
            actions += _delete_offsets(name, expired[:room]).actions
        else:
            continue
        room -= count_offset_changes(actions[-1])
        groups.append(name)
    return Decision(actions, groups)
