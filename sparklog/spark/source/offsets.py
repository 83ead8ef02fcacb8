"""Parse and format where a read starts and ends: the words and the JSON of Spark's Kafka source.

    earliest | latest                                    all partitions
    {"orders":{"0":23,"1":-1},"clicks":"earliest"}       per partition (-2 is earliest, -1 latest) or topic
    {"orders":{"0":1700000000000}}                       per partition, milliseconds since the epoch

Rules: pure; words are case-insensitive, names and numbers exact; anything else is an InvalidOptionError that names the
option and shows the expected form. Not for: looking offsets up in a log (``planning``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sparklog.config.definitions import LONG_MAX
from sparklog.errors import InvalidOptionError
from sparklog.types import EARLIEST, LATEST, TopicPartition

WORDS = {"earliest": EARLIEST, "latest": LATEST}
_OFFSETS_FORM = 'earliest, latest, or JSON such as {"topicA":{"0":23,"1":-1},"topicB":"earliest"}'
_TIMESTAMPS_FORM = 'JSON with milliseconds since the epoch, such as {"topicA":{"0":1700000000000}}'
_PARTITIONS_FORM = 'JSON such as {"topicA":[0,1],"topicB":[2,4]}'


@dataclass(frozen=True)
class EveryPartition:
    """One word for all partitions: ``EARLIEST`` or ``LATEST``."""

    offset: int


@dataclass(frozen=True)
class PerPartition:
    """A number per partition; ``topics`` holds those given for whole topics."""

    partitions: Mapping[TopicPartition, int]
    topics: Mapping[str, int] = field(default_factory=dict)

    def get(self, partition: TopicPartition) -> int | None:
        """Return the number for a partition, from its own entry or its topic's; None if there is neither."""
        return self.partitions.get(partition, self.topics.get(partition.topic))


class PartitionOffsets(PerPartition):
    """An offset per partition, where -2 is earliest and -1 latest; for whole topics one of these words."""


@dataclass(frozen=True)
class EveryTimestamp:
    """One time for all partitions, milliseconds since the epoch."""

    timestamp_ms: int


class PartitionTimestamps(PerPartition):
    """A time per partition, milliseconds since the epoch."""


OffsetLimit = EveryPartition | PartitionOffsets | EveryTimestamp | PartitionTimestamps


def parse_offsets(option: str, text: str) -> EveryPartition | PartitionOffsets:
    """Parse ``startingOffsets`` or ``endingOffsets``. Raises InvalidOptionError."""
    word = WORDS.get(text.strip().lower())
    if word is not None:
        return EveryPartition(word)
    partitions: dict[TopicPartition, int] = {}
    topics: dict[str, int] = {}
    for topic, value in _parse_json_object(option, text, _OFFSETS_FORM).items():
        if isinstance(value, str):
            if value.lower() not in WORDS:
                _refuse(option, text, f"topic {topic!r} has {value!r}", _OFFSETS_FORM)
            topics[topic] = WORDS[value.lower()]
            continue
        for partition, offset in _parse_numbers(option, text, topic, value, _OFFSETS_FORM):
            if not EARLIEST <= offset <= LONG_MAX:
                _refuse(option, text, f"{partition} has offset {offset}", _OFFSETS_FORM)
            partitions[partition] = offset
    return PartitionOffsets(partitions, topics)


def parse_timestamps(option: str, text: str) -> PartitionTimestamps:
    """Parse an option ``...OffsetsByTimestamp``. Raises InvalidOptionError."""
    partitions: dict[TopicPartition, int] = {}
    for topic, value in _parse_json_object(option, text, _TIMESTAMPS_FORM).items():
        for partition, timestamp in _parse_numbers(option, text, topic, value, _TIMESTAMPS_FORM):
            if not 0 <= timestamp <= LONG_MAX:
                _refuse(option, text, f"{partition} has time {timestamp}", _TIMESTAMPS_FORM)
            partitions[partition] = timestamp
    return PartitionTimestamps(partitions)


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Parse ``assign`` and return its partitions, sorted. Raises InvalidOptionError."""
    partitions: set[TopicPartition] = set()
    for topic, numbers in _parse_json_object(option, text, _PARTITIONS_FORM).items():
        if not isinstance(numbers, list) or not all(_is_partition(number) for number in numbers):
            _refuse(option, text, f"topic {topic!r} has {numbers!r}", _PARTITIONS_FORM)
        partitions.update(TopicPartition(topic, number) for number in numbers)
    if not partitions:
        _refuse(option, text, "it names no partition", _PARTITIONS_FORM)
    return tuple(sorted(partitions))


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Return partitions as JSON, sorted: the form of ``assign``."""
    topics: dict[str, list[int]] = {}
    for partition in sorted(partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    return json.dumps(topics, separators=(",", ":"))


def _parse_numbers(option: str, text: str, topic: str, value: Any, form: str) -> list[tuple[TopicPartition, int]]:
    if not isinstance(value, dict) or not value:
        _refuse(option, text, f"topic {topic!r} has {value!r}", form)
    pairs = []
    for partition, number in value.items():
        if not (partition.isascii() and partition.isdigit() and len(partition) < 10):
            _refuse(option, text, f"{partition!r} is not a partition of topic {topic!r}", form)
        if not isinstance(number, int) or isinstance(number, bool):
            _refuse(option, text, f"partition {partition} of topic {topic!r} has {number!r}", form)
        pairs.append((TopicPartition(topic, int(partition)), number))
    return pairs


def _is_partition(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**31


def _parse_json_object(option: str, text: str, form: str) -> dict[str, Any]:
    try:
        topics = json.loads(text, object_pairs_hook=_reject_duplicates)
    except (ValueError, RecursionError) as error:
        _refuse(option, text, str(error), form)
    if not isinstance(topics, dict) or not topics:
        _refuse(option, text, "it is not a JSON object with topics", form)
    return topics


def _reject_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        duplicates = sorted({name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1})
        raise ValueError(f"duplicate key {', '.join(map(repr, duplicates))}")
    return values


def _refuse(option: str, text: str, why: str, form: str) -> NoReturn:
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    raise InvalidOptionError(f"invalid value {shown!r} for option {option}: {why}; expected {form}", option=option)
