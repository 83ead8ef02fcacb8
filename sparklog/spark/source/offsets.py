"""Where a read starts and ends, as the options say it: the words and the JSON of Spark's Kafka source.

    earliest | latest                                    all partitions
    {"orders":{"0":23,"1":-1},"clicks":"earliest"}       per partition (-2 is earliest, -1 latest) or topic
    {"orders":{"0":1700000000000}}                       per partition, milliseconds since the epoch

Rules: pure; words in any case, names and numbers exact; anything else is an InvalidOptionError that names the option
and shows what it takes. Not for: looking offsets up in a log, which is ``planning``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from sparklog.errors import InvalidOptionError
from sparklog.types import EARLIEST, LATEST, TopicPartition

MAX_OFFSET = 2**63 - 1
WORDS = {"earliest": EARLIEST, "latest": LATEST}
_OFFSETS_FORM = 'earliest, latest, or JSON such as {"topicA":{"0":23,"1":-1},"topicB":"earliest"}'
_TIMESTAMPS_FORM = 'JSON with milliseconds since the epoch, such as {"topicA":{"0":1700000000000}}'
_PARTITIONS_FORM = 'JSON such as {"topicA":[0,1],"topicB":[2,4]}'


@dataclass(frozen=True)
class EveryPartition:
    """The same word for all partitions: ``EARLIEST`` or ``LATEST``."""

    offset: int


@dataclass(frozen=True)
class PartitionOffsets:
    """An offset per partition, where -2 is earliest and -1 latest; ``topics`` holds words given for whole topics."""

    partitions: Mapping[TopicPartition, int]
    topics: Mapping[str, int] = field(default_factory=dict)

    def get(self, where: TopicPartition) -> int | None:
        """The offset for a partition, from its own entry or its topic's; None where there is neither."""
        return self.partitions.get(where, self.topics.get(where.topic))


@dataclass(frozen=True)
class EveryTimestamp:
    """The same time for all partitions, milliseconds since the epoch."""

    timestamp_ms: int


@dataclass(frozen=True)
class PartitionTimestamps:
    """A time per partition, milliseconds since the epoch."""

    partitions: Mapping[TopicPartition, int]


OffsetLimit = EveryPartition | PartitionOffsets | EveryTimestamp | PartitionTimestamps


def parse_offsets(option: str, text: str) -> EveryPartition | PartitionOffsets:
    """The value of ``startingOffsets`` or ``endingOffsets``. Raises InvalidOptionError."""
    word = WORDS.get(text.strip().lower())
    if word is not None:
        return EveryPartition(word)
    partitions: dict[TopicPartition, int] = {}
    topics: dict[str, int] = {}
    for topic, value in _json_object(option, text, _OFFSETS_FORM).items():
        if isinstance(value, str):
            if value.lower() not in WORDS:
                _refuse(option, text, f"topic {topic!r} has {value!r}", _OFFSETS_FORM)
            topics[topic] = WORDS[value.lower()]
            continue
        for where, offset in _numbers(option, text, topic, value, _OFFSETS_FORM):
            if not EARLIEST <= offset <= MAX_OFFSET:
                _refuse(option, text, f"{where} has offset {offset}", _OFFSETS_FORM)
            partitions[where] = offset
    return PartitionOffsets(partitions, topics)


def parse_timestamps(option: str, text: str) -> PartitionTimestamps:
    """The value of an option ``...OffsetsByTimestamp``. Raises InvalidOptionError."""
    partitions: dict[TopicPartition, int] = {}
    for topic, value in _json_object(option, text, _TIMESTAMPS_FORM).items():
        for where, timestamp in _numbers(option, text, topic, value, _TIMESTAMPS_FORM):
            if not 0 <= timestamp <= MAX_OFFSET:
                _refuse(option, text, f"{where} has time {timestamp}", _TIMESTAMPS_FORM)
            partitions[where] = timestamp
    return PartitionTimestamps(partitions)


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """The value of ``assign``, sorted. Raises InvalidOptionError."""
    found: set[TopicPartition] = set()
    for topic, numbers in _json_object(option, text, _PARTITIONS_FORM).items():
        if not isinstance(numbers, list) or not all(_is_partition(number) for number in numbers):
            _refuse(option, text, f"topic {topic!r} has {numbers!r}", _PARTITIONS_FORM)
        found.update(TopicPartition(topic, number) for number in numbers)
    if not found:
        _refuse(option, text, "it names no partition", _PARTITIONS_FORM)
    return tuple(sorted(found))


def format_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Offsets as JSON, sorted by topic and partition: what Spark's Kafka source writes into checkpoints."""
    topics: dict[str, dict[str, int]] = {}
    for where in sorted(offsets):
        topics.setdefault(where.topic, {})[str(where.partition)] = offsets[where]
    return json.dumps(topics, separators=(",", ":"))


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as JSON, sorted: the form that ``assign`` takes."""
    topics: dict[str, list[int]] = {}
    for where in sorted(partitions):
        topics.setdefault(where.topic, []).append(where.partition)
    return json.dumps(topics, separators=(",", ":"))


def _numbers(option: str, text: str, topic: str, value: Any, form: str) -> list[tuple[TopicPartition, int]]:
    if not isinstance(value, dict) or not value:
        _refuse(option, text, f"topic {topic!r} has {value!r}", form)
    found = []
    for partition, number in value.items():
        if not (partition.isascii() and partition.isdigit() and len(partition) < 10):
            _refuse(option, text, f"{partition!r} is not a partition of topic {topic!r}", form)
        if not isinstance(number, int) or isinstance(number, bool):
            _refuse(option, text, f"partition {partition} of topic {topic!r} has {number!r}", form)
        found.append((TopicPartition(topic, int(partition)), number))
    return found


def _is_partition(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and 0 <= number < 2**31


def _json_object(option: str, text: str, form: str) -> dict[str, Any]:
    try:
        found = json.loads(text, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        _refuse(option, text, str(error), form)
    if not isinstance(found, dict) or not found:
        _refuse(option, text, "it is not a JSON object with topics", form)
    return found


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = sorted({name for name, _ in pairs if sum(name == other for other, _ in pairs) > 1})
        raise ValueError(f"{', '.join(map(repr, twice))} stands in it twice")
    return found


def _refuse(option: str, text: str, why: str, form: str) -> NoReturn:
    shown = text if len(text) <= 200 else f"{text[:200]}..."
    raise InvalidOptionError(f"option {option} cannot be {shown!r}: {why}; it takes {form}", option=option)
