"""The JSON files that Kafka's tools take: offsets to delete, partitions to elect leaders of, replicas to assign.

Rules: a file is checked whole before anything is done; an error names the file and the place in it. Commands import
this when they run, since msgspec is nothing that ``--help`` needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from sparklog.cli.arguments.parser import UsageError
from sparklog.types import TopicPartition

T = TypeVar("T", bound="JsonFile")

VERSION = 1
"""The only version of these files there is."""

MAX_BYTES = 256 * 1024 * 1024
"""bytes. A line for each of a million partitions is less than half of that."""


class JsonFile(msgspec.Struct, frozen=True, kw_only=True):
    """What these files share; unknown fields are passed over, as Kafka's tools do."""

    version: int = VERSION


class OffsetOf(msgspec.Struct, frozen=True):
    """The first offset of a partition to keep; -1 deletes all records there are."""

    topic: str
    partition: int
    offset: int


class OffsetFile(JsonFile, frozen=True, kw_only=True):
    """``{"partitions":[{"topic":"orders","partition":0,"offset":3}],"version":1}``"""

    partitions: list[OffsetOf]


class TopicToMove(msgspec.Struct, frozen=True):
    topic: str


class TopicsFile(JsonFile, frozen=True, kw_only=True):
    """``{"topics":[{"topic":"orders"}],"version":1}``"""

    topics: list[TopicToMove]


class ReplicasOf(msgspec.Struct, frozen=True):
    """The brokers that are to hold a partition, the preferred leader first, and the log dir on each."""

    topic: str
    partition: int
    replicas: list[int]
    log_dirs: list[str] | None = None

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ReassignmentFile(JsonFile, frozen=True, kw_only=True):
    """``{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}``"""

    partitions: list[ReplicasOf]


class PartitionOf(msgspec.Struct, frozen=True):
    topic: str
    partition: int


class ElectionFile(JsonFile, frozen=True, kw_only=True):
    """``{"partitions":[{"topic":"orders","partition":0}]}``"""

    partitions: list[PartitionOf]


def read_json(path: str, flag: str, kind: type[T]) -> T:
    """The file that an option names. Raises UsageError where it cannot be read or is not what it has to be."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{flag}: {path} cannot be read: {error}", prefixed=True) from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{flag}: {path} has more than {MAX_BYTES} bytes; split it", prefixed=True)
    try:
        found = msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise UsageError(f"{flag}: {path} is not what it has to be: {error}", prefixed=True) from error
    if found.version != VERSION:
        raise UsageError(f"{flag}: {path}: Not supported version field value {found.version}", prefixed=True)
    return found


def repeated(places: Iterable[TopicPartition]) -> str:
    """Those that occur more than once, in order and separated by commas."""
    seen: set[TopicPartition] = set()
    twice = {place for place in places if place in seen or seen.add(place)}  # type: ignore[func-returns-value]
    return ",".join(map(str, sorted(twice)))
