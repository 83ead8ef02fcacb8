"""The system tables: their columns, and what a row of each means.

Times are in UTC, in ms, those of the commits unless a column says otherwise. Sizes are in bytes. A column that is named
``version`` has the version of the cluster that the commit made.

Not for: how rows are made (``commit_rows``, ``facts``, ``lag``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from sparklog.monitoring.facts.brokers import BrokerFacts
from sparklog.monitoring.facts.columns import TIME, columns_of
from sparklog.monitoring.facts.files import StorageFacts
from sparklog.monitoring.facts.groups import GroupFacts, MemberFacts
from sparklog.monitoring.facts.producers import ProducerFacts
from sparklog.monitoring.facts.topics import PartitionFacts, SegmentFacts, TopicFacts

_TEXT, _COUNT, _NUMBER = pa.string(), pa.int64(), pa.int32()
_TEXTS, _NUMBERS = pa.list_(_TEXT), pa.list_(_NUMBER)
_COMMIT = {"version": _COUNT, "timestamp": TIME}
_PARTITION = {"topic": _TEXT, "partition": _NUMBER}
_OF_TOPIC = {"topic": _TEXT, "topic_id": _TEXT, "partition": _NUMBER}


class SystemTable(NamedTuple):
    """A system table: its name, a sentence on its rows, and its columns."""

    name: str
    rows: str
    schema: pa.Schema

    @property
    def is_of_commits(self) -> bool:
        """Whether its rows state what commits changed, and not what there is now."""
        return self.name in COMMIT_TABLES or self.name in ("throughput", "lag", "publications")


def _table(name: str, rows: str, columns: Mapping[str, pa.DataType]) -> SystemTable:
    return SystemTable(name, rows, pa.schema(list(columns.items())))


COMMIT_TABLES = ("commits", "appends", "offsets", "transactions", "replicas", "configs", "maintenance", "topic_changes")
"""Tables of which each row is from one commit."""

TABLES = {
    each.name: each
    for each in (
        _table(
            "commits",
            "each commit; kinds are those of its actions, bytes what it takes in storage",
            {**_COMMIT, "writer": _TEXT, "actions": _COUNT, "kinds": _TEXTS, "bytes": _COUNT},
        ),
        _table(
            "appends",
            "the records that a commit added to a partition; the times are those of the records",
            {
                **_COMMIT,
                **_OF_TOPIC,
                "base_offset": _COUNT,
                "records": _COUNT,
                "bytes": _COUNT,
                "min_timestamp": TIME,
                "max_timestamp": TIME,
                "producer_id": _COUNT,
                "transactional_id": _TEXT,
                "application": _TEXT,
                "writer": _TEXT,
            },
        ),
        _table(
            "throughput",
            "what commits of a minute added to a partition",
            {"minute": TIME, **_PARTITION, "records": _COUNT, "bytes": _COUNT, "appends": _COUNT},
        ),
        _table(
            "offsets",
            "each offset that a group committed; null where a commit deleted it, of all partitions if topic is null",
            {**_COMMIT, "group": _TEXT, **_OF_TOPIC, "offset": _COUNT, "generation": _NUMBER, "metadata": _TEXT},
        ),
        _table(
            "lag",
            "how far a group was behind the end of a partition at a time: the number of unread records, and the age in "
            "seconds of the oldest of them, counted from its commit (null if that commit was removed)",
            {
                "timestamp": TIME,
                "group": _TEXT,
                **_PARTITION,
                "offset": _COUNT,
                "log_end_offset": _COUNT,
                "lag": _COUNT,
                "lag_seconds": pa.float64(),
            },
        ),
        _table(
            "transactions",
            "each committed transaction: the partitions and records that it added",
            {
                **_COMMIT,
                "transactional_id": _TEXT,
                "producer_id": _COUNT,
                "epoch": _NUMBER,
                "partitions": _COUNT,
                "records": _COUNT,
                "groups": _TEXTS,
            },
        ),
        _table(
            "topic_changes",
            "each creation or deletion of a topic, and each addition of partitions, with the number of those created",
            {**_COMMIT, "topic": _TEXT, "topic_id": _TEXT, "change": _TEXT, "partitions": _NUMBER, "writer": _TEXT},
        ),
        _table(
            "replicas",
            "each change of a partition's leader, in-sync replicas or replicas, and its creation; cause is append, or "
            "replace (of segments), where that was not written to all of the former in-sync replicas",
            {
                **_COMMIT,
                **_OF_TOPIC,
                "cause": _TEXT,
                "leader": _NUMBER,
                "leader_epoch": _NUMBER,
                "isr": _NUMBERS,
                "replicas": _NUMBERS,
            },
        ),
        _table(
            "configs",
            "each change of a config, of a topic or (topic is empty) of the cluster; value is null where it was reset",
            {**_COMMIT, "writer": _TEXT, "topic": _TEXT, "config": _TEXT, "value": _TEXT},
        ),
        _table(
            "maintenance",
            "what maintenance changed: segments that were rolled, compacted or deleted, and files",
            {
                **_COMMIT,
                "writer": _TEXT,
                "step": _TEXT,
                **_PARTITION,
                "segments_removed": _COUNT,
                "bytes_removed": _COUNT,
                "segments_added": _COUNT,
                "bytes_added": _COUNT,
                "files": _COUNT,
            },
        ),
        _table(
            "publications",
            "each commit of the Delta table of an existing topic, with the version of the log that the table then "
            "shows (null if something else wrote it); the timestamp is when it was stored",
            {
                "timestamp": TIME,
                "topic": _TEXT,
                "table_version": _COUNT,
                "version": _COUNT,
                "operation": _TEXT,
                "files_added": _COUNT,
                "bytes_added": _COUNT,
                "files_removed": _COUNT,
                "bytes_removed": _COUNT,
            },
        ),
        _table(
            "topics",
            "each topic; configs are those that it sets itself",
            columns_of(TopicFacts),
        ),
        _table(
            "partitions",
            "each partition",
            columns_of(PartitionFacts),
        ),
        _table(
            "segments",
            "each live segment; broker is one that holds its file, in which other segments may lie, too; version is "
            "that of the commit that made it",
            columns_of(SegmentFacts),
        ),
        _table(
            "groups",
            "each consumer group; lag is the number of unread records in all its partitions",
            columns_of(GroupFacts),
        ),
        _table(
            "members",
            "each member of a group, with its partitions as topic-partition",
            columns_of(MemberFacts),
        ),
        _table(
            "producers",
            "each transactional producer",
            columns_of(ProducerFacts),
        ),
        _table(
            "brokers",
            "each broker, a storage location; bytes are those of the segments that it holds as a replica in sync",
            columns_of(BrokerFacts),
        ),
        _table(
            "storage",
            "the bytes of a topic's segments at all its in-sync replicas (live), of replaced files that are not yet "
            "deleted (retired), and of files that never became part of the log (orphaned; null unless asked for); the "
            "topic is null for files of deleted topics",
            columns_of(StorageFacts),
        ),
    )
}
"""The system tables by name."""
