"""Builds the records of ``__consumer_offsets`` from the commits that change groups' offsets, in Kafka's bytes.

The topic is derived from the commit log. It has 50 partitions, Kafka's rule assigns a group's records to one of them,
and keys and values have Kafka's bytes (big endian; a string is its length as int16 and UTF-8):

    key    int16 1, string group, string topic, int32 partition                    (OffsetCommitKey)
    value  int16 3, int64 offset, int32 leader epoch, string metadata, int64 ms    (OffsetCommitValue)
    key    int16 2, string group; no value: the group was deleted                  (GroupMetadataKey)

For group "g", topic "t", partition 1, the key is ``0001 0001 67 0001 74 00000001``. Deleted offsets have no value.

A record's offset is ``version of its commit * 65536 + its number in that commit``, so offsets have gaps, and the end
offset is that of the next commit. Offsets that went with a deleted topic have no tombstones.

Rules: pure.
Not for: reading commits (``client.consumer.offsets_topic``, ``spark.source.offsets_topic``).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

import pyarrow as pa

from sparklog import limits
from sparklog.format.plain_arrays import binary_column, timestamp_array
from sparklog.format.schema import columns_present, record_schema
from sparklog.protocol.commits import Commit, CommitOffsets, DeleteGroup, DeleteOffsets
from sparklog.protocol.group.subscriptions import java_hash

PARTITIONS = 50
"""Kafka's default of ``offsets.topic.num.partitions``."""

RECORDS_PER_COMMIT = limits.MAX_OFFSETS_PER_COMMIT
"""Offsets reserved per commit, which changes no more (``check_offset_changes``). Versions before 0.3.0 wrote more at
once: such a commit's records are numbered within their partition, and those from this number on are left out."""

OFFSET_KEY_VERSIONS = (0, 1)
GROUP_KEY_VERSION = 2

_SCHEMA = record_schema(columns_present(has_key=True, has_headers=False))


class OffsetChange(NamedTuple):
    """One record: its number in the commit, partition, key, and value or None."""

    number: int
    partition: int
    key: bytes
    value: bytes | None


def partition_of(group: str) -> int:
    """Return the partition of a group: ``Utils.abs(groupId.hashCode) % 50``."""
    hashed = java_hash(group)
    signed = hashed - 2**32 if hashed >= 2**31 else hashed
    return (0 if signed == -(2**31) else abs(signed)) % PARTITIONS


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def offset_key(group: str, topic: str, partition: int) -> bytes:
    """Encode an OffsetCommitKey, version 1."""
    return struct.pack(">h", 1) + _string(group) + _string(topic) + struct.pack(">i", partition)


def offset_value(offset: int, leader_epoch: int, metadata: str, timestamp_ms: int) -> bytes:
    """Encode an OffsetCommitValue, version 3."""
    return struct.pack(">hqi", 3, offset, leader_epoch) + _string(metadata) + struct.pack(">q", timestamp_ms)


def group_key(group: str) -> bytes:
    """Encode a GroupMetadataKey, version 2."""
    return struct.pack(">h", 2) + _string(group)


def changes(commit: Commit) -> list[OffsetChange]:
    """Return the records of one commit."""
    records: list[tuple[str, bytes, bytes | None]] = []
    for action in commit.actions:
        if isinstance(action, CommitOffsets):
            for committed in action.offsets:
                value = offset_value(committed.offset, committed.leader_epoch, committed.metadata, commit.timestamp)
                records.append((action.group, offset_key(action.group, committed.topic, committed.partition), value))
        elif isinstance(action, DeleteOffsets):
            for deleted in action.partitions:
                records.append((action.group, offset_key(action.group, deleted.topic, deleted.partition), None))
        elif isinstance(action, DeleteGroup):
            records.append((action.group, group_key(action.group), None))
    numbers = count() if len(records) <= RECORDS_PER_COMMIT else None
    in_partition: defaultdict[int, Iterator[int]] = defaultdict(count)
    numbered = (
        OffsetChange(next(in_partition[partition] if numbers is None else numbers), partition, key, value)
        for partition, key, value in ((partition_of(group), key, value) for group, key, value in records)
    )
    return [change for change in numbered if change.number < RECORDS_PER_COMMIT]


def runs(changes: Sequence[OffsetChange]) -> list[list[OffsetChange]]:
    """Split records into runs of consecutive offsets."""
    consecutive: list[list[OffsetChange]] = []
    for change in changes:
        if consecutive and consecutive[-1][-1].number == change.number - 1:
            consecutive[-1].append(change)
        else:
            consecutive.append([change])
    return consecutive


def record_batch(changes: Sequence[OffsetChange], timestamp_ms: int) -> pa.RecordBatch:
    """Return a batch with keys, values and timestamps of these records."""
    columns = {
        "key": binary_column([change.key for change in changes]).array,
        "value": binary_column([change.value for change in changes]).array,
        "timestamp": timestamp_array([timestamp_ms * 1000] * len(changes)),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in _SCHEMA.names], schema=_SCHEMA)
