"""``__consumer_offsets``: the offset commits of groups, readable as the topic in which Kafka keeps them.

The topic is derived from the commit log and cannot be written; ``coordinator.offsets_topic`` defines its records.
Commits below the boundary have been removed: the log start offset is after them, and offsets do not change.

Not thread-safe, like the reader it extends.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import NamedTuple

from sparklog.client.reader import Bounds, Fetched, LogReader
from sparklog.coordinator import Coordinator
from sparklog.coordinator.offsets_topic import (
    GROUP_KEY_VERSION,
    OFFSET_KEY_VERSIONS,
    PARTITIONS,
    RECORDS_PER_COMMIT,
    changes,
    record_batch,
    runs,
)
from sparklog.coordinator.record_reader import Select
from sparklog.errors import (
    ObjectNotFoundError,
    OffsetOutOfRangeError,
    StorageUnavailableError,
    UnknownTopicOrPartitionError,
)
from sparklog.log.layout import read_boundary
from sparklog.log.records.fetch import TimedOffset
from sparklog.log.records.records import Records
from sparklog.protocol.commits import Commit
from sparklog.protocol.names import CONSUMER_OFFSETS_TOPIC
from sparklog.protocol.state import State
from sparklog.types import CREATE_TIME, EARLIEST, LATEST

__all__ = ["GROUP_KEY_VERSION", "ConsumerReader", "OffsetKey", "OffsetValue", "read_key", "read_value"]

_CACHED_COMMITS = 1024


class OffsetKey(NamedTuple):
    """The key of a record: whose offset it is, by group and partition."""

    version: int
    group: str
    topic: str
    partition: int


class OffsetValue(NamedTuple):
    """The value of a record: the committed offset."""

    version: int
    offset: int
    leader_epoch: int
    metadata: str
    timestamp_ms: int


def read_key(data: bytes | None) -> OffsetKey | str | None:
    """Decode a key: an OffsetKey, the group id of a group metadata key, or None if it is neither."""
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
    """Decode the value of an offset as it is written here, or return None if it is not one."""
    try:
        version, offset, leader_epoch = struct.unpack_from(">hqi", data)
        metadata, rest = _read_string(data[14:])
        return OffsetValue(version, offset, leader_epoch, metadata, *struct.unpack_from(">q", rest))
    except (struct.error, UnicodeDecodeError):
        return None


def _read_string(data: bytes) -> tuple[str, bytes]:
    (length,) = struct.unpack_from(">h", data)
    if not 0 <= length <= len(data) - 2:
        raise struct.error("the length of a string exceeds the remaining bytes")
    return data[2 : 2 + length].decode(), data[2 + length :]


class ConsumerReader(LogReader):
    """A LogReader that also reads ``__consumer_offsets``."""

    def __init__(self, coordinator: Coordinator) -> None:
        super().__init__(coordinator)
        self._first_version = -1
        self._last_scanned = -1
        self._versions: dict[int, list[int]] = {}
        self._load_commit = lru_cache(_CACHED_COMMITS)(lambda version: next(coordinator.log.commits(version, version)))

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic, 0 if it does not exist."""
        if topic == CONSUMER_OFFSETS_TOPIC:
            return PARTITIONS
        topic_state = self.state.topics.get(topic)
        return 0 if topic_state is None else len(topic_state.partitions)

    def bounds(self, topic: str, partition: int, state: State | None = None) -> Bounds | None:
        """As ``LogReader.bounds``; of ``__consumer_offsets``, which is never created again, in the newest state."""
        if topic != CONSUMER_OFFSETS_TOPIC:
            return super().bounds(topic, partition, state)
        if partition >= PARTITIONS:
            return None
        try:
            if self._first_version < 0:
                self._read_log_start()
        except StorageUnavailableError:
            return None  # not known yet
        end = self.end_offset(topic, partition)
        assert end is not None
        return Bounds(CONSUMER_OFFSETS_TOPIC, self._first_version * RECORDS_PER_COMMIT, end, 0, is_log=False)

    def end_offset(self, topic: str, partition: int) -> int | None:
        """As ``LogReader.end_offset``."""
        if topic != CONSUMER_OFFSETS_TOPIC:
            return super().end_offset(topic, partition)
        return (self.state.version + 1) * RECORDS_PER_COMMIT if partition < PARTITIONS else None

    def fresh_bounds(self, topic: str, partition: int) -> Bounds | None:
        """As ``bounds``, after reading the boundary again."""
        if topic == CONSUMER_OFFSETS_TOPIC:
            with suppress(StorageUnavailableError):  # the known start will do, or prove out of range
                self._read_log_start()
        return self.bounds(topic, partition)

    def _read_log_start(self) -> None:
        self._first_version = max(self._first_version, read_boundary(self._coordinator.store) + 1)
        self._last_scanned = max(self._last_scanned, self._first_version - 1)

    def fetch(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        columns: Sequence[str] | None = None,
        state: State | None = None,
        select: Select | None = None,
    ) -> Iterator[Fetched]:
        """As ``LogReader.fetch``."""
        if topic != CONSUMER_OFFSETS_TOPIC:
            yield from super().fetch(topic, partition, start, end, columns, state, select)
            return
        versions = self._versions_with_records(partition, start // RECORDS_PER_COMMIT, -(-end // RECORDS_PER_COMMIT))
        if start < self._first_version * RECORDS_PER_COMMIT:
            raise self._removed_error(partition, start)
        for version in versions:
            commit = self._read_commit(version)
            if commit is None:
                raise self._removed_error(partition, version * RECORDS_PER_COMMIT)
            base = version * RECORDS_PER_COMMIT
            for run in runs([change for change in changes(commit) if change.partition == partition]):
                kept = [change for change in run if start <= base + change.number < end]
                if kept:
                    records = Records(base + kept[0].number, record_batch(kept, commit.timestamp), CREATE_TIME)
                    yield Fetched(records, 0)

    def find_timestamp(self, topic: str, partition: int, timestamp_us: int) -> TimedOffset | None:
        """As ``LogReader.find_timestamp``."""
        if topic != CONSUMER_OFFSETS_TOPIC:
            return super().find_timestamp(topic, partition, timestamp_us)
        self.bounds(topic, partition)
        for version in self._versions_with_records(partition, self._first_version, self.state.version + 1):
            commit = self._read_commit(version)
            if commit is not None and commit.timestamp * 1000 >= timestamp_us:
                number = next(change.number for change in changes(commit) if change.partition == partition)
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
        for version in reversed(self._versions_with_records(partition, self._first_version, self.state.version + 1)):
            commit = self._read_commit(version)
            if commit is not None:
                return self.find_timestamp(topic, partition, commit.timestamp * 1000)
        return None

    def _versions_with_records(self, partition: int, first: int, end: int) -> list[int]:
        """Return the versions in ``[first, end)`` whose commits have records for a partition."""
        self._scan(end)
        versions = self._versions.get(partition, [])
        return versions[bisect.bisect_left(versions, first) : bisect.bisect_left(versions, end)]

    def _scan(self, end: int) -> None:
        """Note which commits before ``end`` have records for which partition. Reads each of them once."""
        while self._last_scanned + 1 < end:
            version = self._last_scanned + 1
            commit = self._read_commit(version)
            if commit is None:
                continue  # removed, as others may be; ``_last_scanned`` is past them now
            for partition in {change.partition for change in changes(commit)}:
                self._versions.setdefault(partition, []).append(version)
            self._last_scanned = max(self._last_scanned, version)

    def _removed_error(self, partition: int, offset: int) -> OffsetOutOfRangeError:
        return OffsetOutOfRangeError(
            f"the commit of offset {offset} of {CONSUMER_OFFSETS_TOPIC}-{partition} was removed: the log starts at "
            f"{self._first_version * RECORDS_PER_COMMIT}, with commit {self._first_version}; continue from there",
            topic=CONSUMER_OFFSETS_TOPIC,
            partition=partition,
            offset=offset,
        )

    def _read_commit(self, version: int) -> Commit | None:
        """Return a commit, or None if it was removed, being below the boundary."""
        try:
            return self._load_commit(version)
        except ObjectNotFoundError:
            self._read_log_start()
            if version >= self._first_version:
                raise
            return None
