"""The tables of ``consumer-groups --describe``, column by column as Kafka prints them.

There is no coordinator to name, so that column has a dash, and another in brackets: a row has as many words as its
head. Not for: what they show (``group_listing``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparklog.cli.output.documents import ConsumerGroupDetails, MemberDetails, OffsetDetails, PartitionName
from sparklog.types import printable

MISSING = "-"
NO_COORDINATOR = "- (-)"
NARROWEST = 15


def offsets(group: ConsumerGroupDetails, verbose: bool) -> list[str]:
    """A line for each partition that a member holds or that has an offset; nothing where there is none."""
    if not group.offsets:
        return []
    header = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST"]
    widths = [-NARROWEST, -NARROWEST, 10, 15, 15, 15, -NARROWEST, -NARROWEST, 0]
    if verbose:
        header.insert(3, "LEADER-EPOCH")
        widths.insert(3, 15)
    rows = [_offset_row(group.group, one, verbose) for one in group.offsets]
    return _table([*header, "CLIENT-ID"], rows, widths)


def _offset_row(name: str, one: OffsetDetails, verbose: bool) -> list[object]:
    row = [
        name, one.topic, one.partition, *([one.leader_epoch] if verbose else []), one.current_offset,
        one.log_end_offset, one.lag, one.consumer_id, one.host, one.client_id,
    ]  # fmt: skip
    return [MISSING if value is None else value for value in row]


def members(group: ConsumerGroupDetails, verbose: bool) -> list[str]:
    """A line for each member, below the head of the table."""
    shown = group.members or []
    static = any(member.group_instance_id for member in shown)
    header = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if static else []), "HOST", "CLIENT-ID", "#PARTITIONS"]
    widths = [-NARROWEST, -NARROWEST, *([-17] if static else []), -NARROWEST, -NARROWEST, 15]
    if verbose:
        header += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        widths += [15, -20, 15, -20]
    return _table(header, [_member_row(group, member, static, verbose) for member in shown], widths)


def _member_row(group: ConsumerGroupDetails, member: MemberDetails, static: bool, verbose: bool) -> list[object]:
    row: list[object] = [group.group, member.consumer_id, *([member.group_instance_id or ""] if static else [])]
    row += [member.host or MISSING, member.client_id or MISSING, len(member.assignment)]
    if verbose:
        holds, target = assignment_text(member.assignment), assignment_text(member.target_assignment)
        row += [group.generation, holds, group.generation, target]
    return row


def assignment_text(places: Iterable[PartitionName]) -> str:
    """``orders:0,1;returns:0``, or a dash; the places are in order."""
    numbers: dict[str, list[str]] = {}
    for place in places:
        numbers.setdefault(place.topic, []).append(str(place.partition))
    return ";".join(f"{topic}:{','.join(numbers[topic])}" for topic in numbers) or MISSING


def states(group: ConsumerGroupDetails, verbose: bool) -> list[str]:
    """One line: the assignor, the state and the number of members; with ``verbose`` the generation too."""
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    row: list[object] = [group.group, NO_COORDINATOR, group.assignor or MISSING, group.state]
    widths = [-NARROWEST, -25, 20, 20]
    if verbose:
        header += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [group.generation, group.generation]
        widths += [15, 25]
    return _table([*header, "#MEMBERS"], [[*row, group.member_count]], [*widths, 0])


def _table(header: Sequence[str], rows: Sequence[Sequence[object]], widths: Sequence[int]) -> list[str]:
    """Columns padded to their width, and to their longest value where the width is negative."""
    texts = [list(header), *([printable(value) for value in row] for row in rows)]
    padded = [
        max([-width, *(len(row[column]) for row in texts)]) if width < 0 else width
        for column, width in enumerate(widths)
    ]
    return [" ".join(value.ljust(width) for value, width in zip(row, padded, strict=True)).rstrip() for row in texts]
