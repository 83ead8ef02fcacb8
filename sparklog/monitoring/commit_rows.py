"""What commits changed, as rows of system tables.

    rows = CommitRows()
    for stored in commits:
        rows.add(stored.commit, stored.size)
    appends = rows.table("appends")

Rules: pure, and each commit is read alone, so that any range of them can be read by itself.
Not for: what there is at a version (``facts``), and what needs several commits (``lag``, ``replica_rows``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, get_args

import pyarrow as pa

from sparklog.format.nullable_arrays import nullable_array, text_array
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
    Run,
)
from sparklog.protocol.partition_fold import holders

Rows = dict[str, list[tuple[Any, ...]]]
"""Rows by table, with the columns of ``schemas.TABLES``."""

CREATED, ADDED, CHANGED, APPENDED, REPLACED = "create", "add partitions", "change", "append", "replace"
"""Causes of the rows of ``replicas``. A commit does not tell who is in sync after an append or a replacement: in these
rows ``isr`` are the brokers that were written to. Nor does it tell the numbers of partitions that it adds: they count
from 0 here. ``replica_rows`` works out both."""


class CommitRows:
    """Gathers the rows of commits. Not thread-safe."""

    def __init__(self) -> None:
        self._rows: Rows = {name: [] for name in COMMIT_TABLES}
        self._written: _Written = {}

    def add(self, commit: Commit, size: int) -> None:
        """Add the rows of a commit that takes ``size`` bytes."""
        rows, stamp = self._rows, (commit.version, commit.timestamp)
        kinds = dict.fromkeys(_KINDS[type(action)] for action in commit.actions)
        rows["commits"].append((*stamp, commit.writer, len(commit.actions), list(kinds), size))
        context = _Context(commit, self._written)
        for action in commit.actions:
            read = _READERS.get(type(action))
            if read is not None:
                read(rows, stamp, context, action)

    def table(self, name: str) -> pa.Table:
        """Return the rows of one of ``COMMIT_TABLES``, in the order of the commits."""
        return to_table(name, self._rows[name])

    def tables(self) -> dict[str, pa.Table]:
        """Return the rows of all ``COMMIT_TABLES`` by name, to be kept in memory: each text is stored once."""
        return {name: _to_table(name, self._rows[name], texts_once=True) for name in COMMIT_TABLES}


def to_table(name: str, rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Return rows as a system table."""
    return _to_table(name, rows, texts_once=False)


def _to_table(name: str, rows: Sequence[tuple[Any, ...]], texts_once: bool) -> pa.Table:
    schema = TABLES[name].schema
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [
        text_array(column) if texts_once and pa.types.is_string(field.type) else nullable_array(column, field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, names=schema.names)


def read_rows(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Yield these columns of a table's rows as plain values; a time is ms since the epoch."""
    columns = (table.column(name) for name in names)
    plain = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column for column in columns)
    return zip(*(column.to_pylist() for column in plain), strict=True)


_Written = dict[tuple[str, int], Sequence[int]]
"""The brokers of the newest run, by topic id and partition, unless its replicas have changed since."""


class _Context:
    """What other actions of a commit say about its appends, and which brokers earlier appends were written to."""

    def __init__(self, commit: Commit, written: _Written) -> None:
        self.writer = commit.writer
        self.written = written
        self.applications: dict[tuple[str, int, int], str] = {}
        self.transactions: dict[int, str] = {}
        self.added: dict[str, int] = {}
        self._commit = commit
        for action in commit.actions:
            if isinstance(action, ApplicationWrite):
                for each in action.ranges:
                    self.applications[each.topic_id, each.partition, each.base_offset] = action.application
            elif isinstance(action, InitProducer) and action.committed_epoch >= 0:
                self.transactions[action.producer_id] = action.transactional_id

    def appends_of(self, producer_id: int) -> list[Append]:
        return [
            action
            for action in self._commit.actions
            if isinstance(action, Append) and action.producer_id == producer_id
        ]

    def groups(self) -> list[str]:
        return list(dict.fromkeys(each.group for each in self._commit.actions if isinstance(each, CommitOffsets)))


_Stamp = tuple[int, int]
_Reader = Callable[[Rows, _Stamp, _Context, Any], None]


def _append(rows: Rows, stamp: _Stamp, context: _Context, action: Append) -> None:
    run = action.run
    _write_replicas(rows, stamp, context, action, APPENDED, run)
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


def _change_partition(rows: Rows, stamp: _Stamp, context: _Context, action: ChangePartition) -> None:
    context.written.pop((action.topic_id, action.partition), None)
    leader = action.leader if action.leader >= 0 else None
    after = (leader, action.leader_epoch, action.isr, action.replicas)
    rows["replicas"].append((*stamp, action.topic, action.topic_id, action.partition, CHANGED, *after))


def _write_replicas(
    rows: Rows, stamp: _Stamp, context: _Context, action: Append | ReplaceSegments, cause: str, run: Run
) -> None:
    """Add the row of a run, unless the one before was written to the same brokers: then it changes nothing."""
    key, brokers = (action.topic_id, action.partition), holders(run)
    if context.written.get(key) != brokers:
        context.written[key] = brokers
        where = (action.topic, action.topic_id, action.partition)
        rows["replicas"].append((*stamp, *where, cause, None, None, brokers, None))


def _create_replicas(
    rows: Rows, stamp: _Stamp, context: _Context, action: CreateTopic | CreatePartitions, cause: str
) -> None:
    where, first = (action.topic, action.topic_id), context.added.get(action.topic_id, 0)
    rows["replicas"].extend(
        (*stamp, *where, number, cause, next(iter(replicas), None), 0, replicas, replicas)
        for number, replicas in enumerate(action.replicas, first)
    )
    if cause == ADDED:
        context.added[action.topic_id] = first + len(action.replicas)


def _create_topic(rows: Rows, stamp: _Stamp, context: _Context, action: CreateTopic) -> None:
    _change_topic(rows, stamp, context, action, "create", len(action.replicas))
    _create_replicas(rows, stamp, context, action, CREATED)
    rows["configs"].extend(
        (*stamp, context.writer, action.topic, name, value) for name, value in action.configs.items()
    )


def _create_partitions(rows: Rows, stamp: _Stamp, context: _Context, action: CreatePartitions) -> None:
    _change_topic(rows, stamp, context, action, "add partitions", len(action.replicas))
    _create_replicas(rows, stamp, context, action, ADDED)


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
    for run in added:
        _write_replicas(rows, stamp, context, action, REPLACED, run)
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
    counts = (removed.segments, removed.size_bytes, segments, size)
    rows["maintenance"].append((*stamp, context.writer, step, action.topic, action.partition, *counts, None))


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
