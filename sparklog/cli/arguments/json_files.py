"""The JSON files that Kafka's tools take: offsets to delete up to, partitions to elect leaders for, replicas to assign.

Rules: a file is validated completely before anything is changed; an error names the file and the field. Commands
import this module when they run, since ``--help`` needs no msgspec.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from sparklog.cli.arguments.parser import CommandError, duplicates, join
from sparklog.types import TopicPartition

T = TypeVar("T", bound="JsonFile")

VERSION = 1

MAX_BYTES = 256 * 1024 * 1024
"""bytes. One line per partition takes less than half of this for a million partitions."""


class JsonFile(msgspec.Struct, frozen=True, kw_only=True):
    """Common field of these files; unknown fields are ignored, as by Kafka's tools."""

    version: int = VERSION


class PartitionOf(msgspec.Struct, frozen=True):
    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class OffsetOf(PartitionOf, frozen=True):
    """The first offset of a partition to keep; -1 deletes all records."""

    offset: int


class OffsetFile(JsonFile, frozen=True, kw_only=True):
    """``{"partitions":[{"topic":"orders","partition":0,"offset":3}],"version":1}``"""

    partitions: list[OffsetOf]


class TopicToMove(msgspec.Struct, frozen=True):
    topic: str


class TopicsFile(JsonFile, frozen=True, kw_only=True):
    """``{"topics":[{"topic":"orders"}],"version":1}``"""

    topics: list[TopicToMove]


class ReplicasOf(PartitionOf, frozen=True):
    """The brokers to hold a partition, the preferred leader first, and the log dir at each."""

    replicas: list[int]
    log_dirs: list[str] | None = None


class ReassignmentFile(JsonFile, frozen=True, kw_only=True):
    """``{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}``"""

    partitions: list[ReplicasOf]


class ElectionFile(JsonFile, frozen=True, kw_only=True):
    """``{"partitions":[{"topic":"orders","partition":0}]}``"""

    partitions: list[PartitionOf]


def read_json(path: str, flag: str, kind: type[T]) -> T:
    """Read the file that an option names. Raises UsageError if it cannot be read or is invalid."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise CommandError(f"{flag}: {path} cannot be read: {error}") from error
    if len(data) > MAX_BYTES:
        raise CommandError(f"{flag}: {path} has more than {MAX_BYTES} bytes; split it")
    try:
        content = msgspec.json.decode(data.removeprefix(BOM_UTF8), type=kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise CommandError(f"{flag}: invalid file {path}: {error}") from error
    if content.version != VERSION:
        raise CommandError(f"{flag}: {path}: Not supported version field value {content.version}")
    return content


def read_partitions(entries: Iterable[PartitionOf], refusal: str) -> list[TopicPartition]:
    """Return the partitions of a file. Raises UsageError, which begins with ``refusal``, if one occurs twice."""
    partitions = [entry.topic_partition for entry in entries]
    if repeated := duplicates(partitions):
        raise CommandError(f"{refusal}: {join(repeated)}")
    return partitions
