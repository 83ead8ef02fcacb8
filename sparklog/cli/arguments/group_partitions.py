"""Parses the topics and partitions that ``consumer-groups`` takes: ``orders`` or ``orders:0,1``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import UsageError

if TYPE_CHECKING:
    from sparklog.protocol.state import State


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
