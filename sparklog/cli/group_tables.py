"""The tables of ``consumer-groups --describe``, column by column as Kafka prints them.

A partition that a member has to give up is shown as the member's for as long as it holds it. There is no coordinator
to name, so that column has a dash, and another in brackets: a row has as many words as its head.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sparklog.protocol.groups import held, listed
from sparklog.protocol.state import GroupOffset, GroupState, State
from sparklog.types import TopicPartition, printable

if TYPE_CHECKING:
    from sparklog.protocol.state import MemberState

MISSING = "-"
NO_COORDINATOR = "- (-)"
NARROWEST = 15


class _Owner(NamedTuple):
    consumer_id: str = MISSING
    host: str = MISSING
    client_id: str = MISSING


def committed_offsets(state: State, group: GroupState) -> dict[TopicPartition, GroupOffset]:
    """What a group has committed of topics that exist; offsets of a topic that was created again do not count."""
    live = {(name, topic.topic_id) for name, topic in state.topics.items()}
    found = [one for _, one in sorted(group.offsets.items()) if (one.topic, one.topic_id) in live]
    return {TopicPartition(one.topic, one.partition): one for one in found}


# -- offsets


def offsets(state: State, name: str, group: GroupState, verbose: bool) -> list[str]:
    """A line for each partition that a member holds or that has an offset; nothing where there is none."""
    committed = committed_offsets(state, group)
    rows: list[Sequence[object]] = []
    owned: set[TopicPartition] = set()
    for consumer, member in sorted(group.members.items(), key=lambda item: (-len(held(item[1])), item[0])):
        places = {place for place in held(member) if _exists(state, place)}
        owned |= places
        owner = _Owner(consumer, member.host or MISSING, member.client_id or MISSING)
        rows += [_offset_row(state, name, place, committed.get(place), owner, verbose) for place in sorted(places)]
    for place in sorted(committed.keys() - owned):
        rows.append(_offset_row(state, name, place, committed[place], _Owner(), verbose))
    if not rows:
        return []
    header = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST"]
    widths = [-NARROWEST, -NARROWEST, 10, 15, 15, 15, -NARROWEST, -NARROWEST, 0]
    if verbose:
        header.insert(3, "LEADER-EPOCH")
        widths.insert(3, 15)
    return _table([*header, "CLIENT-ID"], rows, widths)


def _offset_row(
    state: State, name: str, place: TopicPartition, offset: GroupOffset | None, owner: _Owner, verbose: bool
) -> list[object]:
    end = state.partition(place.topic, place.partition).high_watermark
    epoch = MISSING if offset is None or offset.leader_epoch < 0 else offset.leader_epoch
    position: object = MISSING if offset is None else offset.offset
    lag: object = MISSING if offset is None else end - offset.offset
    return [name, place.topic, place.partition, *([epoch] if verbose else []), position, end, lag, *owner]


def _exists(state: State, place: TopicPartition) -> bool:
    topic = state.topics.get(place.topic)
    return topic is not None and place.partition < len(topic.partitions)


# -- members


def members(name: str, group: GroupState, verbose: bool) -> list[str]:
    """A line for each member, below the head of the table."""
    static = any(member.instance_id for member in group.members.values())
    header = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if static else []), "HOST", "CLIENT-ID", "#PARTITIONS"]
    widths = [-NARROWEST, -NARROWEST, *([-17] if static else []), -NARROWEST, -NARROWEST, 15]
    if verbose:
        header += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        widths += [15, -20, 15, -20]
    rows = [_member_row(name, group, consumer, static, verbose) for consumer in sorted(group.members)]
    return _table(header, rows, widths)


def _member_row(name: str, group: GroupState, consumer: str, static: bool, verbose: bool) -> list[object]:
    member: MemberState = group.members[consumer]
    holds = held(member)
    row: list[object] = [name, consumer, *([member.instance_id] if static else [])]
    row += [member.host or MISSING, member.client_id or MISSING, len(holds)]
    if verbose:
        target = listed(group.target.get(consumer, {}))
        row += [group.generation, assignment_text(holds), group.generation, assignment_text(target)]
    return row


def assignment_text(places: Iterable[TopicPartition]) -> str:
    """``orders:0,1;returns:0``, or a dash."""
    numbers: dict[str, list[str]] = {}
    for topic, number in sorted(places):
        numbers.setdefault(topic, []).append(str(number))
    return ";".join(f"{topic}:{','.join(numbers[topic])}" for topic in numbers) or MISSING


# -- state


def states(name: str, group: GroupState, verbose: bool) -> list[str]:
    """One line: the assignor, the state and the number of members; with ``verbose`` the generation too."""
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    row: list[object] = [name, NO_COORDINATOR, group.assignor or MISSING, group.name_of_state]
    widths = [-NARROWEST, -25, 20, 20]
    if verbose:
        header += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [group.generation, group.generation]
        widths += [15, 25]
    return _table([*header, "#MEMBERS"], [[*row, len(group.members)]], [*widths, 0])


def _table(header: Sequence[str], rows: Sequence[Sequence[object]], widths: Sequence[int]) -> list[str]:
    """Columns padded to their width, and to their longest value where the width is negative."""
    texts = [list(header), *([printable(value) for value in row] for row in rows)]
    padded = [
        max([-width, *(len(row[column]) for row in texts)]) if width < 0 else width
        for column, width in enumerate(widths)
    ]
    return [" ".join(value.ljust(width) for value, width in zip(row, padded, strict=True)).rstrip() for row in texts]
