"""Which partitions of which topics an option of ``consumer-groups`` means: ``orders`` or ``orders:0,1``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.cli.arguments.parser import UsageError

if TYPE_CHECKING:
    from sparklog.protocol.state import State


def parse_place(text: str) -> tuple[str, list[int] | None]:
    """The topic and its partitions, None for all of them. Raises UsageError as Kafka's tool does."""
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
    """All that these options name, each once. Raises UsageError, UnknownTopicOrPartitionError."""
    found: dict[tuple[str, int], None] = {}
    for text in texts:
        topic, numbers = parse_place(text)
        for number in range(len(state.topic(topic).partitions)) if numbers is None else numbers:
            state.partition(topic, number)
            found[topic, number] = None
    return list(found)
