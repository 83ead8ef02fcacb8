"""The methods of ``AdminClient`` for consumer groups and offsets of partitions. Results are those of kafka-python 3.

Offsets of a group can be set from outside only while it has no members, as in Kafka. Methods with a result per
partition or member return error classes, ``NoError`` for success.

Not for: membership (``coordinator.group_member``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sparklog.client.admin.base import AdminBase, ErrorClass, Result, as_list
from sparklog.client.admin.types import (
    GroupState,
    GroupType,
    IsolationLevel,
    MemberToRemove,
    OffsetShift,
    OffsetSpec,
    OffsetTimestamp,
    PlannedOffset,
    member_of,
)
from sparklog.coordinator.group_liveness import abandoned_emptied, submit_without_dead_members
from sparklog.errors import (
    CommitFailedError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    InvalidArgumentError,
    InvalidArgumentTypeError,
    NoError,
    NonEmptyGroupError,
    NoOffsetForPartitionError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol import state as states
from sparklog.protocol.decide.groups import (
    GroupCommit,
    commit_group_offsets,
    delete_group,
    delete_group_offsets,
    leave_group,
    split_offsets,
    topic_ids,
)
from sparklog.protocol.group.rebalance import held_partitions, list_partitions, member_of_instance
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.state import GroupOffset, MemberState, State
from sparklog.types import EARLIEST, LATEST, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition, as_python, whole

if TYPE_CHECKING:
    from sparklog.client.reader import LogReader

EARLIEST_PENDING_UPLOAD = -6
"""Kafka's number for an offset of tiered storage, which kafka-python has no OffsetSpec for."""
NO_OFFSET = OffsetAndMetadata(-1, "", -1)
"""Kafka's result for a partition without a committed offset."""

OffsetSpecs = Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | OffsetShift | int | None]


class GroupAdmin(AdminBase):
    """The methods of ``AdminClient`` for groups and offsets. Thread-safe."""

    def list_groups(
        self,
        broker_ids: Iterable[int] | None = None,
        states_filter: Iterable[GroupState | str] | None = None,
        types_filter: Iterable[GroupType | str] | None = None,
    ) -> list[Result]:
        """Return all groups by name, or those of these states and types. ``broker_ids`` has no effect.

        >>> _ = admin.alter_group_offsets("billing", {sparklog.TopicPartition("orders", 0): 0})
        >>> [group["group_id"] for group in admin.list_groups()]
        ['billing']
        """
        wanted_states = {member_of(GroupState, state) for state in states_filter or ()}
        wanted_types = {member_of(GroupType, kind) for kind in types_filter or ()}
        if wanted_types and GroupType.CLASSIC not in wanted_types:
            return []
        return [
            {
                "group_id": name,
                "protocol_type": protocol_type(group),
                "group_state": group.name_of_state,
                "group_type": GroupType.CLASSIC.value,
            }
            for name, group in sorted(self.live_groups(self.read_state().groups).items())
            if not wanted_states or GroupState(group.name_of_state) in wanted_states
        ]

    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, Result]:
        """Return state, assignor and members of these groups; a group that does not exist is Dead with an ``error``.

        Members whose process died are left out after their session timeout.
        """
        existing, names = self.read_state().groups, list(dict.fromkeys(as_list(group_ids, "group_ids")))
        groups = self.live_groups({name: existing[name] for name in names if name in existing})
        return {name: _group_data(name, groups.get(name)) for name in names}

    def live_groups(self, groups: Mapping[str, states.GroupState]) -> dict[str, states.GroupState]:
        """Return the groups; those whose members are all dead are returned without members."""
        return abandoned_emptied(self._opened(), groups)

    def delete_groups(
        self, group_ids: Iterable[str], group_coordinator_id: int | None = None, *, raise_errors: bool = False
    ) -> dict[str, str]:
        """Delete groups with their offsets; return ``OK`` or the name of the error for each.

        With ``raise_errors`` raises GroupIdNotFoundError or NonEmptyGroupError of the first that cannot be deleted.
        """
        coordinator = self._opened()
        results: dict[str, str] = {}
        for name in dict.fromkeys(as_list(group_ids, "group_ids")):
            try:
                submit_without_dead_members(coordinator, name, partial(delete_group, group=name))
            except (GroupIdNotFoundError, NonEmptyGroupError) as error:
                if raise_errors:
                    raise
                results[name] = type(error).__name__
            else:
                results[name] = "OK"
        return results

    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str, ErrorClass]:
        """Remove members from a group, by id or instance; return an error class by member. Others get their partitions.

        A member that is still alive notices at its next poll, and rejoins.
        """
        coordinator = self._opened()
        group = self.read_state().groups.get(group_id, states.GroupState())
        names_by_id: dict[str, str] = {}
        results: dict[str, ErrorClass] = {}
        reasons: list[str] = []
        for member in members:
            name = member.member_id or member.group_instance_id
            if not name:
                raise InvalidArgumentError("a member to remove needs member_id or group_instance_id", group=group_id)
            member_id = member.member_id or member_of_instance(group, member.group_instance_id or "")
            results[name] = UnknownMemberIdError
            if member_id in group.members:
                names_by_id[member_id] = name
                reasons += [member.reason] if member.reason else []
        if names_by_id:
            reason = reasons[0] if reasons else "removed"
            leave = partial(leave_group, group=group_id, members=list(names_by_id), reason=reason)
            for member_id in coordinator.submit(leave):
                results[names_by_id[member_id]] = NoError
        return results

    # -- offsets of groups

    def list_group_offsets(
        self, group_specs: str | Sequence[str] | Mapping[str, Iterable[tuple[str, int]] | None]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return committed offsets of one group, of several, or ``{group: [TopicPartition, …] or None}`` (None: all).

        A named partition without a committed offset has offset -1; a group that does not exist has no offsets.

            >>> first = sparklog.TopicPartition("orders", 0)
            >>> _ = admin.alter_group_offsets("billing", {first: 0})
            >>> admin.list_group_offsets("billing")["billing"][first].offset
            0
        """
        if isinstance(group_specs, str):
            group_specs = [group_specs]
        specs = dict(group_specs) if isinstance(group_specs, Mapping) else dict.fromkeys(group_specs)
        state = self.read_state()
        result: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        for name, partitions in specs.items():
            offsets = state.committed_offsets(name)
            wanted = sorted(offsets) if partitions is None else [TopicPartition(*partition) for partition in partitions]
            result[name] = {partition: _to_offset_and_metadata(offsets.get(partition)) for partition in wanted}
        return result

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_coordinator_id: int | None = None,
        *,
        raise_errors: bool = False,
        planned: Mapping[TopicPartition, PlannedOffset] | None = None,
    ) -> dict[TopicPartition, ErrorClass]:
        """Commit offsets of a group that has no members; return the error class of each partition.

        ``planned`` is the result of ``plan_group_offsets`` that the offsets come from: CommitFailedError is the error
        where the topic was deleted and created again since, whose records they would skip, or where an offset is
        relative to a committed one that has changed since.

        Raises InvalidArgumentError for an invalid offset, and with ``raise_errors`` UnknownTopicOrPartitionError,
        CommitFailedError and UnknownMemberIdError; then nothing is committed.
        """
        state = self.read_state()
        ids = {**topic_ids(state, offsets), **_planned_ids(planned or {})}
        replaces = {(topic, number): at.committed for (topic, number), at in (planned or {}).items() if at.is_relative}
        results: dict[TopicPartition, ErrorClass] = {}
        wanted: dict[tuple[str, int], OffsetAndMetadata | int] = {}
        for partition, position in offsets.items():
            outcome = results[TopicPartition(*partition)] = _check_partition(state, partition, ids)
            if raise_errors or outcome is NoError:
                if isinstance(position, OffsetAndMetadata):
                    position = OffsetAndMetadata(*map(as_python, position))
                wanted[partition[0], as_python(partition[1])] = as_python(position)
        try:
            for part in split_offsets(wanted):
                commit = GroupCommit(
                    group=group_id, offsets=part, topic_ids=ids, replaces=replaces, refuses_replaced=True
                )
                submit_without_dead_members(self._opened(), group_id, partial(commit_group_offsets, commit=commit))
        except (UnknownMemberIdError, CommitFailedError) as error:  # the latter: changed since it was checked
            if raise_errors:
                raise
            results.update({TopicPartition(*partition): type(error) for partition in wanted})
        return results

    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: OffsetSpecs,
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, Result]:
        """Set offsets to those that ``plan_group_offsets`` returns; what else was committed with them stays.

        Returns the error class and the offset of each. Raises as ``plan_group_offsets``.

            >>> first = sparklog.TopicPartition("orders", 0)
            >>> results = admin.reset_group_offsets("billing", {first: sparklog.OffsetSpec.LATEST})
            >>> results[first]["offset"]
            0
        """
        before = self.list_group_offsets({group_id: offset_specs})[group_id]
        planned = self.plan_group_offsets(group_id, offset_specs)
        positions = {partition: before[partition]._replace(offset=at.offset) for partition, at in planned.items()}
        errors = self.alter_group_offsets(group_id, positions, planned=planned)
        return {
            partition: {"error": errors[partition], "offset": position.offset}
            for partition, position in positions.items()
        }

    def plan_group_offsets(self, group_id: str, offset_specs: OffsetSpecs) -> dict[TopicPartition, PlannedOffset]:
        """Return the offsets that a reset would set: by OffsetSpec, by OffsetTimestamp, shifted by OffsetShift, or a
        number, each moved into the range of its partition. None is the committed offset, or the latest without one.

        A time after the last record is the latest offset. Raises UnknownTopicOrPartitionError, and
        NoOffsetForPartitionError where there is no committed offset to shift.
        """
        state = self.read_state()
        before = state.committed_offsets(group_id)
        to_look_up = {
            partition: spec
            for partition, spec in offset_specs.items()
            if isinstance(spec, OffsetSpec | OffsetTimestamp)
        }
        looked_up = self.list_partition_offsets(to_look_up) if to_look_up else {}
        planned: dict[TopicPartition, PlannedOffset] = {}
        for given, spec in offset_specs.items():
            partition = TopicPartition(*given)
            committed = before.get(partition)
            at = _plan_offset(state, partition, spec, committed, looked_up.get(partition))
            at.topic_id = state.topic(partition.topic).topic_id
            at.committed = None if committed is None else committed.offset
            at.is_relative = spec is None or isinstance(spec, OffsetShift)
            planned[partition] = at
        return planned

    def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        group_coordinator_id: int | None = None,
        *,
        raise_errors: bool = False,
    ) -> dict[TopicPartition, ErrorClass]:
        """Delete a group's offsets of these partitions; those of topics that its members read are refused
        (GroupSubscribedToTopicError). Returns an error class by partition; with ``raise_errors`` the first is raised.

        Raises GroupIdNotFoundError.
        """
        by_topic: dict[str, list[tuple[str, int]]] = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, []).append((topic, as_python(number)))
        results: dict[TopicPartition, ErrorClass] = {}
        for of_topic in by_topic.values():
            outcome: ErrorClass = NoError
            try:
                for part in split_offsets(dict.fromkeys(of_topic, 0)):
                    delete = partial(delete_group_offsets, group=group_id, partitions=list(part))
                    submit_without_dead_members(self._opened(), group_id, delete)
            except NonEmptyGroupError as error:
                if raise_errors:
                    raise GroupSubscribedToTopicError(error.message, **error.context) from error
                outcome = GroupSubscribedToTopicError
            results.update({TopicPartition(*partition): outcome for partition in of_topic})
        return results

    # -- offsets of partitions

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        isolation_level: IsolationLevel | str | int = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Return offsets by OffsetSpec, or of the first record at or after a time in milliseconds; -1 if there is none.

        Raises UnknownTopicOrPartitionError, and InvalidArgumentError for an invalid time.
        """
        member_of(IsolationLevel, isolation_level)
        from sparklog.client.consumer.offsets_topic import ConsumerReader  # readers take long to import

        state = self.read_state()
        offsets: dict[TopicPartition, OffsetAndTimestamp] = {}
        with ConsumerReader(self._opened()) as reader:
            for (topic, number), spec in topic_partition_specs.items():
                internal = topic == CONSUMER_OFFSETS_TOPIC
                epoch = 0 if internal else state.partition(topic, number).leader_epoch
                offset, timestamp = _find_offset(reader, topic, number, spec)
                offsets[TopicPartition(topic, number)] = OffsetAndTimestamp(
                    offset, timestamp, epoch if offset >= 0 else None
                )
        return offsets


# -- the state of groups


def protocol_type(group: states.GroupState) -> str:
    """Return Kafka's protocol type: ``consumer``, or an empty string for a group that never had a member."""
    return "consumer" if group.generation else ""


def _to_offset_and_metadata(offset: GroupOffset | None) -> OffsetAndMetadata:
    return NO_OFFSET if offset is None else OffsetAndMetadata(offset.offset, offset.metadata, offset.leader_epoch)


def _check_partition(state: State, partition: tuple[str, int], ids: Mapping[str, str]) -> ErrorClass:
    """Return whether there is such a partition, and whether its topic is the one in which the offset was found."""
    if not state.find_partition(*partition):
        return UnknownTopicOrPartitionError
    return NoError if state.topic(partition[0]).topic_id == ids[partition[0]] else CommitFailedError


def _planned_ids(planned: Mapping[TopicPartition, PlannedOffset]) -> dict[str, str]:
    return {partition.topic: at.topic_id for partition, at in planned.items()}


def _plan_offset(
    state: State,
    partition: TopicPartition,
    spec: object,
    before: GroupOffset | None,
    looked_up: OffsetAndTimestamp | None,
) -> PlannedOffset:
    log = state.partition(*partition)
    if spec is None:  # as in Kafka it stays, even out of range
        offset = log.high_watermark if before is None else before.offset
        return PlannedOffset(offset, offset)
    if looked_up is not None and looked_up.offset < 0:
        return PlannedOffset(log.high_watermark, None)
    given = whole(spec)
    if given is None:
        raise InvalidArgumentTypeError(
            f"invalid offset {spec!r} for {partition}: give an OffsetSpec, an OffsetTimestamp, an OffsetShift or a "
            "whole number",
            **partition._asdict(),
        )
    wanted = given if looked_up is None else looked_up.offset
    if isinstance(spec, OffsetShift):
        if before is None:
            raise NoOffsetForPartitionError(
                f"Cannot shift offset for partition {partition} since there is no current committed offset",
                **partition._asdict(),
            )
        wanted += before.offset
    return PlannedOffset(min(max(wanted, log.log_start_offset), log.high_watermark), wanted)


def _find_offset(reader: LogReader, topic: str, partition: int, spec: object) -> tuple[int, int]:
    """Return the offset and the timestamp in milliseconds of the record, each -1 if there is none."""
    if isinstance(spec, OffsetTimestamp) and spec < 0:
        spec = OffsetSpec.EARLIEST  # every record is later
    given = whole(spec)
    if given is None or given < EARLIEST_PENDING_UPLOAD:
        kind = InvalidArgumentTypeError if given is None else InvalidArgumentError
        raise kind(
            f"invalid offset spec {spec!r} for {topic}-{partition}: give an OffsetSpec, or a time in milliseconds "
            "since the epoch",
            topic=topic,
            partition=partition,
        )
    if given in (OffsetSpec.LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return -1, -1  # Kafka's result without tiered storage
    if spec in (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL, OffsetSpec.LATEST):
        offset = reader.offset(topic, partition, LATEST if spec == OffsetSpec.LATEST else EARLIEST)
        return (-1 if offset is None else offset), -1
    if spec == OffsetSpec.MAX_TIMESTAMP:
        timed = reader.max_timestamp(topic, partition)
    else:
        timed = reader.find_timestamp(topic, partition, given * 1000)
    return (-1, -1) if timed is None else (timed.offset, timed.timestamp_us // 1000)


def _group_data(name: str, group: states.GroupState | None) -> Result:
    known = states.GroupState() if group is None else group
    return {
        "group_id": name,
        "group_state": GroupState.DEAD.value if group is None else group.name_of_state,
        "protocol_type": protocol_type(known),
        "protocol_data": known.assignor,
        "members": [_member_data(known, member) for member in sorted(known.members)],
        "authorized_operations": None,
        "error": f"{GroupIdNotFoundError.__name__}: group {name!r} does not exist" if group is None else None,
    }


def _member_data(group: states.GroupState, name: str) -> Result:
    member: MemberState = group.members[name]
    return {
        "member_id": name,
        "group_instance_id": member.instance_id or None,
        "client_id": member.client_id,
        "client_host": member.host,
        "member_metadata": {
            "topics": list(member.topics),
            "user_data": None,
            "owned_partitions": _partitions_by_topic(held_partitions(member)),
            "generation_id": group.generation,
            "rack_id": None,
        },
        "member_assignment": {
            "assigned_partitions": _partitions_by_topic(list_partitions(member.assigned)),
            "user_data": None,
        },
    }


def _partitions_by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    """Return ``[{"topic": …, "partitions": […]}]``, in order."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in by_topic.items()]
