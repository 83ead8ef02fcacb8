"""The tables of ``consumer-groups --describe``, column by column as Kafka prints them.

Groups have no coordinator, so that column holds a dash and another in brackets: a row has as many words as the header.

Not for: the contents of the tables (``group_listing``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from sparklog.cli.arguments.parser import join
from sparklog.cli.output.documents import ConsumerGroupDetails, MemberDetails, OffsetDetails, PartitionName
from sparklog.cli.output.tables import table

MISSING = "-"
NO_COORDINATOR = "- (-)"
MIN_WIDTH = 15


def offsets(group: ConsumerGroupDetails, verbose: bool) -> list[str]:
    """Return one line per partition that a member holds or that has an offset; no lines without such partitions."""
    if not group.offsets:
        return []
    header = ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST"]
    widths = [-MIN_WIDTH, -MIN_WIDTH, 10, 15, 15, 15, -MIN_WIDTH, -MIN_WIDTH, 0]
    if verbose:
        header.insert(3, "LEADER-EPOCH")
        widths.insert(3, 15)
    rows = [_offset_row(group.group, offset, verbose) for offset in group.offsets]
    return _table([*header, "CLIENT-ID"], rows, widths)


def _offset_row(name: str, offset: OffsetDetails, verbose: bool) -> list[object]:
    row = [
        name, offset.topic, offset.partition, *([offset.leader_epoch] if verbose else []), offset.current_offset,
        offset.log_end_offset, offset.lag, offset.consumer_id, offset.host, offset.client_id,
    ]  # fmt: skip
    return [MISSING if value is None else value for value in row]


def members(group: ConsumerGroupDetails, verbose: bool) -> list[str]:
    group_members = group.members or []
    static = any(member.group_instance_id for member in group_members)
    header = ["GROUP", "CONSUMER-ID", *(["GROUP-INSTANCE-ID"] if static else []), "HOST", "CLIENT-ID", "#PARTITIONS"]
    widths = [-MIN_WIDTH, -MIN_WIDTH, *([-17] if static else []), -MIN_WIDTH, -MIN_WIDTH, 15]
    if verbose:
        header += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        widths += [15, -20, 15, -20]
    return _table(header, [_member_row(group, member, static, verbose) for member in group_members], widths)


def _member_row(group: ConsumerGroupDetails, member: MemberDetails, static: bool, verbose: bool) -> list[object]:
    row: list[object] = [group.group, member.consumer_id, *([member.group_instance_id or ""] if static else [])]
    row += [member.host or MISSING, member.client_id or MISSING, len(member.assignment)]
    if verbose:
        current, target = assignment_text(member.assignment), assignment_text(member.target_assignment)
        row += [group.generation, current, group.generation, target]
    return row


def assignment_text(partitions: Iterable[PartitionName]) -> str:
    """Format sorted partitions as ``orders:0,1;returns:0``, or a dash if there are none."""
    topics = groupby(partitions, key=attrgetter("topic"))
    return ";".join(f"{topic}:{join(partition.partition for partition in group)}" for topic, group in topics) or MISSING


def states(group: ConsumerGroupDetails, verbose: bool) -> list[str]:
    """Return the header and one line: assignor, state and number of members; with ``verbose`` also the generation."""
    header = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    row: list[object] = [group.group, NO_COORDINATOR, group.assignor or MISSING, group.state]
    widths = [-MIN_WIDTH, -25, 20, 20]
    if verbose:
        header += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [group.generation, group.generation]
        widths += [15, 25]
    return _table([*header, "#MEMBERS"], [[*row, group.member_count]], [*widths, 0])


def _table(header: Sequence[str], rows: Sequence[Sequence[object]], widths: Sequence[int]) -> list[str]:
    return [line.rstrip() for line in table([header, *rows], widths)]
