"""``sparklog consumer-groups``: Kafka's kafka-consumer-groups.

Groups of consumers have members. Groups of streaming queries have committed offsets but no members: a query resumes
from its checkpoint, and only one with a new checkpoint starts at the committed offsets of its group.

Rules: tables, CSV and results go to standard output; notes and errors go to standard error, and an error makes the
exit code 1.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import (
    CommandParser,
    UsageError,
    complain,
    connect_admin,
    failure_code,
    given,
    refuse_together,
    say,
)
from sparklog.cli.arguments.patterns import parse_topic_partitions
from sparklog.cli.output.json_output import add_json, print_document, print_json
from sparklog.cli.output.tables import table
from sparklog.types import TopicPartition, printable

if TYPE_CHECKING:
    from sparklog.client.admin.client import AdminClient
    from sparklog.protocol.state import GroupState

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
SCENARIOS = (
    "to-offset", "shift-by", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current", "from-file",
)  # fmt: skip
STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
TYPES = ("Classic", "Consumer")
"""The values that Kafka's tool accepts; a group here is Classic, and PreparingRebalance, Stable or Empty."""

DRY_RUN_WARNING = (
    "WARN: No action will be performed as the --execute option is missing: this only shows what would be set. Scripts "
    "should pass --dry-run explicitly, since a later version may require one of the two."
)

ERROR_PREFIX = "Error: "
KAFKA_FAILURE_EXIT_CODE = 0
"""Kafka's tool prints the failure and exits with 0, unless the options are invalid."""


def parser() -> CommandParser:
    options = CommandParser(
        "consumer-groups",
        "List consumer groups, describe their members, offsets and lag, set the offsets of inactive ones, and delete\n"
        "groups or offsets.",
        "sparklog consumer-groups --bootstrap-server /data/log --describe --group billing",
        "ACTION [OPTIONS]",
    )
    action = options.add_group("Actions (exactly one)")
    action.add_switch("--list", "print the names of all groups")
    action.add_switch("--describe", "print offsets and lag, members, or the state")
    action.add_switch("--delete", "delete groups that have no members, with their offsets")
    action.add_switch("--reset-offsets", "set the offsets of groups without members")
    action.add_switch("--delete-offsets", "delete a group's offsets of topics")
    action.add_value("--validate-regex", "REGEX", "check whether this is a valid regular expression")
    options.add_values("--group", "GROUP", "a group, repeatable")
    options.add_switch("--all-groups", "all groups")
    options.add_values("--topic", "TOPIC[:N,N]", "a topic or some of its partitions")
    options.add_switch("--all-topics", "all topics for which the group has offsets")
    shown = options.add_group("With --describe or --list")
    shown.add_switch("--offsets", "the group's offsets and lag (the default)")
    shown.add_switch("--members", "its members")
    shown.add_switch("--verbose", "also leader epochs, assignments, or the generation")
    states = "the group's state; with --list: groups in these states"
    shown.add_value("--state", "STATE,…", states, nargs="?", const="")
    shown.add_value("--type", "TYPE,…", "with --list: types, or only these types", nargs="?", const="")
    add_json(options, "--list, --describe")
    _add_reset(options)
    options.add_without_effect("--timeout", metavar="MS", type=int)
    return options


def _add_reset(options: CommandParser) -> None:
    reset = options.add_group("With --reset-offsets (exactly one of the first eight)")
    reset.add_switch("--to-earliest", "to the earliest offsets")
    reset.add_switch("--to-latest", "to the latest offsets")
    reset.add_switch("--to-current", "to the committed offsets, or else the latest offsets")
    reset.add_number("--to-offset", "OFFSET", "to this offset")
    reset.add_value("--to-datetime", "TIME", "to the first record at 2026-01-31T12:00:00.000 or later")
    reset.add_value("--by-duration", "DURATION", "to the first record of the last PnDTnHnMnS")
    reset.add_number("--shift-by", "N", "forward by N records, or back if negative")
    reset.add_value("--from-file", "FILE", "to the offsets in a CSV file as --export prints it")
    reset.add_switch("--dry-run", "only print what would be set (the default)")
    reset.add_switch("--execute", "set the offsets")
    reset.add_switch("--export", "print CSV: topic,partition,offset; with several groups the group first")


def run(options: argparse.Namespace) -> int:
    if sum(given(options, action) for action in ACTIONS) != 1:
        raise UsageError(f"Command must include exactly one action: --{', --'.join(ACTIONS)}")
    _check(options)
    if options.validate_regex is not None:
        return _validate_regex(options)
    with connect_admin(options) as admin:
        if options.list:
            return _list(admin, options)
        if options.delete_offsets:
            return _delete_offsets(admin, options)
        groups = sorted(admin.read_state().groups if options.all_groups else set(options.group))
        if options.describe:
            return _describe(admin, groups, options)
        if options.delete:
            return _delete(admin, groups, options)
        from sparklog.cli.commands.admin.group_reset import reset_offsets

        return reset_offsets(admin, options, groups)


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for options that cannot be combined, as Kafka's checkArgs does."""
    unavailable = [name for name in ("members", "verbose", "offsets") if given(options, name) and not options.describe]
    unavailable += ["state"] if options.state is not None and not (options.describe or options.list) else []
    unavailable += ["type"] if options.type is not None and not options.list else []
    if unavailable:
        shown = ", ".join(unavailable)
        raise UsageError(f"Option(s) [{shown}] are unavailable given other options on the command line")
    if options.describe:
        if sum(given(options, name) for name in ("members", "offsets", "state")) > 1:
            raise UsageError("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if options.state:
            raise UsageError("Option [describe] does not take a value for [state]")
    for action in ("describe", "delete", "reset-offsets"):
        if given(options, action) and not options.group and not options.all_groups:
            raise UsageError(f"Option [{action}] takes one of these options: [group], [all-groups]")
    if options.delete and options.topic:
        raise UsageError("The consumer does not support topic-specific offset deletion from a consumer group.")
    if options.delete_offsets and not (options.group and options.topic):
        raise UsageError("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.delete_offsets and len(options.group) > 1:
        raise UsageError("Found multiple arguments for option group, but you asked for only one")
    if options.reset_offsets:
        _check_reset(options)
    refuse_together(options, "json", ["delete", "reset-offsets", "delete-offsets", "validate-regex"])
    refuse_together(options, "group", ["all-groups", "list"])
    refuse_together(options, "topic", ["list", "describe"])


def _check_reset(options: argparse.Namespace) -> None:
    if options.dry_run and options.execute:
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    for number, scenario in enumerate(SCENARIOS, 1):
        refuse_together(options, scenario, SCENARIOS[number:])
    if not any(given(options, scenario) for scenario in SCENARIOS):
        names = ", ".join(f"[{name}]" for name in SCENARIOS)
        raise UsageError(f"Option '[reset-offsets]' requires one of the following scenarios: [{names}]")
    if not options.topic and not options.all_topics and options.from_file is None:
        raise UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    if not options.execute and not options.dry_run:
        complain(DRY_RUN_WARNING)


def _validate_regex(options: argparse.Namespace) -> int:
    text = options.validate_regex
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        say(f"The regular expression `{text}` is invalid: {error}.")
        return failure_code(options)
    say(f"The regular expression `{text}` is valid.")
    return 0


# -- list


def _list(admin: AdminClient, options: argparse.Namespace) -> int:
    from sparklog.cli.output.documents import ConsumerGroupList, ConsumerGroupName

    states, types = options.state, options.type
    wanted_states = _parse_choices(states, STATES, "state")
    wanted_types = _parse_choices(types, TYPES, "types")
    listed = [
        ConsumerGroupName(group=group["group_id"], type=group["group_type"].title(), state=group["group_state"])
        for group in admin.list_groups(None, wanted_states, wanted_types)
    ]
    names = [printable(group.group) for group in listed]
    if states is None and types is None:
        lines = names
    else:
        columns = [["GROUP", *names]]
        columns += [["TYPE", *(group.type for group in listed)]] if types is not None else []
        columns += [["STATE", *(group.state for group in listed)]] if states is not None else []
        lines = table(zip(*columns, strict=True), [max([15, *map(len, names)]) + 10, 20, 20][: len(columns)])
    print_document(ConsumerGroupList(groups=listed), options.json, lines)
    return 0


def _parse_choices(text: str | None, valid: tuple[str, ...], what: str) -> set[str]:
    """Parse a list such as ``Stable,empty``, ignoring case. Raises UsageError as Kafka's tool does."""
    by_lower_case = {name.lower(): name for name in valid}
    words = [word.strip().lower() for word in (text or "").split(",") if text]
    if any(word not in by_lower_case for word in words):
        raise UsageError(f"Invalid {what} list '{text}'. Valid {what.rstrip('s')}s are: {', '.join(valid)}")
    return {by_lower_case[word] for word in words}


# -- describe


def _describe(admin: AdminClient, groups: list[str], options: argparse.Namespace) -> int:
    from sparklog.cli.output import group_listing, group_tables
    from sparklog.cli.output.documents import ConsumerGroupDescriptions

    code, state = 0, admin.read_state()
    group_states = admin.live_groups({name: state.groups[name] for name in groups if name in state.groups})
    with_offsets = not options.members and options.state is None
    descriptions = []
    for name in groups:
        group = group_states.get(name)
        if group is None:
            complain(f"Error: Consumer group '{name}' does not exist: Group {name} not found.")
            code = failure_code(options)
            continue
        _print_note(name, group, len(state.groups[name].members))
        description = group_listing.describe(state, name, group, with_offsets, options.members)
        descriptions.append(description)
        table = group_tables.members if options.members else group_tables.states
        lines = [] if options.json else (group_tables.offsets if with_offsets else table)(description, options.verbose)
        if lines:
            print("", *lines, sep="\n")
    if options.json:
        print_json(ConsumerGroupDescriptions(groups=descriptions))
    return code


def _print_note(name: str, group: GroupState, members_in_log: int) -> None:
    """Print the note of Kafka's tool above the table, on standard error; ``members_in_log`` includes dead members."""
    name = printable(name)
    if not group.members and members_in_log:
        print(
            f"\nConsumer group '{name}' has no active members: {members_in_log} sent no heartbeat within their session "
            "timeout, and `sparklog maintain` will remove them.",
            file=sys.stderr,
        )
    elif not group.members:
        print(f"\nConsumer group '{name}' has no active members.", file=sys.stderr)
    elif group.name_of_state != "Stable":
        print(f"\nWarning: Consumer group '{name}' is rebalancing.", file=sys.stderr)


# -- delete


def _delete(admin: AdminClient, groups: list[str], options: argparse.Namespace) -> int:
    from sparklog.errors import InvalidCallError, NotFoundError

    failed: dict[str, str] = {}
    for group in groups:
        try:
            admin.delete_groups([group], raise_errors=True)
        except (InvalidCallError, NotFoundError) as error:
            failed[group] = f"{type(error).__name__}: {error}"
    deleted = ", ".join(f"'{printable(group)}'" for group in groups if group not in failed)
    if not failed:
        print(f"Deletion of requested consumer groups ({deleted}) was successful.")
        return 0
    complain("Error: Deletion of some consumer groups failed:")
    for group, reason in failed.items():
        complain(f"* Group '{group}' could not be deleted due to: {reason}")
    if deleted:
        print(f"\nThese consumer groups were deleted successfully: {deleted}")
    return failure_code(options)


def _delete_offsets(admin: AdminClient, options: argparse.Namespace) -> int:
    from sparklog.errors import GroupIdNotFoundError, GroupSubscribedToTopicError

    group = options.group[0]
    results: dict[tuple[str, int], str] = {}
    failure = ""
    for topic, numbers in _group_by_topic(admin, group, options.topic, results):
        partitions = [TopicPartition(topic, number) for number in numbers]
        outcome = "Successful"
        try:
            admin.delete_group_offsets(group, partitions, raise_errors=True)
        except GroupIdNotFoundError as error:
            failure, outcome = error.message, f"Error: {error.message}"
        except GroupSubscribedToTopicError as error:
            outcome = f"Error: {error.message}"
        results.update(dict.fromkeys(partitions, outcome))
    if not failure and any(outcome != "Successful" for outcome in results.values()):
        failure = "Encountered some partition-level error, see the follow-up details."
    if failure:
        complain(f"Error: {failure}")
    else:
        print(f"Request succeeded for deleting offsets from group {printable(group)}.")
    rows = [(topic, "-" if number < 0 else number, outcome) for (topic, number), outcome in sorted(results.items())]
    print("", *table([("TOPIC", "PARTITION", "STATUS"), *rows], [-15, 10, 15]), sep="\n")
    return failure_code(options) if failure else 0


def _group_by_topic(
    admin: AdminClient, group: str, texts: list[str], results: dict[tuple[str, int], str]
) -> list[tuple[str, list[int]]]:
    """Return the partitions by topic; add those that neither exist nor have an offset to ``results`` as errors."""
    from sparklog.errors import UnknownTopicOrPartitionError

    state = admin.read_state()
    group_state = state.groups.get(group)
    committed = {(offset.topic, offset.partition) for offset in group_state.offsets.values()} if group_state else set()
    by_topic: dict[str, list[int]] = {}
    for text in texts:
        topic, numbers = parse_topic_partitions(text)
        if numbers is None and topic not in state.topics:
            with_offset = sorted(number for name, number in committed if name == topic)
            numbers = with_offset or [-1]
        elif numbers is None:
            numbers = list(range(len(state.topics[topic].partitions)))
        for number in numbers:
            try:
                if (topic, number) not in committed:
                    state.partition(topic, number)
            except UnknownTopicOrPartitionError as error:
                results[topic, number] = f"Error: {error.message}"
            else:
                by_topic.setdefault(topic, []).append(number)
    return list(by_topic.items())
