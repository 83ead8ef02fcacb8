"""``sparklog topics``: Kafka's kafka-topics. Creates, lists, describes, alters and deletes topics."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import (
    CommandError,
    CommandParser,
    UsageError,
    complain,
    connect_admin,
    duplicates,
    given,
    join,
    refuse_together,
    require,
    say,
)
from sparklog.cli.arguments.patterns import matching_topics
from sparklog.cli.output.json_output import add_json, print_document
from sparklog.errors import TopicAlreadyExistsError
from sparklog.protocol.names import validate_written_topic
from sparklog.types import printable

if TYPE_CHECKING:
    from sparklog.client.admin.client import AdminClient
    from sparklog.protocol.state import State, TopicState

OUTPUT_IS_OPTIONAL = True
ERROR_PREFIX = "Error while executing topic command : "

ACTIONS = ("create", "list", "alter", "describe", "delete")
NO_TOPIC_ID = "A" * 22
"""All zeros, which is not an id: as in Kafka, ``--topic-id`` with it is ignored."""

REPORTS = ("under-replicated-partitions", "under-min-isr-partitions", "at-min-isr-partitions", "unavailable-partitions")
FOUND_EXIT_CODE = 2
"""Exit code with ``--exit-code`` if such partitions exist; 1 means that the check failed."""

CONFIGS_NOTE = " (To alter topic configurations, the `sparklog configs` tool can be used.)"
COLLISION_WARNING = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. To "
    "avoid issues it is best to use either, but not both."
)


def parser() -> CommandParser:
    options = CommandParser(
        "topics",
        "Create, list, describe, alter and delete topics.",
        "sparklog topics --bootstrap-server /data/log --create --topic orders --partitions 8 --config retention.ms=-1",
        "ACTION [OPTIONS]",
    )
    action = options.add_group("Actions (exactly one)")
    action.add_switch("--list", "print the names of all topics")
    action.add_switch("--create", "create a topic")
    action.add_switch("--delete", "delete topics with all their records")
    action.add_switch("--alter", "add partitions to topics")
    action.add_switch("--describe", "print partitions, replicas and changed settings")
    options.add_value("--topic", "TOPIC", "the topic; a regular expression, except with --create")
    options.add_value("--topic-id", "ID", "the topic to describe, by its id")
    options.add_values("--config", "NAME=VALUE", "a setting of the new topic, repeatable")
    options.add_value("--delete-config", "NAME", "no longer supported, as in Kafka since 4.0")
    options.add_number("--partitions", "N", "number of partitions (default with --create: num.partitions)")
    options.add_number("--replication-factor", "N", "number of replicas of each partition")
    options.add_value("--replica-assignment", "B:B,B:B,…", "the brokers of each partition, the preferred leader first")
    only = options.add_group("With --describe, only")
    only.add_switch("--under-replicated-partitions", "partitions with replicas out of sync")
    only.add_switch("--unavailable-partitions", "partitions whose leader is not available")
    only.add_switch("--under-min-isr-partitions", "partitions below min.insync.replicas")
    only.add_switch("--at-min-isr-partitions", "partitions exactly at min.insync.replicas")
    only.add_switch("--topics-with-overrides", "topics with changed settings")
    options.add_switch(
        "--exit-code", f"with one of these reports: exit code {FOUND_EXIT_CODE} if it shows any partition"
    )
    add_json(options, "--list, --describe")
    options.add_switch("--if-exists", "succeed without effect if the topic does not exist")
    options.add_switch("--if-not-exists", "succeed without effect if the topic exists")
    options.add_switch("--exclude-internal", "leave out Kafka's internal topics")
    options.add_without_effect("--partition-size-limit-per-response", metavar="N", type=int)
    return options


def run(options: argparse.Namespace) -> int:
    action = _check(options)
    act = {"create": _create, "list": _list, "alter": _alter, "delete": _delete, "describe": _describe}[action]
    with connect_admin(options) as admin:
        return act(options, admin)


def _check(options: argparse.Namespace) -> str:
    """Return the action. Raises UsageError for options that cannot be combined, as Kafka's checkArgs does."""
    actions = [action for action in ACTIONS if given(options, action)]
    if len(actions) != 1:
        raise UsageError("Command must include exactly one action: --list, --describe, --create, --alter or --delete")
    action = actions[0]
    if options.delete_config:
        complain("Warning: --delete-config is no longer supported here, use `sparklog configs --delete-config`.")
    if action == "describe" and options.if_exists and not (options.topic or options.topic_id):
        raise UsageError("--topic or --topic-id is required to describe a topic")
    if action not in ("list", "describe"):
        require(options, "topic")
    if action == "alter":
        refuse_together(options, "config", ["alter"], CONFIGS_NOTE)
        require(options, "partitions")
    for name, allowed in {
        "config": ("alter", "create"),
        "partitions": ("alter", "create"),
        "replication-factor": ("create",),
        "replica-assignment": ("alter", "create"),
        "topics-with-overrides": ("describe",),
        "if-exists": ("alter", "delete", "describe"),
        "if-not-exists": ("create",),
        "exclude-internal": ("list", "describe"),
        "topic-id": ("describe",),
        "json": ("list", "describe"),
        "exit-code": ("describe",),
        **dict.fromkeys(REPORTS, ("describe",)),
    }.items():
        refuse_together(options, name, [other for other in ACTIONS if other not in allowed])
    if action == "create":
        refuse_together(options, "replica-assignment", ["partitions", "replication-factor"])
    for report in REPORTS:
        refuse_together(options, report, ["topics-with-overrides"])
    if options.exit_code and not any(given(options, report) for report in REPORTS):
        raise UsageError(f"--exit-code requires one of --{', --'.join(REPORTS)}")
    return action


# -- create, alter, delete


def _create(options: argparse.Namespace, admin: AdminClient) -> int:
    from sparklog.client.admin.types import NewTopic

    name, factor, partitions = options.topic, options.replication_factor, options.partitions
    if factor is not None and not 1 <= factor <= 32767:
        raise CommandError("The replication factor must be between 1 and 32767 inclusive")
    if partitions is not None and partitions < 1:
        raise CommandError("The partitions must be greater than 0")
    assignment = _parse_assignment(options.replica_assignment)
    configs = _parse_configs(options.config or [])
    validate_written_topic(name)
    if "." in name or "_" in name:
        print(COLLISION_WARNING)
    try:
        admin.create_topics([NewTopic(name, partitions or -1, factor or -1, dict(enumerate(assignment)), configs)])
    except TopicAlreadyExistsError:
        if not options.if_not_exists:
            raise
    else:
        say(f"Created topic {name}.")
    return 0


def _alter(options: argparse.Namespace, admin: AdminClient) -> int:
    from sparklog.client.admin.types import NewPartitions

    state = admin.read_state()
    lists = _parse_assignment(options.replica_assignment)
    wanted: dict[str, NewPartitions] = {}
    for name in _match_topics(options, state.topics):
        current = len(state.topics[name].partitions)
        if lists and options.partitions > current and len(lists) != options.partitions:
            raise CommandError(
                f"increasing the partitions of {name} from {current} to {options.partitions} requires a replica "
                f"assignment for all {options.partitions}, {len(lists)} were given"
            )
        wanted[name] = NewPartitions(options.partitions, lists[current:] if lists else None)
    admin.create_partitions(wanted, all_or_none=True)
    return 0


def _delete(options: argparse.Namespace, admin: AdminClient) -> int:
    admin.delete_topics(_match_topics(options, admin.list_topics()), all_or_none=True)
    return 0


def _match_topics(options: argparse.Namespace, topics: Iterable[str]) -> list[str]:
    """Return the topics that match ``--topic``. Raises UsageError if none does, unless ``--if-exists`` is given."""
    names = matching_topics(topics, options.topic, options.exclude_internal)
    if options.topic is not None and not names and not options.if_exists:
        raise CommandError(f"Topic '{options.topic}' does not exist as expected")
    return names


def _parse_configs(pairs: Sequence[str]) -> dict[str, str]:
    configs: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise CommandError(
                f'Invalid topic config {pair!r}: all configs to be added must be in the format "key=val".'
            )
        configs[name.strip()] = value.strip()
    return configs


def _parse_assignment(text: str | None) -> list[list[int]]:
    """Parse ``0:1,1:0`` to a list of brokers for each partition; empty if not given. Raises UsageError."""
    assignment: list[list[int]] = []
    for number, part in enumerate(text.split(",") if text else ()):
        try:
            brokers = [int(broker) for broker in part.split(":")]
        except ValueError:
            raise CommandError(
                f"--replica-assignment: partition {number}: invalid broker ids {part!r}: expected ids such as 0:1"
            ) from None
        if repeated := duplicates(brokers):
            entries = join(repeated)
            raise CommandError(f"Partition replica lists may not contain duplicate entries: {entries}")
        if assignment and len(brokers) != len(assignment[0]):
            raise CommandError(f"Partition {number} has different replication factor: {brokers}")
        assignment.append(brokers)
    return assignment


# -- list, describe


def _list(options: argparse.Namespace, admin: AdminClient) -> int:
    from sparklog.cli.output.topic_listing import listing
    from sparklog.client.admin.offsets_topic import listed_topics

    state = admin.read_state()
    topic_list = listing(state, matching_topics(listed_topics(state), options.topic, options.exclude_internal))
    print_document(topic_list, options.json, (printable(topic.topic) for topic in topic_list.topics))
    return 0


def _describe(options: argparse.Namespace, admin: AdminClient) -> int:
    from sparklog.cli.output.topic_listing import descriptions, lines

    state = admin.read_state()
    reports = [report for report in REPORTS if given(options, report)]
    described = descriptions(state, _select_topics(options, state), reports, options.topics_with_overrides)
    print_document(described, options.json, lines(described, heads=not reports))
    return FOUND_EXIT_CODE if options.exit_code and described.topics else 0


def _select_topics(options: argparse.Namespace, state: State) -> Iterable[TopicState]:
    if options.topic_id in (None, NO_TOPIC_ID):
        from sparklog.client.admin.offsets_topic import described_topic, listed_topics

        names = _match_topics(options, listed_topics(state, options.topic))
        return [described_topic(state, name) for name in names]
    if options.topic is not None:
        note = "Only topic id will be used when both --topic and --topic-id are specified"
        print(note, file=sys.stderr if options.json else sys.stdout)
    topics = [topic for topic in state.topics_in_order() if topic.topic_id == options.topic_id]
    if not topics and not options.if_exists:
        raise CommandError(f"TopicId '{options.topic_id}' does not exist as expected")
    return topics
