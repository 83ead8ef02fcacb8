"""``consumer-groups --reset-offsets``: sets the committed offsets of groups, by each of Kafka's scenarios.

Rules: new offsets are clamped to the partition's range. A group that does not exist is created by its first offsets; a
group with members is refused, since only its members may commit.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import UsageError, complain, failure_code
from sparklog.cli.arguments.patterns import partitions_of
from sparklog.cli.output.tables import table
from sparklog.clock import SystemClock
from sparklog.errors import NoOffsetForPartitionError
from sparklog.types import TopicPartition, printable

if TYPE_CHECKING:
    from sparklog.client.admin.client import AdminClient
    from sparklog.client.admin.groups import OffsetSpecs
    from sparklog.client.admin.types import OffsetShift, OffsetSpec, OffsetTimestamp, PlannedOffset
    from sparklog.protocol.state import State

CHECKPOINT_NOTE = (
    "Note: a streaming query with a checkpoint resumes from its checkpoint, whatever its group's offsets; the new "
    "offsets apply to a query with a new checkpointLocation, kafka.group.id and no startingOffsets."
)
MAX_FILE_BYTES = 64 * 1024 * 1024
"""bytes of a CSV file: a million lines with long names."""

Wanted = dict[TopicPartition, int]
Plan = Mapping[TopicPartition, "PlannedOffset"]


def reset_offsets(admin: AdminClient, options: argparse.Namespace, groups: list[str]) -> int:
    """Print the new offsets of all groups, set them with ``--execute``, and return the exit code."""
    plans: dict[str, Plan] = {}
    code = 0
    from_file = _read_plans(options, groups) if options.from_file is not None else {}
    state = admin.read_state()
    group_states = admin.live_groups({name: state.groups[name] for name in groups if name in state.groups})
    for name in groups:
        group = group_states.get(name)
        problem = ""
        if group is not None and group.members:
            problem = (
                f"Assignments can only be reset if the group '{name}' is inactive, but the current state is "
                f"{group.name_of_state}."
            )
        elif options.from_file is not None and name not in from_file:
            problem = f"No reset plan for group {name} found"
        if problem:
            complain(f"Error: {problem}")
            code = failure_code(options)
        plans[name] = {} if problem else _plan(admin, state, options, name, from_file.get(name, {}))
    if options.execute:
        for name in filter(plans.get, plans):
            offsets = {partition: planned.offset for partition, planned in plans[name].items()}
            admin.alter_group_offsets(name, offsets, raise_errors=True, planned=plans[name])
    if options.export:
        print(_as_csv(plans, with_group=len(options.group) != 1))
    else:
        print("\n".join(_as_table(plans)))
    if any(plan and (name not in group_states or not group_states[name].generation) for name, plan in plans.items()):
        complain(CHECKPOINT_NOTE)
    return code


def _as_table(plans: Mapping[str, Plan]) -> list[str]:
    rows = [(name, *partition, planned.offset) for name, plan in plans.items() for partition, planned in plan.items()]
    width = -max([15, *(len(printable(name)) for name in plans)])  # groups without rows count too
    return ["", *table([("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"), *rows], [width, -15, 10, 0])]


def _as_csv(plans: Mapping[str, Plan], with_group: bool) -> str:
    """Format one line per offset. ``print`` adds an empty line, as Kafka's tool does: scripts drop the last one."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for name, plan in plans.items():
        for partition, planned in plan.items():
            writer.writerow([*([name] if with_group else []), partition.topic, partition.partition, planned.offset])
    return out.getvalue()


# -- the new offsets of one group


def _plan(admin: AdminClient, state: State, options: argparse.Namespace, group: str, from_file: Wanted) -> Plan:
    specs: OffsetSpecs
    if options.from_file is not None:
        specs = dict(sorted(from_file.items()))
    elif options.all_topics:
        specs = dict.fromkeys(sorted(admin.list_group_offsets(group)[group]), _spec(options))
    else:
        partitions = sorted(TopicPartition(*partition) for partition in partitions_of(state, options.topic))
        specs = dict.fromkeys(partitions, _spec(options))
    try:
        planned = admin.plan_group_offsets(group, specs)
    except NoOffsetForPartitionError as error:
        raise UsageError(error.message) from error
    for partition, (offset, wanted) in planned.items():
        if wanted is None:
            print(
                f"\nWarn: Partition {partition.partition} from topic {printable(partition.topic)} is empty. "
                "Falling back to latest known offset.",
                file=sys.stderr,
            )
        elif wanted != offset:
            side, kind = ("higher", "latest") if wanted > offset else ("lower", "earliest")
            complain(
                f"New offset ({wanted}) is {side} than {kind} offset for topic partition {partition}. "
                f"Value will be set to {offset}."
            )
    return planned


def _spec(options: argparse.Namespace) -> OffsetSpec | OffsetTimestamp | OffsetShift | int | None:
    """Return where the options set each offset to; None leaves it as it is. Raises UsageError."""
    from sparklog.client.admin.types import OffsetShift, OffsetSpec, OffsetTimestamp

    if options.to_offset is not None:
        return int(options.to_offset)
    if options.shift_by is not None:
        return OffsetShift(options.shift_by)
    if options.to_datetime is not None:
        return OffsetTimestamp(parse_time_ms(options.to_datetime))
    if options.by_duration is not None:
        return OffsetTimestamp(SystemClock().now_ms() - parse_duration_ms(options.by_duration))
    if options.to_current:
        return None
    return OffsetSpec.EARLIEST if options.to_earliest else OffsetSpec.LATEST


# -- by time


_TIME = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})T(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,3}))?(Z|[+-]\d\d(?::?\d\d)?)?\Z", re.ASCII
)
_DURATION = re.compile(
    r"([+-])?P(?:([+-]?\d+)D)?(?:T(?=[+-]?\d)(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+)(?:[.,](\d{0,9}))?S)?)?\Z",
    re.ASCII | re.IGNORECASE,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def parse_time_ms(text: str) -> int:
    """Parse ``2026-01-31T12:00:00.000``, UTC unless it ends in a zone, to ms since 1970. Raises UsageError."""
    if "T" not in text:
        raise UsageError("Error parsing timestamp. It does not contain a 'T' according to ISO8601 format")
    match = _TIME.match(text)
    invalid = UsageError(f"Unparseable date: {text!r}; give a time such as 2026-01-31T12:00:00.000")
    if match is None:
        raise invalid
    *numbers, millis, zone = match.groups()
    try:
        moment = datetime(*(int(number) for number in numbers), tzinfo=timezone.utc)  # type: ignore[arg-type,misc]
    except ValueError:
        raise invalid from None
    offset = timedelta()
    if zone not in (None, "Z"):
        minutes = int(zone[1:3]) * 60 + int(zone[3:].lstrip(":") or 0)
        offset = timedelta(minutes=minutes if zone[0] == "+" else -minutes)
    return (moment - offset - _EPOCH) // timedelta(milliseconds=1) + int((millis or "0").ljust(3, "0"))


def parse_duration_ms(text: str) -> int:
    """Parse ``PnDTnHnMnS``, as Java's Duration.parse does, to milliseconds. Raises UsageError."""
    match = _DURATION.match(text)
    if match is None or not any(match.groups()[1:5]):
        raise UsageError(f"{text!r} cannot be parsed to a Duration: give one such as P1DT2H30M or PT0.5S")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60
    part = int((fraction or "0").ljust(3, "0")[:3])
    millis = whole * 1000 + int(seconds or 0) * 1000 + (-part if (seconds or "").startswith("-") else part)
    return -millis if sign == "-" else millis


# -- by file


def _read_plans(options: argparse.Namespace, groups: list[str]) -> dict[str, Wanted]:
    """Read the CSV file's offsets by group, and say which rows are of none of the ``groups``. Raises UsageError if its
    format is not that of ``--export``."""
    path = options.from_file
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--from-file: {path} cannot be read: {error}") from error
    if len(text) > MAX_FILE_BYTES:
        raise UsageError(f"--from-file: {path} has over {MAX_FILE_BYTES} characters")
    plans: dict[str, Wanted] = {}
    for group, partition, offset in _parse_rows(path, text, options.group):
        plans.setdefault(group, {})[partition] = offset
    ignored = sorted(plans.keys() - set(groups))
    if ignored:
        complain(f"Warning: {path} has rows of groups that are not named, which are ignored: {', '.join(ignored)}")
    return plans


def _parse_rows(path: str, text: str, groups: list[str]) -> Iterator[tuple[str, TopicPartition, int]]:
    """Parse ``group,topic,partition,offset``; the group may be missing if exactly one was named."""
    reader = csv.reader(io.StringIO(text))
    for row in reader:
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if len(row) == 4:
            cells[0] = row[0]  # names of groups may begin and end with spaces
        if len(cells) == 3 and len(set(groups)) == 1:
            cells.insert(0, groups[0])
        numbers = cells[2:]
        if len(cells) != 4 or not all(number.isascii() and number.isdigit() for number in numbers):
            expected = "topic,partition,offset" if len(set(groups)) == 1 else "group,topic,partition,offset"
            raise UsageError(f"--from-file: line {reader.line_num} of {path} is not {expected}: {','.join(row)!r}")
        yield cells[0], TopicPartition(cells[1], int(numbers[0])), int(numbers[1])
