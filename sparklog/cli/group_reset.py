"""``consumer-groups --reset-offsets``: where a group goes on, by each of Kafka's scenarios.

New offsets are brought within what the partition has. A group that does not exist is made by its first offsets; one
with members is refused, since only they may commit.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import TYPE_CHECKING

from sparklog.cli.common import UsageError, complain, failure_code
from sparklog.cli.group_listing import committed_offsets
from sparklog.cli.group_places import partitions_of
from sparklog.coordinator.group_liveness import abandoned_emptied, without_dead_members
from sparklog.protocol.state import GroupState
from sparklog.types import TopicPartition, printable

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator

CHECKPOINT_NOTE = (
    "Note: a streaming query that has a checkpoint goes on from its checkpoint, whatever its group says; the new "
    "offsets are for a query with a new checkpointLocation, kafka.group.id and no startingOffsets."
)
LARGEST_FILE_BYTES = 64 * 1024 * 1024
"""bytes of a CSV file: a million lines with long names."""

Plan = dict[TopicPartition, int]
"""New offsets of one group."""


def reset_offsets(coordinator: Coordinator, options: argparse.Namespace, groups: list[str]) -> int:
    """Print the new offsets of all groups, and set them with ``--execute``. The exit code."""
    plans: dict[str, Plan] = {}
    code = 0
    written = _plans_of_file(options) if options.from_file is not None else {}
    known = abandoned_emptied(coordinator, {name: _group(coordinator, name) for name in groups})
    for name, group in known.items():
        if group.members:
            complain(
                f"Error: Assignments can only be reset if the group '{name}' is inactive, but the current state is "
                f"{group.name_of_state}."
            )
            plans[name], code = {}, failure_code(options)
            continue
        if options.from_file is not None and name not in written:
            complain(f"Error: No reset plan for group {name} found")
            plans[name], code = {}, failure_code(options)
            continue
        plans[name] = _plan(coordinator, options, name, group, written.get(name, {}))
    if options.execute:
        for name, plan in plans.items():
            offsets = {(place.topic, place.partition): at for place, at in plan.items()}
            without_dead_members(coordinator, name, partial(coordinator.commit_offsets, name, offsets))
    if options.export:
        print(_as_csv(plans, with_group=len(options.group) != 1))
    else:
        print("\n".join(_as_table(plans)))
    if any(plans[name] and _is_no_members_group(coordinator, name) for name in plans):
        complain(CHECKPOINT_NOTE)
    return code


def _is_no_members_group(coordinator: Coordinator, name: str) -> bool:
    """Whether nobody ever was a member, as nobody is in the group of a streaming query."""
    return _group(coordinator, name).generation == 0


def _group(coordinator: Coordinator, name: str) -> GroupState:
    return coordinator.state.groups.get(name, GroupState())


def _as_table(plans: Mapping[str, Plan]) -> list[str]:
    wide = max([15, *(len(printable(name)) for name in plans)])
    topics = max([15, *(len(printable(place.topic)) for plan in plans.values() for place in plan)])
    lines = ["", f"{'GROUP':<{wide}} {'TOPIC':<{topics}} {'PARTITION':<10} NEW-OFFSET"]
    for name, plan in plans.items():
        shown = printable(name)
        lines += [
            f"{shown:<{wide}} {printable(place.topic):<{topics}} {place.partition:<10} {at}"
            for place, at in plan.items()
        ]
    return lines


def _as_csv(plans: Mapping[str, Plan], with_group: bool) -> str:
    """A line for each offset. What prints it adds an empty line, as Kafka's tool does: scripts drop the last."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for name, plan in plans.items():
        for place, at in plan.items():
            writer.writerow([*([name] if with_group else []), place.topic, place.partition, at])
    return out.getvalue()


# -- the new offsets of one group


def _plan(coordinator: Coordinator, options: argparse.Namespace, name: str, group: GroupState, written: Plan) -> Plan:
    state = coordinator.state
    current = {place: one.offset for place, one in committed_offsets(state, group).items()}
    if options.from_file is not None:
        return {place: _within(coordinator, place, at) for place, at in sorted(written.items())}
    if options.all_topics:
        places: Iterable[TopicPartition] = sorted(current)
    else:
        places = sorted(TopicPartition(*place) for place in partitions_of(state, options.topic))
    time_ms = _time_ms(coordinator, options)
    if time_ms is not None:
        return _at_time(coordinator, list(places), time_ms)
    return {place: _wanted(coordinator, options, place, current.get(place)) for place in places}


def _wanted(coordinator: Coordinator, options: argparse.Namespace, place: TopicPartition, current: int | None) -> int:
    log = coordinator.state.partition(place.topic, place.partition)
    if options.to_earliest:
        return log.log_start_offset
    if options.to_offset is not None:
        return _within(coordinator, place, options.to_offset)
    if options.shift_by is not None:
        if current is None:
            raise UsageError(f"Cannot shift offset for partition {place} since there is no current committed offset")
        return _within(coordinator, place, current + options.shift_by)
    if options.to_current and current is not None:
        return current
    return log.high_watermark


def _within(coordinator: Coordinator, place: TopicPartition, offset: int) -> int:
    """The offset, or the nearest that the partition has, with a word on it."""
    log = coordinator.state.partition(place.topic, place.partition)
    first, last = log.log_start_offset, log.high_watermark
    if first <= offset <= last:
        return offset
    side, kind, nearest = ("higher", "latest", last) if offset > last else ("lower", "earliest", first)
    complain(
        f"New offset ({offset}) is {side} than {kind} offset for topic partition {place}. "
        f"Value will be set to {nearest}."
    )
    return nearest


# -- by time


def _time_ms(coordinator: Coordinator, options: argparse.Namespace) -> int | None:
    """Milliseconds since the epoch that ``--to-datetime`` or ``--by-duration`` means."""
    if options.to_datetime is not None:
        return parse_time_ms(options.to_datetime)
    if options.by_duration is not None:
        return coordinator.log.clock.now_ms() - parse_duration_ms(options.by_duration)
    return None


def _at_time(coordinator: Coordinator, places: list[TopicPartition], time_ms: int) -> Plan:
    from sparklog.client.reader import LogReader

    plan: Plan = {}
    with LogReader(coordinator) as reader:
        for topic, partition in places:
            found = reader.offset(topic, partition, time_ms) if time_ms >= 0 else reader.offset(topic, partition, -2)
            if found is None:
                print(
                    f"\nWarn: Partition {partition} from topic {printable(topic)} is empty. "
                    "Falling back to latest known offset.",
                    file=sys.stderr,
                )
                found = coordinator.state.partition(topic, partition).high_watermark
            plan[TopicPartition(topic, partition)] = found
    return plan


_TIME = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})T(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,3}))?(Z|[+-]\d\d(?::?\d\d)?)?\Z", re.ASCII
)
_DURATION = re.compile(
    r"([+-])?P(?:([+-]?\d+)D)?(?:T(?=[+-]?\d)(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+)(?:[.,](\d{0,9}))?S)?)?\Z",
    re.ASCII | re.IGNORECASE,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def parse_time_ms(text: str) -> int:
    """``2026-01-31T12:00:00.000``, UTC unless it ends in a zone, in milliseconds since 1970. Raises UsageError."""
    if "T" not in text:
        raise UsageError("Error parsing timestamp. It does not contain a 'T' according to ISO8601 format")
    found = _TIME.match(text)
    wrong = UsageError(f"Unparseable date: {text!r}; give a time such as 2026-01-31T12:00:00.000")
    if found is None:
        raise wrong
    *numbers, millis, zone = found.groups()
    try:
        moment = datetime(*(int(number) for number in numbers), tzinfo=timezone.utc)  # type: ignore[arg-type,misc]
    except ValueError:
        raise wrong from None
    offset = timedelta()
    if zone not in (None, "Z"):
        minutes = int(zone[1:3]) * 60 + int(zone[3:].lstrip(":") or 0)
        offset = timedelta(minutes=minutes if zone[0] == "+" else -minutes)
    return (moment - offset - _EPOCH) // timedelta(milliseconds=1) + int((millis or "0").ljust(3, "0"))


def parse_duration_ms(text: str) -> int:
    """``PnDTnHnMnS`` as Java's Duration.parse reads it, in milliseconds. Raises UsageError."""
    found = _DURATION.match(text)
    if found is None or not any(found.groups()[1:5]):
        raise UsageError(f"{text!r} cannot be parsed to a Duration: give one as in P1DT2H30M or PT0.5S")
    sign, days, hours, minutes, seconds, fraction = found.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60
    part = int((fraction or "0").ljust(3, "0")[:3])
    millis = whole * 1000 + int(seconds or 0) * 1000 + (-part if (seconds or "").startswith("-") else part)
    return -millis if sign == "-" else millis


# -- by file


def _plans_of_file(options: argparse.Namespace) -> dict[str, Plan]:
    """The CSV file's offsets by group. Raises UsageError where it is not as ``--export`` writes it."""
    path = options.from_file
    try:
        with open(path, newline="", encoding="utf-8") as file:
            text = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--from-file: {path} cannot be read: {error}") from error
    if len(text) > LARGEST_FILE_BYTES:
        raise UsageError(f"--from-file: {path} has over {LARGEST_FILE_BYTES} characters")
    plans: dict[str, Plan] = {}
    for group, place, at in _rows(path, text, options.group):
        plans.setdefault(group, {})[place] = at
    return plans


def _rows(path: str, text: str, groups: list[str]) -> Iterator[tuple[str, TopicPartition, int]]:
    """``topic,partition,offset`` where one group was named, else, or as well, with the group before it."""
    reader = csv.reader(io.StringIO(text))
    for row in reader:
        if not row:
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) == 3 and len(set(groups)) == 1:
            cells.insert(0, groups[0])
        numbers = cells[2:]
        if len(cells) != 4 or not all(number.isascii() and number.isdigit() for number in numbers):
            expected = "topic,partition,offset" if len(set(groups)) == 1 else "group,topic,partition,offset"
            raise UsageError(f"--from-file: line {reader.line_num} of {path} is not {expected}: {','.join(row)!r}")
        yield cells[0], TopicPartition(cells[1], int(numbers[0])), int(numbers[1])
