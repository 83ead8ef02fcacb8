"""What commits changed, as rows of system tables.

    rows = CommitRows()
    for stored in commits:
        rows.add(stored.commit, stored.size)
    appends = rows.table("appends")

Rules: pure, and each commit is read alone, so that any range of them can be read by itself.
Not for: what there is at a version (``state_rows``), and what needs several commits (``lag``, ``throughput``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

import pyarrow as pa

from sparklog.monitoring.schemas import COMMIT_TABLES, TABLES
from sparklog.protocol.commits import (
    Action,
    AlterConfig,
    Append,
    ApplicationWrite,
    ChangePartition,
    Commit,
    CommitOffsets,
    CreatePartitions,
    CreateTopic,
    DeleteGroup,
    DeleteOffsets,
    DeleteRecords,
    DeleteSegments,
    DeleteTopic,
    FenceWriters,
    ForgetRemovedFiles,
    InitProducer,
    RemoveFiles,
    ReplaceSegments,
)

Rows = dict[str, list[tuple[Any, ...]]]
"""Rows by table, with the columns of ``schemas.TABLES``."""


class CommitRows:
    """Gathers the rows of commits. Not thread-safe."""

    def __init__(self) -> None:
        self._rows: Rows = {name: [] for name in COMMIT_TABLES}

    def add(self, commit: Commit, size: int) -> None:
        """Add the rows of a commit that takes ``size`` bytes."""
        rows, stamp = self._rows, (commit.version, commit.timestamp)
        kinds = dict.fromkeys(_KINDS[type(action)] for action in commit.actions)
        rows["commits"].append((*stamp, commit.writer, len(commit.actions), list(kinds), size))
        context = _Context(commit)
        for action in commit.actions:
            read = _READERS.get(type(action))
            if read is not None:
                read(rows, stamp, context, action)

    def table(self, name: str) -> pa.Table:
        """Return the rows of one of ``COMMIT_TABLES``, in the order of the commits."""
        return to_table(name, self._rows[name])


def to_table(name: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    """Return rows as a system table."""
    schema = TABLES[name].schema
    columns = zip(*rows, strict=True) if rows else [()] * len(schema)
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


class _Context:
    """What other actions of a commit say about its appends."""

    def __init__(self, commit: Commit) -> None:
        self.writer = commit.writer
        self.applications: dict[tuple[str, int, int], str] = {}
        self.transactions: dict[int, str] = {}
        self._commit = commit
        for action in commit.actions:
            if isinstance(action, ApplicationWrite):
                for written in action.ranges:
                    self.applications[written.topic_id, written.partition, written.base_offset] = action.application
            elif isinstance(action, InitProducer) and action.committed_epoch >= 0:
                self.transactions[action.producer_id] = action.transactional_id

    def appends_of(self, producer_id: int) -> list[Append]:
        return [
            action for action in self._commit.actions if isinstance(action, Append) and action.producer_id == producer_id
        ]

    def groups(self) -> list[str]:
        return list(dict.fromkeys(each.group for each in self._commit.actions if isinstance(each, CommitOffsets)))


_Stamp = tuple[int, int]
_Reader = Callable[[Rows, _Stamp, _Context, Any], None]


def _append(rows: Rows, stamp: _Stamp, context: _Context, action: Append) -> None:
    run = action.run
    times = (run.min_timestamp_us // 1000, run.max_timestamp_us // 1000)
    rows["appends"].append(
        (
            *stamp,
            action.topic,
            action.topic_id,
            action.partition,
            action.base_offset,
            run.records,
            run.size_bytes,
            *(stamp[1:] * 2 if action.log_append_time else times),
            action.producer_id if action.producer_id >= 0 else None,
            context.transactions.get(action.producer_id),
            context.applications.get((action.topic_id, action.partition, action.base_offset)),
            context.writer,
        )
    )


def _commit_offsets(rows: Rows, stamp: _Stamp, _: _Context, action: CommitOffsets) -> None:
    rows["offsets"].extend(
        (
            *stamp,
            action.group,
            each.topic,
            each.topic_id,
            each.partition,
            each.offset,
            action.generation,
            each.metadata,
        )
        for each in action.offsets
    )


def _delete_offsets(rows: Rows, stamp: _Stamp, _: _Context, action: DeleteOffsets) -> None:
    rows["offsets"].extend(
        (*stamp, action.group, each.topic, each.topic_id, each.partition, None, None, None)
        for each in action.partitions
    )


def _delete_group(rows: Rows, stamp: _Stamp, _: _Context, action: DeleteGroup) -> None:
    rows["offsets"].append((*stamp, action.group, None, None, None, None, None, None))


def _init_producer(rows: Rows, stamp: _Stamp, context: _Context, action: InitProducer) -> None:
    if action.committed_epoch < 0:
        return
    appends = context.appends_of(action.producer_id)
    rows["transactions"].append(
        (
            *stamp,
            action.transactional_id,
            action.producer_id,
            action.committed_epoch,
            len({(each.topic, each.partition) for each in appends}),
            sum(each.run.records for each in appends),
            context.groups(),
        )
    )


def _change_partition(rows: Rows, stamp: _Stamp, _: _Context, action: ChangePartition) -> None:
    rows["replicas"].append(
        (
            *stamp,
            action.topic,
            action.partition,
            "change",
            action.leader,
            action.leader_epoch,
            action.isr,
            action.replicas,
        )
    )


def _create_topic(rows: Rows, stamp: _Stamp, context: _Context, action: CreateTopic) -> None:
    _change_topic(rows, stamp, context, action, "create", len(action.replicas))
    rows["configs"].extend(
        (*stamp, context.writer, action.topic, name, value) for name, value in action.configs.items()
    )


def _create_partitions(rows: Rows, stamp: _Stamp, context: _Context, action: CreatePartitions) -> None:
    _change_topic(rows, stamp, context, action, "add partitions", len(action.replicas))


def _delete_topic(rows: Rows, stamp: _Stamp, context: _Context, action: DeleteTopic) -> None:
    _change_topic(rows, stamp, context, action, "delete", None)


def _change_topic(
    rows: Rows,
    stamp: _Stamp,
    context: _Context,
    action: CreateTopic | CreatePartitions | DeleteTopic,
    change: str,
    partitions: int | None,
) -> None:
    rows["topic_changes"].append((*stamp, action.topic, action.topic_id, change, partitions, context.writer))


def _alter_config(rows: Rows, stamp: _Stamp, context: _Context, action: AlterConfig) -> None:
    changes = {**action.set, **dict.fromkeys(action.delete)}
    rows["configs"].extend((*stamp, context.writer, action.topic, name, value) for name, value in changes.items())


def _replace_segments(rows: Rows, stamp: _Stamp, context: _Context, action: ReplaceSegments) -> None:
    step = "compaction" if action.cleaned_offset >= 0 else "roll" if action.added else "removal"
    added = [each.run for each in action.added]
    _maintain(rows, stamp, context, step, action, len(added), sum(run.size_bytes for run in added))


def _delete_segments(rows: Rows, stamp: _Stamp, context: _Context, action: DeleteSegments) -> None:
    _maintain(rows, stamp, context, "retention", action, 0, 0)


def _maintain(
    rows: Rows,
    stamp: _Stamp,
    context: _Context,
    step: str,
    action: ReplaceSegments | DeleteSegments,
    segments: int,
    size: int,
) -> None:
    removed = action.removed
    place = (action.topic, action.partition)
    counts = (removed.segments, removed.size_bytes, segments, size)
    rows["maintenance"].append((*stamp, context.writer, step, *place, *counts, None))


def _delete_records(rows: Rows, stamp: _Stamp, context: _Context, action: DeleteRecords) -> None:
    nothing = (None,) * 5
    rows["maintenance"].append((*stamp, context.writer, "delete records", action.topic, action.partition, *nothing))


def _remove_files(rows: Rows, stamp: _Stamp, context: _Context, action: RemoveFiles) -> None:
    counts = (None, action.size_bytes, None, None, action.files)
    rows["maintenance"].append((*stamp, context.writer, "retire files", None, None, *counts))


def _other_maintenance(rows: Rows, stamp: _Stamp, context: _Context, action: ForgetRemovedFiles | FenceWriters) -> None:
    step = "delete files" if isinstance(action, ForgetRemovedFiles) else "fence writers"
    rows["maintenance"].append((*stamp, context.writer, step, *(None,) * 7))


_READERS: dict[type[Action], _Reader] = {
    Append: _append,
    CommitOffsets: _commit_offsets,
    DeleteOffsets: _delete_offsets,
    DeleteGroup: _delete_group,
    InitProducer: _init_producer,
    ChangePartition: _change_partition,
    CreateTopic: _create_topic,
    CreatePartitions: _create_partitions,
    DeleteTopic: _delete_topic,
    AlterConfig: _alter_config,
    ReplaceSegments: _replace_segments,
    DeleteSegments: _delete_segments,
    DeleteRecords: _delete_records,
    RemoveFiles: _remove_files,
    ForgetRemovedFiles: _other_maintenance,
    FenceWriters: _other_maintenance,
}
_KINDS = {kind: kind.__struct_config__.tag for kind in get_args(Action)}
"""The name of each kind of action, as in commits."""
