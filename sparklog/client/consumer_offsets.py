"""``__consumer_offsets``: the commits of groups' offsets, readable as the topic that Kafka keeps them in.

It is derived from the commit log and cannot be written; ``coordinator.offsets_topic`` says what its records are.
Commits that were removed behind the boundary are not here any more: the log starts after them, and offsets stay what
they were.

Not thread-safe, like the reader it extends.
"""

from __future__ import annotations

import bisect
import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from sparklog.client.reader import Bounds, Fetched, LogReader
from sparklog.coordinator import Coordinator
from sparklog.coordinator.offsets_topic import (
    GROUP_KEY_VERSION,
    OFFSET_KEY_VERSIONS,
    PARTITIONS,
    RECORDS_PER_COMMIT,
    changes,
    group_key,
    offset_key,
    offset_value,
    partition_of,
    record_batch,
    runs,
)
from sparklog.errors import (
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    StorageUnavailableError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.fetch import TimedOffset
from sparklog.log.layout import read_boundary
from sparklog.log.records import Records
from sparklog.protocol.commits import Commit
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.state import PartitionState, State, TopicState
from sparklog.types import CREATE_TIME, EARLIEST, LATEST

__all__ = [
    "GROUP_KEY_VERSION",
    "OFFSET_KEY_VERSIONS",
    "PARTITIONS",
    "RECORDS_PER_COMMIT",
    "ConsumerReader",
    "OffsetKey",
    "OffsetValue",
    "described_topic",
    "group_key",
    "listed_topics",
    "offset_key",
    "offset_value",
    "partition_of",
    "read_key",
    "read_value",
]

_CACHED_COMMITS = 1024
_TOPIC_ID = "A" * 22
"""Kafka's id for no id: zeros."""


class OffsetKey(NamedTuple):
    """What a record's key says: a group's offset in a partition."""

    version: int
    group: str
    topic: str
    partition: int


class OffsetValue(NamedTuple):
    """What a record's value says."""

    version: int
    offset: int
    leader_epoch: int
    metadata: str
    timestamp_ms: int


def read_key(data: bytes | None) -> OffsetKey | str | None:
    """An offset's key, the group's id of the key of a group, or None for what is neither."""
    try:
        (version,), rest = struct.unpack_from(">h", data or b""), (data or b"")[2:]
        group, rest = _read_string(rest)
        if version == GROUP_KEY_VERSION:
            return group
        if version not in OFFSET_KEY_VERSIONS:
            return None
        topic, rest = _read_string(rest)
        return OffsetKey(version, group, topic, *struct.unpack_from(">i", rest))
    except (struct.error, UnicodeDecodeError):
        return None


def read_value(data: bytes) -> OffsetValue | None:
    """An offset's value as it is written here, or None for what is none."""
    try:
        version, offset, leader_epoch = struct.unpack_from(">hqi", data)
        metadata, rest = _read_string(data[14:])
        return OffsetValue(version, offset, leader_epoch, metadata, *struct.unpack_from(">q", rest))
    except (struct.error, UnicodeDecodeError):
        return None


def _read_string(data: bytes) -> tuple[str, bytes]:
    (length,) = struct.unpack_from(">h", data)
    if not 0 <= length <= len(data) - 2:
        raise struct.error("a string longer than its bytes")
    return data[2 : 2 + length].decode(), data[2 + length :]


def listed_topics(state: State) -> list[str]:
    """The topics that tools list: the cluster's, and this one once there are groups, as in Kafka."""
    return sorted({*state.topics, CONSUMER_OFFSETS_TOPIC}) if state.groups else sorted(state.topics)


def described_topic(state: State, name: str) -> TopicState:
    """A topic as tools describe it. This one is on broker 0, the root. Raises UnknownTopicOrPartitionError."""
    if name != CONSUMER_OFFSETS_TOPIC:
        return state.topic(name)
    partition = PartitionState(replicas=(0,), isr=(0,), leader=0)
    return TopicState(name=name, topic_id=_TOPIC_ID, created_ms=0, partitions=(partition,) * PARTITIONS)


class ConsumerReader(LogReader):
    """A LogReader that has ``__consumer_offsets`` beside the topics of the cluster."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(coordinator)
        self._first = -1
        self._scanned = -1
        self._versions: dict[int, list[int]] = {}
        self._cache: OrderedDict[int, Commit] = OrderedDict()

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has, 0 where it does not exist."""
        if topic == CONSUMER_OFFSETS_TOPIC:
            return PARTITIONS
        found = self.state.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def bounds(self, topic: str, partition: int) -> Bounds | None:
        """As ``LogReader.bounds``."""
        if topic != CONSUMER_OFFSETS_TOPIC:
            return super().bounds(topic, partition)
        if partition >= PARTITIONS:
            return None
        try:
            if self._first < 0:
                self._look_for_first()
        except StorageUnavailableError:
            return None  # not known yet
        end = self.end_offset(topic, partition)
        assert end is not None
        return Bounds(CONSUMER_OFFSETS_TOPIC, self._first * RECORDS_PER_COMMIT, end, 0, is_log=False)

    def end_offset(self, topic: str, partition: int) -> int | None:
        """As ``LogReader.end_offset``."""
        if topic != CONSUMER_OFFSETS_TOPIC:
            return super().end_offset(topic, partition)
        return (self.state.version + 1) * RECORDS_PER_COMMIT if partition < PARTITIONS else None

    def fresh_bounds(self, topic: str, partition: int) -> Bounds | None:
        """As ``bounds``, after a look at what was removed."""
        if topic == CONSUMER_OFFSETS_TOPIC:
            with suppress(StorageUnavailableError):  # what was known will do, or turn out to be out of range
                self._look_for_first()
        return self.bounds(topic, partition)

    def _look_for_first(self) -> None:
        self._first = max(self._first, read_boundary(self._coordinator.store) + 1)
        self._scanned = max(self._scanned, self._first - 1)

    def fetch(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        columns: Sequence[str] | None = None,
        state: State | None = None,
    ) -> Iterator[Fetched]:
        """As ``LogReader.fetch``."""
        if topic != CONSUMER_OFFSETS_TOPIC:
            yield from super().fetch(topic, partition, start, end, columns, state)
            return
        versions = self._with_changes(partition, start // RECORDS_PER_COMMIT, -(-end // RECORDS_PER_COMMIT))
        if start < self._first * RECORDS_PER_COMMIT:
            raise self._removed(partition, start)
        for version in versions:
            commit = self._commit(version)
            if commit is None:
                raise self._removed(partition, version * RECORDS_PER_COMMIT)
            base = version * RECORDS_PER_COMMIT
            for run in runs([one for one in changes(commit) if one.partition == partition]):
                kept = [one for one in run if start <= base + one.number < end]
                if kept:
                    records = Records(base + kept[0].number, record_batch(kept, commit.timestamp), CREATE_TIME)
                    yield Fetched(records, 0)

    def find_timestamp(self, topic: str, partition: int, timestamp_us: int) -> TimedOffset | None:
        """As ``LogReader.find_timestamp``."""
        if topic != CONSUMER_OFFSETS_TOPIC:
            return super().find_timestamp(topic, partition, timestamp_us)
        self.bounds(topic, partition)
        for version in self._with_changes(partition, self._first, self.state.version + 1):
            commit = self._commit(version)
            if commit is not None and commit.timestamp * 1000 >= timestamp_us:
                number = next(one.number for one in changes(commit) if one.partition == partition)
                return TimedOffset(version * RECORDS_PER_COMMIT + number, commit.timestamp * 1000)
        return None

    def offset(self, topic: str, partition: int, where: int) -> int | None:
        """As ``LogReader.offset``."""
        if topic != CONSUMER_OFFSETS_TOPIC:
            return super().offset(topic, partition, where)
        bounds = self.fresh_bounds(topic, partition)
        if bounds is None:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has partitions 0 to {PARTITIONS - 1}, not {partition}",
                topic=topic,
                partition=partition,
            )
        if where in (EARLIEST, LATEST):
            return bounds.start if where == EARLIEST else bounds.end
        timed = self.find_timestamp(topic, partition, where * 1000)
        return None if timed is None else timed.offset

    def max_timestamp(self, topic: str, partition: int) -> TimedOffset | None:
        """As ``LogReader.max_timestamp``."""
        if topic != CONSUMER_OFFSETS_TOPIC:
            return super().max_timestamp(topic, partition)
        self.fresh_bounds(topic, partition)
        for version in reversed(self._with_changes(partition, self._first, self.state.version + 1)):
            commit = self._commit(version)
            if commit is not None:
                return self.find_timestamp(topic, partition, commit.timestamp * 1000)
        return None

    def _with_changes(self, partition: int, first: int, end: int) -> list[int]:
        """The versions from ``first`` and before ``end`` whose commits have records for a partition."""
        self._scan(end)
        versions = self._versions.get(partition, [])
        return versions[bisect.bisect_left(versions, first) : bisect.bisect_left(versions, end)]

    def _scan(self, end: int) -> None:
        """Note which of the commits before ``end`` have records for which partition. Each is read once for that."""
        while self._scanned + 1 < end:
            version = self._scanned + 1
            commit = self._commit(version)
            if commit is None:
                continue  # and so are others: what is left to scan begins after them now
            for partition in {one.partition for one in changes(commit)}:
                self._versions.setdefault(partition, []).append(version)
            self._scanned = max(self._scanned, version)

    def _removed(self, partition: int, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"offset {offset} of {CONSUMER_OFFSETS_TOPIC}-{partition} is of a commit that was removed: the log starts "
            f"at {self._first * RECORDS_PER_COMMIT} now, with commit {self._first}; read on from there",
            topic=CONSUMER_OFFSETS_TOPIC,
            partition=partition,
            offset=offset,
        )

    def _commit(self, version: int) -> Commit | None:
        """A commit, None where it was removed behind the boundary."""
        found = self._cache.get(version)
        if found is None:
            try:
                found = next(self._coordinator.log.commits(version, version))
            except ObjectNotFoundError:
                self._look_for_first()
                if version >= self._first:
                    raise
                return None
            self._cache[version] = found
            if len(self._cache) > _CACHED_COMMITS:
                self._cache.popitem(last=False)
        return found
