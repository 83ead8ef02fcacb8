"""Parses the options that select topics and partitions: regular expressions, partition patterns, ``orders:0,1``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import CommandError, UsageError
from sparklog.protocol.names import is_internal_topic

if TYPE_CHECKING:
    from sparklog.client.consumer.consumer import Consumer
    from sparklog.protocol.state import State

_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]{0,10})|(?:([0-9]{0,10})-([0-9]{0,10}))))?\Z")

PartitionFilter = Callable[[str, int], bool]


def topic_pattern(text: str) -> re.Pattern[str]:
    """Compile Kafka's TopicFilter, for ``fullmatch``: a comma means "or"; spaces and surrounding quotes are dropped.

    Raises UsageError for an invalid regular expression.
    """
    regex = text.strip().replace(",", "|").replace(" ", "").strip("\"'")
    try:
        return re.compile(regex)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"{text!r} is an invalid regex: {error}") from error


def subscribe(consumer: Consumer, options: argparse.Namespace, listener: object = None) -> None:
    """Subscribe to ``--topic``, or to all topics that ``--include`` matches. Raises UsageError."""
    if options.topic is not None:
        consumer.subscribe([options.topic], listener=listener)
    else:
        consumer.subscribe(pattern=f"(?:{topic_pattern(options.include).pattern})\\Z", listener=listener)


def topic_filter(pattern: str | None, exclude_internal: bool) -> Callable[[str], bool]:
    """Return whether a topic matches the pattern (if given), and is no internal one if ``exclude_internal``."""
    compiled = topic_pattern(pattern) if pattern is not None else None
    return lambda topic: (
        (compiled is None or bool(compiled.fullmatch(topic))) and not (exclude_internal and is_internal_topic(topic))
    )


def matching_topics(topics: Iterable[str], pattern: str | None, exclude_internal: bool) -> list[str]:
    """Return the topics that pass ``topic_filter``, sorted."""
    return sorted(filter(topic_filter(pattern, exclude_internal), topics))


def topic_partition_rules(text: str) -> PartitionFilter:
    """Parse ``--topic-partitions``: a partition must match any of the comma-separated rules. Raises UsageError."""
    rules = [_parse_rule(part) for part in text.split(",")]
    return lambda topic, partition: any(rule(topic, partition) for rule in rules)


def topic_and_partitions(topic: str | None, partitions: str | None) -> PartitionFilter:
    """Parse ``--topic`` and ``--partitions``: a regular expression and a comma-separated list. Raises UsageError."""
    pattern = topic_pattern(topic if topic is not None else ".*")
    wanted: set[int] = set()
    for part in partitions.split(",") if partitions else ():
        if not part.strip().isascii() or not part.strip().isdigit():
            raise CommandError(
                f"--partitions expects a comma separated list of numeric partition ids, but received: {partitions}"
            )
        wanted.add(int(part))
    return lambda name, partition: bool(pattern.fullmatch(name)) and (not wanted or partition in wanted)


def _parse_rule(text: str) -> PartitionFilter:
    match = _RULE.match(text)
    if match is None:
        raise CommandError(f"Invalid rule specification: {text}")
    name, single, lower, upper = match.groups()
    pattern = topic_pattern(name or ".*")
    if single:
        first, end = int(single), int(single) + 1
    else:
        first = int(lower) if lower else 0
        end = int(upper) if upper else 2**31
    return lambda topic, partition: bool(pattern.fullmatch(topic)) and first <= partition < end


# -- of consumer-groups


def parse_topic_partitions(text: str) -> tuple[str, list[int] | None]:
    """Return the topic and its partitions, None for all of them. Raises UsageError with the texts of Kafka's tool."""
    if ":" not in text:
        return text, None
    topic, _, numbers = text.partition(":")
    if not topic or not numbers or ":" in numbers:
        raise UsageError(f"Invalid topic arg '{text}', expected topic name and partitions")
    for number in numbers.split(","):
        if not number.isascii() or not number.isdigit() or len(number) > 10:
            raise UsageError(f"Invalid partition '{number}' specified in topic arg '{text}'")
    return topic, list(dict.fromkeys(map(int, numbers.split(","))))


def partitions_of(state: State, texts: list[str]) -> list[tuple[str, int]]:
    """Return all partitions that these options name, without duplicates.

    Raises UsageError, UnknownTopicOrPartitionError.
    """
    partitions: dict[tuple[str, int], None] = {}
    for text in texts:
        topic, numbers = parse_topic_partitions(text)
        for number in range(len(state.topic(topic).partitions)) if numbers is None else numbers:
            state.partition(topic, number)
            partitions[topic, number] = None
    return list(partitions)
