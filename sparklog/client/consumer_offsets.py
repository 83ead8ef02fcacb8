"""``__consumer_offsets``: the commits of groups' offsets, readable as the topic that Kafka keeps them in.

It is derived from the commit log and cannot be written. It has 50 partitions, a group's records are in the one of
Kafka's rule, and keys and values have Kafka's bytes (big endian; a string is its length as int16 and UTF-8):

    key    int16 1, string group, string topic, int32 partition                    (OffsetCommitKey)
    value  int16 3, int64 offset, int32 leader epoch, string metadata, int64 ms    (OffsetCommitValue)
    key    int16 2, string group; no value: the group was deleted                  (GroupMetadataKey)

For group "g", topic "t", partition 1, the key is ``0001 0001 67 0001 74 00000001``. Deleted offsets have no value.

A record's offset is ``version of its commit * 65536 + its number in that commit``, so offsets have gaps, and the end
offset is that of the next commit. Commits that were removed behind the boundary are not here any more: the log starts
after them, and offsets stay what they were. Offsets that went with a deleted topic have no tombstones.

Not thread-safe, like the reader it extends.
"""

from __future__ import annotations

import bisect
import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import pyarrow as pa

from sparklog.client.reader import Bounds, Fetched, LogReader
from sparklog.coordinator import Coordinator
from sparklog.errors import (
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    StorageUnavailableError,
    UnknownTopicOrPartitionError,
)
from sparklog.format.plain_arrays import binary_column, timestamp_array
from sparklog.format.schema import columns_present, record_schema
from sparklog.log.fetch import TimedOffset
from sparklog.log.layout import read_boundary
from sparklog.log.records import Records
from sparklog.protocol.commits import Commit, CommitOffsets, DeleteGroup, DeleteOffsets
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.state import PartitionState, State, TopicState
from sparklog.protocol.subscriptions import java_hash
from sparklog.types import CREATE_TIME, EARLIEST, LATEST

PARTITIONS = 50
"""Kafka's default of ``offsets.topic.num.partitions``."""

RECORDS_PER_COMMIT = 65536
"""A commit of 4 MiB has room for fewer offsets than that."""

OFFSET_KEY_VERSIONS = (0, 1)
GROUP_KEY_VERSION = 2

_CACHED_COMMITS = 1024
_TOPIC_ID = "A" * 22
"""Kafka's id for no id: zeros."""

_SCHEMA = record_schema(columns_present(has_key=True, has_headers=False))


class _Change(NamedTuple):
    """One record to be: its number in the commit, partition, key, and value or None."""

    number: int
    partition: int
    key: bytes
    value: bytes | None


def partition_of(group: str) -> int:
    """The partition of a group: ``Utils.abs(groupId.hashCode) % 50``."""
    hashed = java_hash(group)
    signed = hashed - 2**32 if hashed >= 2**31 else hashed
    return (0 if signed == -(2**31) else abs(signed)) % PARTITIONS


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """OffsetCommitKey, version 1."""
    return struct.pack(">h", 1) + _string(group) + _string(topic) + struct.pack(">i", partition)


def offset_value(offset: int, leader_epoch: int, metadata: str, timestamp_ms: int) -> bytes:
    """OffsetCommitValue, version 3."""
    return struct.pack(">hqi", 3, offset, leader_epoch) + _string(metadata) + struct.pack(">q", timestamp_ms)


def group_key(group: str) -> bytes:
    """GroupMetadataKey, version 2."""
    return struct.pack(">h", 2) + _string(group)


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


def changes(commit: Commit) -> list[_Change]:
    """The records of one commit."""
    found: list[tuple[str, bytes, bytes | None]] = []
    for action in commit.actions:
        if isinstance(action, CommitOffsets):
            for at in action.offsets:
                value = offset_value(at.offset, at.leader_epoch, at.metadata, commit.timestamp)
                found.append((action.group, offset_key(action.group, at.topic, at.partition), value))
        elif isinstance(action, DeleteOffsets):
            for gone in action.partitions:
                found.append((action.group, offset_key(action.group, gone.topic, gone.partition), None))
        elif isinstance(action, DeleteGroup):
            found.append((action.group, group_key(action.group), None))
    return [_Change(number, partition_of(group), key, value) for number, (group, key, value) in enumerate(found)]


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
        end = (self.state.version + 1) * RECORDS_PER_COMMIT
        return Bounds(CONSUMER_OFFSETS_TOPIC, self._first * RECORDS_PER_COMMIT, end, 0, is_log=False)

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
            for run in _runs([one for one in changes(commit) if one.partition == partition]):
                kept = [one for one in run if start <= base + one.number < end]
                if kept:
                    records = Records(base + kept[0].number, _batch(kept, commit.timestamp), CREATE_TIME)
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


def _runs(found: Sequence[_Change]) -> list[list[_Change]]:
    """Records whose offsets follow one another."""
    runs: list[list[_Change]] = []
    for one in found:
        if runs and runs[-1][-1].number == one.number - 1:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def _batch(found: Sequence[_Change], timestamp_ms: int) -> pa.RecordBatch:
    columns = {
        "key": binary_column([one.key for one in found]).array,
        "value": binary_column([one.value for one in found]).array,
        "timestamp": timestamp_array([timestamp_ms * 1000] * len(found)),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in _SCHEMA.names], schema=_SCHEMA)
