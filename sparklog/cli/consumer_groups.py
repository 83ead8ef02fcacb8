"""``sparklog consumer-groups``: Kafka's kafka-consumer-groups, for groups that commit offsets without members.

Such are the groups of streaming queries: a query is no member, so its group is always inactive here, and its offsets
can be set. The query itself goes by its checkpoint; only a new checkpoint starts where the group stands.

Not for: members and their assignments, which no group has yet.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, NamedTuple

from sparklog.cli.common import CommandParser, UsageError, complain, connect, given

if TYPE_CHECKING:
    from sparklog.coordinator import Coordinator
    from sparklog.protocol.state import State

ACTIONS = ("list", "describe", "reset-offsets")
SCENARIOS = ("to-earliest", "to-latest", "to-current", "to-offset", "to-datetime", "shift-by")
CHECKPOINT_NOTE = (
    "Note: a streaming query that has a checkpoint goes on from its checkpoint, whatever its group says; the new "
    "offsets are for a query with a new checkpointLocation, kafka.group.id and no startingOffsets."
)


class Position(NamedTuple):
    """One line of a group: ``offset`` is None where it has committed none."""

    topic: str
    partition: int
    offset: int | None


def parser() -> CommandParser:
    options = CommandParser(
        "consumer-groups",
        "List consumer groups, describe their offsets and lag, and set the offsets of inactive ones. Also of\n"
        "streaming queries, which are no members of their groups.",
        "sparklog consumer-groups --bootstrap-server /data/log --describe --group billing",
    )
    options.add_connection()
    options.add_argument("--list", action="store_true", help="print the names of all groups")
    options.add_argument("--describe", action="store_true", help="print offsets and lag")
    options.add_argument("--reset-offsets", action="store_true", help="set the offsets of a group")
    options.add_argument("--group", metavar="GROUP", action="append", default=[], help="a group, repeatable")
    options.add_argument("--all-groups", action="store_true", help="all groups")
    options.add_argument(
        "--topic", metavar="TOPIC[:N,N]", action="append", default=[], help="a topic or some of its partitions"
    )
    options.add_argument("--all-topics", action="store_true", help="all topics that the group has offsets of")
    options.add_argument("--to-earliest", action="store_true", help="to the earliest offsets")
    options.add_argument("--to-latest", action="store_true", help="to the latest offsets")
    options.add_argument("--to-current", action="store_true", help="to where the group stands, or the latest offsets")
    options.add_argument("--to-offset", metavar="OFFSET", type=int, help="to this offset")
    options.add_argument(
        "--to-datetime", metavar="TIME", help="to the first record at 2026-01-31T12:00:00.000 or later"
    )
    options.add_argument("--shift-by", metavar="N", type=int, help="forward by so many records, or back if negative")
    options.add_argument("--dry-run", action="store_true", help="only print what would be set (the default)")
    options.add_argument("--execute", action="store_true", help="set it")
    options.add_without_effect("--offsets", "--verbose")
    options.add_without_effect("--timeout", metavar="MS")
    return options


def run(options: argparse.Namespace) -> int:
    if sum(given(options, action) for action in ACTIONS) != 1:
        raise UsageError(f"Command must include exactly one action: --{', --'.join(ACTIONS)}")
    coordinator = connect(options)
    state = coordinator.state
    if options.list:
        print("".join(f"{name}\n" for name in sorted(state.groups)), end="")
        return 0
    if bool(options.group) == options.all_groups:
        raise UsageError('one of "[group]" and "[all-groups]" is required')
    groups = sorted(state.groups) if options.all_groups else list(dict.fromkeys(options.group))
    if options.describe:
        found = [_describe(state, group) for group in groups]
        return 0 if all(found) else 1
    return _reset(coordinator, options, groups)


def _describe(state: State, group: str) -> bool:
    """Print a group's table; False if there is no such group."""
    if group not in state.groups:
        complain(f"Error: Consumer group '{group}' does not exist.")
        return False
    print(f"\nConsumer group '{group}' has no active members.\n")
    lines = _committed(state, group)
    wide, topics = max(15, len(group)), max([15, *(len(line.topic) for line in lines)])
    head = ("CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
    print(f"{'GROUP':<{wide}} {'TOPIC':<{topics}} {'PARTITION':<10} " + _columns(head))
    for topic, partition, offset in lines:
        end = state.partition(topic, partition).high_watermark
        lag = "-" if offset is None else max(end - offset, 0)
        shown = ("-" if offset is None else offset, end, lag, "-", "-", "-")
        print(f"{group:<{wide}} {topic:<{topics}} {partition:<10} " + _columns(shown))
    return True


def _columns(values: tuple[object, ...]) -> str:
    return " ".join(f"{value!s:<15}" for value in values[:-1]) + f" {values[-1]}"


def _committed(state: State, group: str) -> list[Position]:
    """What the group has committed of topics that exist; offsets of a topic that was created again do not count."""
    known = state.groups[group].offsets.values() if group in state.groups else ()
    live = {(name, topic.topic_id) for name, topic in state.topics.items()}
    return sorted(Position(one.topic, one.partition, one.offset) for one in known if (one.topic, one.topic_id) in live)


# -- reset


def _reset(coordinator: Coordinator, options: argparse.Namespace, groups: list[str]) -> int:
    scenarios = [getattr(options, name.replace("-", "_")) for name in SCENARIOS]
    if sum(value is not None and value is not False for value in scenarios) != 1:  # an offset may be 0
        raise UsageError(f"Option --reset-offsets needs exactly one of --{', --'.join(SCENARIOS)}")
    if bool(options.topic) == options.all_topics:
        raise UsageError('one of "[topic]" and "[all-topics]" is required')
    if options.execute and options.dry_run:
        raise UsageError('Option "[execute]" can\'t be used with option "[dry-run]"')
    if not options.execute and not options.dry_run:
        complain("WARN: No action will be performed as the --execute option is missing.")
    changes = {group: dict(_new_offsets(coordinator, options, group)) for group in groups}
    topics = max([15, *(len(topic) for found in changes.values() for topic, _ in found)])
    wide = max([15, *map(len, groups)])
    print(f"\n{'GROUP':<{wide}} {'TOPIC':<{topics}} {'PARTITION':<10} {'NEW-OFFSET':<15}")
    for group, found in changes.items():
        if options.execute:
            coordinator.commit_offsets(group, found)
        for (topic, partition), offset in found.items():
            print(f"{group:<{wide}} {topic:<{topics}} {partition:<10} {offset:<15}")
    complain(CHECKPOINT_NOTE)
    return 0


def _new_offsets(
    coordinator: Coordinator, options: argparse.Namespace, group: str
) -> Iterator[tuple[tuple[str, int], int]]:
    state = coordinator.state
    current = {(line.topic, line.partition): line.offset for line in _committed(state, group)}
    places = list(current) if options.all_topics else list(_places(state, options.topic))
    for topic, partition in places:
        log = state.partition(topic, partition)
        wanted = _wanted(coordinator, options, topic, partition, current.get((topic, partition)))
        yield (topic, partition), _within(wanted, log.log_start_offset, log.high_watermark, f"{topic}-{partition}")


def _places(state: State, topics: list[str]) -> Iterator[tuple[str, int]]:
    """``topic`` or ``topic:0,1``."""
    for text in topics:
        topic, colon, numbers = text.partition(":")
        chosen: list[str] | range = numbers.split(",") if colon else range(len(state.topic(topic).partitions))
        for number in chosen:
            if not str(number).isascii() or not str(number).isdigit():
                raise UsageError(f"{text!r} names no partitions; --topic takes a topic, or as in orders:0,1")
            state.partition(topic, int(number))
            yield topic, int(number)


def _wanted(
    coordinator: Coordinator, options: argparse.Namespace, topic: str, partition: int, current: int | None
) -> int:
    log = coordinator.state.partition(topic, partition)
    if options.to_earliest:
        return log.log_start_offset
    if options.to_offset is not None:
        return int(options.to_offset)
    if options.to_datetime is not None:
        return _offset_at(coordinator, topic, partition, _milliseconds(options.to_datetime), log.high_watermark)
    if options.shift_by is not None:
        if current is None:
            raise UsageError(f"Cannot shift offset for partition {topic}-{partition} since there is no current one")
        return current + int(options.shift_by)
    return current if options.to_current and current is not None else log.high_watermark


def _offset_at(coordinator: Coordinator, topic: str, partition: int, time_ms: int, end: int) -> int:
    from sparklog.client.reader import LogReader

    with LogReader(coordinator) as reader:
        found = reader.offset(topic, partition, time_ms)
    return end if found is None else found


def _milliseconds(text: str) -> int:
    """A time as Kafka's tool takes it; without a zone it is UTC."""
    try:
        time = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise UsageError(f"{text!r} is no time such as 2026-01-31T12:00:00.000") from None
    zoned = time if time.tzinfo else time.replace(tzinfo=timezone.utc)
    return (zoned - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)


def _within(offset: int, first: int, last: int, where: str) -> int:
    if offset > last:
        complain(f"New offset ({offset}) is higher than latest offset for topic partition {where}. "
                 f"Value will be set to {last}")  # fmt: skip
    if offset < first:
        complain(f"New offset ({offset}) is lower than earliest offset for topic partition {where}. "
                 f"Value will be set to {first}")  # fmt: skip
    return min(max(offset, first), last)
