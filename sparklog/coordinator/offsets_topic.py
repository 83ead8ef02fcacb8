"""What the records of ``__consumer_offsets`` are: those of the commits that move groups' offsets, in Kafka's bytes.

The topic is derived from the commit log. It has 50 partitions, a group's records are in the one of Kafka's rule, and
keys and values have Kafka's bytes (big endian; a string is its length as int16 and UTF-8):

    key    int16 1, string group, string topic, int32 partition                    (OffsetCommitKey)
    value  int16 3, int64 offset, int32 leader epoch, string metadata, int64 ms    (OffsetCommitValue)
    key    int16 2, string group; no value: the group was deleted                  (GroupMetadataKey)

For group "g", topic "t", partition 1, the key is ``0001 0001 67 0001 74 00000001``. Deleted offsets have no value.

A record's offset is ``version of its commit * 65536 + its number in that commit``, so offsets have gaps, and the end
offset is that of the next commit. Offsets that went with a deleted topic have no tombstones.

Rules: pure. Not for: reading commits (``client.consumer_offsets``, ``spark.offsets_topic``).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from sparklog.format.plain_arrays import binary_column, timestamp_array
from sparklog.format.schema import columns_present, record_schema
from sparklog.protocol.commits import Commit, CommitOffsets, DeleteGroup, DeleteOffsets
from sparklog.protocol.group.subscriptions import java_hash

PARTITIONS = 50
"""Kafka's default of ``offsets.topic.num.partitions``."""

RECORDS_PER_COMMIT = 65536
"""A commit of 4 MiB has room for fewer offsets than that."""

OFFSET_KEY_VERSIONS = (0, 1)
GROUP_KEY_VERSION = 2

_SCHEMA = record_schema(columns_present(has_key=True, has_headers=False))


class Change(NamedTuple):
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


def changes(commit: Commit) -> list[Change]:
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
    return [Change(number, partition_of(group), key, value) for number, (group, key, value) in enumerate(found)]


def runs(found: Sequence[Change]) -> list[list[Change]]:
    """Records whose offsets follow one another."""
    made: list[list[Change]] = []
    for one in found:
        if made and made[-1][-1].number == one.number - 1:
            made[-1].append(one)
        else:
            made.append([one])
    return made


def record_batch(found: Sequence[Change], timestamp_ms: int) -> pa.RecordBatch:
    """Keys, values and times of these records."""
    columns = {
        "key": binary_column([one.key for one in found]).array,
        "value": binary_column([one.value for one in found]).array,
        "timestamp": timestamp_array([timestamp_ms * 1000] * len(found)),
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in _SCHEMA.names], schema=_SCHEMA)
