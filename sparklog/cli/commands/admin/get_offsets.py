"""``sparklog get-offsets``: Kafka's kafka-get-offsets. Prints ``topic:partition:offset``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandError, CommandParser, complain, connect_admin, given
from sparklog.cli.arguments.patterns import (
    PartitionFilter,
    matching_topics,
    topic_and_partitions,
    topic_partition_rules,
)
from sparklog.cli.output.json_output import add_json, print_document
from sparklog.errors import InvalidArgumentError
from sparklog.types import TopicPartition, printable

if TYPE_CHECKING:
    from sparklog.client.admin.client import AdminClient

ERROR_PREFIX = "Error occurred: "

NAMED_TIMES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}


def parser() -> CommandParser:
    options = CommandParser(
        "get-offsets",
        "Print offsets of partitions, one topic:partition:offset per line. A partition without the requested offset, "
        "such as\nmax-timestamp of an empty partition, is left out.",
        "sparklog get-offsets --bootstrap-server /data/log --topic 'orders.*' --time earliest",
    )
    options.add_value(
        "--topic-partitions",
        "LIST",
        "comma-separated topic:partition patterns: a regular expression, and N, N-M (without M), N-, -M or none",
    )
    options.add_value("--topic", "TOPIC", "a topic, or a regular expression (default: all)")
    options.add_value("--partitions", "IDS", "comma-separated partition ids (default: all)")
    options.add_value(
        "--time",
        "TIME",
        "the first offset at or after this time in ms since 1970; or -1|latest (default), -2|earliest, "
        "-3|max-timestamp, -4|earliest-local, -5|latest-tiered, -6|earliest-pending-upload (the last two print "
        "nothing, since there is no tiered storage here)",
        default="latest",
    )
    options.add_switch("--exclude-internal-topics", "leave out Kafka's internal topics")
    add_json(options)
    return options


def run(options: argparse.Namespace) -> int:
    if given(options, "topic-partitions") and (given(options, "topic") or given(options, "partitions")):
        raise CommandError("--topic-partitions cannot be used with --topic or --partitions")
    time = _parse_time(options.time)
    matches = _parse_filter(options)
    with connect_admin(options) as admin:
        partitions = _matching_partitions(admin, options, matches)
        if not partitions:
            raise CommandError("Could not match any topic-partitions with the specified filters")
        try:
            found = admin.list_partition_offsets(dict.fromkeys(partitions, time))
        except InvalidArgumentError as error:  # a negative time without a meaning; Kafka's tool exits with 0, too
            complain(f"Skip getting offsets due to: {error}")
            found = {}
    from sparklog.cli.output.documents import OffsetList, PartitionOffset

    offsets = [
        PartitionOffset(topic=topic, partition=partition, offset=timed.offset if timed.offset >= 0 else None)
        for (topic, partition), timed in found.items()
    ]
    lines = [
        printable(f"{entry.topic}:{entry.partition}:{entry.offset}")
        for entry in offsets
        if entry.offset is not None  # Kafka's tool does not print UNKNOWN_OFFSET either
    ]
    print_document(OffsetList(offsets=offsets), options.json, lines)
    return 0


def _matching_partitions(
    admin: AdminClient, options: argparse.Namespace, matches: PartitionFilter
) -> list[TopicPartition]:
    from sparklog.client.admin.offsets_topic import described_topic, listed_topics

    state = admin.read_state()
    return [
        TopicPartition(topic, partition)
        for topic in matching_topics(listed_topics(state, options.topic), None, options.exclude_internal_topics)
        for partition in range(len(described_topic(state, topic).partitions))
        if matches(topic, partition)
    ]


def _parse_time(text: str) -> int:
    if text in NAMED_TIMES:
        return NAMED_TIMES[text]
    try:
        time = int(text)
    except ValueError:
        time = -(2**63) - 1
    if not -(2**63) <= time < 2**63:
        raise CommandError(
            f"Malformed time argument {text}. Please use -1 or latest / -2 or earliest / -3 or max-timestamp / -4 "
            "or earliest-local / -5 or latest-tiered / -6 or earliest-pending-upload, or a specified long format "
            "timestamp"
        )
    return time


def _parse_filter(options: argparse.Namespace) -> PartitionFilter:
    if options.topic_partitions is not None:
        return topic_partition_rules(options.topic_partitions)
    return topic_and_partitions(options.topic, options.partitions)
