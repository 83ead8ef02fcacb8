"""Consumer groups of ``AdminClient``, and offsets of partitions. Results are those of kafka-python 3.

Offsets can be set from outside only while a group has no members, as in Kafka. Methods that answer per partition or
member give error classes, ``NoError`` for what worked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from sparklog.client.admin.base import AdminBase, Result
from sparklog.client.admin.types import (
    GroupState,
    GroupType,
    IsolationLevel,
    MemberToRemove,
    OffsetSpec,
    OffsetTimestamp,
    member_of,
)
from sparklog.client.reader import LogReader
from sparklog.coordinator.group_liveness import abandoned_emptied, without_dead_members
from sparklog.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    InvalidArgumentError,
    InvalidArgumentTypeError,
    NoError,
    NonEmptyGroupError,
    SparklogError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from sparklog.protocol import state as states
from sparklog.protocol.group.membership import held_partitions, member_of_instance
from sparklog.protocol.state import GroupOffset, MemberState, Partitions, State
from sparklog.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

PROTOCOL_TYPE = "consumer"
"""Kafka's protocol type of groups with members; empty for a group that only ever had offsets."""
NO_OFFSET = OffsetAndMetadata(-1, "", -1)
"""What Kafka answers for a partition without a committed offset."""

ErrorClass = type[SparklogError]


class GroupAdmin(AdminBase):
    """The methods of ``AdminClient`` for groups and offsets. Thread-safe."""

    def list_groups(
        self,
        broker_ids: Iterable[int] | None = None,
        states_filter: Iterable[GroupState | str] | None = None,
        types_filter: Iterable[GroupType | str] | None = None,
    ) -> list[Result]:
        """All groups by name, or those in these states and of these types. All groups are the whole cluster's.

        >>> _ = admin.alter_group_offsets("billing", {sparklog.TopicPartition("orders", 0): 0})
        >>> [group["group_id"] for group in admin.list_groups()]
        ['billing']
        """
        wanted_states = {member_of(GroupState, one) for one in states_filter or ()}
        wanted_types = {member_of(GroupType, one) for one in types_filter or ()}
        if wanted_types and GroupType.CLASSIC not in wanted_types:
            return []
        return [
            {
                "group_id": name,
                "protocol_type": protocol_type(group),
                "group_state": group.name_of_state,
                "group_type": GroupType.CLASSIC.value,
            }
            for name, group in sorted(self._living(self._state().groups).items())
            if not wanted_states or GroupState(group.name_of_state) in wanted_states
        ]

    def describe_groups(
        self,
        group_ids: Iterable[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,
    ) -> dict[str, Result]:
        """State, assignor and members of these groups; one that there is not is Dead and has its ``error``.

        Members whose process died are left out once their session timeout is over.
        """
        known, names = self._state().groups, _names(group_ids, "group_ids")
        groups = self._living({name: known[name] for name in names if name in known})
        return {name: _group_data(name, groups.get(name)) for name in names}

    def _living(self, groups: Mapping[str, states.GroupState]) -> dict[str, states.GroupState]:
        """The groups as they are once dead members are taken out of those that have no others."""
        return abandoned_emptied(self._opened(), groups)

    def delete_groups(self, group_ids: Iterable[str], group_coordinator_id: int | None = None) -> dict[str, str]:
        """Delete groups with their offsets: ``OK`` or the name of the error for each."""
        coordinator = self._opened()
        results: dict[str, str] = {}
        for name in _names(group_ids, "group_ids"):
            try:
                without_dead_members(coordinator, name, partial(coordinator.delete_group, name))
            except (GroupIdNotFoundError, NonEmptyGroupError) as error:
                results[name] = type(error).__name__
            else:
                results[name] = "OK"
        return results

    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str, ErrorClass]:
        """Take members out of a group by id or instance; what they hold goes to others. Error class by member.

        A member that is still alive finds out at its next poll, and joins again.
        """
        coordinator = self._opened()
        group = self._state().groups.get(group_id, states.GroupState())
        found: dict[str, str] = {}
        results: dict[str, ErrorClass] = {}
        reasons: list[str] = []
        for member in members:
            shown = member.member_id or member.group_instance_id
            if not shown:
                raise InvalidArgumentError("a member to remove needs member_id or group_instance_id", group=group_id)
            actual = member.member_id or member_of_instance(group, member.group_instance_id or "")
            results[shown] = UnknownMemberIdError
            if actual in group.members:
                found[actual] = shown
                reasons += [member.reason] if member.reason else []
        if found:
            for actual in coordinator.leave_group(group_id, list(found), reason=reasons[0] if reasons else "removed"):
                results[found[actual]] = NoError
        return results

    # -- offsets of groups

    def list_group_offsets(
        self, group_specs: str | Sequence[str] | Mapping[str, Iterable[tuple[str, int]] | None]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets of a group, of several, or of some partitions: ``{group: [TopicPartition, …] or None}``.

        A partition that was named and has none is at offset -1; a group that there is not has none.

            >>> first = sparklog.TopicPartition("orders", 0)
            >>> _ = admin.alter_group_offsets("billing", {first: 0})
            >>> admin.list_group_offsets("billing")["billing"][first].offset
            0
        """
        if isinstance(group_specs, str):
            group_specs = [group_specs]
        specs = dict(group_specs) if isinstance(group_specs, Mapping) else dict.fromkeys(group_specs)
        state = self._state()
        found: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
        for name, partitions in specs.items():
            known = committed(state, name)
            places = sorted(known) if partitions is None else [TopicPartition(*place) for place in partitions]
            found[name] = {place: _position(known.get(place)) for place in places}
        return found

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, ErrorClass]:
        """Commit offsets of a group that has no members: the error class of each partition.

        Raises InvalidArgumentError for an offset that none can be; then nothing is committed.
        """
        state = self._state()
        results: dict[TopicPartition, ErrorClass] = {}
        wanted: dict[tuple[str, int], OffsetAndMetadata | int] = {}
        for place, position in offsets.items():
            results[TopicPartition(*place)] = NoError if _exists(state, place) else UnknownTopicOrPartitionError
            if _exists(state, place):
                wanted[place[0], place[1]] = position
        try:
            coordinator = self._opened()
            without_dead_members(coordinator, group_id, lambda: coordinator.commit_offsets(group_id, wanted))
        except UnknownMemberIdError:
            results.update({TopicPartition(*place): UnknownMemberIdError for place in wanted})
        return results

    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, Result]:
        """Set offsets by OffsetSpec, by OffsetTimestamp, or to a number, within what each partition has.

        Returns the error class and the offset of each. Raises UnknownTopicOrPartitionError.

            >>> first = sparklog.TopicPartition("orders", 0)
            >>> found = admin.reset_group_offsets("billing", {first: sparklog.OffsetSpec.LATEST})
            >>> found[first]["offset"]
            0
        """
        state = self._state()
        known = committed(state, group_id)
        asked = {place: spec for place, spec in offset_specs.items() if isinstance(spec, OffsetSpec | OffsetTimestamp)}
        found = self.list_partition_offsets(asked) if asked else {}
        positions: dict[TopicPartition, OffsetAndMetadata | int] = {}
        for place, spec in offset_specs.items():
            raw = found[place].offset if place in found else spec
            if isinstance(raw, bool) or not isinstance(raw, int):
                raise InvalidArgumentTypeError(
                    f"the offset of {TopicPartition(*place)} is {raw!r}; give an OffsetSpec, an OffsetTimestamp or a "
                    "whole number",
                    topic=place[0],
                    partition=place[1],
                )
            log = state.partition(place[0], place[1])
            offset = log.high_watermark if raw < 0 else min(max(raw, log.log_start_offset), log.high_watermark)
            positions[place] = (_position(known[place]) if place in known else OffsetAndMetadata(0))._replace(
                offset=offset
            )
        errors = self.alter_group_offsets(group_id, positions)
        return {place: {"error": errors[place], "offset": _offset(positions[place])} for place in positions}

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, ErrorClass]:
        """Forget a group's offsets of these partitions, except of topics that its members read
        (GroupSubscribedToTopicError).

        Raises GroupIdNotFoundError.
        """
        by_topic: dict[str, list[tuple[str, int]]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append((topic, partition))
        results: dict[TopicPartition, ErrorClass] = {}
        for places in by_topic.values():
            outcome: ErrorClass = NoError
            try:
                coordinator = self._opened()
                delete = partial(coordinator.delete_group_offsets, group_id, places)
                without_dead_members(coordinator, group_id, delete)
            except NonEmptyGroupError:
                outcome = GroupSubscribedToTopicError
            results.update({TopicPartition(*place): outcome for place in places})
        return results

    # -- offsets of partitions

    def list_partition_offsets(
        self,
        topic_partition_specs: Mapping[TopicPartition, OffsetSpec | int],
        isolation_level: IsolationLevel | str | int = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Offsets by OffsetSpec, or of the first record at or after a time in milliseconds; -1 where there is none.

        Raises UnknownTopicOrPartitionError, and InvalidArgumentError for what is no time.
        """
        member_of(IsolationLevel, isolation_level)
        state = self._state()
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        with LogReader(self._opened()) as reader:
            for place, spec in topic_partition_specs.items():
                topic, partition = place
                epoch = state.partition(topic, partition).leader_epoch
                offset, timestamp = _find(reader, topic, partition, spec)
                known = offset >= 0
                found[TopicPartition(topic, partition)] = OffsetAndTimestamp(
                    offset, timestamp, epoch if known else None
                )
        return found


# -- what is in the state


def protocol_type(group: states.GroupState) -> str:
    """``consumer``, or nothing for a group that nobody was ever a member of."""
    return PROTOCOL_TYPE if group.generation else ""


def committed(state: State, group: str) -> dict[TopicPartition, GroupOffset]:
    """What a group has committed of topics that exist; offsets of a topic that was created again do not count."""
    offsets = state.groups.get(group, states.GroupState()).offsets
    live = {(name, topic.topic_id) for name, topic in state.topics.items()}
    return {
        TopicPartition(one.topic, one.partition): one
        for _, one in sorted(offsets.items())
        if (one.topic, one.topic_id) in live
    }


def _position(offset: GroupOffset | None) -> OffsetAndMetadata:
    return NO_OFFSET if offset is None else OffsetAndMetadata(offset.offset, offset.metadata, offset.leader_epoch)


def _offset(position: OffsetAndMetadata | int) -> int:
    return position.offset if isinstance(position, OffsetAndMetadata) else position


def _exists(state: State, place: tuple[str, int]) -> bool:
    topic = state.topics.get(place[0])
    return topic is not None and 0 <= place[1] < len(topic.partitions)


def _names(given: Iterable[str], what: str) -> list[str]:
    """The names in a list. One name is no list, although it could be taken for one of letters."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidArgumentTypeError(f"{what}={given!r}: give a list")
    return list(dict.fromkeys(given))


def _find(reader: LogReader, topic: str, partition: int, spec: object) -> tuple[int, int]:
    """The offset and the time in milliseconds of the record, each -1 where there is none."""
    if isinstance(spec, bool) or not isinstance(spec, int) or spec < min(OffsetSpec):
        kind = InvalidArgumentError if isinstance(spec, int) else InvalidArgumentTypeError
        raise kind(
            f"the offset of {topic}-{partition} is asked for as {spec!r}; give an OffsetSpec, or a time in "
            "milliseconds since 1970",
            topic=topic,
            partition=partition,
        )
    if spec == OffsetSpec.LATEST_TIERED:
        return -1, -1  # what Kafka answers without tiered storage
    if spec in (OffsetSpec.EARLIEST, OffsetSpec.EARLIEST_LOCAL):
        return reader.state.partition(topic, partition).log_start_offset, -1
    if spec == OffsetSpec.LATEST:
        return reader.state.partition(topic, partition).high_watermark, -1
    if spec == OffsetSpec.MAX_TIMESTAMP:
        timed = reader.max_timestamp(topic, partition)
    else:
        timed = reader.find_timestamp(topic, partition, spec * 1000)
    return (-1, -1) if timed is None else (timed.offset, timed.timestamp_us // 1000)


def _group_data(name: str, group: states.GroupState | None) -> Result:
    if group is None:
        missing = GroupIdNotFoundError(f"group {name!r} does not exist", group=name)
        return {
            "group_id": name,
            "group_state": GroupState.DEAD.value,
            "protocol_type": "",
            "protocol_data": "",
            "members": [],
            "authorized_operations": None,
            "error": f"{type(missing).__name__}: {missing.message}",
        }
    return {
        "group_id": name,
        "group_state": group.name_of_state,
        "protocol_type": protocol_type(group),
        "protocol_data": group.assignor,
        "members": [_member_data(group, member) for member in sorted(group.members)],
        "authorized_operations": None,
        "error": None,
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
            "owned_partitions": _topics_data(held_partitions(member)),
            "generation_id": group.generation,
            "rack_id": None,
        },
        "member_assignment": {"assigned_partitions": _topics_data(_listed(member.assigned)), "user_data": None},
    }


def _listed(partitions: Partitions) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers}


def _topics_data(places: set[TopicPartition]) -> list[dict[str, Any]]:
    """``[{"topic": …, "partitions": […]}]``, in order."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(places):
        found.setdefault(topic, []).append(number)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in found.items()]
